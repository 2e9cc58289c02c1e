//! How many signals a thread has handled: what ends a call that makes several system calls with
//! EINTR, as one system call would end.

use super::dispositions::flags_of;
use core::cell::Cell;
use core::ffi::c_int;

thread_local! {
    // No destructors and no lazy parts: plain words in the thread's static TLS, safe in a handler.
    /// Signals that this thread has handled.
    static HANDLED: Cell<u32> = const { Cell::new(0) };
    /// Those of them whose handlers were registered without `SA_RESTART`.
    static NOT_RESTARTING: Cell<u32> = const { Cell::new(0) };
    /// Signals that are not counted: see [`Uncounted`].
    static UNCOUNTED: Cell<u64> = const { Cell::new(0) };
}

/// While it lives, signals that the mask of the thread's call blocks are not counted: they cannot
/// end the call, though their handlers may run between two of the system calls that it consists of.
pub(crate) struct Uncounted(u64);

impl Uncounted {
    /// Begins not to count the signals in this mask.
    pub(crate) fn begin(mask: u64) -> Self {
        Self(UNCOUNTED.with(|uncounted| uncounted.replace(mask)))
    }
}

impl Drop for Uncounted {
    fn drop(&mut self) {
        UNCOUNTED.with(|uncounted| uncounted.set(self.0));
    }
}

/// Where this thread counts the signals that it handles.
pub(crate) fn handled() -> *mut u32 {
    HANDLED.with(Cell::as_ptr)
}

/// Where this thread counts the signals whose handlers were registered without `SA_RESTART`.
pub(crate) fn not_restarting() -> *mut u32 {
    NOT_RESTARTING.with(Cell::as_ptr)
}

/// Counts a signal, unless the call under way does not count it, and runs its handler. Meanwhile
/// every signal counts, because the handler may make a call of its own, or jump away.
pub(super) fn count_around(signal: c_int, handler: impl FnOnce()) {
    let uncounted = UNCOUNTED.with(|uncounted| uncounted.replace(0));
    if uncounted >> (signal - 1) & 1 == 0 {
        count(signal);
    }
    handler();
    UNCOUNTED.with(|now| now.set(uncounted));
}

fn count(signal: c_int) {
    HANDLED.with(|handled| handled.set(handled.get().wrapping_add(1)));
    if flags_of(signal) & libc::SA_RESTART == 0 {
        NOT_RESTARTING.with(|count| count.set(count.get().wrapping_add(1)));
    }
}
