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
use crate::table;
use core::ffi::c_int;
use core::sync::atomic::{AtomicUsize, Ordering};
use libc::{
    FD_SETSIZE, POLLIN, POLLOUT, POLLRDNORM, POLLWRBAND, POLLWRNORM, fd_set, nfds_t, pollfd,
};

/// Whether the number is surely the kernel's.
#[inline(always)]
fn is_sure(words: &[AtomicUsize], fd: u32) -> bool {
    words.get(fd as usize).is_none_or(|word| table::is_kernels(word.load(Ordering::Acquire)))
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
    // Beside so many descriptors no listener takes turns.
    let takes_turns = may_sleep && n <= listeners::MOST && listeners::order().is_some();
    if words.is_empty() && !takes_turns {
        return None;
    }
    if fds.is_null() {
        return (n != 0).then_some(0);
    }
    let turns = if takes_turns { CONNECTIONS } else { 0 };
    for i in 0..n {
        // SAFETY: an entry has 8 bytes, of which any are one.
        let entry = unsafe { user::load_u64_or(fds.wrapping_add(i).cast(), NOT_THERE) };
        let fd = entry as u32;
        if !is_sure(words, fd) || entry == NOT_THERE {
            return Some(i);
        }
        let asks_listener = entry & turns != 0 && entry & OTHERS == 0 && fd as c_int >= 0;
        if asks_listener && !listeners::is_known_other(fd as c_int) {
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
    let mut may_be_listener = false;
    let mut count = 0;
    let n = n.max(0) as usize;
    // Beside numbers beyond an fd_set no listener takes turns.
    let takes_turns = may_sleep && n <= FD_SETSIZE && listeners::order().is_some();
    let n = if takes_turns { n } else { n.min(entries.len()) };
    for word in 0..n.div_ceil(64) {
        // What lies beyond the last number is not asked for.
        let beyond = if word == n / 64 { u64::MAX << (n % 64) } else { 0 };
        let mut bits = [0; 3];
        for (bits, set) in bits.iter_mut().zip(sets).filter(|(_, set)| !set.is_null()) {
            // SAFETY: any bits are a word of a set.
            match unsafe { user::load(set.cast::<u64>().wrapping_add(word)) } {
                Some(found) => *bits = found & !beyond,
                None => return false,
            }
        }
        let [read, write, except] = bits;
        let all = read | write | except;
        if !select::numbers(all, word).all(|fd| is_sure(entries, fd as u32)) {
            return false;
        }
        count += all.count_ones() as usize;
        let mut connections = select::numbers(read & !write, word);
        may_be_listener |= takes_turns && !connections.all(listeners::is_known_other);
    }
    // Beside more descriptors no listener takes turns.
    !may_be_listener || count > listeners::MOST
}
