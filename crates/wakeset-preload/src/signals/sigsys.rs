//! SIGSYS, where the kernel reports system calls by instruction with it: its handler is ours, and
//! what the program sets for it is noted.

use super::dispositions::{FLAGS, HANDLERS, MASKS, Sigaction, is_handler};
use super::handler::{on_signal, ours};
use crate::dispatch;
use crate::real::real;
use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};
use libc::{SIG_IGN, SIGSYS, sigaction as Action, siginfo_t, ucontext_t};
use syscalls::{Sysno, syscall};
use wakeset_fd::user;

const INDEX: usize = SIGSYS as usize;
const BIT: u64 = 1 << (SIGSYS - 1);
static SET: u64 = BIT;
/// The signals that are blocked while our handler runs: all but the faults and itself.
const DURING: u64 = !(BIT | 1 << (libc::SIGSEGV - 1) | 1 << (libc::SIGBUS - 1));

/// Whether the handler is ours. It stays so.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Whether a signal is SIGSYS, and its handler ours.
pub(super) fn is_taken(signal: c_int) -> bool {
    signal == SIGSYS && TAKEN.load(Ordering::Acquire)
}

/// Registers our handler, once.
pub(crate) fn take_sigsys(handler: usize) {
    if TAKEN.load(Ordering::Acquire) {
        return;
    }
    // SAFETY: all-zero is a valid action.
    let (mut action, mut before): (Action, Action) = unsafe { core::mem::zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
    // SAFETY: the first 8 bytes of glibc's set are the kernel's; then valid actions.
    unsafe {
        (&raw mut action.sa_mask).cast::<u64>().write(DURING);
        real!(sigaction: Sigaction)(SIGSYS, &raw const action, &raw mut before);
    }
    if before.sa_sigaction != ours() {
        HANDLERS[INDEX].store(before.sa_sigaction, Ordering::Release);
        FLAGS[INDEX].store(before.sa_flags as usize, Ordering::Release);
    }
    TAKEN.store(true, Ordering::Release);
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

/// Notes what the program sets, if it does, and returns what it had set: the handler, the flags and
/// the mask.
pub(crate) fn exchange_sigsys(wanted: Option<(usize, usize, u64)>) -> (usize, usize, u64) {
    let before = (
        HANDLERS[INDEX].load(Ordering::Acquire),
        FLAGS[INDEX].load(Ordering::Acquire),
        MASKS[INDEX].load(Ordering::Acquire),
    );
    if let Some((handler, flags, mask)) = wanted {
        FLAGS[INDEX].store(flags, Ordering::Release);
        MASKS[INDEX].store(mask, Ordering::Release);
        HANDLERS[INDEX].store(handler, Ordering::Release);
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
    let noted = wanted.map(|wanted| {
        // SAFETY: the first 8 bytes of glibc's set are the kernel's.
        let mask = unsafe { (&raw const wanted.sa_mask).cast::<u64>().read() };
        (wanted.sa_sigaction, wanted.sa_flags as usize, mask)
    });
    let (handler, flags, mask) = exchange_sigsys(noted);
    if !old.is_null() {
        // SAFETY: all-zero is a valid action; the caller's memory for it.
        unsafe {
            let mut before: Action = core::mem::zeroed();
            before.sa_sigaction = handler;
            before.sa_flags = flags as c_int;
            (&raw mut before.sa_mask).cast::<u64>().write(mask);
            old.write(before);
        }
    }
    0
}

/// A SIGSYS that is not about a caught call (a filter raises it, or it was sent): does what the
/// program has set.
///
/// # Safety
/// As the kernel calls a handler.
pub(crate) unsafe fn on_other_sigsys(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let (handler, flags, mask) = exchange_sigsys(None);
    // SAFETY: the kernel passes both.
    let (from_kernel, frame) = unsafe { ((*info).si_code > 0, &*context.cast::<ucontext_t>()) };
    if is_handler(handler) {
        // SAFETY: the first 8 bytes of glibc's set are the kernel's.
        let before = unsafe { (&raw const frame.uc_sigmask).cast::<u64>().read() };
        let during = dispatch::without_sigsys(before | mask);
        change_mask(libc::SIG_SETMASK, &raw const during);
        if flags as c_int & libc::SA_RESETHAND != 0 {
            HANDLERS[INDEX].store(libc::SIG_DFL, Ordering::Release);
        }
        // SAFETY: what the kernel has passed.
        unsafe { on_signal(signal, info, context) };
    } else if handler != SIG_IGN || from_kernel {
        // SAFETY: all-zero is the default action. The signal comes again, and ends the process.
        unsafe {
            let default: Action = core::mem::zeroed();
            real!(sigaction: Sigaction)(SIGSYS, &raw const default, ptr::null_mut());
            let process = syscall!(Sysno::getpid).unwrap_or(0);
            let thread = syscall!(Sysno::gettid).unwrap_or(0);
            let _ = syscall!(Sysno::rt_tgsigqueueinfo, process, thread, SIGSYS, info);
        }
    }
}
