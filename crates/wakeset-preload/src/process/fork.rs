//! What happens around every fork. fork, daemon and forkpty run pthread_atfork(3) handlers, and
//! these are ours.

use crate::real::real;
use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};
use wakeset_fd::fork::{self, Forking};

type Handler = Option<unsafe extern "C" fn()>;
type Register = unsafe extern "C-unwind" fn(Handler, Handler, Handler, *mut c_void) -> c_int;

/// Registers this library's handlers before all others: they prepare last, when the program's
/// handlers are done, and run first on both sides afterwards. Otherwise a handler that waits for a
/// thread which waits for the fork would never end.
pub(crate) fn register_handlers() {
    static DONE: AtomicBool = AtomicBool::new(false);
    if !DONE.swap(true, Ordering::Relaxed) {
        // SAFETY: functions that live as long as the library, which is never unloaded.
        unsafe {
            real!(__register_atfork: Register)(
                Some(prepare),
                Some(in_parent),
                Some(in_child),
                ptr::null_mut(),
            )
        };
    }
}

/// What pthread_atfork(3) calls, which is part of each object that uses it. Libraries that were
/// loaded after this one may register before it [starts](super::start).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __register_atfork(
    prepare: Handler,
    in_parent: Handler,
    in_child: Handler,
    object: *mut c_void,
) -> c_int {
    register_handlers();
    // SAFETY: the caller's contract.
    unsafe { real!(__register_atfork: Register)(prepare, in_parent, in_child, object) }
}

/// The fork under way. `prepare` holds a process-wide lock until it is over, so there is one at a
/// time.
struct UnderWay(UnsafeCell<Option<Forking>>);
// SAFETY: only touched by the thread that forks, between `prepare` and the end of the fork.
unsafe impl Sync for UnderWay {}
static UNDER_WAY: UnderWay = UnderWay(UnsafeCell::new(None));

/// Before a fork: everything migrates, and what the child will copy is locked.
pub(crate) unsafe extern "C" fn prepare() {
    let forking = fork::prepare();
    crate::loader::hold();
    crate::signals::hold();
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
    crate::signals::release();
    crate::loader::release();
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
    crate::signals::release();
    crate::loader::release();
    crate::signals::drop_deferred();
    if let Some(forking) = forking {
        forking.in_child();
    }
    super::statistics::start();
}
