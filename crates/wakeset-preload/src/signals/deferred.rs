//! Signals that came while their thread was in a critical section, kept until its end.

use core::cell::{Cell, UnsafeCell};
use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use libc::{siginfo_t, ucontext_t};
use syscalls::{Sysno, syscall};
use wakeset_fd::signal_guard;

/// A deferred signal, and what came with it; number 0 is none.
#[derive(Clone, Copy)]
pub(super) struct Noted {
    pub(super) signal: c_int,
    pub(super) info: MaybeUninit<siginfo_t>,
    pub(super) context: MaybeUninit<ucontext_t>,
}

/// The deferred signals of a thread. Everything but the two faults is blocked once one is noted, so
/// there is at most one of each of: any signal, a SIGSEGV that was sent, a SIGBUS that was sent.
struct Deferred {
    noted: UnsafeCell<[Noted; 3]>,
    /// The signals that the thread blocked before the first of them.
    mask: Cell<u64>,
}

const NOTHING: Noted =
    Noted { signal: 0, info: MaybeUninit::uninit(), context: MaybeUninit::uninit() };

thread_local! {
    // No destructor and no lazy part: a plain block in the thread's static TLS, safe in a handler.
    static DEFERRED: Deferred =
        const { Deferred { noted: UnsafeCell::new([NOTHING; 3]), mask: Cell::new(0) } };
}

/// All signals except the two faults, which must get through: an access to the program's memory may
/// fault in a critical section.
const ALL_BUT_FAULTS: u64 = !(1 << (libc::SIGSEGV - 1) | 1 << (libc::SIGBUS - 1));

/// Sets the mask of this thread.
pub(super) fn set_mask(mask: u64) {
    // SAFETY: a kernel signal set of our own.
    let _ = unsafe { syscall!(Sysno::rt_sigprocmask, libc::SIG_SETMASK, &raw const mask, 0, 8) };
}

/// Notes a signal until the end of the critical section it came in.
pub(super) fn defer(signal: c_int, info: *const siginfo_t, context: *mut c_void) {
    DEFERRED.with(|deferred| {
        let index = match signal {
            libc::SIGSEGV => 1,
            libc::SIGBUS => 2,
            _ => 0,
        };
        // SAFETY: this thread's own. Only a fault that was sent can interrupt this, and it has an
        // entry of its own.
        let noted = unsafe { &mut (*deferred.noted.get())[index] };
        // SAFETY: the kernel passes a valid siginfo and context.
        unsafe {
            noted.info.as_mut_ptr().copy_from_nonoverlapping(info, 1);
            noted.context.as_mut_ptr().copy_from_nonoverlapping(context.cast(), 1);
            let mask = (&raw mut (*context.cast::<ucontext_t>()).uc_sigmask).cast::<u64>();
            if !signal_guard::is_deferred() {
                deferred.mask.set(mask.read());
            }
            mask.write(mask.read() | ALL_BUT_FAULTS);
        }
        noted.signal = signal;
    });
    signal_guard::set_deferred(true);
}

/// Takes out what was deferred, and the mask to go back to.
pub(super) fn take_deferred() -> ([Noted; 3], u64) {
    signal_guard::set_deferred(false);
    // SAFETY: this thread's own.
    DEFERRED.with(|deferred| {
        // SAFETY: as above.
        (unsafe { deferred.noted.get().replace([NOTHING; 3]) }, deferred.mask.get())
    })
}

/// After a fork, in the child: what was pending for the parent is not pending for the child.
pub(crate) fn drop_deferred() {
    if signal_guard::is_deferred() {
        let (_, mask) = take_deferred();
        set_mask(mask);
    }
}
