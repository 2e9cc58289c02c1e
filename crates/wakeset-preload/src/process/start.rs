//! What is set up before anything of ours is needed.
//!
//! The constructors of the program's libraries run before ours, and so do functions in
//! `.preinit_array` and resolvers of IFUNCs: they may make objects, register handlers and start
//! threads. So [`ensure`] comes first in each call that makes an object, registers a handler or
//! what is to run around a fork; our constructor calls it for programs that have made no such call
//! by then. It needs no constructor, libc's neither.

use super::{end, fork, statistics};
use crate::{environment, heap, listeners, signals, spin, uffd};
use core::sync::atomic::{AtomicBool, Ordering};
use wakeset_fd::fork::see_children;
use wakeset_fd::stats::Stat;
use wakeset_fd::{cancel, migrate};

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = ensure;

/// Whether everything is set up.
static READY: AtomicBool = AtomicBool::new(false);

/// Sets up what has not been set up yet.
#[inline]
pub(crate) extern "C" fn ensure() {
    if !READY.load(Ordering::Acquire) {
        start();
    }
}

/// Several threads may be here, and a handler that has interrupted one of them: what must be there
/// is set up by each of them, and no thread waits for another. What is read from the environment
/// is read by the first.
#[cold]
fn start() {
    if environment::is_disabled() {
        return stand_aside();
    }
    static BEGUN: AtomicBool = AtomicBool::new(false);
    signals::arm();
    cancel::set_hooks(allow_cancellation, restore_cancellation);
    fork::find_single_threaded();
    fork::register_handlers();
    see_children();
    end::find_exit();
    if !BEGUN.swap(true, Ordering::AcqRel) {
        heap::start();
        environment::turn_on_notices();
        spin::start();
        statistics::start();
        uffd::start();
        listeners::start();
        READY.store(true, Ordering::Release);
    }
}

/// With `WAKESET_DISABLE`: whatever the program makes is the kernel's, and nothing is set up.
fn stand_aside() {
    uffd::leave_to_kernel();
    migrate::everything_for_good(Stat::MigratedUnmodelled);
    READY.store(true, Ordering::Release);
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
