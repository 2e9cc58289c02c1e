//! Sets that watch sockets through an io_uring (`RING_POLL`): what the bodies in `semantics` cannot see.

mod forbid;

use forbid::without;
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, c_int, epoll_event};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const IN: u32 = libc::EPOLLIN as u32;
const OUT: u32 = libc::EPOLLOUT as u32;
const ET: u32 = libc::EPOLLET as u32;
const PRI: u32 = libc::EPOLLPRI as u32;
const RDHUP: u32 = libc::EPOLLRDHUP as u32;
const WRBAND: u32 = libc::EPOLLWRBAND as u32;
const HUP: u32 = libc::EPOLLHUP as u32;
const ONESHOT: u32 = libc::EPOLLONESHOT as u32;
const LONG: c_int = 30_000;

/// Forks move what all tests have.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Clone, Copy)]
struct Set(c_int);

impl Set {
    fn new(entries: usize) -> Self {
        Self::with(entries, wakeset_fd::RING_POLL)
    }

    fn with_hints() -> Self {
        Self::with(64, wakeset_fd::RING_POLL | wakeset_fd::RING_HINTS)
    }

    fn with(entries: usize, flags: c_int) -> Self {
        let set = wakeset_fd::epoll_create1(libc::EPOLL_CLOEXEC).expect("a set");
        assert_eq!(wakeset_fd::ring_setup_with(set, entries, flags), Ok(true));
        Self(set)
    }

    fn control(self, op: c_int, fd: c_int, events: u32, data: u64) -> Result<(), c_int> {
        let event = epoll_event { events, u64: data };
        // SAFETY: a valid event.
        unsafe { wakeset_fd::epoll_ctl(self.0, op, fd, &event) }.map_err(|error| error.into_raw())
    }

    fn add(self, fd: &impl AsRawFd, events: u32, data: u64) {
        assert_eq!(self.control(EPOLL_CTL_ADD, fd.as_raw_fd(), events, data), Ok(()));
    }

    fn wait(self, most: usize, timeout: c_int) -> Vec<(u64, u32)> {
        let mut events = vec![epoll_event { events: 0, u64: 0 }; most];
        loop {
            // SAFETY: room for so many.
            match unsafe { wakeset_fd::epoll_wait(self.0, events.as_mut_ptr(), most as c_int, timeout) } {
                Ok(n) => return events[..n as usize].iter().map(|event| (event.u64, event.events)).collect(),
                Err(wakeset_fd::Errno::EINTR) => {}
                Err(error) => panic!("{error:?}"),
            }
        }
    }

    fn ready(self) -> Vec<(u64, u32)> {
        let mut events = self.wait(1024, 0);
        events.sort_unstable();
        events
    }

    fn close(self) {
        assert_eq!(wakeset_fd::close(self.0), Ok(()));
    }
}

fn pair() -> (UnixStream, UnixStream) {
    let (one, other) = UnixStream::pair().expect("a pair");
    one.set_nonblocking(true).unwrap();
    other.set_nonblocking(true).unwrap();
    (one, other)
}

/// Closes it as a program of ours has to.
fn close(stream: UnixStream) {
    assert_eq!(wakeset_fd::close(stream.into_raw_fd()), Ok(()));
}

/// Whether the other end has been closed, entirely.
fn at_end(mut stream: &UnixStream) -> bool {
    matches!(stream.read(&mut [0; 64]), Ok(0))
}

fn drain(mut stream: &UnixStream) -> usize {
    let (mut bytes, mut total) = ([0; 64], 0);
    while let Ok(n @ 1..) = stream.read(&mut bytes) {
        total += n;
    }
    total
}

/// Whether a set's sockets go to an io_uring here: then the kernel epoll is not asked for them. Says so if not.
fn has_polls() -> bool {
    let (one, _other) = pair();
    let set = Set::new(64);
    set.add(&one, IN | ET, 0);
    // SAFETY: no memory is involved.
    let known = unsafe { libc::epoll_ctl(set.0, EPOLL_CTL_DEL, one.as_raw_fd(), std::ptr::null_mut()) } == 0;
    set.close();
    if known {
        println!("skipped: io_uring of Linux 6.1 is not allowed here");
        assert!(std::env::var_os("WAKESET_REQUIRE_ALL").is_none(), "skipped: io_uring");
    }
    !known
}

#[test]
fn an_empty_look_and_a_full_one_take_few_calls() {
    let _alone = alone();
    if !has_polls() {
        return;
    }
    let waits = [libc::SYS_epoll_wait, libc::SYS_epoll_pwait, libc::SYS_epoll_pwait2];
    without(&waits, libc::EPERM, || {
        let set = Set::new(64);
        let (one, mut other) = pair();
        set.add(&one, IN | ET, 7);
        assert_eq!(set.ready(), []);
        other.write_all(b"x").unwrap();
        assert_eq!(set.ready(), [(7, IN)]);
        assert_eq!(set.ready(), []);
        let all = [libc::SYS_ppoll, libc::SYS_io_uring_enter, libc::SYS_poll];
        // From now on this thread can make none of the calls that could tell of an event.
        let mut filter = vec![libc::sock_filter { code: 0x20, jt: 0, jf: 0, k: 0 }];
        for (i, call) in all.iter().enumerate() {
            filter.push(libc::sock_filter { code: 0x15, jt: (all.len() - i) as u8, jf: 0, k: *call as u32 });
        }
        for k in [libc::SECCOMP_RET_ALLOW, libc::SECCOMP_RET_KILL_PROCESS] {
            filter.push(libc::sock_filter { code: 6, jt: 0, jf: 0, k });
        }
        let filter = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
        // SAFETY: for this thread alone.
        assert_eq!(unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) }, 0);
        for _ in 0..1000 {
            assert_eq!(set.wait(8, 0), []);
        }
        // The set is left to the process: its end needs the calls.
        std::mem::forget((one, other));
    });
}

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
        // As one that knows nothing of us.
        drop(one);
        assert!(at_end(&other));
        if by_removal {
            set.close();
        }
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
    let _ = wakeset_fd::descriptor::before_dup_to(third.as_raw_fd(), two.as_raw_fd(), 0)
        // SAFETY: numbers of ours.
        .or_kernel(|| Ok(unsafe { libc::dup2(third.as_raw_fd(), two.as_raw_fd()) }));
    assert!(at_end(&another));
    set.close();
}

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
                wakeset_fd::set::hand_out(set.0).unwrap();
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

struct Number(c_int);
impl AsRawFd for Number {
    fn as_raw_fd(&self) -> c_int {
        self.0
    }
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
        let child = if mine { fork() } else { std::thread::scope(|scope| scope.spawn(fork).join().unwrap()) };
        other.write_all(b"x").unwrap();
        let mut status = 0;
        // SAFETY: a place for the status.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!((libc::WIFEXITED(status), libc::WEXITSTATUS(status)), (true, 42));
        set.close();
        drop(one);
        assert_eq!(drain(&other), 0);
        // What had not been read resets it.
        assert!(!matches!(other.read(&mut [0]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock));
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

#[test]
fn more_watches_than_the_io_uring_takes_are_all_reported() {
    let _alone = alone();
    let set = Set::new(64);
    let pairs: Vec<_> = (0..300).map(|_| pair()).collect();
    for (i, (one, _)) in pairs.iter().enumerate() {
        set.add(one, IN | ET, i as u64);
        assert_eq!(set.control(EPOLL_CTL_ADD, one.as_raw_fd(), IN, 0), Err(libc::EEXIST));
    }
    for room in [1, 7, 64, 1000] {
        for (_, peer) in &pairs {
            (&*peer).write_all(b"x").unwrap();
        }
        let mut found = Vec::new();
        while found.len() < pairs.len() {
            let events = set.wait(room, LONG);
            assert!(!events.is_empty(), "{} of {}", found.len(), pairs.len());
            found.extend(events);
        }
        found.sort_unstable();
        assert!(found.iter().enumerate().all(|(i, event)| *event == (i as u64, IN)));
        assert_eq!(set.ready(), []);
        pairs.iter().for_each(|(one, _)| assert_eq!(drain(one), 1));
    }
    set.close();
}

#[test]
fn a_change_is_in_force_when_it_returns() {
    let _alone = alone();
    let set = Set::new(64);
    let (one, mut other) = pair();
    set.add(&one, IN | ET, 1);
    other.write_all(b"x").unwrap();
    let modify = |events, data| set.control(EPOLL_CTL_MOD, one.as_raw_fd(), events, data);
    assert_eq!(modify(OUT | ET, 2), Ok(()));
    assert_eq!(set.ready(), [(2, OUT)]);
    assert_eq!(set.ready(), []);
    assert_eq!(modify(IN, 3), Ok(()));
    assert_eq!((set.ready(), set.ready()), (vec![(3, IN)], vec![(3, IN)]));
    assert_eq!(modify(0, 4), Ok(()));
    assert_eq!(set.ready(), []);
    assert_eq!(modify(IN | libc::EPOLLEXCLUSIVE as u32, 5), Err(libc::EINVAL));
    assert_eq!(modify(IN | ONESHOT, 6), Ok(()));
    assert_eq!((set.ready(), set.ready()), (vec![(6, IN)], vec![]));
    assert_eq!(modify(IN | OUT, 7), Ok(()));
    assert_eq!(set.ready(), [(7, IN | OUT)]);
    close(other);
    assert_eq!(set.ready(), [(7, IN | OUT | HUP)]);
    assert_eq!(set.control(EPOLL_CTL_DEL, one.as_raw_fd(), 0, 0), Ok(()));
    assert_eq!(set.control(EPOLL_CTL_MOD, one.as_raw_fd(), IN, 0), Err(libc::ENOENT));
    set.close();
}

/// What has been read, or was in the other half all the time.
#[test]
fn what_is_reported_holds() {
    let _alone = alone();
    let set = Set::new(64);
    let (one, mut other) = pair();
    set.add(&one, IN | RDHUP | ET, 1);
    other.write_all(b"x").unwrap();
    assert_eq!(drain(&one), 1);
    assert_eq!(set.ready(), [], "it has been read");
    for _ in 0..10 {
        other.write_all(b"x").unwrap();
    }
    assert_eq!(set.ready(), [(1, IN)], "ten changes are one event");
    other.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(set.ready(), [(1, IN | RDHUP)]);
    set.close();
}

#[test]
fn where_io_uring_is_not_allowed_the_events_are_the_same() {
    let _alone = alone();
    for errno in [libc::ENOSYS, libc::EPERM, libc::ENOMEM, libc::EMFILE] {
        for call in [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register] {
            without(&[call], errno, || {
                let set = Set::new(64);
                let (one, mut other) = pair();
                set.add(&one, IN | ET, 1);
                assert_eq!(set.ready(), []);
                other.write_all(b"x").unwrap();
                assert_eq!(set.wait(8, LONG), [(1, IN)]);
                set.close();
                close(one);
            });
        }
    }
}

/// While the first socket made the io_uring another thread added something to the kernel epoll, where no look came from then on.
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

/// A sandbox that sets RLIMIT_NOFILE to 0 makes poll(2) fail, and epoll_wait(2) go on: edges were lost.
#[test]
fn where_poll_says_nothing_the_kernel_epoll_does() {
    let _alone = alone();
    without(&[libc::SYS_ppoll], libc::EINVAL, || {
        let (set, (one, mut other), (level, mut far)) = (Set::new(64), pair(), pair());
        set.add(&one, IN | ET, 1);
        set.add(&level, IN, 2);
        other.write_all(b"x").unwrap();
        far.write_all(b"x").unwrap();
        assert_eq!(set.ready(), [(1, IN), (2, IN)]);
        assert_eq!(set.ready(), [(2, IN)]);
        set.close();
        close(one);
        close(level);
    });
}

/// Each write is answered by one report; a lost wake-up ends in a wait that finds nothing for half a minute.
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

/// Sockets come and go under the same numbers while others write: no event of an earlier one, none lost, all connections end.
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
        let mut data = 0_u64;
        for round in 0..3_000_u64 {
            let (one, other) = pair();
            data += 1;
            set.add(&one, IN | if round % 2 == 0 { ET } else { 0 }, data);
            peers.lock().unwrap().push(other);
            if round % 3 == 0 {
                data += 1;
                assert_eq!(set.control(EPOLL_CTL_MOD, one.as_raw_fd(), IN | OUT | ET, data), Ok(()));
            }
            let events = set.wait(4, LONG);
            assert!(!events.is_empty() && events.iter().all(|event| event.0 == data), "{round}: {events:?}, {data}");
            if round % 5 == 0 {
                assert_eq!(set.control(EPOLL_CTL_DEL, one.as_raw_fd(), 0, 0), Ok(()));
                assert_eq!(set.wait(4, 0), [], "removed");
            }
            close(one);
            let other = peers.lock().unwrap().pop().unwrap();
            drain(&other);
            // Reset, as something was not read, or at its end.
            assert!(
                !matches!((&other).read(&mut [0]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock),
                "{round}"
            );
        }
        over.store(true, Ordering::Relaxed);
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
                    // SAFETY: bytes that are there.
                    0 => assert_eq!(unsafe { wakeset_fd::write(counter, (&raw const one).cast(), 8) }, Ok(8)),
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

/// Level-triggered ones that always hold do not keep others from being seen.
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

#[test]
fn hints_need_polls() {
    let set = wakeset_fd::epoll_create1(libc::EPOLL_CLOEXEC).expect("a set");
    for flags in [wakeset_fd::RING_HINTS, 4, -1] {
        assert_eq!(wakeset_fd::ring_setup_with(set, 64, flags), Err(wakeset_fd::Errno::EINVAL), "{flags}");
    }
    assert_eq!(wakeset_fd::close(set), Ok(()));
}

/// What the flag is for, and its price.
#[test]
fn a_hint_is_told_without_a_look() {
    let _alone = alone();
    if !has_polls() {
        return;
    }
    for (hints, expected) in [(false, vec![]), (true, vec![(7, IN)])] {
        let set = if hints { Set::with_hints() } else { Set::new(64) };
        let (one, mut other) = pair();
        set.add(&one, IN | RDHUP | ET, 7);
        assert_eq!(set.ready(), []);
        other.write_all(b"xyz").unwrap();
        assert_eq!(set.ready(), [(7, IN)], "hints: {hints}");
        assert_eq!(set.ready(), [], "hints: {hints}");
        other.write_all(b"xyz").unwrap();
        // All six are read before the second edge is told of.
        assert_eq!(drain(&one), 6);
        assert_eq!(set.ready(), expected);
        assert_eq!(set.ready(), [], "hints: {hints}");
        set.close();
        close(one);
    }
}

#[test]
fn hints_are_edges_of_data_and_nothing_else() {
    let _alone = alone();
    let set = Set::with_hints();
    let ((level, mut its_peer), (added, mut another), (urgent, mut third)) = (pair(), pair(), pair());
    set.add(&level, IN, 1);
    set.add(&urgent, IN | PRI | ET, 5);
    assert_eq!(set.ready(), []);
    third.write_all(b"x").unwrap();
    assert_eq!(set.ready(), [(5, IN)]);
    // Nothing has told of this one.
    another.write_all(b"x").unwrap();
    drain(&added);
    set.add(&added, IN | RDHUP | ET, 2);
    its_peer.write_all(b"x").unwrap();
    drain(&level);
    assert_eq!(set.ready(), []);
    its_peer.write_all(b"x").unwrap();
    for _ in 0..3 {
        assert_eq!(set.ready(), [(1, IN)]);
    }
    drain(&level);
    assert_eq!(set.ready(), []);
    // What was said was said to other questions.
    another.write_all(b"x").unwrap();
    assert_eq!(set.control(EPOLL_CTL_MOD, added.as_raw_fd(), OUT | ET, 3), Ok(()));
    assert_eq!(set.ready(), [(3, OUT)]);
    assert_eq!(set.control(EPOLL_CTL_MOD, added.as_raw_fd(), IN | RDHUP | ET, 4), Ok(()));
    assert_eq!(set.ready(), [(4, IN)]);
    // An end is told with all that is so.
    drop(another);
    assert_eq!(set.ready(), [(4, IN | RDHUP | HUP)]);
    assert_eq!(set.ready(), []);
    set.close();
    [added, level, urgent].into_iter().for_each(close);
}

#[test]
fn a_hint_of_one_number_is_not_the_next_ones() {
    let _alone = alone();
    let set = Set::with_hints();
    for round in 0..100 {
        let (one, mut other) = pair();
        set.add(&one, IN | ET, 1);
        assert_eq!(set.ready(), []);
        other.write_all(b"x").unwrap();
        let number = one.as_raw_fd();
        if round % 2 == 0 {
            assert_eq!(set.control(EPOLL_CTL_DEL, number, 0, 0), Ok(()));
        } else {
            close(one.try_clone().unwrap());
        }
        close(one);
        let (one, _other) = pair();
        set.add(&one, IN | ET, 2);
        assert_eq!(set.ready(), [], "{round}");
        close(one);
    }
    set.close();
}

/// A datagram that its receiver has no room for wakes its sender for room each time: who tried again at each hint never stopped.
#[test]
fn a_datagram_in_vain_is_no_room() {
    let _alone = alone();
    let set = Set::with_hints();
    let dir = std::env::temp_dir().join(format!("wakeset-polls-{}", std::process::id()));
    let receiver = UnixDatagram::bind(&dir).expect("a bound socket");
    let sender = UnixDatagram::unbound().unwrap();
    sender.connect(&dir).unwrap();
    std::fs::remove_file(&dir).unwrap();
    sender.set_nonblocking(true).unwrap();
    set.add(&sender, IN | OUT | ET, 1);
    assert_eq!(set.ready(), [(1, OUT)]);
    while sender.send(&[0; 2000]).is_ok() {}
    assert_eq!(set.ready(), []);
    for _ in 0..10 {
        assert!(sender.send(&[0; 2000]).is_err());
        assert_eq!(set.ready(), []);
    }
    set.close();
    assert_eq!(wakeset_fd::close(sender.into_raw_fd()), Ok(()));
    drop(receiver);
}

/// An end is part of every later event; and what a wake-up for room names beside it is nothing that TCP ever says.
#[test]
fn hints_after_an_end_tell_it() {
    let _alone = alone();
    let set = Set::with_hints();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    for also in [0, WRBAND] {
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut other, _) = listener.accept().unwrap();
        one.set_nonblocking(true).unwrap();
        set.add(&one, IN | OUT | RDHUP | ET | also, 1);
        assert_eq!(set.ready(), [(1, OUT)]);
        let fill = || {
            // Its peer has as much as it takes, too.
            let (mut sent, end) = (0, Instant::now() + Duration::from_millis(50));
            while Instant::now() < end {
                sent += (&one).write(&[0; 4096]).unwrap_or(0);
            }
            sent
        };
        let mut drain = |n| other.read_exact(&mut vec![0; n]).unwrap();
        let mut sent = fill();
        let _ = set.ready();
        drain(sent);
        if also != 0 {
            assert_eq!(set.wait(8, LONG), [(1, OUT)]);
            sent = fill();
            let _ = set.ready();
            drain(sent);
        }
        sent = fill();
        let _ = set.ready();
        other.shutdown(std::net::Shutdown::Write).unwrap();
        let ended = set.wait(8, LONG);
        assert_eq!(ended.iter().map(|event| event.1 & !OUT).collect::<Vec<_>>(), [IN | RDHUP]);
        other.read_exact(&mut vec![0; sent]).unwrap();
        assert_eq!(set.wait(8, LONG), [(1, IN | OUT | RDHUP)]);
        close_tcp(one);
    }
    set.close();
}

fn close_tcp(stream: TcpStream) {
    assert_eq!(wakeset_fd::close(stream.into_raw_fd()), Ok(()));
}

/// Everything that is sent is read by who drains what he is told of, whoever else is faster.
#[test]
fn hints_lose_nothing() {
    const PAIRS: usize = 16;
    const ROUNDS: usize = 3000;
    let _alone = alone();
    let set = Set::with_hints();
    let pairs: Vec<_> = (0..PAIRS).map(|_| pair()).collect();
    for (i, (one, _)) in pairs.iter().enumerate() {
        set.add(one, IN | ET, i as u64);
    }
    let (ones, others): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    let (received, done) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..ROUNDS {
                let mut other = &others[round * 7 % PAIRS];
                other.write_all(b"x").unwrap();
                // Each byte has been read before the pair comes again, so each is an edge of its own that may not be lost.
                while received.load(Ordering::SeqCst) + PAIRS / 2 <= round {
                    std::thread::yield_now();
                }
            }
        });
        scope.spawn(|| {
            // Reads behind the set's back.
            while !done.load(Ordering::SeqCst) {
                received.fetch_add(drain(&ones[3]), Ordering::SeqCst);
                std::thread::yield_now();
            }
        });
        while received.load(Ordering::SeqCst) < ROUNDS {
            for (which, events) in set.wait(4, LONG) {
                assert_eq!(events, IN);
                received.fetch_add(drain(&ones[which as usize]), Ordering::SeqCst);
            }
        }
        done.store(true, Ordering::SeqCst);
    });
    set.close();
}
