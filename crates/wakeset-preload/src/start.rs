//! What happens once, before main, and around every fork.

use crate::real::real;
use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};
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
    handle_forks();
}

type Handler = Option<unsafe extern "C" fn()>;
type Register = unsafe extern "C-unwind" fn(Handler, Handler, Handler, *mut c_void) -> c_int;

/// Registers this library's handlers, before anybody else's: they prepare last, with the program's handlers done, and are the first on both sides
/// afterwards. Otherwise a handler that waits for a thread which waits for the fork would never end. fork, daemon and forkpty all come
/// through here.
fn handle_forks() {
    static DONE: AtomicBool = AtomicBool::new(false);
    if !DONE.swap(true, Ordering::Relaxed) {
        // SAFETY: functions that live as long as the library, which is never unloaded.
        unsafe { real!(__register_atfork: Register)(Some(prepare), Some(in_parent), Some(in_child), ptr::null_mut()) };
    }
}

/// What pthread_atfork(3) calls, which is part of each object that uses it. Libraries that were loaded behind this one may register before it [starts](start).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __register_atfork(
    prepare: Handler,
    in_parent: Handler,
    in_child: Handler,
    object: *mut c_void,
) -> c_int {
    handle_forks();
    // SAFETY: the caller's contract.
    unsafe { real!(__register_atfork: Register)(prepare, in_parent, in_child, object) }
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
