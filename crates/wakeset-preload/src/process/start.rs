//! What happens once, before main.

use super::{fork, statistics};
use crate::{heap, listeners, signals, uffd};
use wakeset_fd::{cancel, signal_guard};

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    heap::start();
    statistics::start();
    uffd::start();
    signals::take_faults();
    listeners::start();
    signal_guard::set_flush(signals::deliver_deferred);
    cancel::set_hooks(allow_cancellation, restore_cancellation);
    fork::find_single_threaded();
    fork::register_handlers();
}

unsafe extern "C-unwind" {
    fn pthread_setcanceltype(kind: i32, old: *mut i32) -> i32;
}
const PTHREAD_CANCEL_ASYNCHRONOUS: i32 = 1;

/// Lets a cancellation act at any instruction from here on; returns what to restore.
extern "C-unwind" fn allow_cancellation() -> i32 {
    let mut before = 0;
    // SAFETY: memory for the old type.
    unsafe { pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &raw mut before) };
    before
}

/// Undoes [`allow_cancellation`].
extern "C-unwind" fn restore_cancellation(before: i32) {
    // SAFETY: null means that the old type is not wanted; glibc allows it.
    unsafe { pthread_setcanceltype(before, core::ptr::null_mut()) };
}
