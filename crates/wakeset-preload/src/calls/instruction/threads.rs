//! Threads that begin while dispatch is on: each turns it on for itself before it runs the
//! program's function.

use super::{Why, is_moot, leave, look_if_due};
use crate::dispatch;
use crate::signals;
use core::alloc::Layout;
use core::ffi::{c_int, c_void};
use wakeset_fd::fork;

use std::alloc::{alloc, dealloc};

type Function = unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void;

/// What the program wants a thread to do.
#[derive(Clone, Copy)]
struct Begin {
    function: Function,
    argument: *mut c_void,
}

/// `call` makes a thread of a function and its argument, and returns 0 if it has.
///
/// # Safety
/// As pthread_create(3).
unsafe fn create(
    function: *mut c_void,
    argument: *mut c_void,
    call: impl FnOnce(*mut c_void, *mut c_void) -> c_int,
) -> c_int {
    // Dispatch can be turned on while there is one thread.
    look_if_due();
    if !dispatch::is_on() || is_moot() || function.is_null() {
        return call(function, argument);
    }
    // In a child that nobody has told us of, the first thread turns it on, too.
    fork::may_make_objects();
    let layout = Layout::new::<Begin>();
    // SAFETY: the layout is not empty.
    let begin = unsafe { alloc(layout) }.cast::<Begin>();
    if begin.is_null() {
        leave("the program", Why::Call);
        return call(function, argument);
    }
    // SAFETY: the caller's function, and memory of ours for it.
    unsafe {
        begin.write(Begin {
            function: core::mem::transmute::<*mut c_void, Function>(function),
            argument,
        })
    };
    let result = call(run as *const () as *mut c_void, begin.cast());
    if result != 0 {
        // SAFETY: there is no thread that has it.
        unsafe { dealloc(begin.cast(), layout) };
    }
    result
}

/// pthread_create(3).
///
/// # Safety
/// As pthread_create(3).
pub(in super::super) unsafe fn pthread_create(
    thread: usize,
    attributes: usize,
    function: *mut c_void,
    argument: *mut c_void,
    call: impl FnOnce(usize, usize, *mut c_void, *mut c_void) -> c_int,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { create(function, argument, |f, argument| call(thread, attributes, f, argument)) }
}

/// thrd_create(3), whose function returns an int, in the same register.
///
/// # Safety
/// As thrd_create(3).
pub(in super::super) unsafe fn thrd_create(
    thread: usize,
    function: *mut c_void,
    argument: *mut c_void,
    call: impl FnOnce(usize, *mut c_void, *mut c_void) -> c_int,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { create(function, argument, |f, argument| call(thread, f, argument)) }
}

/// The beginning of such a thread. Nothing here has to be dropped, because the thread may end by
/// pthread_exit(3) or be cancelled.
unsafe extern "C-unwind" fn run(begin: *mut c_void) -> *mut c_void {
    let begin = begin.cast::<Begin>();
    // SAFETY: what `create_thread` has written, which is this thread's.
    let Begin { function, argument } = unsafe { begin.read() };
    // SAFETY: allocated there.
    unsafe { dealloc(begin.cast(), Layout::new::<Begin>()) };
    signals::unblock_sigsys();
    if dispatch::arm_thread().is_err() {
        leave("the program", Why::Threads);
    }
    // SAFETY: the program's function and its argument.
    unsafe { function(argument) }
}

/// Before a clone(2), of whichever name, makes a thread that runs the program's function at once.
pub(in super::super) fn before_shared() {
    if dispatch::is_on() && !is_moot() {
        leave("the program", Why::Call);
    }
}

/// Before a call that may have a thread of libc's own run a function of the program's.
///
/// # Safety
/// `event` is null or as for timer_create(2).
pub(in super::super) unsafe fn before_notified(event: *const c_void) {
    /// Where `struct sigevent` says how to notify.
    const HOW: usize = 12;
    if !dispatch::is_on() || event.is_null() || is_moot() {
        return;
    }
    let place = event.wrapping_byte_add(HOW).cast::<c_int>();
    // SAFETY: any bits are a number.
    if unsafe { wakeset_fd::user::load(place) } == Some(libc::SIGEV_THREAD) {
        leave("the program", Why::Call);
    }
}
