//! Calls that show nobody a pair, and leave its way home to it.

use super::{
    CHILD, are_away, are_here, close, give_back, go_and_be_free, pipe, read, sockets, turn, write,
};
use crate::objects::pipe::{readv, recvmsg, sendmsg, writev};
use crate::sys::verdict::Verdict::Done;
use crate::table::alone::alone;
use crate::table::away;
use crate::table::away::tests::{eventfd, lend};
use core::ffi::c_int;
use core::mem::zeroed;
use core::ptr;
use libc::{
    FD_SET, FD_ZERO, MSG_CMSG_CLOEXEC, POLLIN, POLLOUT, fd_set, iovec, msghdr, pollfd, timespec,
};

static NO_TIME: timespec = timespec { tv_sec: 0, tv_nsec: 0 };

/// What poll(2) says of a number at once.
fn poll(fd: c_int) -> i16 {
    let mut entry = pollfd { fd, events: POLLIN | POLLOUT, revents: 0 };
    // SAFETY: one entry.
    unsafe { crate::ppoll(&raw mut entry, 1, &raw const NO_TIME, ptr::null()) }.unwrap();
    entry.revents
}

/// Whether select(2) says of a number at once that it is readable.
fn select(fd: c_int) -> bool {
    // SAFETY: a set of numbers below its size.
    let (n, mut set) = unsafe {
        let mut set: fd_set = zeroed();
        FD_ZERO(&raw mut set);
        FD_SET(fd, &raw mut set);
        (fd + 1, set)
    };
    let sets = [&raw mut set, ptr::null_mut(), ptr::null_mut()];
    // SAFETY: the same.
    let found = unsafe { crate::pselect(n, sets, &raw const NO_TIME, ptr::null()) };
    found == Ok(1)
}

fn vectors(bytes: &mut [u8; 2]) -> [iovec; 2] {
    bytes.each_mut().map(|byte| iovec { iov_base: ptr::from_mut(byte).cast(), iov_len: 1 })
}

fn message(vectors: &mut [iovec; 2]) -> msghdr {
    // SAFETY: a message without an address and control data.
    let mut message: msghdr = unsafe { zeroed() };
    (message.msg_iov, message.msg_iovlen) = (vectors.as_mut_ptr(), 2);
    message
}

/// Two bytes through the pair by several buffers, and by messages as well if it has them.
fn transfer([reader, writer]: [c_int; 2], by_message: bool) {
    let (mut sent, mut got) = (*b"ab", [0; 2]);
    let (mut from, mut to) = (vectors(&mut sent), vectors(&mut got));
    // SAFETY: the buffers are there.
    let (written, read) = unsafe {
        if by_message {
            let (sending, mut received) = (message(&mut from), message(&mut to));
            let written = sendmsg(writer, &raw const sending, 0);
            (written, recvmsg(reader, &raw mut received, MSG_CMSG_CLOEXEC))
        } else {
            (writev(writer, from.as_ptr(), 2), readv(reader, to.as_ptr(), 2))
        }
    };
    assert!(matches!((written, read), (Done(Ok(2)), Done(Ok(2)))));
    assert_eq!(&got, b"ab");
}

#[test]
fn a_pair_comes_home_by_several_buffers() {
    let _alone = alone();
    for (make, by_message) in
        [(pipe as fn() -> [c_int; 2], false), (sockets, false), (sockets, true)]
    {
        let ends = make();
        for _ in 0..3 {
            lend(ends[0], CHILD);
            transfer(ends, by_message);
            assert!(are_away(ends), "a child has it");
            give_back(CHILD);
            assert!((0..1000).any(|_| {
                transfer(ends, by_message);
                are_here(ends)
            }));
        }
        close(ends);
    }
}

/// Each was a doubt.
#[test]
fn a_pair_comes_home_after_it_was_asked() {
    let _alone = alone();
    for make in [pipe, sockets] {
        let ends = make();
        let [reader, writer] = ends;
        go_and_be_free(reader);
        assert_eq!((crate::bytes_in(reader), poll(reader) & POLLIN), (Ok(0), 0));
        assert!(!select(reader) && poll(writer) == POLLOUT && are_away(ends));
        assert_eq!(write(writer, b"xy"), Ok(2));
        assert_eq!((crate::bytes_in(reader), poll(reader) & POLLIN), (Ok(2), POLLIN));
        assert!(select(reader) && are_away(ends));
        assert_eq!(read(reader), Ok(2));
        assert!(are_here(ends), "by the first read that leaves it empty");
        close(ends);
    }
}

/// Beside an object that is here, and one that may not be counted.
#[test]
fn one_poll_asks_of_what_is_here_and_away() {
    let _alone = alone();
    let (here, [reader, writer]) = (eventfd(1, 0), sockets());
    let (counter, set) = (eventfd(0, 0), crate::epoll_create1(libc::EPOLL_CLOEXEC).unwrap());
    [reader, counter, set].into_iter().for_each(|fd| lend(fd, CHILD));
    give_back(CHILD);
    assert_eq!(write(writer, b"x"), Ok(1));
    let mut entries =
        [here, reader, counter, set].map(|fd| pollfd { fd, events: POLLIN, revents: 0 });
    // SAFETY: so many entries.
    let found = unsafe { crate::ppoll(entries.as_mut_ptr(), 4, &raw const NO_TIME, ptr::null()) };
    assert_eq!((found, entries.map(|it| it.revents)), (Ok(2), [POLLIN, POLLIN, 0, 0]));
    assert!(away::is(counter) && !away::is(set), "a set stays");
    assert_eq!(read(reader), Ok(1));
    assert!(are_here([reader, writer]));
    close([reader, writer]);
    [here, counter, set].into_iter().for_each(|fd| crate::close(fd).unwrap());
}

/// The kernel wakes a poll that sleeps there, and would not hear of what is written here.
#[test]
fn a_poll_that_may_sleep_keeps_a_pair_away() {
    let _alone = alone();
    for make in [pipe, sockets] {
        let ends = make();
        let [reader, writer] = ends;
        go_and_be_free(reader);
        assert!(poll(writer) == POLLOUT && away::may_return(writer), "it does not sleep");
        // Nothing but an error or a hang-up ends it before its time.
        let mut entry = pollfd { fd: writer, events: 0, revents: 0 };
        let limit = timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        // SAFETY: one entry.
        let found = unsafe { crate::ppoll(&raw mut entry, 1, &raw const limit, ptr::null()) };
        assert_eq!(found, Ok(0));
        assert!((0..100).all(|_| !turn(ends)) && !away::is(writer));
        close(ends);
    }
}
