//! One description with several numbers, where the kernel refuses a call, or a number is closed by
//! more than close(2). What one thread cannot call, others can.

mod forbid;

use forbid::without;
use libc::{EBADF, c_int, c_uint};
use libc::{EBUSY, EFD_NONBLOCK, EPERM, EPOLL_CTL_ADD, EPOLLIN, SYS_dup2, SYS_dup3, epoll_event};
use std::sync::Barrier;
use wakeset_fd::descriptor::{close_range, is_in_process};
use wakeset_fd::{Errno, Verdict, close, dup, duplicate, epoll_create1, epoll_ctl, epoll_wait};
use wakeset_fd::{eventfd, migrate, read, write};

fn put(fd: c_int, value: u64) -> Result<usize, Errno> {
    // SAFETY: 8 bytes.
    unsafe { write(fd, (&raw const value).cast(), 8) }
}

fn take(fd: c_int) -> Result<u64, Errno> {
    let mut value = 0_u64;
    // SAFETY: room for 8 bytes.
    unsafe { read(fd, (&raw mut value).cast(), 8) }.map(|_| value)
}

fn dup2(old: c_int, new: c_int) -> Result<c_int, Errno> {
    match duplicate::dup2(old, new) {
        Verdict::Done(result) => result,
        Verdict::Kernel => panic!("both live in process"),
    }
}

/// A further number that no other test gets once it is closed.
fn far(fd: c_int, least: usize) -> c_int {
    match duplicate::dup_above(fd, least, true) {
        Verdict::Done(result) => result.unwrap(),
        Verdict::Kernel => panic!("it lives in process"),
    }
}

/// How many of the watches of a set are ready.
fn ready(set: c_int) -> usize {
    let mut events = [epoll_event { events: 0, u64: 0 }; 4];
    // SAFETY: room for four events.
    unsafe { epoll_wait(set, events.as_mut_ptr(), 4, 0) }.unwrap() as usize
}

/// The number stands for what it stood for, which ends with its last number as before.
#[test]
fn a_dup2_that_fails_replaces_nothing() {
    let (set, one) = (epoll_create1(0).unwrap(), eventfd(0, EFD_NONBLOCK).unwrap());
    let two = eventfd(0, EFD_NONBLOCK).unwrap();
    let _twin = dup(two).unwrap();
    let number = far(one, 310);
    let event = epoll_event { events: EPOLLIN as u32, u64: 0 };
    // SAFETY: a valid event.
    unsafe { epoll_ctl(set, EPOLL_CTL_ADD, number, &raw const event) }.unwrap();
    without(&[SYS_dup2, SYS_dup3], EBUSY, || {
        for _ in 0..3 {
            assert_eq!(dup2(two, number).map_err(Errno::into_raw), Err(EBUSY));
        }
    });
    put(number, 7).unwrap();
    assert!(take(two).is_err(), "it was written to the other one");
    assert_eq!(take(one), Ok(7));
    put(one, 1).unwrap();
    close(one).unwrap();
    assert_eq!(ready(set), 1);
    assert!([set, number, two].into_iter().all(is_in_process));
    close(number).unwrap();
    assert_eq!(ready(set), 0, "it lives on without a number");
    assert_eq!(put(number, 1).map_err(Errno::into_raw), Err(EBADF));
    put(two, 2).unwrap();
    assert_eq!(take(two), Ok(2));
}

/// A filter that knows what the program calls may not know what it does not.
#[test]
fn a_dup2_does_not_become_a_dup3() {
    let (one, two) = (eventfd(0, EFD_NONBLOCK).unwrap(), eventfd(0, EFD_NONBLOCK).unwrap());
    let (number, _twin) = (dup(one).unwrap(), dup(two).unwrap());
    without(&[SYS_dup3], EPERM, || {
        assert_eq!(dup2(two, number), Ok(number));
    });
    put(number, 3).unwrap();
    assert_eq!(take(two), Ok(3));
    without(&[SYS_dup2], EPERM, || {
        let verdict = duplicate::dup3(one, number, libc::O_CLOEXEC);
        assert!(matches!(verdict, Verdict::Done(Ok(new)) if new == number));
    });
    put(number, 4).unwrap();
    assert_eq!(take(one), Ok(4));
}

/// What has been closed as one of several numbers may be another thread's by then: the kernel is
/// not asked to close it again.
#[test]
fn close_range_closes_one_of_several_numbers_once() {
    let one = eventfd(0, EFD_NONBLOCK).unwrap();
    let number = far(one, 320);
    let only = number as c_uint;
    assert!(matches!(close_range(only, only, 0), Verdict::Done(Ok(()))));
    assert_eq!(put(number, 1).map_err(Errno::into_raw), Err(EBADF));
    assert!(is_in_process(one));
    put(one, 1).unwrap();
    assert_eq!(take(one), Ok(1));
}

/// Whoever closes the last number ends the object, and a migration of a set that watches it waits
/// for none that waits for the migration. A test that hangs has failed, too.
#[test]
fn a_close_beside_a_duplicate_and_a_migration_ends_it_once() {
    for round in 0..2_000 {
        let (set, one) = (epoll_create1(0).unwrap(), eventfd(1, EFD_NONBLOCK).unwrap());
        let event = epoll_event { events: EPOLLIN as u32, u64: 0 };
        // SAFETY: a valid event.
        unsafe { epoll_ctl(set, EPOLL_CTL_ADD, one, &raw const event) }.unwrap();
        let start = Barrier::new(3);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                start.wait();
                close(one).unwrap();
            });
            threads.spawn(|| {
                start.wait();
                // The number may be another test's by now, whose file goes on as well.
                if let Ok(two) = dup(one) {
                    close(two).unwrap();
                }
            });
            start.wait();
            if round % 2 == 0 {
                migrate::release(set).unwrap();
            }
        });
        assert_eq!(ready(set), 0, "round {round}: it lives on without a number");
        close(set).unwrap();
    }
}
