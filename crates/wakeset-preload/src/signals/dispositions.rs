//! What the program has set for each signal. In the kernel every handler is ours.

use crate::real::real;
use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use libc::{SIG_DFL, SIG_ERR, SIG_IGN, sigaction as Action};
use wakeset_fd::signal_guard::SignalSafeLock;

/// One more than the highest number of a signal.
pub(super) const SIGNALS: usize = 65;

/// The program's handler for each signal.
pub(super) static HANDLERS: [AtomicUsize; SIGNALS] = [const { AtomicUsize::new(0) }; SIGNALS];
/// The flags of sigaction(2) that it was registered with.
pub(super) static FLAGS: [AtomicUsize; SIGNALS] = [const { AtomicUsize::new(0) }; SIGNALS];
/// The signals that are blocked while it runs.
pub(super) static MASKS: [AtomicU64; SIGNALS] = [const { AtomicU64::new(0) }; SIGNALS];

/// Whether a disposition is a function of the program.
pub(super) fn is_handler(handler: usize) -> bool {
    handler != SIG_DFL && handler != SIG_IGN && handler != SIG_ERR
}

/// The address of our handler of SIGSYS, once it is registered. It stays so.
pub(super) static SIGSYS_HANDLER: AtomicUsize = AtomicUsize::new(0);

/// Whether a signal is SIGSYS, and its handler ours.
pub(super) fn is_sigsys_ours(signal: c_int) -> bool {
    signal == libc::SIGSYS && SIGSYS_HANDLER.load(Ordering::Acquire) != 0
}

/// Whether a disposition of the kernel's is our handler of SIGSYS.
pub(super) fn is_sigsys_handler(handler: usize) -> bool {
    handler != 0 && handler == SIGSYS_HANDLER.load(Ordering::Acquire)
}

/// The kernel's part of an action's mask.
pub(super) fn mask_of(action: &Action) -> u64 {
    // SAFETY: the first 8 bytes of glibc's set are the kernel's.
    unsafe { (&raw const action.sa_mask).cast::<u64>().read() }
}

/// Changes that.
pub(super) fn set_mask_of(action: &mut Action, mask: u64) {
    // SAFETY: as above.
    unsafe { (&raw mut action.sa_mask).cast::<u64>().write(mask) };
}

/// The flag that libc adds to every action.
pub(super) const SA_RESTORER: c_int = 0x0400_0000;

/// sigaction(2), the function.
pub(super) type Sigaction = unsafe extern "C" fn(c_int, *const Action, *mut Action) -> c_int;

/// libc's own sigaction(2), by the name that other preloaded libraries leave alone.
pub(super) fn libcs() -> Sigaction {
    real!(__sigaction: Sigaction)
}

/// Guards changes of the other dispositions, which are several steps.
pub(super) struct Dispositions(SignalSafeLock);
#[unsafe(link_section = "wakeset_fork")]
pub(super) static DISPOSITIONS: Dispositions = Dispositions(SignalSafeLock::new());

impl Dispositions {
    /// Runs `f` while no other thread changes a disposition.
    pub(super) fn with<T>(&self, f: impl FnOnce() -> T) -> T {
        self.0.lock();
        let result = f();
        self.0.unlock();
        result
    }
}

/// The program's dispositions of the two faults that are always ours.
pub(super) struct Faults {
    lock: SignalSafeLock,
    actions: UnsafeCell<[MaybeUninit<Action>; 2]>,
}
// SAFETY: only used with the lock held, in `with`.
unsafe impl Sync for Faults {}
#[unsafe(link_section = "wakeset_fork")]
pub(super) static FAULTS: Faults = Faults {
    lock: SignalSafeLock::new(),
    actions: UnsafeCell::new([const { MaybeUninit::zeroed() }; 2]),
};

/// Whether a signal is one of the two whose handler is always ours.
pub(super) fn is_fault(signal: c_int) -> bool {
    matches!(signal, libc::SIGSEGV | libc::SIGBUS)
}

impl Faults {
    /// Runs `f` on the program's disposition of a fault.
    pub(super) fn with<T>(&self, signal: c_int, f: impl FnOnce(&mut Action) -> T) -> T {
        self.lock.lock_briefly();
        let index = usize::from(signal == libc::SIGBUS);
        // SAFETY: the lock is ours, and all-zero is a valid action, the default.
        let result = f(unsafe { (*self.actions.get())[index].assume_init_mut() });
        self.lock.unlock();
        result
    }
}

/// Before a fork: waits until no other thread is changing what a forked child goes on with.
pub(crate) fn hold() {
    DISPOSITIONS.0.lock();
    FAULTS.lock.lock();
}

/// After a fork, on both sides: undoes [`hold`].
pub(crate) fn release() {
    FAULTS.lock.unlock();
    DISPOSITIONS.0.unlock();
}

/// The flags of sigaction(2) that the program has set for a signal.
pub(super) fn flags_of(signal: c_int) -> c_int {
    match is_fault(signal) {
        true => FAULTS.with(signal, |action| action.sa_flags),
        false => FLAGS[signal as usize % SIGNALS].load(Ordering::Acquire) as c_int,
    }
}
