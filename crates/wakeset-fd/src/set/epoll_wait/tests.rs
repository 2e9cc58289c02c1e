use super::*;
use crate::set::{adopt, doorbell};
use crate::sys::signal_guard::SignalGuard;
use crate::table::alone::alone;
use crate::table::away::tests::{give_back, lend};
use core::ptr;
use libc::{EPOLL_CTL_ADD, EPOLLIN, EPOLLONESHOT, timespec};
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
