//! A call of poll(2) without time as most are: a few objects of the plainest kind, and descriptors
//! of the kernel's. It is answered in one function, in which the program's array is gone through
//! once before the kernel is asked and once after it.
//!
//! What it says is what [`at_once`](super::at_once) says, which sees to every other call: one that
//! names a set, a further number of an object, what is away or inherited, or a doorbell, and one
//! that something migrates beside.
//!
//! An object is looked at once, after the kernel. By then its number may stand for something else,
//! and neither look has asked that. If it does not stand for a plain object, `at_once` looks again
//! at all of them; if it does, that object is asked, as the kernel would have asked it had the call
//! come to its entry at that moment.

use super::entries::{NO_NUMBER, Span, look_in_kernel, mask_of};
use super::room::is_too_long;
use crate::stats::Stat;
use crate::stats::count::count;
use crate::sys::process::is_foreign;
use crate::sys::signal_guard::SignalGuard;
use crate::sys::steps::step;
use crate::sys::{Errno, user, vforked};
use crate::table;
use core::cell::Cell;
use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicUsize, Ordering};
use libc::pollfd;
use wakeset::mutated;

/// The most entries of a call that is answered here: 1 KiB of the stack.
const MOST: usize = 128;

/// An entry with all bits set stands for one that is not there.
const NOT_THERE: u64 = u64::MAX;
/// All of an entry but its `revents`.
const ASKED: u64 = u64::MAX >> 16;
/// An entry that asks for nothing.
const NOTHING: u64 = NO_NUMBER as u32 as u64;

/// Answers the call, if it is such a one. It is a part of its caller, because each function that
/// returns after a system call costs as much as some twenty instructions.
///
/// # Safety
/// As poll(2).
#[inline(always)]
pub(super) unsafe fn quick_look(fds: *mut pollfd, n: usize) -> Option<Result<usize, Errno>> {
    if fds.is_null() || is_foreign() || vforked::may_exist() {
        return None;
    }
    let mut room = [const { MaybeUninit::<u64>::uninit() }; MOST];
    let room = room.get_mut(..n)?;
    let words = table::words();
    let _guard = SignalGuard::enter();
    // SAFETY: the caller's contract.
    let (here, in_kernel) = unsafe { load(fds, room, words) }?;
    // SAFETY: `load` has filled all of it in, and a pollfd has no other size and no stricter
    // alignment.
    let entries: &[Cell<pollfd>] =
        unsafe { core::slice::from_raw_parts(room.as_ptr().cast(), room.len()) };
    let mut found = 0;
    if in_kernel {
        found = look_in_kernel(entries).ok()?;
    } else if is_too_long(n) {
        return None;
    }
    for entry in here.of(entries).iter().filter(|entry| entry.get().fd < 0) {
        let mut now = entry.get();
        if now.fd == NO_NUMBER {
            continue;
        }
        now.revents = plain_events(words, !now.fd)? & mask_of(now) as i16;
        found += usize::from(now.revents != 0);
        entry.set(now);
    }
    count_look(in_kernel);
    // SAFETY: the caller's contract.
    let is_told = unsafe { user::store_revents(entries.as_ptr().cast(), fds, n) };
    Some(if is_told { Ok(found) } else { Err(Errno::EFAULT) })
}

/// Fills in the entries, the objects' with their numbers inverted. Returns which may be those, and
/// whether there are others. `None`: something is named that is not to be answered here.
///
/// # Safety
/// As poll(2).
#[inline(always)]
unsafe fn load(
    fds: *const pollfd,
    room: &mut [MaybeUninit<u64>],
    words: &[AtomicUsize],
) -> Option<(Span, bool)> {
    let (mut here, mut in_kernel) = (Span::new(), false);
    for (at, place) in room.iter_mut().enumerate() {
        // SAFETY: an entry has 8 bytes, of which any are one.
        let entry = unsafe { user::load_u64_or(fds.wrapping_add(at).cast(), NOT_THERE) };
        let number = entry as u32;
        let word = words.get(number as usize).map_or(0, |word| word.load(Ordering::Acquire));
        let entry = entry & ASKED;
        let entry = if table::is_vacant_word(word) {
            if (number as i32) < 0 {
                if entry == NOT_THERE & ASKED {
                    return None;
                }
                NOTHING
            } else {
                in_kernel = true;
                entry
            }
        } else {
            table::plain_object(word)?;
            here.add(at);
            entry ^ u64::from(u32::MAX)
        };
        place.write(entry);
    }
    (!here.is_empty()).then_some((here, in_kernel))
}

/// What holds of an object. `None`: it is none, or no plain one, any more, or has ended since it
/// was looked up.
#[inline(always)]
pub(super) fn plain_events(words: &[AtomicUsize], fd: c_int) -> Option<i16> {
    let word = words.get(fd as usize)?.load(Ordering::Acquire);
    match table::plain_object(word) {
        Some(head) => {
            step!(poll_found);
            head.object().poll_found().map(|events| events.bits() as i16)
        }
        None => mutated!("quick_look_passes_over_what_left").then_some(0),
    }
}

/// Counts a call that has been answered here.
#[inline(always)]
pub(super) fn count_look(in_kernel: bool) {
    count(Stat::Waits, 1);
    if !in_kernel {
        count(Stat::WaitsInProcess, 1);
        count(Stat::SyscallsAvoided, 1);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    extern crate std;
    use crate::calls::poll::{ppoll, pselect};
    use crate::migrate;
    use crate::stats::Stat;
    use crate::sys;
    use crate::table::alone::alone;
    use crate::table::away::tests::eventfd;
    use core::ptr;
    use libc::{POLLIN, pollfd, timespec};
    use std::sync::Barrier;
    use std::thread;

    const NO_TIME: timespec = timespec { tv_sec: 0, tv_nsec: 0 };

    /// It was neither looked at here, where it no longer was, nor in the kernel.
    #[test]
    fn a_look_finds_an_object_that_leaves_meanwhile() {
        let _alone = alone();
        // The kernel's look at these takes a while.
        let sockets = [(); 60].map(|()| sys::eventfd(0, 0).unwrap());
        for round in 0..400 {
            let fd = eventfd(1, libc::EFD_NONBLOCK);
            let barrier = Barrier::new(2);
            thread::scope(|scope| {
                scope.spawn(|| {
                    barrier.wait();
                    let _ = migrate::fd(fd, Stat::MigratedPoll);
                });
                barrier.wait();
                for _ in 0..20 {
                    let found =
                        if round % 2 == 0 { poll(fd, &sockets) } else { select(fd, &sockets) };
                    assert_eq!(found, 1, "it has had a value all the time");
                }
            });
            sys::close(fd).unwrap();
            migrate::number_is_new(fd);
        }
        sockets.iter().for_each(|fd| sys::close(*fd).unwrap());
    }

    fn poll(fd: i32, others: &[i32]) -> i32 {
        let entry = |fd: &i32| pollfd { fd: *fd, events: POLLIN, revents: 0 };
        let mut entries: std::vec::Vec<_> = others.iter().chain([&fd]).map(entry).collect();
        let n = entries.len() as libc::nfds_t;
        // SAFETY: so many entries, a time, and no mask.
        unsafe { ppoll(entries.as_mut_ptr(), n, &NO_TIME, ptr::null()) }.unwrap()
    }

    fn select(fd: i32, others: &[i32]) -> i32 {
        let mut bits = [0_u64; 16];
        others.iter().chain([&fd]).for_each(|fd| bits[*fd as usize / 64] |= 1 << (fd % 64));
        let n = others.iter().chain([&fd]).max().unwrap() + 1;
        let sets = [bits.as_mut_ptr().cast(), ptr::null_mut(), ptr::null_mut()];
        // SAFETY: a set, a time, and no mask.
        unsafe { pselect(n, sets, &NO_TIME, ptr::null()) }.unwrap()
    }
}
