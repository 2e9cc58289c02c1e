//! Pairs that go away and come home, for children that are not there.

use super::{FdPipe, NONBLOCK, SOCKET, create};
use crate::migrate;
use crate::stats::Stat;
use crate::sys::{self, Errno};
use crate::table::alone::alone;
use crate::table::away::tests::{give_back, lend};
use crate::table::{self, away};
use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use libc::{
    AF_UNIX, EPOLL_CTL_ADD, EPOLLET, EPOLLIN, EPOLLOUT, MSG_DONTWAIT, O_CLOEXEC, O_NONBLOCK,
    SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_STREAM, epoll_event,
};
extern crate std;
use core::time::Duration;
use std::time::Instant;

/// What no child has here, because no test makes so many.
const CHILD: u32 = 1 << 30;

fn pipe() -> [c_int; 2] {
    let mut ends = [-1; 2];
    // SAFETY: room for two.
    unsafe { crate::pipe2(ends.as_mut_ptr(), O_CLOEXEC | O_NONBLOCK) }.unwrap();
    assert!(are_here(ends));
    ends
}

fn sockets() -> [c_int; 2] {
    let mut ends = [-1; 2];
    let kind = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
    // SAFETY: room for two.
    unsafe { crate::socketpair(AF_UNIX, kind, 0, ends.as_mut_ptr()) }.unwrap();
    assert!(are_here(ends));
    ends
}

fn are_here(ends: [c_int; 2]) -> bool {
    ends.into_iter().all(|end| table::peek(end).is_object())
}

fn are_away(ends: [c_int; 2]) -> bool {
    ends.into_iter().all(away::is)
}

fn go_and_be_free(end: c_int) {
    lend(end, CHILD);
    give_back(CHILD);
}

fn write(fd: c_int, bytes: &[u8]) -> Result<usize, Errno> {
    // SAFETY: the bytes are there.
    unsafe { crate::write(fd, bytes.as_ptr(), bytes.len()) }
}

/// Reads up to two bytes.
fn read(fd: c_int) -> Result<usize, Errno> {
    // SAFETY: two bytes.
    unsafe { crate::read(fd, [0_u8; 2].as_mut_ptr(), 2) }
}

/// One byte through the pair, and one look whether it is at home.
fn turn([reader, writer]: [c_int; 2]) -> bool {
    assert_eq!((write(writer, b"x"), read(reader)), (Ok(1), Ok(1)));
    are_here([reader, writer])
}

fn close(ends: [c_int; 2]) {
    ends.into_iter().for_each(|end| crate::close(end).unwrap());
}

#[test]
fn a_pair_comes_home_once_it_is_empty() {
    let _alone = alone();
    for ends in [pipe(), sockets()] {
        let [reader, writer] = ends;
        assert_eq!(write(writer, b"abc"), Ok(3));
        lend(writer, CHILD);
        assert!(are_away(ends), "both go");
        assert_eq!(write(writer, b"de"), Ok(2));
        give_back(CHILD);
        let mut bytes = [0_u8; 8];
        for (index, byte) in bytes.iter_mut().take(5).enumerate() {
            assert!(!are_here(ends), "it had something before byte {index}");
            // SAFETY: one byte.
            assert_eq!(unsafe { crate::read(reader, byte, 1) }, Ok(1));
        }
        assert_eq!(&bytes, b"abcde\0\0\0");
        while !are_here(ends) {
            // One try was in vain after each of the first bytes, and then less.
            assert_eq!(read(reader), Err(Errno::EAGAIN));
        }
        // What is written now is not in the kernel.
        assert_eq!(write(writer, b"f"), Ok(1));
        assert_eq!(sys::poll_now(reader, libc::POLLIN), 0);
        assert_eq!((read(reader), read(reader)), (Ok(1), Err(Errno::EAGAIN)));
        // And so again.
        go_and_be_free(reader);
        assert!((0..10).any(|_| turn(ends)), "it comes home each time");
        close(ends);
    }
}

/// A call that has found an end here, and comes to it when that has left, is told to look again:
/// one that was the kernel's without being counted could meet a pair on its way home.
#[test]
fn a_late_call_looks_its_number_up_again() {
    let _alone = alone();
    for ends in [pipe(), sockets()] {
        let [reader, writer] = ends.map(|end| table::find::<FdPipe>(end).unwrap());
        lend(ends[0], CHILD);
        let mut byte = 0_u8;
        for _ in 0..2 {
            // SAFETY: one byte.
            let written = unsafe { super::super::write(ends[1], writer, b"x".as_ptr(), 1, 0) };
            // SAFETY: the same.
            let read = unsafe { super::super::read(ends[0], reader, &raw mut byte, 1, false) };
            assert!(written.is_none() && read.is_none());
            migrate::fd(ends[0], Stat::MigratedUnmodelled);
        }
        close(ends);
    }
}

/// A watch could not be taken back after the pair had begun here: it ends again, what comes late
/// with it goes to the kernel, and the pair that comes home after that is another one.
#[test]
fn a_pair_that_is_given_up_ends() {
    let _alone = alone();
    for ends in [pipe(), sockets()] {
        let [reader, writer] = ends;
        go_and_be_free(reader);
        let is_socket = super::end_away(reader).unwrap().mode.load(Ordering::Relaxed) & SOCKET;
        let begun = {
            let _guard = crate::sys::signal_guard::SignalGuard::enter();
            let _migrating = table::gate::hold_migrations();
            let begun = create::slots(ends).unwrap();
            create::begin_here(begun, [is_socket | NONBLOCK; 2]);
            super::end_at_once(begun);
            begun
        };
        assert!(begun.iter().all(|end| !end.head.is_used()), "the slots are free");
        let mut byte = 0_u8;
        // SAFETY: one byte.
        let late = unsafe {
            let written = super::super::write(writer, begun[1], b"x".as_ptr(), 1, 0);
            (written, super::super::read(reader, begun[0], &raw mut byte, 1, false))
        };
        assert!(late.0.is_none() && late.1.is_none(), "both are to look again");
        assert!(are_away(ends) && turn(ends), "it comes home as before");
        assert!(
            ends.into_iter()
                .zip(begun)
                .all(|(end, slot)| { ptr::eq(table::find::<FdPipe>(end).unwrap(), slot) })
        );
        assert_eq!((write(writer, b"y"), read(reader)), (Ok(1), Ok(1)));
        close(ends);
    }
}

/// Each end has a word of its own, and what is sent to either one is in the way.
#[test]
fn what_is_in_the_other_direction_keeps_a_pair_away() {
    let _alone = alone();
    let ends = sockets();
    go_and_be_free(ends[0]);
    assert_eq!(write(ends[0], b"y"), Ok(1));
    assert!(!(0..4).any(|_| turn(ends)));
    assert_eq!(read(ends[1]), Ok(1));
    assert!((0..100).any(|_| turn(ends)));
    close(ends);
}

#[test]
fn flags_of_both_ends_are_as_they_were() {
    let _alone = alone();
    let ends = sockets();
    go_and_be_free(ends[0]);
    crate::set_nonblocking(ends[1], false).unwrap();
    assert!(turn(ends));
    let blocks = |end: c_int| table::find::<FdPipe>(end).unwrap().bound().unwrap().may_block();
    assert_eq!(ends.map(blocks), [false, true]);
    close(ends);
}

/// send(2) and recv(2) show nobody the pair; with other flags they may.
#[test]
fn a_pair_comes_home_by_messages() {
    let _alone = alone();
    let send = |fd, flags| {
        // SAFETY: one byte.
        unsafe { crate::send(fd, b"z".as_ptr(), 1, flags) }
    };
    let receive = |fd, flags| {
        // SAFETY: one byte.
        unsafe { crate::recv(fd, [0_u8].as_mut_ptr(), 1, flags) }
    };
    let ends = sockets();
    go_and_be_free(ends[0]);
    assert_eq!((send(ends[0], libc::MSG_NOSIGNAL), receive(ends[1], MSG_DONTWAIT)), (Ok(1), Ok(1)));
    assert!(are_here(ends));
    go_and_be_free(ends[0]);
    assert_eq!((send(ends[0], 0), receive(ends[1], libc::MSG_PEEK)), (Ok(1), Ok(1)));
    assert_eq!(receive(ends[1], 0), Ok(1));
    assert!((0..100).all(|_| !turn(ends)) && !away::is(ends[1]) && !away::is(ends[0]));
    close(ends);
}

/// Whatever may show one end to another process keeps both.
#[test]
fn a_doubt_about_one_end_keeps_both() {
    let _alone = alone();
    let doubts: [fn(c_int); 3] = [
        |end| _ = crate::shutdown(end, libc::SHUT_WR + 100),
        |end| crate::close(crate::dup(end).unwrap()).unwrap(),
        // As before an open of `/proc/self/fd/N`.
        |_| migrate::pipes(Stat::MigratedUnmodelled),
    ];
    for doubt in doubts {
        for make in [pipe, sockets] {
            let ends = make();
            go_and_be_free(ends[0]);
            doubt(ends[1]);
            assert!((0..100).all(|_| !turn(ends)) && !away::is(ends[0]));
            close(ends);
        }
    }
}

#[test]
fn a_pair_with_one_end_stays() {
    let _alone = alone();
    type Close = fn(c_int) -> Result<(), Errno>;
    let closes: [Close; 2] = [crate::close, sys::close];
    for close_one in closes {
        for [reader, writer] in [pipe(), sockets()] {
            assert_eq!(write(writer, b"x"), Ok(1));
            go_and_be_free(reader);
            close_one(writer).unwrap();
            assert_eq!((read(reader), read(reader)), (Ok(1), Ok(0)));
            assert!(!away::is(reader) && !table::peek(reader).is_object());
            crate::close(reader).unwrap();
            let _ = crate::close(writer);
        }
    }
    let ends = sockets();
    go_and_be_free(ends[0]);
    // By a call that is not seen.
    sys::raw!(shutdown, ends[0], libc::SHUT_RD).unwrap();
    assert_eq!(write(ends[1], b"x"), Err(Errno::EPIPE));
    assert_eq!(read(ends[0]), Ok(0));
    assert!(!away::is(ends[0]) && !are_here(ends));
    close(ends);
}

/// The ends' numbers were closed, and given to another pair, by calls that are not seen.
#[test]
fn the_next_pair_of_two_numbers_does_not_come_home() {
    let _alone = alone();
    for watched in 0..3 {
        let ends = sockets();
        let set = crate::epoll_create1(libc::EPOLL_CLOEXEC).unwrap();
        ends.into_iter().take(watched).for_each(|end| watch(set, end, EPOLLIN, 0));
        go_and_be_free(ends[0]);
        let (mut others, kind) = ([-1; 2], SOCK_STREAM | SOCK_NONBLOCK);
        sys::raw!(socketpair, AF_UNIX, kind, 0, others.as_mut_ptr()).unwrap();
        for (other, end) in others.into_iter().zip(ends) {
            sys::raw!(dup3, other, end, O_CLOEXEC).unwrap();
        }
        assert!((0..20).all(|_| !turn(ends)), "with {watched} watches");
        // What goes through it is in the kernel.
        assert_eq!((write(ends[0], b"x"), sys::poll_now(others[1], EPOLLIN as i16)), (Ok(1), 1));
        others.into_iter().for_each(|other| sys::close(other).unwrap());
        close(ends);
        crate::close(set).unwrap();
    }
}

/// One end is still what it was: its watch goes back.
#[test]
fn an_end_beside_another_files_keeps_its_watch() {
    let _alone = alone();
    for first in [0, 1] {
        let (ends, set) = (sockets(), crate::epoll_create1(libc::EPOLL_CLOEXEC).unwrap());
        ends.into_iter().zip([1, 2]).for_each(|(end, data)| watch(set, end, EPOLLIN, data));
        go_and_be_free(ends[0]);
        let (kept, lost) = (ends[first], ends[1 - first]);
        // By calls that are not seen: the lost end is still open, under another number.
        let elsewhere = sys::raw!(dup, lost).unwrap() as c_int;
        let (mut others, kind) = ([-1; 2], SOCK_STREAM | SOCK_NONBLOCK);
        sys::raw!(socketpair, AF_UNIX, kind, 0, others.as_mut_ptr()).unwrap();
        sys::raw!(dup3, others[0], lost, O_CLOEXEC).unwrap();
        for _ in 0..20 {
            assert_eq!(read(kept), Err(Errno::EAGAIN));
        }
        assert!(!are_here(ends));
        assert_eq!((write(elsewhere, b"x"), wait(set)), (Ok(1), 1 + first as u64));
        assert_eq!((read(kept), wait(set)), (Ok(1), 0));
        others.into_iter().chain([elsewhere]).for_each(|other| sys::close(other).unwrap());
        close(ends);
        crate::close(set).unwrap();
    }
}

fn watch(set: c_int, fd: c_int, events: c_int, data: u64) {
    let event = epoll_event { events: events as u32, u64: data };
    // SAFETY: a valid event.
    unsafe { crate::epoll_ctl(set, EPOLL_CTL_ADD, fd, &raw const event) }.unwrap();
}

/// The data of what a wait finds, summed up.
fn wait(set: c_int) -> u64 {
    let mut found = [epoll_event { events: 0, u64: 0 }; 4];
    // SAFETY: room for four.
    let n = unsafe { crate::epoll_wait(set, found.as_mut_ptr(), 4, 0) }.unwrap();
    found.iter().take(n as usize).map(|found| found.u64).sum()
}

#[test]
fn a_pair_comes_home_with_its_watches() {
    let _alone = alone();
    for ends in [pipe(), sockets()] {
        let [reader, writer] = ends;
        let set = crate::epoll_create1(libc::EPOLL_CLOEXEC).unwrap();
        watch(set, reader, EPOLLIN, 1);
        watch(set, writer, EPOLLOUT, 10);
        for _ in 0..3 {
            go_and_be_free(writer);
            assert_eq!(wait(set), 10);
            assert_eq!(write(writer, b"x"), Ok(1));
            assert_eq!(wait(set), 11);
            while !are_here(ends) {
                let _ = read(reader);
            }
            assert_eq!(wait(set), 10);
            assert_eq!(write(writer, b"x"), Ok(1));
            assert_eq!((wait(set), read(reader), wait(set)), (11, Ok(1), 10));
        }
        close(ends);
        assert_eq!(wait(set), 0);
        crate::close(set).unwrap();
    }
}

#[test]
fn an_edge_of_a_pair_is_reported_once() {
    let _alone = alone();
    for ends in [pipe(), sockets()] {
        let [reader, writer] = ends;
        let sets = [(); 2].map(|()| crate::epoll_create1(libc::EPOLL_CLOEXEC).unwrap());
        watch(sets[0], reader, EPOLLIN | EPOLLET, 1);
        watch(sets[1], writer, EPOLLOUT, 10);
        for _ in 0..3 {
            go_and_be_free(reader);
            assert_eq!(write(writer, b"x"), Ok(1));
            assert_eq!(sets.map(wait), [1, 10]);
            while !are_here(ends) {
                let _ = read(reader);
            }
            assert_eq!(sets.map(wait), [0, 10]);
            assert_eq!(write(writer, b"x"), Ok(1));
            assert_eq!((wait(sets[0]), wait(sets[0]), read(reader)), (1, 0, Ok(1)));
        }
        close(ends);
        close(sets);
    }
    // This one has an edge at almost any time.
    let ends = sockets();
    let set = crate::epoll_create1(libc::EPOLL_CLOEXEC).unwrap();
    watch(set, ends[0], EPOLLIN | EPOLLET | libc::EPOLLWRNORM, 1);
    migrate_for_child(ends[1]);
    assert!(!away::is(ends[0]) && !away::is(ends[1]));
    assert!((0..20).all(|_| !turn(ends)));
    close(ends);
    crate::close(set).unwrap();
}

fn migrate_for_child(fd: c_int) {
    let _guard = crate::sys::signal_guard::SignalGuard::enter();
    let _migrating = table::gate::hold_migrations();
    away::lending(CHILD, || migrate::fd_held(fd, Stat::MigratedFork));
    away::given_back_by(CHILD);
}

/// Beside bytes a pair comes home by chance, so now and then there are none for a while.
fn wait_for_another(came: &AtomicU32) {
    let (before, began) = (came.load(Ordering::SeqCst), Instant::now());
    while came.load(Ordering::SeqCst) == before && began.elapsed() < Duration::from_secs(5) {
        std::thread::yield_now();
    }
}

/// Bytes in order, through a pair that goes and comes all the time.
#[test]
fn nothing_is_lost_of_a_pair_that_comes_and_goes() {
    let _alone = alone();
    const BYTES: u32 = 100_000;
    for ends in [pipe(), sockets()] {
        let [reader, writer] = ends;
        let (is_over, came) = (AtomicBool::new(false), AtomicU32::new(0));
        // With more unread than this the pair would be the kernel's for good.
        const UNREAD: u32 = 64;
        let all_read = AtomicU32::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut next = 0_u32;
                while next < BYTES {
                    if next - all_read.load(Ordering::SeqCst) > UNREAD {
                        std::thread::yield_now();
                    } else {
                        assert_eq!(write(writer, &[next as u8]), Ok(1));
                        next += 1;
                        if next < BYTES && next.is_multiple_of(BYTES / 10) {
                            wait_for_another(&came);
                        }
                    }
                }
            });
            scope.spawn(|| {
                let (mut next, mut bytes) = (0_u32, [0_u8; 3]);
                while next < BYTES {
                    // SAFETY: three bytes.
                    match unsafe { crate::read(reader, bytes.as_mut_ptr(), 3) } {
                        Ok(n) => {
                            for byte in &bytes[..n] {
                                assert_eq!(*byte, next as u8, "byte {next}");
                                next += 1;
                            }
                            all_read.store(next, Ordering::SeqCst);
                        }
                        Err(_) => std::thread::yield_now(),
                    }
                }
                is_over.store(true, Ordering::SeqCst);
            });
            while !is_over.load(Ordering::SeqCst) {
                if are_here(ends) {
                    came.fetch_add(1, Ordering::SeqCst);
                    migrate_for_child(reader);
                }
                std::thread::yield_now();
            }
        });
        assert!(came.load(Ordering::SeqCst) > 3, "it came home {came:?} times");
        close(ends);
    }
}

mod calls;
