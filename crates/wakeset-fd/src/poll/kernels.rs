//! Whether a call is the kernel's alone, as most are: a look at one entry of the table for each
//! number, and at what is known of listeners if the call may sleep. The preload library passes such
//! a call on without anything else.
//!
//! What is not sure counts as not the kernel's alone, and is looked at again with more care: memory
//! that faults, further numbers, what a forked child inherits, and numbers of which it is not known
//! that they are no listeners.
//!
//! The program's memory is read only as far as there is something to look for. While no object has
//! been made and no listener takes turns, as before the library starts and where it is turned off,
//! nothing is: nobody may be there to make EFAULT of a fault. A select(2) may name more numbers
//! than its sets have room for, because Linux passes over those beyond the process's table of
//! descriptors, which is at least as large as ours.

use super::select;
use crate::kernel_half::listeners;
use crate::sys::user;
use crate::table::{self, low_numbers};
use core::ffi::c_int;
use core::sync::atomic::{AtomicUsize, Ordering};
use libc::{
    FD_SETSIZE, POLLIN, POLLOUT, POLLRDNORM, POLLWRBAND, POLLWRNORM, fd_set, nfds_t, pollfd,
};

/// Whether an entry of the table says that its number is surely the kernel's.
#[inline(always)]
fn is_sure(word: &AtomicUsize) -> bool {
    let word = word.load(Ordering::Acquire);
    word == 0 || table::is_kernels(word)
}

/// Whether a listener among so many descriptors takes turns.
#[inline(always)]
fn take_turns(n: usize) -> bool {
    n <= listeners::MOST && listeners::order().is_some()
}

/// The first entry of poll(2)'s array that is not surely the kernel's alone; `None`: the whole call
/// is. `may_sleep`: the call has time.
///
/// # Safety
/// `fds` is valid for `n` entries, or the kernel will say EFAULT.
#[inline(always)]
pub unsafe fn first_unsure(fds: *const pollfd, n: nfds_t, may_sleep: bool) -> Option<usize> {
    /// The bits of an entry with which it asks for connections.
    const CONNECTIONS: u64 = ((POLLIN | POLLRDNORM) as u64) << 32;
    /// Those with which it does not ask a listener. The last is `POLLMSG`.
    const OTHERS: u64 = ((POLLOUT | POLLWRNORM | POLLWRBAND | 0x400) as u64) << 32;
    /// An entry with all bits set says nothing, and stands for one that is not there.
    const NOT_THERE: u64 = u64::MAX;
    let n = n as usize;
    let words = table::words();
    let turns = if may_sleep && take_turns(n) { CONNECTIONS } else { 0 };
    if words.is_empty() && turns == 0 {
        return None;
    }
    if fds.is_null() {
        return (n != 0).then_some(0);
    }
    let kinds = if may_sleep { listeners::kinds() } else { &[] };
    for i in 0..n {
        // SAFETY: an entry has 8 bytes, of which any are one.
        let entry = unsafe { user::load_u64_or(fds.wrapping_add(i).cast(), NOT_THERE) };
        let fd = entry as u32;
        match words.get(fd as usize) {
            Some(word) if is_sure(word) => {}
            None if entry != NOT_THERE => {}
            _ => return Some(i),
        }
        let asks_listener = entry & turns != 0 && entry & OTHERS == 0 && fd as c_int >= 0;
        if asks_listener && !listeners::is_other(kinds, fd) {
            return Some(i);
        }
    }
    None
}

/// Whether a select(2) is surely the kernel's alone. `may_sleep`: the call has time.
///
/// # Safety
/// Each set is null or valid for `n` bits, or the kernel will say EFAULT.
#[inline(always)]
pub unsafe fn sets_are_kernels(n: c_int, sets: [*const fd_set; 3], may_sleep: bool) -> bool {
    let entries = table::words();
    let n = n.max(0) as usize;
    // Beside numbers beyond an fd_set no listener takes turns.
    let minds_listeners = may_sleep && n <= FD_SETSIZE && listeners::order().is_some();
    if entries.is_empty() && !minds_listeners {
        return true;
    }
    let n = if minds_listeners { n } else { n.min(entries.len()) };
    let kinds = if minds_listeners { listeners::kinds() } else { &[] };
    let mut may_be_listener = false;
    for word in 0..n.div_ceil(64) {
        // SAFETY: the caller's contract.
        let Some([read, write, except]) = (unsafe { bits_of(sets, n, word) }) else {
            return false;
        };
        let is_sure = |fd: c_int| entries.get(fd as usize).is_none_or(is_sure);
        let suspects = (read | write | except) & low_numbers::suspects(word);
        if suspects != 0 && !select::numbers(suspects, word).all(is_sure) {
            return false;
        }
        if minds_listeners {
            let mut connections = select::numbers(read & !write, word);
            may_be_listener |= connections.any(|fd| !listeners::is_other(kinds, fd as u32));
        }
    }
    // SAFETY: the caller's contract.
    !may_be_listener || unsafe { has_many(n, sets) }
}

/// What the sets say in their words with this index, of numbers below `n`. `None`: one of them is
/// not there.
///
/// # Safety
/// As [`sets_are_kernels`].
#[inline(always)]
unsafe fn bits_of(sets: [*const fd_set; 3], n: usize, word: usize) -> Option<[u64; 3]> {
    // What lies beyond the last number is not asked for.
    let beyond = if word == n / 64 { u64::MAX << (n % 64) } else { 0 };
    let mut bits = [0; 3];
    for (bits, set) in bits.iter_mut().zip(sets).filter(|(_, set)| !set.is_null()) {
        let place = set.cast::<u64>().wrapping_add(word);
        // SAFETY: any bits are a word of a set.
        let found = match unsafe { user::load_u64_or(place, u64::MAX) } {
            // It may not be there.
            // SAFETY: as above.
            u64::MAX => unsafe { user::load(place) }?,
            found => found,
        };
        *bits = found & !beyond;
    }
    Some(bits)
}

/// Whether the sets have so many numbers that no listener among them takes turns.
///
/// # Safety
/// As [`sets_are_kernels`].
#[cold]
unsafe fn has_many(n: usize, sets: [*const fd_set; 3]) -> bool {
    // SAFETY: the caller's contract.
    unsafe { count_numbers(n, sets) > listeners::MOST }
}

/// How many numbers below `n` are in any of the sets, as far as these are there.
///
/// # Safety
/// As [`sets_are_kernels`].
#[inline(always)]
pub(super) unsafe fn count_numbers(n: usize, sets: [*const fd_set; 3]) -> usize {
    let of_word = |word| {
        // SAFETY: the caller's contract.
        let [read, write, except] = unsafe { bits_of(sets, n, word) }.unwrap_or_default();
        (read | write | except).count_ones() as usize
    };
    (0..n.div_ceil(64)).map(of_word).sum()
}
