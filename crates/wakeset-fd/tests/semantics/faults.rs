//! Bad pointers: Wakeset returns EFAULT for them as the kernel does, if the owner of the process's
//! SIGSEGV handler asks Wakeset where to resume. Here this file owns the handler; in a program
//! under `wakeset run` the preload library does.

use libc::{c_int, c_void, siginfo_t};
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::Once;

/// The handler of SIGSEGV from before: the standard library's, which reports stack overflows.
struct Before(UnsafeCell<MaybeUninit<libc::sigaction>>);

// SAFETY: written once, before the handler that reads it is installed.
unsafe impl Sync for Before {}

static BEFORE: Before = Before(UnsafeCell::new(MaybeUninit::zeroed()));

extern "C" fn resume(signal: c_int, _: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes the interrupted thread's context; `BEFORE` is a valid action, being
    // zeroed at worst.
    unsafe {
        let registers = &raw mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
        let next = &raw mut (*registers)[libc::REG_RIP as usize];
        match wakeset_fd::user::recovery(*next as usize) {
            Some(resume) => *next = resume as i64,
            // Not an access of Wakeset's: the instruction faults again, and this time it meets the
            // handler from before.
            None => {
                libc::sigaction(signal, BEFORE.0.get().cast(), std::ptr::null_mut());
            }
        }
    }
}

/// Makes Wakeset return EFAULT for a bad pointer from now on.
pub fn recover() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: a valid action, whose handler is async-signal-safe.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction =
                resume as extern "C" fn(c_int, *mut siginfo_t, *mut c_void) as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            assert_eq!(libc::sigaction(libc::SIGSEGV, &action, BEFORE.0.get().cast()), 0);
        }
    });
}
