//! Our handler, which the kernel calls for every signal that the program handles.

use super::counts::count_around;
use super::deferred::{defer, set_mask, take_deferred};
use super::dispositions::{
    FAULTS, FLAGS, HANDLERS, MASKS, SIGNALS, Sigaction, is_fault, is_handler,
};
use super::sleep;
use crate::real::real;
use crate::uffd;
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering;
use libc::{SIG_DFL, SIG_IGN, sigaction as Action, siginfo_t, ucontext_t};
use syscalls::{Sysno, syscall};
use wakeset_fd::{signal_guard, user};

/// Signals that a fault of the running instruction raises, which cannot wait. They can also be
/// sent.
pub(super) const FAULT_NUMBERS: [c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGSYS];

/// Whether a signal is a fault of the running instruction.
fn is_synchronous(signal: c_int, info: *const siginfo_t) -> bool {
    // SAFETY: all our handlers are registered with SA_SIGINFO, so the kernel passes a valid
    // siginfo.
    FAULT_NUMBERS.contains(&signal) && unsafe { (*info).si_code } > 0
}

/// The address of our handler.
pub(super) fn ours() -> usize {
    on_signal as *const () as usize
}

/// Our handler: the kernel calls it for every signal that the program handles.
pub(super) unsafe extern "C-unwind" fn on_signal(
    signal: c_int,
    info: *mut siginfo_t,
    context: *mut c_void,
) {
    let synchronous = is_synchronous(signal, info);
    if is_fault(signal) && synchronous {
        // SAFETY: the kernel passes a valid context.
        unsafe {
            let registers = &raw mut (*context.cast::<ucontext_t>()).uc_mcontext.gregs;
            let address = &raw mut (*registers)[libc::REG_RIP as usize];
            if let Some(resume) = user::recovery(*address as usize) {
                *address = resume as i64;
                return;
            }
        }
    }
    if signal_guard::is_inside() && !synchronous {
        defer(signal, info, context);
        return;
    }
    // SAFETY: the kernel passes a valid context.
    unsafe { sleep::interrupt(context) };
    // SAFETY: what the kernel has passed.
    unsafe { handle(signal, info, context) };
}

/// Runs the handlers of deferred signals, at the end of the critical section they came in.
#[cold]
pub(crate) fn deliver_deferred() {
    set_mask(!0);
    let (noted, mask) = take_deferred();
    for mut noted in noted {
        if noted.signal == 0 {
            continue;
        }
        let index = noted.signal as usize % SIGNALS;
        let mut during = mask | MASKS[index].load(Ordering::Acquire);
        if FLAGS[index].load(Ordering::Acquire) as c_int & libc::SA_NODEFER == 0 {
            during |= 1 << (index - 1);
        }
        set_mask(during);
        // SAFETY: copies of what the kernel passed.
        unsafe { handle(noted.signal, noted.info.as_mut_ptr(), noted.context.as_mut_ptr().cast()) };
        set_mask(!0);
    }
    set_mask(mask);
}

/// Counts a signal and does what the program has set for it.
///
/// # Safety
/// As the kernel calls a handler.
unsafe fn handle(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the caller's contract.
    count_around(signal, || unsafe { run_handler(signal, info, context) });
}

/// Does what the program has set for a signal.
///
/// # Safety
/// As the kernel calls a handler.
unsafe fn run_handler(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    uffd::before_handler();
    if is_fault(signal) {
        // SAFETY: the caller's contract.
        unsafe { on_fault(signal, info, context) };
        return;
    }
    let handler = HANDLERS[signal as usize % SIGNALS].load(Ordering::Acquire);
    if handler > SIG_IGN {
        // SAFETY: what the program registered.
        unsafe {
            let handler: unsafe extern "C-unwind" fn(c_int, *mut siginfo_t, *mut c_void) =
                core::mem::transmute::<usize, _>(handler);
            handler(signal, info, context);
        }
    }
}

/// A SIGSEGV or SIGBUS that none of our accesses has raised: does what the program has set.
unsafe fn on_fault(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let action = FAULTS.with(signal, |action| {
        let now = *action;
        if now.sa_flags & libc::SA_RESETHAND != 0 {
            action.sa_sigaction = SIG_DFL;
            action.sa_flags &= !libc::SA_RESETHAND;
        }
        now
    });
    // SAFETY: the kernel passes a valid siginfo.
    let from_kernel = unsafe { (*info).si_code } > 0;
    match action.sa_sigaction {
        SIG_IGN if !from_kernel => {}
        SIG_DFL | SIG_IGN => {
            // SAFETY: all-zero is the default action. A fault of the running instruction happens
            // again; one that was sent is sent again.
            unsafe {
                let default: Action = core::mem::zeroed();
                real!(sigaction: Sigaction)(signal, &raw const default, core::ptr::null_mut());
                if !from_kernel {
                    let (pid, tid) = (
                        syscall!(Sysno::getpid).unwrap_or(0),
                        syscall!(Sysno::gettid).unwrap_or(0),
                    );
                    let _ = syscall!(Sysno::rt_tgsigqueueinfo, pid, tid, signal, info);
                }
            }
        }
        handler => {
            // SAFETY: what the program registered.
            unsafe {
                let handler: unsafe extern "C-unwind" fn(c_int, *mut siginfo_t, *mut c_void) =
                    core::mem::transmute::<usize, _>(handler);
                handler(signal, info, context);
            }
        }
    }
}

/// Whether a handler may run without ours before it, because it was registered by a system call
/// that does not come through libc, and has none of the flags in `without`.
#[cold]
pub(crate) fn may_have_foreign_handlers(without: c_int) -> bool {
    /// The kernel's structure, which is not glibc's.
    #[repr(C)]
    struct KernelAction {
        handler: usize,
        flags: usize,
        rest: [usize; 2],
    }
    // glibc keeps two signals for itself: for cancellation and for setuid(2) in all threads.
    (1..SIGNALS).filter(|signal| !matches!(signal, 32 | 33)).any(|signal| {
        let mut action = KernelAction { handler: SIG_DFL, flags: 0, rest: [0; 2] };
        // SAFETY: memory for the action, and the size of the kernel's signal set.
        let asked = unsafe { syscall!(Sysno::rt_sigaction, signal, 0, &raw mut action, 8) };
        let foreign = asked.is_ok() && is_handler(action.handler) && action.handler != ours();
        foreign && action.flags as c_int & without == 0
    })
}
