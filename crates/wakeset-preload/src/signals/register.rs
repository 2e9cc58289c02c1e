//! sigaction(2) and its kin: the program's handler is noted, and ours is registered.

use super::dispositions::{
    FAULTS, FLAGS, HANDLERS, MASKS, SIGNALS, Sigaction, is_fault, is_handler,
};
use super::handler::{FAULT_NUMBERS, ours};
use super::sigsys;
use crate::dispatch;
use crate::real::real;
use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering};
use libc::{SIG_ERR, SIG_IGN, sigaction as Action};
use wakeset_fd::interpose::fail;
use wakeset_fd::{fork, user};

/// Registers our handler for the two faults. Before main, when the program cannot have one yet.
pub(crate) fn take_faults() {
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        let inherited = FAULTS.with(signal, |action| {
            // SAFETY: memory for the action.
            unsafe { real!(sigaction: Sigaction)(signal, core::ptr::null(), action) };
            *action
        });
        register_fault(signal, &inherited);
    }
}

/// Registers our handler for a fault, in the way the program wants its own to run.
fn register_fault(signal: c_int, wanted: &Action) -> c_int {
    let mut action = *wanted;
    if wanted.sa_sigaction == SIG_IGN {
        // An ignored signal stays ignored over an exec, which a handler would not.
        // SAFETY: a valid action.
        return unsafe {
            real!(sigaction: Sigaction)(signal, &raw const action, core::ptr::null_mut())
        };
    }
    action.sa_sigaction = ours();
    // The disposition must stay ours: what SA_RESETHAND asks for is done in `on_fault`.
    action.sa_flags = (wanted.sa_flags & !libc::SA_RESETHAND) | libc::SA_SIGINFO;
    if !is_handler(wanted.sa_sigaction) {
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
    }
    // SAFETY: a valid action.
    unsafe { real!(sigaction: Sigaction)(signal, &raw const action, core::ptr::null_mut()) }
}

/// sigaction(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaction(
    signal: c_int,
    action: *const Action,
    old: *mut Action,
) -> c_int {
    // SAFETY: the same contract, whichever it is.
    unsafe {
        if fork::is_foreign() {
            sigaction_of_child(signal, action, old)
        } else if is_fault(signal) {
            sigaction_of_fault(signal, action, old)
        } else if sigsys::is_taken(signal) {
            sigsys::sigaction(action, old)
        } else if (1..SIGNALS as c_int).contains(&signal) {
            sigaction_of_signal(signal, action, old)
        } else {
            real!(sigaction: Sigaction)(signal, action, old)
        }
    }
}

/// sigaction(2) for SIGSEGV or SIGBUS, whose handler in the kernel is always ours.
unsafe fn sigaction_of_fault(signal: c_int, action: *const Action, old: *mut Action) -> c_int {
    // SAFETY: any bits are an action.
    let wanted = if action.is_null() { None } else { unsafe { user::load(action) } };
    if wanted.is_none() && !action.is_null() {
        return fail(libc::EFAULT) as c_int;
    }
    let before =
        FAULTS.with(signal, |now| wanted.map_or(*now, |wanted| core::mem::replace(now, wanted)));
    if let Some(wanted) = wanted {
        register_fault(signal, &wanted);
    }
    if !old.is_null() {
        // SAFETY: the caller's memory for the old action.
        unsafe { old.write(before) };
    }
    0
}

/// sigaction(2) for any other signal that exists.
unsafe fn sigaction_of_signal(signal: c_int, action: *const Action, old: *mut Action) -> c_int {
    let call = real!(sigaction: Sigaction);
    let index = signal as usize % SIGNALS;
    let before = HANDLERS[index].load(Ordering::Acquire);
    let flags_before = FLAGS[index].load(Ordering::Acquire) as c_int;
    // SAFETY: the caller's contract: null or valid.
    let mut wanted = unsafe { action.as_ref() }.copied();
    let result = match &mut wanted {
        Some(wanted) if is_handler(wanted.sa_sigaction) => {
            FLAGS[index].store(wanted.sa_flags as usize, Ordering::Release);
            // SAFETY: the first 8 bytes of glibc's set are the kernel's.
            let mask = unsafe { (&raw const wanted.sa_mask).cast::<u64>().read() };
            let mask = dispatch::without_sigsys(mask);
            // SAFETY: as above.
            unsafe { (&raw mut wanted.sa_mask).cast::<u64>().write(mask) };
            MASKS[index].store(mask, Ordering::Release);
            // Always: without it the kernel leaves the siginfo unwritten. A handler of one argument
            // ignores the further ones.
            wanted.sa_flags |= libc::SA_SIGINFO;
            let handler = core::mem::replace(&mut wanted.sa_sigaction, ours());
            HANDLERS[index].store(handler, Ordering::Release);
            // SAFETY: a valid action, and the caller's memory for the old one.
            let result = unsafe { call(signal, wanted, old) };
            if result != 0 {
                HANDLERS[index].store(before, Ordering::Release);
            }
            result
        }
        // SAFETY: the caller's contract.
        _ => unsafe { call(signal, action, old) },
    };
    // SAFETY: the caller's contract: null or valid.
    if let (0, Some(old)) = (result, unsafe { old.as_mut() })
        && old.sa_sigaction == ours()
    {
        show_programs(old, before, flags_before);
    }
    result
}

/// Puts what the program registered into an action with our handler: the program's handler, and
/// whether that takes a siginfo.
fn show_programs(action: &mut Action, handler: usize, flags: c_int) {
    action.sa_sigaction = handler;
    if flags & libc::SA_SIGINFO == 0 {
        action.sa_flags &= !libc::SA_SIGINFO;
    }
}

/// sigaction(2) in a vfork(2) child: its dispositions are its own, and what is noted here is its
/// parent's. So its handlers run without ours before them.
unsafe fn sigaction_of_child(signal: c_int, action: *const Action, old: *mut Action) -> c_int {
    // SAFETY: the caller's contract.
    let result = unsafe { real!(sigaction: Sigaction)(signal, action, old) };
    // SAFETY: null or valid.
    if let (0, Some(old)) = (result, unsafe { old.as_mut() })
        && old.sa_sigaction == ours()
    {
        if is_fault(signal) {
            *old = FAULTS.with(signal, |now| *now);
        } else {
            let index = signal as usize % SIGNALS;
            show_programs(
                old,
                HANDLERS[index].load(Ordering::Acquire),
                FLAGS[index].load(Ordering::Acquire) as c_int,
            );
        }
    }
    result
}

/// glibc's other name for sigaction(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __sigaction(
    signal: c_int,
    action: *const Action,
    old: *mut Action,
) -> c_int {
    // SAFETY: the same contract.
    unsafe { sigaction(signal, action, old) }
}

type Signal = unsafe extern "C" fn(c_int, usize) -> usize;

/// The flags that sigset(3) registers with.
const SIGSET: c_int = 0;

/// signal(2) and its kin, by way of sigaction, so that the kernel passes a siginfo.
unsafe fn register(signal: c_int, handler: usize, flags: c_int, call: Signal) -> usize {
    let index = signal as usize;
    // 2 is sigset's SIG_HOLD: a mask, not a handler.
    let plain = !is_handler(handler) || handler == 2 || fork::is_foreign();
    let noted = is_fault(signal) || sigsys::is_taken(signal);
    if plain && !noted || !(1..SIGNALS).contains(&index) || handler == SIG_ERR {
        let before = HANDLERS.get(index).map_or(0, |before| before.load(Ordering::Acquire));
        // SAFETY: the caller's contract.
        let old = unsafe { call(signal, handler) };
        return if old == ours() { before } else { old };
    }
    if flags == SIGSET && !FAULT_NUMBERS.contains(&signal) {
        // sigset(3) also unblocks the signal, and says whether it was blocked.
        let before = HANDLERS[index].swap(handler, Ordering::AcqRel);
        FLAGS[index].store(0, Ordering::Release);
        MASKS[index].store(0, Ordering::Release);
        // SAFETY: the caller's contract.
        let old = unsafe { call(signal, ours()) };
        if old == SIG_ERR {
            HANDLERS[index].store(before, Ordering::Release);
        }
        return if old == ours() { before } else { old };
    }
    // SAFETY: all-zero is a valid action.
    let (mut action, mut old): (Action, Action) = unsafe { core::mem::zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = flags;
    if flags == libc::SA_RESTART && INTERRUPTING.load(Ordering::Acquire) & 1 << (index - 1) != 0 {
        action.sa_flags = 0;
    }
    // SAFETY: actions of our own.
    match unsafe { sigaction(signal, &raw const action, &raw mut old) } {
        0 => old.sa_sigaction,
        _ => SIG_ERR,
    }
}

/// Signals for which siginterrupt(3) has asked that calls be interrupted.
static INTERRUPTING: AtomicU64 = AtomicU64::new(0);

/// siginterrupt(3): what it says also holds for handlers that signal(2) sets later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siginterrupt(signal: c_int, interrupts: c_int) -> c_int {
    type Interrupt = unsafe extern "C" fn(c_int, c_int) -> c_int;
    if (1..SIGNALS as c_int).contains(&signal) && !fork::is_foreign() {
        let bit = 1 << (signal - 1);
        let flags = &FLAGS[signal as usize];
        if interrupts == 0 {
            INTERRUPTING.fetch_and(!bit, Ordering::AcqRel);
            flags.fetch_or(libc::SA_RESTART as usize, Ordering::AcqRel);
        } else {
            INTERRUPTING.fetch_or(bit, Ordering::AcqRel);
            flags.fetch_and(!(libc::SA_RESTART as usize), Ordering::AcqRel);
        }
    }
    // SAFETY: the caller's contract. libc changes the flags of the registered handler, which is
    // ours.
    unsafe { real!(siginterrupt: Interrupt)(signal, interrupts) }
}

macro_rules! older_calls {
    ($($(#[$doc:meta])* $name:ident, $flags:expr;)+) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(signal: c_int, handler: usize) -> usize {
            // SAFETY: the caller's contract.
            unsafe { register(signal, handler, $flags, real!($name: Signal)) }
        }
    )+};
}

older_calls! {
    /// signal(2), with BSD semantics.
    signal, libc::SA_RESTART;
    /// signal(2) by another name.
    bsd_signal, libc::SA_RESTART;
    /// signal(2) by another name.
    ssignal, libc::SA_RESTART;
    /// signal(2) with System V semantics.
    sysv_signal, libc::SA_RESETHAND | libc::SA_NODEFER;
    /// glibc's other name for sysv_signal(3).
    __sysv_signal, libc::SA_RESETHAND | libc::SA_NODEFER;
    /// sigset(3).
    sigset, SIGSET;
}
