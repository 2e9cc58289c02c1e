//! Threads that share a processor.

use std::io;

use crate::bench::sides::kernel::check;

/// The processor for threads that are to share one: the last that this process may use, since the
/// first has the most interrupts.
pub fn choose_processor() -> io::Result<usize> {
    // SAFETY: a set of bits, of which zeroes are the empty one.
    let mut allowed: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: room for as many bytes as are said.
    check(unsafe { libc::sched_getaffinity(0, size_of_val(&allowed), &mut allowed) })?;
    // SAFETY: below the size of the set.
    let is_allowed = |processor: &usize| unsafe { libc::CPU_ISSET(*processor, &allowed) };
    (0..libc::CPU_SETSIZE as usize)
        .rev()
        .find(is_allowed)
        .ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Lets the calling thread run on this processor only.
pub fn pin(processor: usize) -> io::Result<()> {
    // SAFETY: as above.
    let mut one: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: it came from a set of this size.
    unsafe { libc::CPU_SET(processor, &mut one) };
    // SAFETY: as many initialised bytes as are said.
    check(unsafe { libc::sched_setaffinity(0, size_of_val(&one), &one) }).map(drop)
}
