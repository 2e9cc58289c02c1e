//! What happens once, before main, and around every fork.

use core::cell::UnsafeCell;
use wakeset_fd::fork::{self, Forking};
use wakeset_fd::{cancel, section};

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    crate::heap::start();
    crate::statistics::start();
    crate::hooks::uffd::start();
    crate::hooks::signal::take_faults();
    crate::hooks::listener::start();
    section::set_flush(crate::hooks::signal::deliver_deferred);
    cancel::set_hooks(allow_cancellation, restore_cancellation);
    // Registered before the program's own: it prepares last, with the program's handlers done, and is the first on both sides
    // afterwards. fork, daemon and forkpty all come through here.
    // SAFETY: functions that live as long as the library, which is never unloaded.
    unsafe { libc::pthread_atfork(Some(prepare), Some(in_parent), Some(in_child)) };
}

/// The fork under way. `prepare` holds a process-wide lock until it is over, so there is one at a time.
struct UnderWay(UnsafeCell<Option<Forking>>);
// SAFETY: only touched by the thread that forks, between `prepare` and the end of the fork.
unsafe impl Sync for UnderWay {}
static UNDER_WAY: UnderWay = UnderWay(UnsafeCell::new(None));

/// Before a fork.
pub(crate) unsafe extern "C" fn prepare() {
    let forking = fork::prepare();
    crate::hooks::signal::hold();
    crate::heap::hold();
    // SAFETY: see `UnderWay`.
    unsafe { *UNDER_WAY.0.get() = Some(forking) };
}

/// After a fork, in the parent.
pub(crate) unsafe extern "C" fn in_parent() {
    // SAFETY: see `UnderWay`.
    let forking = unsafe { (*UNDER_WAY.0.get()).take() };
    // SAFETY: held since `prepare`.
    unsafe { crate::heap::release() };
    crate::hooks::signal::release();
    if let Some(forking) = forking {
        forking.in_parent();
    }
}

/// After a fork, in the child.
pub(crate) unsafe extern "C" fn in_child() {
    // SAFETY: see `UnderWay`.
    let forking = unsafe { (*UNDER_WAY.0.get()).take() };
    // SAFETY: held since `prepare`, by the thread that this one is a copy of.
    unsafe { crate::heap::release() };
    crate::hooks::signal::release();
    crate::hooks::signal::drop_deferred();
    if let Some(forking) = forking {
        forking.in_child();
    }
    crate::statistics::start();
}

unsafe extern "C-unwind" {
    fn pthread_setcanceltype(kind: i32, old: *mut i32) -> i32;
}
const PTHREAD_CANCEL_ASYNCHRONOUS: i32 = 1;

/// A cancellation acts at any instruction from here on.
extern "C-unwind" fn allow_cancellation() -> i32 {
    let mut before = 0;
    // SAFETY: a place for the old type.
    unsafe { pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &raw mut before) };
    before
}

extern "C-unwind" fn restore_cancellation(before: i32) {
    // SAFETY: null means that the old type is not wanted; glibc allows it.
    unsafe { pthread_setcanceltype(before, core::ptr::null_mut()) };
}
