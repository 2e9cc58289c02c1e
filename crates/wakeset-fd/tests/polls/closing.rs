//! What lets go of a watched file.

use super::*;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::os::unix::thread::JoinHandleExt;
use std::time::Duration;

#[test]
fn a_close_ends_the_connection_whoever_closes() {
    let _alone = alone();
    for mine in [true, false] {
        let set = Set::new(64);
        let (one, other) = pair();
        let (bystander, mut its_peer) = pair();
        set.add(&one, IN | ET, 1);
        set.add(&bystander, IN | ET, 2);
        assert_eq!(set.ready(), []);
        if mine {
            close(one);
        } else {
            std::thread::spawn(|| close(one)).join().unwrap();
        }
        assert!(at_end(&other), "mine: {mine}");
        its_peer.write_all(b"x").unwrap();
        assert_eq!(set.wait(8, LONG), [(2, IN)]);
        set.close();
        drain(&bystander);
        close(bystander);
        assert!(at_end(&its_peer));
    }
}

/// A handler ended the wait for the kernel to let go of the file, and the connection went on.
#[test]
fn a_signal_does_not_end_the_wait_for_the_file() {
    extern "C" fn nothing(_: c_int) {}
    let _alone = alone();
    let handler: extern "C" fn(c_int) = nothing;
    // SAFETY: a handler that does nothing.
    let before = unsafe { libc::signal(libc::SIGUSR1, handler as libc::sighandler_t) };
    for round in 0..10 {
        let set = Set::new(64);
        let (one, other) = pair();
        set.add(&one, IN | ET, 1);
        assert_eq!(set.ready(), []);
        let closing = std::thread::spawn(move || {
            close(one);
            at_end(&other)
        });
        while !closing.is_finished() {
            // SAFETY: a thread that has not been joined.
            unsafe { libc::pthread_kill(closing.as_pthread_t(), libc::SIGUSR1) };
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(closing.join().unwrap(), "closed, and open: {round}");
        set.close();
    }
    // SAFETY: as it was.
    unsafe { libc::signal(libc::SIGUSR1, before) };
}

#[test]
fn a_removal_or_the_end_of_the_set_lets_go_of_the_file() {
    let _alone = alone();
    for by_removal in [true, false] {
        let set = Set::new(64);
        let (one, other) = pair();
        set.add(&one, IN | OUT | ET, 1);
        if by_removal {
            assert_eq!(set.control(EPOLL_CTL_DEL, one.as_raw_fd(), 0, 0), Ok(()));
            assert_eq!(set.control(EPOLL_CTL_DEL, one.as_raw_fd(), 0, 0), Err(libc::ENOENT));
        } else {
            set.close();
        }
        // Closed as by code that knows nothing of Wakeset.
        drop(one);
        assert!(at_end(&other));
        if by_removal {
            set.close();
        }
    }
}

/// The kernel closes what an io_uring has held in any order: that the io_uring itself was gone did
/// not mean that a connection was over. What has not been read makes each of them take its time.
#[test]
fn a_set_is_not_closed_before_its_files() {
    let _alone = alone();
    for round in 0..8 {
        let set = Set::new(64);
        let pairs: Vec<_> = (0..60).map(|_| pair()).collect();
        for (one, other) in &pairs {
            set.add(one, IN | ET, 1);
            while (&*other).write(b"x").is_ok() {}
        }
        let (ones, others): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        // Closed as by code that knows nothing of Wakeset: only the set holds them.
        drop(ones);
        let close = || {
            set.close();
            others.iter().map(|other| (&*other).read(&mut [0])).collect::<Vec<_>>()
        };
        let reads = std::thread::scope(|scope| scope.spawn(close).join().unwrap());
        let errors = reads.iter().filter_map(|read| read.as_ref().err());
        let open = errors.filter(|error| error.kind() == ErrorKind::WouldBlock).count();
        assert_eq!(open, 0, "of {} in round {round}", reads.len());
    }
}

#[test]
fn a_range_and_a_duplicate_close_as_well() {
    let _alone = alone();
    let set = Set::new(64);
    let ((one, other), (two, another)) = (pair(), pair());
    set.add(&one, IN | ET, 1);
    set.add(&two, IN | ET, 2);
    let number = one.into_raw_fd() as u32;
    let closed = wakeset_fd::descriptor::close_range(number, number, 0)
        // SAFETY: a number of ours.
        .or_kernel(|| match unsafe { libc::close_range(number, number, 0) } {
            0 => Ok(()),
            _ => Err(wakeset_fd::Errno::EBADF),
        });
    assert_eq!(closed, Ok(()));
    assert!(at_end(&other));
    let (third, _fourth) = pair();
    let _ = wakeset_fd::duplicate::dup2(third.as_raw_fd(), two.as_raw_fd())
        // SAFETY: numbers of ours.
        .or_kernel(|| Ok(unsafe { libc::dup2(third.as_raw_fd(), two.as_raw_fd()) }));
    assert!(at_end(&another));
    set.close();
}

#[test]
fn a_forked_child_holds_nothing_and_watches_everything() {
    let _alone = alone();
    for mine in [true, false] {
        let set = Set::new(64);
        let (one, mut other) = pair();
        set.add(&one, IN | ET, 1);
        assert_eq!(set.ready(), []);
        let fork = || {
            let forking = wakeset_fd::fork::prepare();
            // SAFETY: the child makes system calls only.
            let child = unsafe { libc::fork() };
            if child == 0 {
                forking.in_child();
                let found = set.wait(8, LONG) == [(1, IN)];
                // SAFETY: ends the child.
                unsafe { libc::_exit(if found { 42 } else { 1 }) };
            }
            forking.in_parent();
            child
        };
        let child = if mine {
            fork()
        } else {
            std::thread::scope(|scope| scope.spawn(fork).join().unwrap())
        };
        other.write_all(b"x").unwrap();
        let mut status = 0;
        // SAFETY: a place for the status.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!((libc::WIFEXITED(status), libc::WEXITSTATUS(status)), (true, 42));
        set.close();
        drop(one);
        assert_eq!(drain(&other), 0);
        // Unread data makes the close a reset.
        assert!(
            !matches!(other.read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
        );
    }
}

#[test]
fn a_thread_that_ends_takes_nothing_with_it() {
    let _alone = alone();
    let (one, mut other) = pair();
    let set = std::thread::scope(|scope| {
        let start = || {
            let set = Set::new(64);
            set.add(&one, IN | ET, 1);
            assert_eq!(set.ready(), []);
            set
        };
        scope.spawn(start).join().unwrap()
    });
    other.write_all(b"x").unwrap();
    assert_eq!(set.wait(8, LONG), [(1, IN)]);
    set.close();
}

/// Whatever the kernel refuses on the way, what the io_uring had by then is given back: the end of
/// its pipe and a mapping were not.
#[test]
fn an_io_uring_that_comes_to_nothing_leaves_nothing() {
    let _alone = alone();
    if !has_polls() {
        return;
    }
    let attempt = || {
        let set = Set::new(64);
        // No pair, which needs one of the calls.
        let one = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        set.add(&one, IN | ET, 1);
        set.close();
        assert_eq!(wakeset_fd::close(one.into_raw_fd()), Ok(()));
        let named = |entry: std::io::Result<std::fs::DirEntry>| {
            std::fs::read_link(entry.unwrap().path()).unwrap_or_default()
        };
        let open = std::fs::read_dir("/proc/self/fd").unwrap().map(named);
        let is_of_one = |name: &str| {
            ["anon_inode:[io_uring]", "pipe:", "socket:"].iter().any(|kind| name.starts_with(kind))
        };
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let open = open.filter(|name| is_of_one(&name.to_string_lossy())).count();
        (open, maps.lines().filter(|line| line.contains("io_uring")).count())
    };
    // The memory of this number's watches stays, so that a refused madvise(2) is the io_uring's.
    attempt();
    // Three in a row leave the same. Before that the io_urings of earlier threads may be let go of:
    // one that has been joined may still be in the kernel for a moment.
    let leaves_nothing = || {
        let counts = [attempt(), attempt(), attempt()];
        counts.iter().all(|count| *count == counts[0])
    };
    let steps = [
        libc::SYS_madvise,
        libc::SYS_pipe2,
        libc::SYS_socketpair,
        libc::SYS_sendmsg,
        libc::SYS_io_uring_register,
        libc::SYS_io_uring_enter,
    ];
    for call in steps {
        without(&[call], libc::EPERM, || {
            let settled = (0..20).any(|_| leaves_nothing());
            assert!(settled, "without call {call}: {:?}, {:?}", attempt(), attempt());
        });
    }
}
