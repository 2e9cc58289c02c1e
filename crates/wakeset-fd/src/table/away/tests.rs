//! Objects that go away and come home, for children that are not there.

use super::tries;
use crate::migrate;
use crate::stats::Stat;
use crate::sys::reserved::NUMBERS;
use crate::sys::signal_guard::SignalGuard;
use crate::sys::{self, Errno};
use crate::table::alone::alone;
use crate::table::{self, away, gate};
use core::ffi::{c_int, c_uint};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use libc::{EPOLL_CTL_ADD, EPOLLET, EPOLLIN, epoll_event};
extern crate std;

/// What no child has here, because no test makes so many.
const CHILD: u32 = 1 << 31;

/// Has an object migrate for a child, and come home no more before that has ended.
pub(crate) fn lend(fd: c_int, child: u32) {
    let _guard = SignalGuard::enter();
    let _migrating = gate::hold_migrations();
    away::lending(child, || migrate::fd_held(fd, Stat::MigratedFork));
    assert!(away::is(fd), "{fd} has migrated for good");
}

pub(crate) fn give_back(child: u32) {
    let _guard = SignalGuard::enter();
    let _migrating = gate::hold_migrations();
    away::given_back_by(child);
}

pub(crate) fn eventfd(value: c_uint, flags: c_int) -> c_int {
    let fd = crate::eventfd(value, flags | libc::EFD_NONBLOCK | libc::EFD_CLOEXEC).unwrap();
    assert!(table::peek(fd).is_object());
    fd
}

pub(crate) fn write(fd: c_int, value: u64) {
    // SAFETY: eight bytes.
    assert_eq!(unsafe { crate::write(fd, (&raw const value).cast(), 8) }, Ok(8));
}

pub(crate) fn read(fd: c_int) -> Result<u64, Errno> {
    let mut value = 0_u64;
    // SAFETY: eight bytes.
    unsafe { crate::read(fd, (&raw mut value).cast(), 8) }.map(|_| value)
}

/// A read went to the kernel object, uncounted, of what had taken the number of an alias meanwhile:
/// it was found there by a look-up that had begun with the alias.
#[test]
fn an_alias_that_is_one_no_more_is_looked_up_again() {
    let _alone = alone();
    let fd = eventfd(0, 0);
    lend(fd, CHILD);
    assert!(table::duplicates::get_alias(fd).is_none());
    give_back(CHILD);
    crate::close(fd).unwrap();
}

/// Before an exec every number is looked at, and what comes home in that moment is looked at too.
#[test]
fn what_comes_home_is_seen_all_along() {
    let _alone = alone();
    let fd = eventfd(0, 0);
    let mut came = 0_u32;
    let (is_over, looks) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let looking = scope.spawn(|| {
            let mut unseen = 0;
            while !is_over.load(Ordering::SeqCst) {
                looks.fetch_add(1, Ordering::SeqCst);
                unseen += u32::from(!table::may_be_here(fd));
                std::thread::yield_now();
            }
            unseen
        });
        // It comes home while it is looked for, on one processor too.
        let wait_for_looks = || {
            let before = looks.load(Ordering::SeqCst);
            while looks.load(Ordering::SeqCst) < before + 2 {
                std::thread::yield_now();
            }
        };
        for _ in 0..300 {
            lend(fd, CHILD);
            give_back(CHILD);
            wait_for_looks();
            came += (0..5000).any(|_| {
                write(fd, 0);
                table::peek(fd).is_object()
            }) as u32;
            wait_for_looks();
        }
        is_over.store(true, Ordering::SeqCst);
        assert_eq!(looking.join().unwrap(), 0);
    });
    assert_eq!(came, 300, "it comes home each time");
    assert!(migrate::fd(fd, Stat::MigratedExec) && !table::may_be_here(fd));
    sys::close(fd).unwrap();
}

/// Makes up to so many calls, until the object has come home; how many that took.
fn call_until_home(fd: c_int, calls: usize) -> Option<usize> {
    (0..calls).find(|_| {
        write(fd, 1);
        assert_eq!(read(fd), Ok(1));
        table::peek(fd).is_object()
    })
}

/// It was tried before each call, for ten times what the call itself takes.
#[test]
fn a_return_in_vain_is_tried_less_and_less() {
    let _alone = alone();
    let [drained, full] = [100, 100].map(|value| eventfd(value, libc::EFD_SEMAPHORE));
    for fd in [drained, full] {
        lend(fd, CHILD);
        give_back(CHILD);
        assert_eq!(call_until_home(fd, 500), None);
        assert!(away::is(fd), "too many tries, which were the last ones");
        assert!((4..12).contains(&tries::in_vain(fd)), "{} tries", tries::in_vain(fd));
    }
    for _ in 0..90 {
        assert_eq!(read(drained), Ok(1));
    }
    assert!(call_until_home(drained, 1000).is_some(), "what was in the way is gone");
    for _ in 0..10 {
        assert_eq!(read(drained), Ok(1));
    }
    assert_eq!(read(drained), Err(Errno::EAGAIN));
    // What stays in the way is no longer looked for.
    assert_eq!(call_until_home(full, 5000), None);
    assert!(!away::is(full) && !table::peek(full).is_object());
    [drained, full].into_iter().for_each(|fd| crate::close(fd).unwrap());
}

/// A wake-up that is written and never read has an edge that may have been reported.
#[test]
fn an_edge_comes_home_once_it_has_been_read() {
    let _alone = alone();
    let (set, fd) = (crate::epoll_create1(libc::EPOLL_CLOEXEC).unwrap(), eventfd(0, 0));
    watch(set, fd, EPOLLIN | EPOLLET);
    lend(fd, CHILD);
    give_back(CHILD);
    for _ in 0..100 {
        write(fd, 1);
        assert_eq!(wait(set), Ok(1));
    }
    assert!(away::is(fd) && tries::in_vain(fd) == 0, "{} tries", tries::in_vain(fd));
    assert_eq!(read(fd), Ok(100));
    assert!(table::peek(fd).is_object(), "it was empty");
    assert_eq!(wait(set), Ok(0));
    write(fd, 1);
    assert_eq!([wait(set), wait(set)], [Ok(1), Ok(0)]);
    [fd, set].into_iter().for_each(|fd| crate::close(fd).unwrap());
}

/// Where the kernel half has other edges, nothing would be told.
#[test]
fn an_edge_beside_others_of_the_kernels_stays() {
    let _alone = alone();
    let (set, fd) = (crate::epoll_create1(libc::EPOLL_CLOEXEC).unwrap(), eventfd(0, 0));
    watch(set, fd, EPOLLIN | EPOLLET);
    let other = sys::eventfd(0, libc::EFD_CLOEXEC).unwrap();
    watch(set, other, EPOLLIN | EPOLLET);
    lend(fd, CHILD);
    give_back(CHILD);
    assert_eq!(call_until_home(fd, 100), None);
    assert!(!away::is(fd), "it stays there");
    [fd, other, set].into_iter().for_each(|fd| crate::close(fd).unwrap());
}

/// An object that goes soon after each return would cost a migration each time.
#[test]
fn what_leaves_again_soon_comes_home_later_each_time() {
    let _alone = alone();
    let fd = eventfd(0, 0);
    let mut calls = 0;
    for turn in 0..8 {
        lend(fd, CHILD);
        give_back(CHILD);
        let last = std::mem::replace(&mut calls, call_until_home(fd, 5000).unwrap());
        assert!(turn == 0 || calls >= (2 * last).max(1), "after {calls} calls, and {last} before");
    }
    std::thread::sleep(std::time::Duration::from_millis(1100));
    lend(fd, CHILD);
    give_back(CHILD);
    assert_eq!(call_until_home(fd, 5000), Some(0), "it was at home for a second");
    crate::close(fd).unwrap();
}

/// For a number for which nothing was ever noted, and there may be no memory.
pub(crate) fn forget_what_is_not_noted() {
    let (noted, not) = (0, NUMBERS as c_int - 1);
    assert!(tries::begin(noted) && away::WORDS.place(noted as usize).is_some());
    away::ANY.store(true, Ordering::SeqCst);
    away::forget_parents(not);
    tries::forget(not);
}

fn watch(set: c_int, fd: c_int, events: c_int) {
    let event = epoll_event { events: events as u32, u64: 7 };
    // SAFETY: a valid event.
    unsafe { crate::epoll_ctl(set, EPOLL_CTL_ADD, fd, &raw const event) }.unwrap();
}

fn wait(set: c_int) -> Result<c_int, Errno> {
    let mut found = epoll_event { events: 0, u64: 0 };
    // SAFETY: room for one.
    unsafe { crate::epoll_wait(set, &raw mut found, 1, 0) }
}

/// A number that was closed, and given another eventfd, by calls that are not seen.
#[test]
fn the_next_file_of_a_number_does_not_come_home() {
    let _alone = alone();
    next_file_stays(None);
}

/// The same of one that a set watches.
#[test]
fn the_next_file_of_a_watched_number_does_not_come_home() {
    let _alone = alone();
    let set = crate::epoll_create1(libc::EPOLL_CLOEXEC).unwrap();
    next_file_stays(Some(set));
    crate::close(set).unwrap();
}

fn next_file_stays(set: Option<c_int>) {
    let fd = eventfd(3, 0);
    if let Some(set) = set {
        watch(set, fd, EPOLLIN);
    }
    lend(fd, CHILD);
    let other = sys::eventfd(0, libc::EFD_NONBLOCK).unwrap();
    // SAFETY: no memory is concerned.
    assert_eq!(unsafe { libc::dup2(other, fd) }, fd);
    give_back(CHILD);
    assert_eq!(call_until_home(fd, 100), None);
    write(fd, 2);
    assert_eq!(read(other), Ok(2));
    sys::close(other).unwrap();
    crate::close(fd).unwrap();
}
