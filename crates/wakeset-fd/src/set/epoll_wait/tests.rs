use super::*;
use crate::set::quiet::epoll_wait_quietly;
use crate::set::{adopt, doorbell};
use crate::sys::signal_guard::SignalGuard;
use crate::table::alone::alone;
use crate::table::away::tests::{give_back, lend};
use core::ptr;
use libc::{EPOLL_CTL_ADD, EPOLLIN, EPOLLONESHOT, timespec};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::thread;
use std::time::{Duration, Instant};
extern crate std;

/// What no child has here.
const CHILD: u32 = 1 << 31;
const LIMIT: Duration = Duration::from_millis(600);

/// Whether a wait with a limit takes that long, in one form or the other, though `disturb` is
/// called in the midst of it. It finds nothing.
fn is_as_long(set: c_int, exact: bool, disturb: impl FnOnce() + Send) {
    let begun = Instant::now();
    thread::scope(|scope| {
        scope.spawn(move || {
            thread::sleep(LIMIT * 2 / 3);
            disturb();
        });
        let mut event = epoll_event { events: 0, u64: 0 };
        let limit = timespec { tv_sec: 0, tv_nsec: LIMIT.as_nanos() as i64 };
        // SAFETY: room for one event, and a valid time.
        let found = unsafe {
            match exact {
                true => crate::epoll_pwait2(set, &raw mut event, 1, &raw const limit, ptr::null()),
                false => crate::epoll_wait(set, &raw mut event, 1, LIMIT.as_millis() as c_int),
            }
        };
        assert_eq!(found, Ok(0));
    });
    let took = begun.elapsed();
    assert!(took >= LIMIT && took < LIMIT * 4 / 3, "{took:?}, exact: {exact}");
}

/// The doorbell of a set that came under the number ended the sleep, and the limit began anew.
#[test]
fn a_wait_from_before_the_set_is_as_long_as_was_asked() {
    let _alone = alone();
    for exact in [false, true] {
        let fd = sys::epoll_create1(libc::EPOLL_CLOEXEC).unwrap();
        is_as_long(fd, exact, || {
            adopt(fd).unwrap();
            let set = table::find::<FdSet>(fd).expect("a set");
            assert_eq!(doorbell::install(set), Ok(true));
            doorbell::ring_of(set);
        });
        crate::close(fd).unwrap();
    }
}

/// So it was in a set that is away, whose last doorbell a wait may still hear of.
#[test]
fn a_wait_on_what_is_away_is_as_long_as_was_asked() {
    let _alone = alone();
    for exact in [false, true] {
        let fd = crate::epoll_create1(libc::EPOLL_CLOEXEC).unwrap();
        let cookie = doorbell::cookie(table::find::<FdSet>(fd).expect("a set"));
        lend(fd, CHILD);
        let rings = sys::eventfd(1, libc::EFD_CLOEXEC).unwrap();
        is_as_long(fd, exact, || {
            let _guard = SignalGuard::enter();
            let event = epoll_event { events: (EPOLLIN | EPOLLONESHOT) as u32, u64: cookie };
            sys::epoll_ctl(fd, EPOLL_CTL_ADD, rings, &raw const event).unwrap();
        });
        give_back(CHILD);
        sys::close(rings).unwrap();
        crate::close(fd).unwrap();
    }
}

fn add(set: c_int, fd: c_int, data: u64) {
    let event = epoll_event { events: EPOLLIN as u32, u64: data };
    // SAFETY: an event.
    unsafe { crate::epoll_ctl(set, EPOLL_CTL_ADD, fd, &raw const event) }.unwrap();
}

/// The data of the one event that a wait reports within so many milliseconds, if it reports one.
fn told(set: c_int, milliseconds: c_int) -> Option<u64> {
    let mut event = epoll_event { events: 0, u64: 0 };
    // SAFETY: room for one event.
    let found = unsafe { crate::epoll_wait(set, &raw mut event, 1, milliseconds) };
    (found == Ok(1)).then_some(event.u64)
}

/// Makes a set of this number, which another test may have for a moment.
fn make_under(number: c_int) {
    let mut others = std::vec![];
    while let made = crate::epoll_create1(0).unwrap()
        && made != number
    {
        others.push(made);
        thread::sleep(Duration::from_millis(1));
    }
    others.into_iter().for_each(|other| crate::close(other).unwrap());
}

/// The wait slept in the set that its number had come to, and was woken by that one's doorbell: it
/// reported that to its program, and the other set's waiter slept on.
#[test]
fn a_wait_in_a_closed_set_leaves_the_next_ones_ring_to_its_waiters() {
    const TIME: c_int = 600;
    const LATE: c_int = 5_000;
    let _alone = alone();
    let (set, object) = (crate::epoll_create1(0).unwrap(), crate::eventfd(0, 0).unwrap());
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    add(set, socket.as_raw_fd(), 1);
    let mut event = epoll_event { events: 0, u64: 0 };
    let place = &raw mut event;
    let begun = Instant::now();
    let (found, heard) = thread::scope(|scope| {
        let waiter = Cell::new(None);
        let sleep = |within| {
            crate::close(set).unwrap();
            make_under(set);
            add(set, socket.as_raw_fd(), 1);
            add(set, object, 2);
            waiter.set(Some(scope.spawn(move || (told(set, LATE), begun.elapsed()))));
            scope.spawn(move || {
                thread::sleep(LIMIT / 3);
                // SAFETY: eight bytes.
                unsafe { crate::write(object, (&raw const ONE).cast(), 8) }.unwrap();
            });
            // The kernel wakes the one that came last.
            thread::sleep(LIMIT / 6);
            sys::epoll_pwait(set, place, 1, within, ptr::null(), 0).unwrap()
        };
        // SAFETY: room for one event.
        let found = unsafe { epoll_wait_quietly(set, place, 1, TIME, false, sleep) };
        let took = begun.elapsed();
        assert!(took.as_millis() >= TIME as u128, "it ends after {took:?}");
        (found, waiter.take().map(|waiter| waiter.join().unwrap()))
    });
    let (heard, after) = heard.expect("it has slept");
    assert_eq!((found, heard), (Some(0), Some(2)));
    assert!(after.as_millis() < LATE as u128, "the ring was lost");
    [set, object].into_iter().for_each(|fd| crate::close(fd).unwrap());
}

static ONE: u64 = 1;
