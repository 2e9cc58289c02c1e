//! Programs on which random testing found a difference, as `wakeset-differ` prints them. They are
//! written with descriptor numbers, so that they can use numbers that are closed or that stand for
//! another object by now.

use crate::backend::{Backend, Errno};
use crate::objects::{ET, IN, OUT, Report, ctl};
use libc::{EFD_NONBLOCK, EPOLL_CTL_ADD, EPOLL_CTL_MOD, c_int, epoll_event};
use std::os::fd::{IntoRawFd, RawFd};

on_both!(a_change_waits_its_turn, a_set_that_moved_keeps_its_edge, halves_with_a_closed_end);

fn write<B: Backend>(fd: RawFd, value: u64) -> Result<usize, Errno> {
    // SAFETY: 8 bytes.
    unsafe { B::write(fd, (&raw const value).cast(), 8) }
}

/// The value read.
fn read<B: Backend>(fd: RawFd) -> Result<u64, Errno> {
    let mut value = 0_u64;
    // SAFETY: room for 8 bytes.
    unsafe { B::read(fd, (&raw mut value).cast(), 8) }.map(|_| value)
}

/// What is ready now.
#[track_caller]
fn wait<B: Backend>(set: RawFd, room: c_int) -> Vec<Report> {
    let mut events = vec![epoll_event { events: 0, u64: 0 }; room as usize];
    // SAFETY: room for so many events.
    let n = unsafe { B::epoll_wait(set, events.as_mut_ptr(), room, 0) }.expect("epoll_wait");
    events[..n as usize].iter().map(|event| (event.u64, event.events)).collect()
}

/// Sorts events whose order is not defined.
fn sorted(mut reports: Vec<Report>) -> Vec<Report> {
    reports.sort_unstable();
    reports
}

fn pipe<B: Backend>() -> (RawFd, RawFd) {
    let (reader, writer) = std::io::pipe().unwrap();
    nonblocking::<B>(reader.into_raw_fd(), writer.into_raw_fd())
}

fn sockets<B: Backend>() -> (RawFd, RawFd) {
    let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
    nonblocking::<B>(one.into_raw_fd(), other.into_raw_fd())
}

fn nonblocking<B: Backend>(one: RawFd, other: RawFd) -> (RawFd, RawFd) {
    B::set_nonblocking(one, true).unwrap();
    B::set_nonblocking(other, true).unwrap();
    (one, other)
}

fn close_all<B: Backend>(fds: &[RawFd]) {
    for fd in fds {
        assert_eq!(B::close(*fd), Ok(()));
    }
}

fn a_change_waits_its_turn<B: Backend>() {
    let fd0 = B::epoll_create1(0).unwrap();
    let fd1 = B::eventfd(0, EFD_NONBLOCK).unwrap();
    let fd2 = B::eventfd(1, EFD_NONBLOCK).unwrap();
    assert_eq!(ctl::<B>(fd0, EPOLL_CTL_ADD, fd1, IN, 0x1), Ok(()));
    assert_eq!(ctl::<B>(fd0, EPOLL_CTL_ADD, fd2, 0, 0x2), Ok(()));
    assert_eq!(write::<B>(fd1, 1), Ok(8));
    assert_eq!(ctl::<B>(fd0, EPOLL_CTL_MOD, fd2, IN, 0x2), Ok(()));
    assert_eq!(wait::<B>(fd0, 1), [(0x1, IN)]);
    assert_eq!(wait::<B>(fd0, 64), [(0x2, IN), (0x1, IN)]);
    assert_eq!(read::<B>(fd2), Ok(1));
    assert_eq!(wait::<B>(fd0, 64), [(0x1, IN)]);
    close_all::<B>(&[fd0, fd1, fd2]);
}

fn a_set_that_moved_keeps_its_edge<B: Backend>() {
    let fd0 = B::epoll_create1(0).unwrap();
    let fd1 = B::epoll_create1(0).unwrap();
    let fd2 = B::eventfd(0, EFD_NONBLOCK).unwrap();
    let fd3 = B::eventfd(1, EFD_NONBLOCK).unwrap();
    assert_eq!(ctl::<B>(fd1, EPOLL_CTL_ADD, fd2, IN, 0x2), Ok(()));
    assert_eq!(ctl::<B>(fd0, EPOLL_CTL_ADD, fd1, IN | ET, 0x1), Ok(()));
    assert_eq!(ctl::<B>(fd0, EPOLL_CTL_ADD, fd3, IN | ET, 0x3), Ok(()));
    assert_eq!(wait::<B>(fd0, 64), [(0x3, IN)]);
    let fd4 = B::dup(fd1).unwrap();
    assert_eq!(write::<B>(fd2, 1), Ok(8));
    let fd5 = B::dup(fd3).unwrap();
    // The counter's edge may be reported a second time.
    assert!(wait::<B>(fd0, 64).contains(&(0x1, IN)));
    close_all::<B>(&[fd0, fd1, fd2, fd3, fd4, fd5]);
}

fn halves_with_a_closed_end<B: Backend>() {
    let fd0 = B::epoll_create1(0).unwrap();
    let (fd1, fd2) = pipe::<B>();
    let (fd3, fd4) = sockets::<B>();
    let fd5 = B::eventfd(0, EFD_NONBLOCK).unwrap();
    assert_eq!(ctl::<B>(fd0, EPOLL_CTL_ADD, fd1, IN, 0x1), Ok(()));
    assert_eq!(ctl::<B>(fd0, EPOLL_CTL_ADD, fd3, IN | OUT | ET, 0x3), Ok(()));
    assert_eq!(ctl::<B>(fd0, EPOLL_CTL_ADD, fd5, IN, 0x5), Ok(()));
    assert_eq!(write::<B>(fd5, 7), Ok(8));
    assert_eq!(B::close(fd2), Ok(()));
    let hang_up = libc::EPOLLHUP as u32;
    assert_eq!(sorted(wait::<B>(fd0, 64)), [(0x1, hang_up), (0x3, OUT), (0x5, IN)]);
    assert_eq!(read::<B>(fd5), Ok(7));
    // The error is EBADF, unless another test has the number by now.
    let closed = ctl::<B>(fd0, EPOLL_CTL_MOD, fd2, IN, 0x1);
    assert!(matches!(closed, Err(libc::EBADF | libc::ENOENT | libc::EPERM)), "{closed:?}");
    assert_eq!(sorted(wait::<B>(fd0, 64)), [(0x1, hang_up)]);
    close_all::<B>(&[fd0, fd1, fd3, fd4, fd5]);
}
