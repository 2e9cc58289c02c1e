//! Objects that dlopen(3) loads.
//!
//! The loader asks which object dlopen(3) was called from, so libc's function is jumped to, and
//! nothing of ours comes after it. While there is one thread, dispatch is turned on before it, so
//! that whatever comes is caught, its constructors too. The next look, when the program asks for a
//! function (dlsym(3)), loads another object or makes a thread, turns it off again if nothing has
//! come that needs it.

use super::leaving::obstacle;
use super::{LOADED, Why, begin, has_looked, is_alone, is_moot, leave, look_if_due};
use crate::dispatch::{self, Look, Shape, file_has_instruction};
use crate::signals;
use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicBool, Ordering};

/// Whether dispatch is on only because it is not known yet what has been loaded.
static ON_TRIAL: AtomicBool = AtomicBool::new(false);

/// Looks at the objects if some may have been loaded since the last look. While there has been
/// none, there is no object that calls could miss.
pub(in super::super) fn look_if_loading() {
    if has_looked() {
        look_if_due();
    }
}

/// Before dlopen(3).
///
/// # Safety
/// `path` is null or a C string.
pub(in super::super) unsafe fn before_load(path: *const c_char) {
    look_if_loading();
    LOADED.fetch_add(1, Ordering::SeqCst);
    if !has_looked() || is_moot() || dispatch::is_on() {
        return;
    }
    let obstacle = obstacle();
    if obstacle.is_some() || signals::is_sigsys_blocked() || !is_alone() {
        // SAFETY: the caller's contract.
        unsafe { look_at_file(path, obstacle.unwrap_or(Why::Threads)) };
        return;
    }
    if let Some(shape @ Shape::AllBut(_)) = Shape::of(&Look::now()) {
        ON_TRIAL.store(begin(shape).is_ok(), Ordering::SeqCst);
    }
}

/// Where dispatch cannot be turned on for a trial: looks at the file before its constructors run.
/// One that is searched for, and what a file brings along, is looked at afterwards.
///
/// # Safety
/// `path` is null or a C string.
unsafe fn look_at_file(path: *const c_char, why: Why) {
    if path.is_null() {
        return;
    }
    // SAFETY: the caller's contract.
    let path = unsafe { CStr::from_ptr(path) };
    if path.to_bytes().contains(&b'/') && file_has_instruction(path) {
        leave(path.to_str().unwrap_or("a library"), why);
    }
}

/// After a look that has found something, or nothing.
pub(super) fn after_look(has_found: bool) {
    if ON_TRIAL.swap(false, Ordering::SeqCst) && !has_found && is_alone() {
        dispatch::stand_down();
    }
}
