//! sigaction(2) and its kin: the program's handler is noted, and ours is registered.

use super::chain;
use super::deferred::discard_if_ignored;
use super::dispositions::{
    DISPOSITIONS, FAULTS, FLAGS, HANDLERS, MASKS, SA_RESTORER, SIGNALS, Sigaction, is_fault,
    is_handler, is_sigsys_handler, is_sigsys_ours, libcs, mask_of, set_mask_of,
};
use super::handler::{FAULT_NUMBERS, deliver_deferred, ours};
use super::sigsys;
use crate::real::real;
use crate::{dispatch, environment};
use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use libc::{SIG_ERR, SIG_IGN, sigaction as Action};
use wakeset_fd::interpose::fail;
use wakeset_fd::{fork, signal_guard, user};

/// Whether [`arm`] has been done.
static ARMED: AtomicBool = AtomicBool::new(false);
/// Whether the handlers of the two faults are ours; changed with the lock of [`FAULTS`] held.
static TAKEN: [AtomicBool; 2] = [const { AtomicBool::new(false) }; 2];

/// Makes signals ready: before the first handler, and before the first object. Nothing else has to
/// have been done, and no constructor has to have run. It may be called again, also at the same
/// time.
///
/// Returns whether handlers are to be ours; if not, they are the program's alone, and nothing is
/// done.
#[inline]
pub(crate) fn arm() -> bool {
    ARMED.load(Ordering::Acquire) || arm_once()
}

#[cold]
fn arm_once() -> bool {
    if environment::is_disabled() {
        return false;
    }
    signal_guard::set_flush(deliver_deferred);
    for (signal, taken) in [libc::SIGSEGV, libc::SIGBUS].into_iter().zip(&TAKEN) {
        let call = libcs();
        FAULTS.with(signal, |action| {
            if !taken.swap(true, Ordering::Relaxed) {
                // SAFETY: memory for the action.
                unsafe { call(signal, core::ptr::null(), action) };
                register_fault(signal, action);
            }
        });
    }
    ARMED.store(true, Ordering::Release);
    true
}

/// Registers our handler for a fault, in the way the program wants its own to run.
fn register_fault(signal: c_int, wanted: &Action) -> c_int {
    let mut action = *wanted;
    set_mask_of(&mut action, dispatch::without_sigsys(mask_of(wanted)));
    // An ignored signal stays ignored over an exec, which a handler would not.
    if wanted.sa_sigaction != SIG_IGN {
        action.sa_sigaction = ours();
        // The disposition must stay ours: what SA_RESETHAND asks for is done by our handler.
        action.sa_flags = (wanted.sa_flags & !libc::SA_RESETHAND) | libc::SA_SIGINFO;
        if !is_handler(wanted.sa_sigaction) {
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
        }
    }
    // SAFETY: a valid action.
    unsafe { libcs()(signal, &raw const action, core::ptr::null_mut()) }
}

const SIGSYS_BIT: u64 = 1 << (libc::SIGSYS - 1);

/// Before dispatch is turned on: handlers that block SIGSYS while they run do so no more.
pub(crate) fn unblock_sigsys_in_handlers() {
    for signal in (1..SIGNALS as c_int).filter(|signal| *signal != libc::SIGSYS) {
        if is_fault(signal) {
            FAULTS.with(signal, |action| {
                if mask_of(action) & SIGSYS_BIT != 0 {
                    register_fault(signal, action);
                }
            });
        } else if MASKS[signal as usize].load(Ordering::Acquire) & SIGSYS_BIT != 0 {
            DISPOSITIONS.with(|| unblock_in_handler(signal));
        }
    }
}

fn unblock_in_handler(signal: c_int) {
    // SAFETY: all-zero is a valid action; memory for one, and then a valid one.
    unsafe {
        let mut action: Action = core::mem::zeroed();
        libcs()(signal, core::ptr::null(), &raw mut action);
        if action.sa_sigaction == ours() && mask_of(&action) & SIGSYS_BIT != 0 {
            let mask = mask_of(&action) & !SIGSYS_BIT;
            set_mask_of(&mut action, mask);
            libcs()(signal, &raw const action, core::ptr::null_mut());
        }
    }
    MASKS[signal as usize].fetch_and(!SIGSYS_BIT, Ordering::AcqRel);
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
        if !arm() {
            real!(sigaction: Sigaction)(signal, action, old)
        } else if fork::is_foreign() {
            sigaction_of_child(signal, action, old)
        } else if chain::is_to_be_asked() && !is_sigsys_ours(signal) {
            chain::ask(signal, action, old)
        } else {
            sigaction_of_kernel(signal, action, old)
        }
    }
}

/// sigaction(2), when nobody else is between us and the kernel.
pub(super) unsafe fn sigaction_of_kernel(
    signal: c_int,
    action: *const Action,
    old: *mut Action,
) -> c_int {
    // SAFETY: the same contract, whichever it is.
    unsafe {
        if is_fault(signal) {
            sigaction_of_fault(signal, action, old)
        } else if is_sigsys_ours(signal) {
            sigsys::sigaction(action, old)
        } else if (1..SIGNALS as c_int).contains(&signal) {
            sigaction_of_signal(signal, action, old)
        } else {
            libcs()(signal, action, old)
        }
    }
}

/// sigaction(2) for SIGSEGV or SIGBUS, whose handler in the kernel is always ours.
unsafe fn sigaction_of_fault(signal: c_int, action: *const Action, old: *mut Action) -> c_int {
    // SAFETY: any bits are an action.
    let mut wanted = if action.is_null() { None } else { unsafe { user::load(action) } };
    if wanted.is_none() && !action.is_null() {
        return fail(libc::EFAULT) as c_int;
    }
    if let Some(wanted) = &mut wanted {
        // As libc does, and sigaction(2) then reports.
        wanted.sa_flags |= SA_RESTORER;
    }
    let before =
        FAULTS.with(signal, |now| wanted.map_or(*now, |wanted| core::mem::replace(now, wanted)));
    if let Some(wanted) = wanted {
        register_fault(signal, &wanted);
        discard_if_ignored(signal, wanted.sa_sigaction);
    }
    if !old.is_null() {
        // SAFETY: the caller's memory for the old action.
        unsafe { old.write(before) };
    }
    0
}

/// sigaction(2) for any other signal that exists.
unsafe fn sigaction_of_signal(signal: c_int, action: *const Action, old: *mut Action) -> c_int {
    let (wanted, index) = (if action.is_null() { None } else { Some(action) }, signal as usize);
    // SAFETY: any bits are an action.
    let wanted = match wanted.map(|action| unsafe { user::load(action) }) {
        Some(None) => return fail(libc::EFAULT) as c_int,
        Some(wanted) => wanted,
        None => None,
    };
    // SAFETY: all-zero is a valid action.
    let mut before: Action = unsafe { core::mem::zeroed() };
    let call = libcs();
    let result = DISPOSITIONS.with(|| {
        let handler = HANDLERS[index].load(Ordering::Acquire);
        let flags = FLAGS[index].load(Ordering::Acquire) as c_int;
        // SAFETY: actions of our own.
        let result = unsafe {
            match wanted {
                Some(wanted) if is_handler(wanted.sa_sigaction) => {
                    register_signal(signal, wanted, &mut before)
                }
                Some(wanted) => call(signal, &raw const wanted, &raw mut before),
                None => call(signal, core::ptr::null(), &raw mut before),
            }
        };
        if before.sa_sigaction == ours() {
            show_programs(&mut before, handler, flags);
        }
        result
    });
    if let (0, Some(wanted)) = (result, wanted) {
        discard_if_ignored(signal, wanted.sa_sigaction);
    }
    if result == 0 && !old.is_null() {
        // SAFETY: the caller's memory for the old action.
        unsafe { old.write(before) };
    }
    result
}

/// Registers our handler in place of the program's.
///
/// # Safety
/// `wanted` is valid.
unsafe fn register_signal(signal: c_int, mut wanted: Action, before: &mut Action) -> c_int {
    let index = signal as usize % SIGNALS;
    let noted = [&FLAGS[index], &HANDLERS[index]].map(|word| word.load(Ordering::Acquire));
    FLAGS[index].store(wanted.sa_flags as usize, Ordering::Release);
    let mask = dispatch::without_sigsys(mask_of(&wanted));
    set_mask_of(&mut wanted, mask);
    let mask_before = MASKS[index].swap(mask, Ordering::AcqRel);
    // Always SA_SIGINFO: without it the kernel leaves the siginfo unwritten. A handler of one
    // argument ignores the further ones. Never SA_RESETHAND: the signal may come twice, for us and
    // for the program, and our handler does what that flag asks for.
    wanted.sa_flags = (wanted.sa_flags | libc::SA_SIGINFO) & !libc::SA_RESETHAND;
    let handler = core::mem::replace(&mut wanted.sa_sigaction, ours());
    HANDLERS[index].store(handler, Ordering::Release);
    // SAFETY: a valid action, and memory for the old one.
    let result = unsafe { libcs()(signal, &raw const wanted, before) };
    if result != 0 {
        FLAGS[index].store(noted[0], Ordering::Release);
        HANDLERS[index].store(noted[1], Ordering::Release);
        MASKS[index].store(mask_before, Ordering::Release);
    }
    result
}

/// Puts what the program registered into an action with our handler: the program's handler, and
/// the flags that are not the kernel's business or not only.
fn show_programs(action: &mut Action, handler: usize, flags: c_int) {
    const KEPT: c_int = libc::SA_SIGINFO | libc::SA_RESETHAND;
    action.sa_sigaction = handler;
    action.sa_flags = (action.sa_flags & !KEPT) | (flags & KEPT);
}

/// sigaction(2) in a vfork(2) child: its dispositions are its own, and what is noted here is its
/// parent's. So its handlers run without ours before them.
unsafe fn sigaction_of_child(signal: c_int, action: *const Action, old: *mut Action) -> c_int {
    // SAFETY: the caller's contract.
    let result = unsafe { real!(sigaction: Sigaction)(signal, action, old) };
    // SAFETY: null or valid.
    if let (0, Some(old)) = (result, unsafe { old.as_mut() })
        && (old.sa_sigaction == ours() || is_sigsys_handler(old.sa_sigaction))
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
    if !arm() {
        // SAFETY: the caller's contract.
        return unsafe { call(signal, handler) };
    }
    let index = signal as usize;
    // 2 is sigset's SIG_HOLD: a mask, not a handler.
    let plain = !is_handler(handler) || handler == 2 || fork::is_foreign();
    let noted = is_fault(signal) || is_sigsys_ours(signal) && !fork::is_foreign();
    if plain && !noted || !(1..SIGNALS).contains(&index) || handler == SIG_ERR {
        let before = HANDLERS.get(index).map_or(0, |before| before.load(Ordering::Acquire));
        // SAFETY: the caller's contract.
        let old = unsafe { call(signal, handler) };
        if plain && old != SIG_ERR {
            discard_if_ignored(signal, handler);
        }
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
