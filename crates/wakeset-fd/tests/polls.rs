//! Sets that watch sockets through an io_uring (`RING_POLL`): what the bodies in `semantics` cannot
//! observe.

mod forbid;

#[path = "polls/closing.rs"]
mod closing;
#[path = "polls/hints.rs"]
mod hints;
#[path = "polls/threads.rs"]
mod threads;

use forbid::without;
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, c_int, epoll_event};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

const IN: u32 = libc::EPOLLIN as u32;
const OUT: u32 = libc::EPOLLOUT as u32;
const ET: u32 = libc::EPOLLET as u32;
const PRI: u32 = libc::EPOLLPRI as u32;
const RDHUP: u32 = libc::EPOLLRDHUP as u32;
const WRBAND: u32 = libc::EPOLLWRBAND as u32;
const HUP: u32 = libc::EPOLLHUP as u32;
const ONESHOT: u32 = libc::EPOLLONESHOT as u32;
const LONG: c_int = 30_000;

/// Keeps tests apart: a fork makes the objects of all of them migrate.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the other threads of a test, also where it fails: it would wait for them for ever.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
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
            match unsafe {
                wakeset_fd::epoll_wait(self.0, events.as_mut_ptr(), most as c_int, timeout)
            } {
                Ok(n) => {
                    return events[..n as usize]
                        .iter()
                        .map(|event| (event.u64, event.events))
                        .collect();
                }
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

/// Closes a stream as a program has to that uses the crate.
fn close(stream: UnixStream) {
    assert_eq!(wakeset_fd::close(stream.into_raw_fd()), Ok(()));
}

/// Whether the last descriptor of the other end has been closed.
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

/// Whether an io_uring watches a set's sockets here, and not the kernel epoll. Prints a note if
/// not.
fn has_polls() -> bool {
    let (one, _other) = pair();
    let set = Set::new(64);
    set.add(&one, IN | ET, 0);
    // SAFETY: no memory is involved.
    let known =
        unsafe { libc::epoll_ctl(set.0, EPOLL_CTL_DEL, one.as_raw_fd(), std::ptr::null_mut()) }
            == 0;
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
        // From now on this thread can make none of the calls that could report an event.
        let mut filter = vec![libc::sock_filter { code: 0x20, jt: 0, jf: 0, k: 0 }];
        for (i, call) in all.iter().enumerate() {
            filter.push(libc::sock_filter {
                code: 0x15,
                jt: (all.len() - i) as u8,
                jf: 0,
                k: *call as u32,
            });
        }
        for k in [libc::SECCOMP_RET_ALLOW, libc::SECCOMP_RET_KILL_PROCESS] {
            filter.push(libc::sock_filter { code: 6, jt: 0, jf: 0, k });
        }
        let filter = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
        // SAFETY: for this thread alone.
        let filtered = unsafe {
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter)
        };
        assert_eq!(filtered, 0);
        for _ in 0..1000 {
            assert_eq!(set.wait(8, 0), []);
        }
        // The set stays open until the process ends: closing it needs these calls.
        std::mem::forget((one, other));
    });
}

struct Number(c_int);

impl AsRawFd for Number {
    fn as_raw_fd(&self) -> c_int {
        self.0
    }
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

/// An event that is no longer true is not reported, and one that still is comes with all its bits.
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
        for call in
            [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register]
        {
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

/// In a sandbox that sets RLIMIT_NOFILE to 0, poll(2) fails and epoll_wait(2) works: edges were
/// lost.
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
