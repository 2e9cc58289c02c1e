//! EFAULT for Wakeset's accesses to the program's memory.

use libc::c_int;
use std::ptr;
use std::sync::{Once, OnceLock};

/// Makes a bad pointer that is passed to Wakeset an EFAULT from now on, as the interposer does. A
/// program that links the crate or the C library has to ask for this itself.
///
/// An access of Wakeset's that faults continues at its recovery address. Any other fault meets the
/// handler that was installed before.
pub(super) fn recover_from_faults() {
    static ONCE: Once = Once::new();
    ONCE.call_once(install);
}

/// The handlers of SIGSEGV and SIGBUS from before.
static BEFORE: [OnceLock<libc::sigaction>; 2] = [const { OnceLock::new() }; 2];

extern "C" fn resume(signal: c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes the interrupted thread's context.
    unsafe {
        let registers = &raw mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
        let next = &raw mut (*registers)[libc::REG_RIP as usize];
        match wakeset_fd::user::recovery(*next as usize) {
            Some(resume) => *next = resume as i64,
            // The instruction faults again, and this time it meets the handler from before.
            None => {
                let before = BEFORE[usize::from(signal == libc::SIGBUS)].get();
                libc::sigaction(signal, before.map_or(ptr::null(), ptr::from_ref), ptr::null_mut());
            }
        }
    }
}

fn install() {
    // SAFETY: a valid action, whose handler is async-signal-safe.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction =
            resume as extern "C" fn(c_int, *mut libc::siginfo_t, *mut libc::c_void) as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        for (signal, before) in [libc::SIGSEGV, libc::SIGBUS].into_iter().zip(&BEFORE) {
            let mut old: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, ptr::null(), &mut old);
            let _ = before.set(old);
            libc::sigaction(signal, &action, ptr::null_mut());
        }
    }
}
