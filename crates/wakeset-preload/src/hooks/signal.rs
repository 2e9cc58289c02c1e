//! Signal handlers, kept out of critical sections.
//!
//! The program's handlers are registered behind one of ours. When a signal comes while its thread is in a
//! [`Section`](wakeset_fd::section::Section), ours notes it, has the kernel block all further ones on return, and lets the
//! section finish; at its end the signal is queued again to the same thread, with the same information, and unblocked. The program sees the
//! signal a few hundred nanoseconds later, as if it had been sent then. Faults (SIGSEGV and the like) are never deferred.
//!
//! SIGSEGV and SIGBUS are always ours: a fault in one of our accesses to the program's memory becomes EFAULT
//! ([`wakeset_fd::user`]); every other one is the program's, or the kernel's default.
//!
//! What sigaction(2) and signal(2) report is what the program set.

use crate::outcome::fail;
use crate::real::real;
use core::cell::{Cell, UnsafeCell};
use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use libc::{SIG_DFL, SIG_ERR, SIG_IGN, sigaction as Action, siginfo_t, ucontext_t};
use syscalls::{Sysno, syscall};
use wakeset_fd::section::{self, Section};
use wakeset_fd::user;

const SIGNALS: usize = 65;

/// The program's handler for each signal.
static HANDLERS: [AtomicUsize; SIGNALS] = [const { AtomicUsize::new(0) }; SIGNALS];
/// Signals whose disposition goes back to the default when the handler starts (`SA_RESETHAND`), and how they were registered:
/// a deferred one has to be registered again.
static ONE_TIME: AtomicU64 = AtomicU64::new(0);
static FLAGS: [AtomicUsize; SIGNALS] = [const { AtomicUsize::new(0) }; SIGNALS];
static MASKS: [AtomicU64; SIGNALS] = [const { AtomicU64::new(0) }; SIGNALS];

/// A deferred signal: what came with it, and the mask its thread had.
struct Deferred {
    info: UnsafeCell<MaybeUninit<siginfo_t>>,
    signal: Cell<c_int>,
    mask: Cell<u64>,
}

thread_local! {
    // No destructor and no lazy part: a plain block in the thread's static TLS, safe in a handler.
    static DEFERRED: Deferred = const {
        Deferred { info: UnsafeCell::new(MaybeUninit::uninit()), signal: Cell::new(0), mask: Cell::new(0) }
    };
}

/// Faults of the running instruction, which cannot wait.
const SYNCHRONOUS: [c_int; 6] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGSYS];

fn mask_of_synchronous() -> u64 {
    SYNCHRONOUS.iter().fold(0, |mask, signal| mask | 1 << (signal - 1))
}

/// The program's dispositions of the two faults that are always ours.
struct Faults {
    busy: AtomicBool,
    actions: UnsafeCell<[MaybeUninit<Action>; 2]>,
}
// SAFETY: only used with `busy` set, in `with`.
unsafe impl Sync for Faults {}
static FAULTS: Faults =
    Faults { busy: AtomicBool::new(false), actions: UnsafeCell::new([const { MaybeUninit::zeroed() }; 2]) };

fn is_fault(signal: c_int) -> bool {
    matches!(signal, libc::SIGSEGV | libc::SIGBUS)
}

impl Faults {
    /// Runs `f` on the program's disposition of a fault.
    fn with<T>(&self, signal: c_int, f: impl FnOnce(&mut Action) -> T) -> T {
        let _section = Section::enter();
        while self.busy.swap(true, Ordering::Acquire) {
            core::hint::spin_loop();
        }
        let place = usize::from(signal == libc::SIGBUS);
        // SAFETY: `busy` is ours, and all-zero is a valid action, the default.
        let result = f(unsafe { (*self.actions.get())[place].assume_init_mut() });
        self.busy.store(false, Ordering::Release);
        result
    }
}

/// Makes the two faults ours. Before main, when nobody else can have them.
pub(crate) fn take_faults() {
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        let inherited = FAULTS.with(signal, |action| {
            // SAFETY: a place for the action.
            unsafe { real!(sigaction: Sigaction)(signal, core::ptr::null(), action) };
            *action
        });
        register_fault(signal, &inherited);
    }
}

/// Registers ours for a fault, in the way the program wants its own to run.
fn register_fault(signal: c_int, wanted: &Action) -> c_int {
    let mut action = *wanted;
    action.sa_sigaction = ours();
    // The disposition must stay ours: what SA_RESETHAND asks for is done in `on_fault`.
    action.sa_flags = (wanted.sa_flags & !libc::SA_RESETHAND) | libc::SA_SIGINFO;
    if !is_handler(wanted.sa_sigaction) {
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
    }
    // SAFETY: a valid action.
    unsafe { real!(sigaction: Sigaction)(signal, &raw const action, core::ptr::null_mut()) }
}

/// A SIGSEGV or SIGBUS that is not one of our accesses: what the program has set happens.
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
            // SAFETY: all-zero is the default action. A fault of the running instruction happens again; one that was sent is
            // sent again.
            unsafe {
                let default: Action = core::mem::zeroed();
                real!(sigaction: Sigaction)(signal, &raw const default, core::ptr::null_mut());
                if !from_kernel {
                    let (pid, tid) = (syscall!(Sysno::getpid).unwrap_or(0), syscall!(Sysno::gettid).unwrap_or(0));
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

/// What the kernel calls for every signal the program handles.
unsafe extern "C-unwind" fn on_signal(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    if is_fault(signal) {
        // SAFETY: the kernel passes a valid context.
        let resume = unsafe {
            let registers = &raw mut (*context.cast::<ucontext_t>()).uc_mcontext.gregs;
            let address = &raw mut (*registers)[libc::REG_RIP as usize];
            let resume = wakeset_fd::user::recovery(*address as usize);
            if let Some(resume) = resume {
                *address = resume as i64;
            }
            resume
        };
        if resume.is_none() {
            // SAFETY: as it came.
            unsafe { on_fault(signal, info, context) };
        }
        return;
    }
    if section::is_inside() && !SYNCHRONOUS.contains(&signal) {
        DEFERRED.with(|deferred| {
            // SAFETY: the kernel passes a valid siginfo and context. With everything blocked until the section ends there is
            // at most one deferred signal.
            unsafe {
                deferred.info.get().cast::<siginfo_t>().copy_from_nonoverlapping(info, 1);
                deferred.signal.set(signal);
                let mask = (&raw mut (*context.cast::<ucontext_t>()).uc_sigmask).cast::<u64>();
                deferred.mask.set(mask.read());
                mask.write(!mask_of_synchronous());
            }
        });
        section::set_deferred(true);
        return;
    }
    let handler = HANDLERS[signal as usize % SIGNALS].load(Ordering::Acquire);
    if handler > SIG_IGN {
        // SAFETY: what the program registered. The kernel fills all three registers whether SA_SIGINFO is set or not.
        unsafe {
            let handler: unsafe extern "C-unwind" fn(c_int, *mut siginfo_t, *mut c_void) =
                core::mem::transmute::<usize, _>(handler);
            handler(signal, info, context);
        }
    }
}

/// At the end of a section in which a signal was deferred.
#[cold]
pub(crate) fn deliver_deferred() {
    section::set_deferred(false);
    DEFERRED.with(|deferred| {
        let signal = deferred.signal.get();
        let place = signal as usize % SIGNALS;
        if ONE_TIME.fetch_and(!(1 << (place - 1)), Ordering::AcqRel) & 1 << (place - 1) != 0 {
            register_again(signal);
        }
        // SAFETY: everything but faults is blocked, so the signal stays pending until the mask is restored; the
        // information is the one it came with.
        unsafe {
            let (pid, tid) = (syscall!(Sysno::getpid).unwrap_or(0), syscall!(Sysno::gettid).unwrap_or(0));
            if syscall!(Sysno::rt_tgsigqueueinfo, pid, tid, signal, deferred.info.get()).is_err() {
                // The queue of pending signals is full: better without its information than not at all.
                let _ = syscall!(Sysno::tgkill, pid, tid, signal);
            }
            let mask = deferred.mask.get();
            let _ = syscall!(Sysno::rt_sigprocmask, libc::SIG_SETMASK, &raw const mask, 0, 8);
        }
    });
}

fn ours() -> usize {
    on_signal as *const () as usize
}

type Sigaction = unsafe extern "C" fn(c_int, *const Action, *mut Action) -> c_int;
type Signal = unsafe extern "C" fn(c_int, usize) -> usize;

fn register_again(signal: c_int) {
    let place = signal as usize % SIGNALS;
    // SAFETY: all-zero is a valid sigaction.
    let mut action: Action = unsafe { core::mem::zeroed() };
    action.sa_sigaction = ours();
    action.sa_flags = FLAGS[place].load(Ordering::Acquire) as c_int;
    // SAFETY: the first 8 bytes of glibc's set are the kernel's.
    unsafe { (&raw mut action.sa_mask).cast::<u64>().write(MASKS[place].load(Ordering::Acquire)) };
    ONE_TIME.fetch_or(1 << (place - 1), Ordering::AcqRel);
    // SAFETY: a valid action.
    unsafe { real!(sigaction: Sigaction)(signal, &raw const action, core::ptr::null_mut()) };
}

fn is_handler(handler: usize) -> bool {
    handler != SIG_DFL && handler != SIG_IGN && handler != SIG_ERR
}

/// sigaction(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaction(signal: c_int, action: *const Action, old: *mut Action) -> c_int {
    let call = real!(sigaction: Sigaction);
    if is_fault(signal) {
        // SAFETY: any bits are an action to be looked at.
        let asked = if action.is_null() { None } else { unsafe { user::load(action) } };
        if asked.is_none() && !action.is_null() {
            return fail(libc::EFAULT) as c_int;
        }
        let before = FAULTS.with(signal, |now| asked.map_or(*now, |asked| core::mem::replace(now, asked)));
        if let Some(asked) = asked {
            register_fault(signal, &asked);
        }
        if !old.is_null() {
            // SAFETY: the caller's place for the old action.
            unsafe { old.write(before) };
        }
        return 0;
    }
    let place = signal as usize;
    if !(1..SIGNALS).contains(&place) {
        // SAFETY: the caller's contract.
        return unsafe { call(signal, action, old) };
    }
    let before = HANDLERS[place].load(Ordering::Acquire);
    // SAFETY: the caller's contract: null or valid.
    let mut asked = unsafe { action.as_ref() }.copied();
    let result = match &mut asked {
        Some(asked) if is_handler(asked.sa_sigaction) => {
            FLAGS[place].store(asked.sa_flags as usize, Ordering::Release);
            // SAFETY: the first 8 bytes of glibc's set are the kernel's.
            MASKS[place].store(unsafe { (&raw const asked.sa_mask).cast::<u64>().read() }, Ordering::Release);
            let bit = 1 << (place - 1);
            if asked.sa_flags & libc::SA_RESETHAND != 0 {
                ONE_TIME.fetch_or(bit, Ordering::AcqRel);
            } else {
                ONE_TIME.fetch_and(!bit, Ordering::AcqRel);
            }
            HANDLERS[place].store(core::mem::replace(&mut asked.sa_sigaction, ours()), Ordering::Release);
            // SAFETY: a valid action, and the caller's place for the old one.
            let result = unsafe { call(signal, asked, old) };
            if result != 0 {
                HANDLERS[place].store(before, Ordering::Release);
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
        old.sa_sigaction = before;
    }
    result
}

/// glibc's other name for sigaction(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __sigaction(signal: c_int, action: *const Action, old: *mut Action) -> c_int {
    // SAFETY: the same contract.
    unsafe { sigaction(signal, action, old) }
}

/// Registers ours in place of `handler` with one of libc's older calls, and gives back what the program had.
unsafe fn register(signal: c_int, handler: usize, one_time: bool, call: Signal) -> usize {
    if is_fault(signal) && handler != SIG_ERR {
        // SAFETY: all-zero is a valid action.
        let mut action: Action = unsafe { core::mem::zeroed() };
        action.sa_sigaction = handler;
        action.sa_flags = if one_time { libc::SA_RESETHAND | libc::SA_NODEFER } else { libc::SA_RESTART };
        // SAFETY: all-zero is a valid action.
        let mut old: Action = unsafe { core::mem::zeroed() };
        // SAFETY: valid places.
        unsafe { sigaction(signal, &raw const action, &raw mut old) };
        return old.sa_sigaction;
    }
    let place = signal as usize;
    if !(1..SIGNALS).contains(&place) {
        // SAFETY: the caller's contract.
        return unsafe { call(signal, handler) };
    }
    let before = HANDLERS[place].load(Ordering::Acquire);
    let mut passed_on = handler;
    // 2 is sigset's SIG_HOLD: a mask, not a handler.
    if is_handler(handler) && handler != 2 {
        let bit = 1 << (place - 1);
        if one_time {
            FLAGS[place].store((libc::SA_RESETHAND | libc::SA_NODEFER) as usize, Ordering::Release);
            MASKS[place].store(0, Ordering::Release);
            ONE_TIME.fetch_or(bit, Ordering::AcqRel);
        } else {
            ONE_TIME.fetch_and(!bit, Ordering::AcqRel);
        }
        HANDLERS[place].store(handler, Ordering::Release);
        passed_on = ours();
    }
    // SAFETY: the caller's contract.
    let old = unsafe { call(signal, passed_on) };
    if old == SIG_ERR && passed_on == ours() {
        HANDLERS[place].store(before, Ordering::Release);
    }
    if old == ours() { before } else { old }
}

macro_rules! older_calls {
    ($($(#[$doc:meta])* $name:ident, one_time: $one_time:literal;)+) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(signal: c_int, handler: usize) -> usize {
            // SAFETY: the caller's contract.
            unsafe { register(signal, handler, $one_time, real!($name: Signal)) }
        }
    )+};
}

older_calls! {
    /// signal(2), with BSD semantics.
    signal, one_time: false;
    /// signal(2) by another name.
    bsd_signal, one_time: false;
    /// signal(2) by another name.
    ssignal, one_time: false;
    /// signal(2) with System V semantics.
    sysv_signal, one_time: true;
    /// glibc's other name for sysv_signal(3).
    __sysv_signal, one_time: true;
    /// sigset(3).
    sigset, one_time: false;
}
