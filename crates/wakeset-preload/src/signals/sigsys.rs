//! SIGSYS, where the kernel reports system calls by instruction with it: its handler is ours, and
//! what the program sets for it is noted.

use super::deferred::discard_if_ignored;
use super::dispositions::{
    DISPOSITIONS, FLAGS, HANDLERS, MASKS, SA_RESTORER, SIGSYS_HANDLER as TAKEN, is_handler, libcs,
    mask_of, set_mask_of,
};
use super::handler::{on_signal, ours, resume_after};
use crate::dispatch;
use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::Ordering;
use libc::{SIG_IGN, SIGSYS, sigaction as Action, siginfo_t, ucontext_t};
use syscalls::{Sysno, syscall};
use wakeset_fd::user;

/// What the kernel calls for a signal.
pub(crate) type Handler = unsafe extern "C-unwind" fn(c_int, *mut siginfo_t, *mut c_void);

const INDEX: usize = SIGSYS as usize;
const BIT: u64 = 1 << (SIGSYS - 1);
static SET: u64 = BIT;
/// The signals that are blocked while our handler runs: all but the faults and itself.
const DURING: u64 = !(BIT | 1 << (libc::SIGSEGV - 1) | 1 << (libc::SIGBUS - 1));

/// Registers our handler, once. No other handler runs with SIGSYS blocked from then on.
pub(crate) fn take_sigsys(handler: Handler) {
    let address = handler as usize;
    DISPOSITIONS.with(|| {
        if TAKEN.load(Ordering::Acquire) != 0 {
            return;
        }
        // SAFETY: all-zero is a valid action.
        let mut before: Action = unsafe { core::mem::zeroed() };
        // SAFETY: memory for the action.
        unsafe { libcs()(SIGSYS, ptr::null(), &raw mut before) };
        if before.sa_sigaction != ours() {
            HANDLERS[INDEX].store(before.sa_sigaction, Ordering::Release);
            FLAGS[INDEX].store(before.sa_flags as usize, Ordering::Release);
            MASKS[INDEX].store(mask_of(&before), Ordering::Release);
        }
        TAKEN.store(address, Ordering::Release);
        register(address);
    });
}

/// Tells the kernel of our handler, on the stack that the program wants its own to run on. While
/// calls are caught nothing interrupts it; later it has the mask of the program's.
fn register(handler: usize) {
    let flags = FLAGS[INDEX].load(Ordering::Acquire) as c_int;
    // SAFETY: all-zero is a valid action.
    let mut action: Action = unsafe { core::mem::zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = flags & (libc::SA_ONSTACK | libc::SA_RESTART);
    action.sa_flags |= libc::SA_SIGINFO | libc::SA_NODEFER;
    let programs = MASKS[INDEX].load(Ordering::Acquire) & !BIT;
    set_mask_of(&mut action, if dispatch::is_left() { programs } else { DURING });
    // SAFETY: a valid action.
    unsafe { libcs()(SIGSYS, &raw const action, ptr::null_mut()) };
}

/// Everything is the kernel's from now on: our handler only has to tell whose a signal is.
pub(crate) fn relax_sigsys() {
    let handler = TAKEN.load(Ordering::Acquire);
    if handler != 0 {
        DISPOSITIONS.with(|| register(handler));
    }
}

fn change_mask(how: c_int, set: *const u64) -> u64 {
    let mut before = 0_u64;
    // SAFETY: kernel signal sets of our own.
    let _ = unsafe { syscall!(Sysno::rt_sigprocmask, how, set, &raw mut before, 8) };
    before
}

/// Sees to it that this thread does not block SIGSYS.
pub(crate) fn unblock_sigsys() {
    change_mask(libc::SIG_UNBLOCK, &raw const SET);
}

/// Whether this thread blocks SIGSYS.
pub(crate) fn is_sigsys_blocked() -> bool {
    change_mask(libc::SIG_BLOCK, ptr::null()) & BIT != 0
}

/// What the program has set: the handler, the flags and the mask.
fn noted() -> (usize, usize, u64) {
    (
        HANDLERS[INDEX].load(Ordering::Acquire),
        FLAGS[INDEX].load(Ordering::Acquire),
        MASKS[INDEX].load(Ordering::Acquire),
    )
}

/// Notes what the program sets, if it does, and returns what it had set.
pub(crate) fn exchange_sigsys(wanted: Option<(usize, usize, u64)>) -> (usize, usize, u64) {
    let before = DISPOSITIONS.with(|| {
        let before = noted();
        if let Some((handler, flags, mask)) = wanted {
            FLAGS[INDEX].store(flags | SA_RESTORER as usize, Ordering::Release);
            MASKS[INDEX].store(mask, Ordering::Release);
            HANDLERS[INDEX].store(handler, Ordering::Release);
            register(TAKEN.load(Ordering::Acquire));
        }
        before
    });
    if let Some((handler, ..)) = wanted {
        discard_if_ignored(SIGSYS, handler);
    }
    before
}

/// sigaction(2) for SIGSYS.
///
/// # Safety
/// As sigaction(2).
pub(super) unsafe fn sigaction(action: *const Action, old: *mut Action) -> c_int {
    // SAFETY: any bits are an action.
    let wanted = if action.is_null() { None } else { unsafe { user::load(action) } };
    if wanted.is_none() && !action.is_null() {
        return wakeset_fd::interpose::fail(libc::EFAULT) as c_int;
    }
    let wanted =
        wanted.map(|wanted| (wanted.sa_sigaction, wanted.sa_flags as usize, mask_of(&wanted)));
    let (handler, flags, mask) = exchange_sigsys(wanted);
    if !old.is_null() {
        // SAFETY: all-zero is a valid action; the caller's memory for it.
        unsafe {
            let mut before: Action = core::mem::zeroed();
            before.sa_sigaction = handler;
            before.sa_flags = flags as c_int;
            set_mask_of(&mut before, mask);
            old.write(before);
        }
    }
    0
}

/// A SIGSYS that is not about a caught call (a filter raises it, the program's own dispatch, or it
/// was sent): does what the program has set.
///
/// # Safety
/// As the kernel calls a handler.
pub(crate) unsafe fn on_other_sigsys(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes both.
    let (from_kernel, frame) = unsafe { ((*info).si_code > 0, &*context.cast::<ucontext_t>()) };
    // SAFETY: what the kernel has passed.
    if from_kernel && unsafe { resume_after(signal, context) } {
        return;
    }
    let (handler, _, mask) = noted();
    if is_handler(handler) {
        if !dispatch::is_left() {
            // SAFETY: the first 8 bytes of glibc's set are the kernel's.
            let before = unsafe { (&raw const frame.uc_sigmask).cast::<u64>().read() };
            let during = (before | mask) & !BIT;
            change_mask(libc::SIG_SETMASK, &raw const during);
        }
        // SAFETY: what the kernel has passed.
        unsafe { on_signal(signal, info, context) };
    } else if handler != SIG_IGN || from_kernel {
        // SAFETY: all-zero is the default action. The signal comes again, and ends the process.
        unsafe {
            let default: Action = core::mem::zeroed();
            libcs()(SIGSYS, &raw const default, ptr::null_mut());
            let process = syscall!(Sysno::getpid).unwrap_or(0);
            let thread = syscall!(Sysno::gettid).unwrap_or(0);
            let _ = syscall!(Sysno::rt_tgsigqueueinfo, process, thread, SIGSYS, info);
        }
    }
}
