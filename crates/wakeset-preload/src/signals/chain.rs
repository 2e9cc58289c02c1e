//! Another library that replaces sigaction(2) and comes after us, such as OpenJDK's libjsig where
//! a program is linked with it. (`wakeset run` puts this library after all others that are
//! preloaded, so that those see the program's calls first, as they would without us.)
//!
//! Such a library keeps handlers of its own: it asks what was registered before, notes or changes
//! what is asked for, and passes on what it likes to libc. It must find there what it would find
//! without us. So for the length of its call the kernel is told the program's own disposition, and
//! what the library has left there is taken for what the program wants.

use super::deferred::discard_if_ignored;
use super::dispositions::{Sigaction, is_fault, libcs};
use super::handler::ours;
use super::register::sigaction_of_kernel;
use crate::real::real;
use core::cell::Cell;
use core::ffi::c_int;
use core::mem::zeroed;
use core::ptr;
use libc::{SIG_DFL, SIG_IGN, sigaction as Action};

thread_local! {
    // No destructor and no lazy part: a plain word in the thread's static TLS, safe in a handler.
    /// Whether the other library is at work: what it calls is for the kernel.
    static ASKING: Cell<bool> = const { Cell::new(false) };
}

fn others() -> Sigaction {
    real!(sigaction: Sigaction)
}

/// Whether another library is to see the program's call first.
pub(super) fn is_to_be_asked() -> bool {
    others() as usize != libcs() as usize && !ASKING.with(Cell::get)
}

/// sigaction(2), by way of the other library.
///
/// # Safety
/// As sigaction(2).
pub(super) unsafe fn ask(signal: c_int, action: *const Action, old: *mut Action) -> c_int {
    // SAFETY: actions of our own, and the caller's contract.
    unsafe {
        let (mut kernels, mut programs): (Action, Action) = (zeroed(), zeroed());
        let known = libcs()(signal, ptr::null(), &raw mut kernels) == 0
            && sigaction_of_kernel(signal, ptr::null(), &raw mut programs) == 0;
        if known && kernels.sa_sigaction == ours() {
            libcs()(signal, &raw const programs, ptr::null_mut());
        }
        ASKING.with(|asking| asking.set(true));
        let result = others()(signal, action, old);
        ASKING.with(|asking| asking.set(false));
        if known {
            take_over(signal);
        }
        result
    }
}

/// Puts our handler in front of what is registered.
unsafe fn take_over(signal: c_int) {
    // SAFETY: actions of our own.
    unsafe {
        let mut left: Action = zeroed();
        libcs()(signal, ptr::null(), &raw mut left);
        let plain = matches!(left.sa_sigaction, SIG_DFL | SIG_IGN) && !is_fault(signal);
        if left.sa_sigaction != ours() && !plain {
            sigaction_of_kernel(signal, &raw const left, ptr::null_mut());
        } else {
            discard_if_ignored(signal, left.sa_sigaction);
        }
    }
}
