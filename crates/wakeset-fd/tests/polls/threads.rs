//! Several threads, and loads that show lost events.

use super::*;
use std::io::ErrorKind;

#[test]
fn what_others_do_takes_the_watches_back() {
    let _alone = alone();
    for what in 0..5 {
        let set = Set::new(64);
        let pairs: Vec<_> = (0..8).map(|_| pair()).collect();
        for (i, (one, _)) in pairs.iter().enumerate() {
            set.add(one, IN | if i % 2 == 0 { ET } else { 0 }, i as u64);
        }
        assert_eq!(set.ready(), []);
        (&pairs[0].1).write_all(b"x").unwrap();
        (&pairs[1].1).write_all(b"x").unwrap();
        let both = [(0, IN), (1, IN)];
        match what {
            0 => assert_eq!(std::thread::spawn(move || set.ready()).join().unwrap(), both),
            1 => {
                let (fresh, mut peer) = pair();
                peer.write_all(b"x").unwrap();
                std::thread::scope(|scope| scope.spawn(|| set.add(&fresh, IN, 9)).join().unwrap());
                assert_eq!(set.ready(), [both[0], both[1], (9, IN)]);
            }
            2 => {
                let twin = wakeset_fd::dup(set.0).unwrap();
                assert_eq!(set.ready(), both);
                assert_eq!(Set(twin).ready(), [(1, IN)]);
                wakeset_fd::close(twin).unwrap();
            }
            3 => {
                wakeset_fd::set::export(set.0).unwrap();
                assert_eq!(set.ready(), both);
            }
            _ => {
                let around = Set::new(64);
                around.add(&Number(set.0), IN, 5);
                assert_eq!(around.ready(), [(5, IN)]);
                assert_eq!(set.ready(), both);
                around.close();
            }
        }
        drain(&pairs[0].0);
        drain(&pairs[1].0);
        for (i, (_, peer)) in pairs.iter().enumerate().skip(2) {
            let mut peer = peer;
            peer.write_all(b"x").unwrap();
            assert!(set.wait(8, LONG).contains(&(i as u64, IN)), "{what}");
            drain(&pairs[i].0);
        }
        set.close();
    }
}

/// While the first socket made the io_uring, another thread added a descriptor to the kernel epoll,
/// which no wait polled from then on.
#[test]
fn what_another_thread_adds_meanwhile_is_looked_at() {
    let _alone = alone();
    for round in 0..50 {
        let (set, (one, _other), (late, mut far)) = (Set::new(64), pair(), pair());
        far.write_all(b"x").unwrap();
        let start = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                for _ in 0..round * 50 {
                    std::hint::spin_loop();
                }
                set.add(&late, IN | ET, 2);
            });
            start.wait();
            set.add(&one, IN, 1);
        });
        assert_eq!(set.ready(), [(2, IN)], "round {round}");
        set.close();
        close(one);
        close(late);
    }
}

/// Of two threads that add one descriptor one is told that it is there, also while the first of
/// them makes the io_uring.
#[test]
fn two_threads_do_not_both_add_one_descriptor() {
    let _alone = alone();
    for round in 0..120 {
        let (set, (one, _other)) = (Set::new(64), pair());
        let start = std::sync::Barrier::new(2);
        let add = |data| set.control(EPOLL_CTL_ADD, one.as_raw_fd(), IN, data);
        let (there, here) = std::thread::scope(|scope| {
            let there = scope.spawn(|| {
                start.wait();
                for _ in 0..round * 20 {
                    std::hint::spin_loop();
                }
                add(2)
            });
            start.wait();
            let here = add(1);
            (there.join().unwrap(), here)
        });
        let both = [there, here];
        assert!(both.contains(&Ok(())) && both.contains(&Err(libc::EEXIST)), "{round}: {both:?}");
        set.close();
        close(one);
    }
}

/// Each write leads to one report. After a lost wake-up a wait finds nothing for half a minute.
#[test]
fn no_wake_up_is_lost() {
    let _alone = alone();
    const ROUNDS: usize = 20_000;
    let set = Set::new(64);
    let (one, other) = pair();
    let (back, reply) = pair();
    for stream in [&other, &reply] {
        stream.set_nonblocking(false).unwrap();
    }
    set.add(&one, IN | ET, 1);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let (mut other, mut reply) = (other, reply);
            for round in 0..ROUNDS {
                for _ in 0..round % 97 {
                    std::hint::spin_loop();
                }
                other.write_all(b"x").unwrap();
                reply.read_exact(&mut [0]).unwrap();
            }
            other
        });
        for round in 0..ROUNDS {
            assert_eq!(set.wait(4, if round % 3 == 0 { -1 } else { LONG }), [(1, IN)], "{round}");
            assert_eq!(drain(&one), 1);
            (&back).write_all(b"y").unwrap();
        }
    });
    set.close();
}

/// Sockets come and go under the same numbers while other threads write: no event of an earlier
/// socket is reported, none is lost, and all connections end.
#[test]
fn numbers_are_used_again_beside_busy_writers() {
    let _alone = alone();
    let set = Set::new(64);
    let over = AtomicBool::new(false);
    let peers: Mutex<Vec<UnixStream>> = Mutex::new(Vec::new());
    let written = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    for peer in peers.lock().unwrap().iter() {
                        let mut peer = peer;
                        written.fetch_add(usize::from(peer.write(b"x").is_ok()), Ordering::Relaxed);
                    }
                    std::thread::yield_now();
                }
            });
        }
        let _over = Ending(&over);
        let mut data = 0_u64;
        for round in 0..3_000_u64 {
            let (one, other) = pair();
            data += 1;
            set.add(&one, IN | if round % 2 == 0 { ET } else { 0 }, data);
            peers.lock().unwrap().push(other);
            if round % 3 == 0 {
                data += 1;
                assert_eq!(
                    set.control(EPOLL_CTL_MOD, one.as_raw_fd(), IN | OUT | ET, data),
                    Ok(())
                );
            }
            let events = set.wait(4, LONG);
            assert!(
                !events.is_empty() && events.iter().all(|event| event.0 == data),
                "{round}: {events:?}, {data}"
            );
            if round % 5 == 0 {
                assert_eq!(set.control(EPOLL_CTL_DEL, one.as_raw_fd(), 0, 0), Ok(()));
                assert_eq!(set.wait(4, 0), [], "removed");
            }
            close(one);
            let other = peers.lock().unwrap().pop().unwrap();
            drain(&other);
            // A reset, because something was not read, or the end.
            let read = (&other).read(&mut [0]);
            assert!(
                !matches!(read, Err(error) if error.kind() == ErrorKind::WouldBlock),
                "{round}"
            );
        }
    });
    assert!(written.load(Ordering::Relaxed) > 0);
    set.close();
}

/// An in-process counter, a pipe and sockets in one set.
#[test]
fn a_wait_hears_of_all_halves() {
    let _alone = alone();
    let set = Set::new(64);
    let (one, mut other) = pair();
    let counter = wakeset_fd::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC).unwrap();
    let mut pipe = [-1; 2];
    // SAFETY: room for two.
    assert_eq!(unsafe { libc::pipe2(pipe.as_mut_ptr(), libc::O_NONBLOCK | libc::O_CLOEXEC) }, 0);
    set.add(&Number(counter), IN | ET, 2);
    set.add(&one, IN | ET, 1);
    set.add(&Number(pipe[0]), IN | ET, 3);
    assert_eq!(set.ready(), []);
    for round in 0..300 {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let one = 1_u64;
                match round % 3 {
                    0 => {
                        // SAFETY: bytes that are there.
                        let written =
                            unsafe { wakeset_fd::write(counter, (&raw const one).cast(), 8) };
                        assert_eq!(written, Ok(8));
                    }
                    1 => other.write_all(b"x").unwrap(),
                    // SAFETY: bytes that are there.
                    _ => assert_eq!(unsafe { libc::write(pipe[1], b"x".as_ptr().cast(), 1) }, 1),
                }
            });
            assert_eq!(set.wait(8, LONG), [([2, 1, 3][round % 3], IN)]);
        });
        assert_eq!(set.ready(), []);
    }
    set.close();
    for fd in [counter, pipe[0], pipe[1]] {
        wakeset_fd::close(fd).unwrap();
    }
}

/// Level-triggered watches that are always ready do not keep others from being reported.
#[test]
fn levels_that_hold_starve_nobody() {
    let _alone = alone();
    let set = Set::new(64);
    let writable: Vec<_> = (0..20).map(|_| pair()).collect();
    for (one, _) in &writable {
        set.add(one, OUT, 0);
    }
    let (one, mut other) = pair();
    set.add(&one, IN | ET, 1);
    assert_eq!(set.wait(64, 0).len(), 20);
    other.write_all(b"x").unwrap();
    let waits = (1..).find(|_| set.wait(2, 0).iter().any(|event| event.0 == 1)).unwrap();
    assert!(waits < 40, "{waits}");
    set.close();
}
