//! Signal handlers, kept out of critical sections.
//!
//! The program's handlers are registered behind one of ours. When a signal comes while its thread is in a
//! [`Section`](wakeset_fd::section::Section), ours notes it, has the kernel block all further ones on return, and lets the
//! section finish; at its end the program's handler is called, with the same information and the mask it asked for. The program sees the
//! signal a few hundred nanoseconds later, as if it had been sent then. Faults of the running instruction are never deferred.
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
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use libc::{SIG_DFL, SIG_ERR, SIG_IGN, sigaction as Action, siginfo_t, ucontext_t};
use syscalls::{Sysno, syscall};
use wakeset_fd::section::{self, SectionLock};
use wakeset_fd::{fork, user};

const SIGNALS: usize = 65;

/// The program's handler for each signal.
static HANDLERS: [AtomicUsize; SIGNALS] = [const { AtomicUsize::new(0) }; SIGNALS];
/// The flags and the mask they were registered with.
static FLAGS: [AtomicUsize; SIGNALS] = [const { AtomicUsize::new(0) }; SIGNALS];
static MASKS: [AtomicU64; SIGNALS] = [const { AtomicU64::new(0) }; SIGNALS];

/// A deferred signal: what came with it.
#[derive(Clone, Copy)]
struct Noted {
    signal: c_int,
    info: MaybeUninit<siginfo_t>,
    context: MaybeUninit<ucontext_t>,
}

/// The deferred signals of a thread. Everything but the two faults is blocked once one is noted, so there is at most one
/// of each of: any signal, a SIGSEGV that was sent, a SIGBUS that was sent.
struct Deferred {
    noted: UnsafeCell<[Noted; 3]>,
    /// The mask the thread had.
    mask: Cell<u64>,
}

const NOTHING: Noted = Noted { signal: 0, info: MaybeUninit::uninit(), context: MaybeUninit::uninit() };

thread_local! {
    /// Signals that this thread has handled.
    static HANDLED: Cell<u32> = const { Cell::new(0) };
    /// Those of them whose handlers were registered without `SA_RESTART`.
    static NOT_RESTARTING: Cell<u32> = const { Cell::new(0) };
    /// Signals that are not counted: see [`Uncounted`].
    static UNCOUNTED: Cell<u64> = const { Cell::new(0) };
    // No destructor and no lazy part: a plain block in the thread's static TLS, safe in a handler.
    static DEFERRED: Deferred = const { Deferred { noted: UnsafeCell::new([NOTHING; 3]), mask: Cell::new(0) } };
}

/// Faults of the running instruction, which cannot wait; the same numbers can be sent, too.
const FAULT_NUMBERS: [c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGSYS];

fn is_synchronous(signal: c_int, info: *const siginfo_t) -> bool {
    // SAFETY: all our handlers are registered with SA_SIGINFO, so the kernel passes a valid siginfo.
    FAULT_NUMBERS.contains(&signal) && unsafe { (*info).si_code } > 0
}

/// All signals but the two faults, which must get through: an access to the program's memory may fault in a section.
const ALL_BUT_FAULTS: u64 = !(1 << (libc::SIGSEGV - 1) | 1 << (libc::SIGBUS - 1));

fn set_mask(mask: u64) {
    // SAFETY: a kernel signal set of our own.
    let _ = unsafe { syscall!(Sysno::rt_sigprocmask, libc::SIG_SETMASK, &raw const mask, 0, 8) };
}

/// Notes a signal until the end of the section it came in.
fn defer(signal: c_int, info: *const siginfo_t, context: *mut c_void) {
    DEFERRED.with(|deferred| {
        let place = match signal {
            libc::SIGSEGV => 1,
            libc::SIGBUS => 2,
            _ => 0,
        };
        // SAFETY: this thread's own; what interrupts this is a fault that was sent, which has a place of its own.
        let noted = unsafe { &mut (*deferred.noted.get())[place] };
        // SAFETY: the kernel passes a valid siginfo and context.
        unsafe {
            noted.info.as_mut_ptr().copy_from_nonoverlapping(info, 1);
            noted.context.as_mut_ptr().copy_from_nonoverlapping(context.cast(), 1);
            let mask = (&raw mut (*context.cast::<ucontext_t>()).uc_sigmask).cast::<u64>();
            if !section::is_deferred() {
                deferred.mask.set(mask.read());
            }
            mask.write(mask.read() | ALL_BUT_FAULTS);
        }
        noted.signal = signal;
    });
    section::set_deferred(true);
}

/// At the end of a section in which a signal was deferred.
#[cold]
pub(crate) fn deliver_deferred() {
    set_mask(!0);
    let (noted, mask) = forget_deferred();
    for mut noted in noted {
        if noted.signal == 0 {
            continue;
        }
        let place = noted.signal as usize % SIGNALS;
        let mut during = mask | MASKS[place].load(Ordering::Acquire);
        if FLAGS[place].load(Ordering::Acquire) as c_int & libc::SA_NODEFER == 0 {
            during |= 1 << (place - 1);
        }
        set_mask(during);
        // SAFETY: copies of what the kernel passed.
        unsafe { handle(noted.signal, noted.info.as_mut_ptr(), noted.context.as_mut_ptr().cast()) };
        set_mask(!0);
    }
    set_mask(mask);
}

/// Takes out what was deferred, and the mask to go back to. In a forked child that is all: what was pending for the parent is not
/// for the child.
fn forget_deferred() -> ([Noted; 3], u64) {
    section::set_deferred(false);
    // SAFETY: this thread's own.
    DEFERRED.with(|deferred| (unsafe { deferred.noted.get().replace([NOTHING; 3]) }, deferred.mask.get()))
}

/// Before a fork: nobody else is in the middle of changing what a forked child goes on with.
pub(crate) fn hold() {
    FAULTS.lock.lock();
}

/// After a fork, on both sides.
pub(crate) fn release() {
    FAULTS.lock.unlock();
}

/// After a fork, in the child.
pub(crate) fn drop_deferred() {
    if section::is_deferred() {
        let (_, mask) = forget_deferred();
        set_mask(mask);
    }
}

/// The program's dispositions of the two faults that are always ours.
struct Faults {
    lock: SectionLock,
    actions: UnsafeCell<[MaybeUninit<Action>; 2]>,
}
// SAFETY: only used with the lock held, in `with`.
unsafe impl Sync for Faults {}
static FAULTS: Faults =
    Faults { lock: SectionLock::new(), actions: UnsafeCell::new([const { MaybeUninit::zeroed() }; 2]) };

fn is_fault(signal: c_int) -> bool {
    matches!(signal, libc::SIGSEGV | libc::SIGBUS)
}

impl Faults {
    /// Runs `f` on the program's disposition of a fault.
    fn with<T>(&self, signal: c_int, f: impl FnOnce(&mut Action) -> T) -> T {
        self.lock.lock();
        let place = usize::from(signal == libc::SIGBUS);
        // SAFETY: the lock is ours, and all-zero is a valid action, the default.
        let result = f(unsafe { (*self.actions.get())[place].assume_init_mut() });
        self.lock.unlock();
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
    if wanted.sa_sigaction == SIG_IGN {
        // Stays ignored over an exec, which a handler would not.
        // SAFETY: a valid action.
        return unsafe { real!(sigaction: Sigaction)(signal, &raw const action, core::ptr::null_mut()) };
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
    let synchronous = is_synchronous(signal, info);
    if is_fault(signal) && synchronous {
        // SAFETY: the kernel passes a valid context.
        unsafe {
            let registers = &raw mut (*context.cast::<ucontext_t>()).uc_mcontext.gregs;
            let address = &raw mut (*registers)[libc::REG_RIP as usize];
            if let Some(resume) = wakeset_fd::user::recovery(*address as usize) {
                *address = resume as i64;
                return;
            }
        }
    }
    if section::is_inside() && !synchronous {
        defer(signal, info, context);
        return;
    }
    // SAFETY: the kernel passes a valid context.
    unsafe { super::listener::interrupt_sleep(context) };
    // SAFETY: as it came.
    unsafe { handle(signal, info, context) };
}

/// While it lives, signals that the mask of the thread's call blocks are not counted: they cannot end it, though their handlers may run between two of the
/// system calls that it consists of.
pub(super) struct Uncounted(u64);

impl Uncounted {
    pub(super) fn begin(mask: u64) -> Self {
        Self(UNCOUNTED.with(|uncounted| uncounted.replace(mask)))
    }
}

impl Drop for Uncounted {
    fn drop(&mut self) {
        UNCOUNTED.with(|uncounted| uncounted.set(self.0));
    }
}

/// Where this thread counts the signals that it handles.
pub(super) fn handled() -> *mut u32 {
    HANDLED.with(Cell::as_ptr)
}

/// Where this thread counts those that end a call which `SA_RESTART` lets go on.
pub(super) fn not_restarting() -> *mut u32 {
    NOT_RESTARTING.with(Cell::as_ptr)
}

/// Whether a handler may run that is not behind ours, because it was registered by a system call that does not come through libc, and has none
/// of these flags of sigaction(2).
#[cold]
pub(super) fn may_have_foreign_handlers(without: c_int) -> bool {
    /// The kernel's struct, which is not glibc's.
    #[repr(C)]
    struct KernelAction {
        handler: usize,
        flags: usize,
        rest: [usize; 2],
    }
    // glibc keeps two for itself: for cancellation and for setuid(2) in all threads.
    (1..SIGNALS).filter(|signal| !matches!(signal, 32 | 33)).any(|signal| {
        let mut action = KernelAction { handler: SIG_DFL, flags: 0, rest: [0; 2] };
        // SAFETY: a place for the action, and the size of the kernel's signal set.
        let asked = unsafe { syscall!(Sysno::rt_sigaction, signal, 0, &raw mut action, 8) };
        let foreign = asked.is_ok() && is_handler(action.handler) && action.handler != ours();
        foreign && action.flags as c_int & without == 0
    })
}

/// Does what the program has set for a signal.
///
/// # Safety
/// As the kernel calls a handler.
unsafe fn handle(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // The handler may wait for itself, or jump away.
    let uncounted = UNCOUNTED.with(|uncounted| uncounted.replace(0));
    if uncounted >> (signal - 1) & 1 == 0 {
        count_handled(signal);
    }
    // SAFETY: as the caller's.
    unsafe { run_handler(signal, info, context) };
    UNCOUNTED.with(|now| now.set(uncounted));
}

fn count_handled(signal: c_int) {
    HANDLED.with(|handled| handled.set(handled.get().wrapping_add(1)));
    let flags = match is_fault(signal) {
        true => FAULTS.with(signal, |action| action.sa_flags),
        false => FLAGS[signal as usize % SIGNALS].load(Ordering::Acquire) as c_int,
    };
    if flags & libc::SA_RESTART == 0 {
        NOT_RESTARTING.with(|count| count.set(count.get().wrapping_add(1)));
    }
}

/// [`handle`], but for the counts.
///
/// # Safety
/// As the kernel calls a handler.
unsafe fn run_handler(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    super::uffd::before_handler();
    if is_fault(signal) {
        // SAFETY: as the caller's.
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

fn ours() -> usize {
    on_signal as *const () as usize
}

type Sigaction = unsafe extern "C" fn(c_int, *const Action, *mut Action) -> c_int;
type Signal = unsafe extern "C" fn(c_int, usize) -> usize;

fn is_handler(handler: usize) -> bool {
    handler != SIG_DFL && handler != SIG_IGN && handler != SIG_ERR
}

/// sigaction(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaction(signal: c_int, action: *const Action, old: *mut Action) -> c_int {
    let call = real!(sigaction: Sigaction);
    if fork::is_foreign() {
        // SAFETY: the same contract.
        return unsafe { sigaction_of_child(signal, action, old) };
    }
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
    let flags_before = FLAGS[place].load(Ordering::Acquire) as c_int;
    // SAFETY: the caller's contract: null or valid.
    let mut asked = unsafe { action.as_ref() }.copied();
    let result = match &mut asked {
        Some(asked) if is_handler(asked.sa_sigaction) => {
            FLAGS[place].store(asked.sa_flags as usize, Ordering::Release);
            // SAFETY: the first 8 bytes of glibc's set are the kernel's.
            MASKS[place].store(unsafe { (&raw const asked.sa_mask).cast::<u64>().read() }, Ordering::Release);
            // Always: without it the kernel leaves the siginfo unwritten. A handler of one argument does not look at the others.
            asked.sa_flags |= libc::SA_SIGINFO;
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
        show_programs(old, before, flags_before);
    }
    result
}

/// Puts into an action with our handler what the program registered: its handler, and whether that takes a siginfo.
fn show_programs(action: &mut Action, handler: usize, flags: c_int) {
    action.sa_sigaction = handler;
    if flags & libc::SA_SIGINFO == 0 {
        action.sa_flags &= !libc::SA_SIGINFO;
    }
}

/// sigaction(2) in a vfork(2) child: its dispositions are its own, and what we note is its parent's. So its handlers run without ours before them.
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
            let place = signal as usize % SIGNALS;
            show_programs(old, HANDLERS[place].load(Ordering::Acquire), FLAGS[place].load(Ordering::Acquire) as c_int);
        }
    }
    result
}

/// glibc's other name for sigaction(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __sigaction(signal: c_int, action: *const Action, old: *mut Action) -> c_int {
    // SAFETY: the same contract.
    unsafe { sigaction(signal, action, old) }
}

/// The flags sigset(3) registers with.
const SIGSET: c_int = 0;

/// signal(2) and its kin, by way of sigaction, so that the kernel passes a siginfo.
unsafe fn register(signal: c_int, handler: usize, flags: c_int, call: Signal) -> usize {
    let place = signal as usize;
    // 2 is sigset's SIG_HOLD: a mask, not a handler.
    let plain = !is_handler(handler) || handler == 2 || fork::is_foreign();
    if plain && !is_fault(signal) || !(1..SIGNALS).contains(&place) || handler == SIG_ERR {
        let before = HANDLERS.get(place).map_or(0, |before| before.load(Ordering::Acquire));
        // SAFETY: the caller's contract.
        let old = unsafe { call(signal, handler) };
        return if old == ours() { before } else { old };
    }
    if flags == SIGSET && !FAULT_NUMBERS.contains(&signal) {
        // It also unblocks the signal, and says whether it was blocked.
        let before = HANDLERS[place].swap(handler, Ordering::AcqRel);
        FLAGS[place].store(0, Ordering::Release);
        MASKS[place].store(0, Ordering::Release);
        // SAFETY: the caller's contract.
        let old = unsafe { call(signal, ours()) };
        if old == SIG_ERR {
            HANDLERS[place].store(before, Ordering::Release);
        }
        return if old == ours() { before } else { old };
    }
    // SAFETY: all-zero is a valid action.
    let (mut action, mut old): (Action, Action) = unsafe { core::mem::zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = flags;
    if flags == libc::SA_RESTART && INTERRUPTING.load(Ordering::Acquire) & 1 << (place - 1) != 0 {
        action.sa_flags = 0;
    }
    // SAFETY: valid places.
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
    // SAFETY: the caller's contract. libc changes the flags of what is registered, which is ours.
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
