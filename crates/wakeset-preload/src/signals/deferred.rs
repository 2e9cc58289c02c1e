//! Signals that came while their thread was in a critical section, kept until its end.
//!
//! At the end of the section each of them is *raised* again: the thread sends itself the same
//! signal with tgkill(2) while all are blocked, and goes back to its mask. So the kernel delivers
//! it anew, as it delivers any other: on the stack that the program asked for, with the mask, the
//! context and the flags that it asked for. The siginfo that came first is kept here, and put in
//! place of the raised signal's.
//!
//! More signals of the same number may be pending by then, and the kernel gives those first. So an
//! entry belongs to a number and not to one arrival: an arrival that is not a raised signal puts
//! its own siginfo behind those kept for its number, and takes the oldest. Each arrival adds and
//! takes one, so none is lost and none changes its place. Standard signals are merged while they
//! are pending, also with one that is raised; then one more is raised for what is left.
//!
//! | an entry's `signal` | means | changed by |
//! |---|---|---|
//! | 0 | it is free | the thread that took what it held |
//! | -1 | a handler, or the thread, is filling or emptying it | whoever turned it to -1 |
//! | a number | it holds the siginfo of such a signal | a handler that has filled it |
//!
//! Handlers of one thread interrupt each other at any of these steps: each turns an entry to -1
//! with one instruction before it touches the rest.

use core::cell::Cell;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use libc::{SIG_DFL, SIG_IGN, siginfo_t, ucontext_t};
use syscalls::{Errno, Sysno, syscall};
use wakeset_fd::{refusable, signal_guard};

use super::dispositions::SIGNALS;

/// What the kernel fills of a siginfo, in words; the rest is zero.
const INFO_WORDS: usize = 6;
type Info = [u64; INFO_WORDS];

const FREE: c_int = 0;
const RESERVED: c_int = -1;

/// A signal of which there is one kept siginfo.
struct Entry {
    signal: AtomicI32,
    /// Whether it has been raised again.
    raised: Cell<bool>,
    /// [`DISCARDS`] of its number when it came.
    discards: Cell<u32>,
    /// Which of two of the same number came first.
    order: Cell<u32>,
    info: Cell<Info>,
}

/// How many signals a thread can keep. The kernel may deliver many that were pending at once; the
/// ones that have no room here wait in the kernel.
const ROOM: usize = 8;

struct Deferred {
    entries: [Entry; ROOM],
    next: Cell<u32>,
    /// The signals that the thread blocked before the first of them; all while none is deferred.
    mask: Cell<u64>,
}

thread_local! {
    // No destructor and no lazy part: a plain block in the thread's static TLS, safe in a handler.
    static DEFERRED: Deferred = const { Deferred {
        entries: [const { Entry {
            signal: AtomicI32::new(FREE),
            raised: Cell::new(false),
            discards: Cell::new(0),
            order: Cell::new(0),
            info: Cell::new([0; INFO_WORDS]),
        } }; ROOM],
        next: Cell::new(0),
        mask: Cell::new(!0),
    } };
}

/// Counts up when a signal becomes ignored: the kernel then discards those that are pending, and so
/// do we with those that are kept.
static DISCARDS: [AtomicU32; SIGNALS] = [const { AtomicU32::new(0) }; SIGNALS];

/// The signals that must get through in a critical section: an access to the program's memory may
/// fault there, and a system call may be one that a filter traps.
const FAULTS: [c_int; 3] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGSYS];

/// All signals but [`FAULTS`].
const ALL_BUT_FAULTS: u64 = !(1 << (FAULTS[0] - 1) | 1 << (FAULTS[1] - 1) | 1 << (FAULTS[2] - 1));

/// The first real-time signal, as the kernel counts.
const FIRST_REAL_TIME: c_int = 32;

/// Sets the mask of this thread.
pub(super) fn set_mask(mask: u64) {
    // SAFETY: a kernel signal set of our own.
    let _ = unsafe { syscall!(Sysno::rt_sigprocmask, libc::SIG_SETMASK, &raw const mask, 0, 8) };
}

fn discards(signal: c_int) -> u32 {
    DISCARDS[signal as usize % SIGNALS].load(Ordering::Acquire)
}

/// After the program has set a disposition: if the signal is ignored from now on, what is kept of
/// it is discarded, in every thread.
pub(super) fn discard_if_ignored(signal: c_int, disposition: usize) {
    let by_default = [libc::SIGCHLD, libc::SIGCONT, libc::SIGURG, libc::SIGWINCH];
    if disposition == SIG_IGN || disposition == SIG_DFL && by_default.contains(&signal) {
        DISCARDS[signal as usize % SIGNALS].fetch_add(1, Ordering::AcqRel);
    }
}

impl Entry {
    fn turn(&self, from: c_int, to: c_int) -> bool {
        self.signal.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }
}

impl Deferred {
    /// Keeps a siginfo behind those of the same number. Returns whether there was room.
    fn keep(&self, signal: c_int, info: Info, raised: bool) -> bool {
        let Some(entry) = self.entries.iter().find(|entry| entry.turn(FREE, RESERVED)) else {
            return false;
        };
        let order = self.next.get();
        self.next.set(order.wrapping_add(1));
        entry.raised.set(raised);
        entry.discards.set(discards(signal));
        entry.order.set(order);
        entry.info.set(info);
        entry.signal.store(signal, Ordering::SeqCst);
        true
    }

    /// The oldest entry of a number.
    fn oldest(&self, signal: c_int) -> Option<&Entry> {
        let of_signal = |entry: &&Entry| entry.signal.load(Ordering::SeqCst) == signal;
        let now = self.next.get();
        let age = |entry: &&Entry| now.wrapping_sub(entry.order.get());
        self.entries.iter().filter(of_signal).max_by_key(age)
    }

    /// Takes the oldest siginfo kept for a number.
    fn take(&self, signal: c_int) -> Option<Info> {
        loop {
            let entry = self.oldest(signal)?;
            if !entry.turn(signal, RESERVED) {
                // A handler that has interrupted this one took it.
                continue;
            }
            let (info, current) = (entry.info.get(), entry.discards.get() == discards(signal));
            entry.signal.store(FREE, Ordering::SeqCst);
            if current {
                return Some(info);
            }
        }
    }
}

/// # Safety
/// `info` is valid.
unsafe fn read_info(info: *const siginfo_t) -> Info {
    // SAFETY: a siginfo is 128 bytes, aligned to 8.
    unsafe { info.cast::<Info>().read() }
}

/// This process and this thread.
fn ids() -> (usize, usize) {
    // SAFETY: neither has arguments.
    unsafe { (syscall!(Sysno::getpid).unwrap_or(0), syscall!(Sysno::gettid).unwrap_or(0)) }
}

/// Signals of job control: the kernel discards pending ones of the other kind when one is sent.
const JOB_CONTROL: [c_int; 4] = [libc::SIGCONT, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];

/// Sends a signal to this thread.
fn raise(signal: c_int) -> Result<(), Errno> {
    if JOB_CONTROL.contains(&signal) {
        return Err(Errno::EINVAL);
    }
    let (pid, tid) = ids();
    // SAFETY: numbers only.
    unsafe { refusable::call(Sysno::tgkill, [pid, tid, signal as usize]) }.map(drop)
}

/// Sends this thread a signal with a siginfo.
///
/// # Safety
/// `info` is valid.
pub(super) unsafe fn send_again(signal: c_int, info: *const siginfo_t) {
    let (pid, tid) = ids();
    // SAFETY: the caller's contract.
    unsafe {
        let arguments = [pid, tid, signal as usize, info.expose_provenance()];
        if refusable::call(Sysno::rt_tgsigqueueinfo, arguments).is_err() {
            // A filter refuses it. Better without its siginfo than not at all.
            let _ = raise(signal);
        }
    }
}

/// Whether a signal looks like one that [`raise`] sent. Another that looks like it has the same
/// siginfo, so it does not matter which is taken for which.
///
/// # Safety
/// `info` is valid.
unsafe fn is_raised(info: *const siginfo_t) -> bool {
    // SAFETY: the caller's contract; the fields are those of a signal that a process has sent.
    let (code, pid, uid) = unsafe { ((*info).si_code, (*info).si_pid(), (*info).si_uid()) };
    match code {
        libc::SI_TKILL => pid as usize == ids().0,
        // Sent while RLIMIT_SIGPENDING was used up: the kernel keeps nothing but the number.
        libc::SI_USER => pid == 0 && uid == 0,
        _ => false,
    }
}

/// Keeps a signal until the end of the critical section it came in.
///
/// # Safety
/// What the kernel has passed to the handler.
pub(super) unsafe fn defer(signal: c_int, info: *const siginfo_t, context: *mut c_void) {
    // SAFETY: the caller's contract.
    unsafe {
        let mask = (&raw mut (*context.cast::<ucontext_t>()).uc_sigmask).cast::<u64>();
        let before = mask.read();
        DEFERRED.with(|deferred| {
            // Handlers that are to run one above the other come here from the top down, and one
            // may come while another is here; the one at the bottom has interrupted the section.
            // What comes later in the section finds all blocked. Each finds blocked what those
            // below it do and more, so the section's own mask is what all of them have in common.
            deferred.mask.set(deferred.mask.get() & before);
            let blocked = !FAULTS.contains(&signal);
            // What is not blocked meanwhile may come again, and is merged with itself as in the
            // kernel.
            let merged = !blocked && deferred.oldest(signal).is_some();
            if !merged && !deferred.keep(signal, read_info(info), false) && blocked {
                send_again(signal, info);
            }
        });
        mask.write(before | ALL_BUT_FAULTS);
    }
    signal_guard::set_deferred(true);
}

/// Before the handler of a fault that has interrupted a section: what comes during the handler is
/// deferred anew. Returns the mask that the section's end was to go back to, if a signal had come.
pub(super) fn interrupt_section() -> Option<u64> {
    if !signal_guard::is_deferred() {
        return None;
    }
    let before = DEFERRED.with(|deferred| deferred.mask.replace(!0));
    signal_guard::set_deferred(false);
    Some(before)
}

/// After that handler, with what [`interrupt_section`] returned: what has come before it or
/// meanwhile waits for the section's end, which goes back to the section's mask.
///
/// # Safety
/// What the kernel has passed to the handler.
pub(super) unsafe fn return_to_section(context: *mut c_void, before: Option<u64>) {
    if before.is_none() && !signal_guard::is_deferred() {
        return;
    }
    // SAFETY: the caller's contract.
    unsafe {
        let mask = (&raw mut (*context.cast::<ucontext_t>()).uc_sigmask).cast::<u64>();
        // Where signals had come before, this is the mask that they were deferred with.
        let own = before.unwrap_or(mask.read());
        DEFERRED.with(|deferred| deferred.mask.set(own));
        mask.write(mask.read() | ALL_BUT_FAULTS);
    }
    signal_guard::set_deferred(true);
}

/// Whether a signal of this number is kept.
pub(super) fn is_kept(signal: c_int) -> bool {
    DEFERRED.with(|deferred| deferred.oldest(signal).is_some())
}

/// When a signal has come in no section: puts the oldest siginfo that is kept for it in place of
/// its own.
///
/// # Safety
/// What the kernel has passed to the handler.
pub(super) unsafe fn exchange(signal: c_int, info: *mut siginfo_t) {
    DEFERRED.with(|deferred| {
        let Some(oldest) = deferred.take(signal) else { return };
        // SAFETY: the caller's contract.
        unsafe {
            if !is_raised(info) {
                if !deferred.keep(signal, read_info(info), true) {
                    send_again(signal, info);
                } else if signal < FIRST_REAL_TIME && raise(signal).is_err() {
                    // A real-time signal that was raised still follows. A standard one was merged
                    // with this one; now this one was merged with it.
                    deferred.take(signal);
                }
            }
            info.cast::<Info>().write(oldest);
        }
    });
}

/// At the end of a section, with all signals blocked: raises what came in it. What cannot be raised
/// is given to `directly`, with its siginfo and the mask of the thread. Goes back to that mask.
pub(super) fn raise_all(directly: impl Fn(c_int, &mut siginfo_t, u64)) {
    DEFERRED.with(|deferred| {
        let mask = deferred.mask.replace(!0);
        for entry in &deferred.entries {
            let signal = entry.signal.load(Ordering::SeqCst);
            if signal <= 0 || entry.raised.replace(true) || raise(signal).is_ok() {
                continue;
            }
            if let Some(kept) = deferred.take(signal) {
                // SAFETY: all-zero is a valid siginfo, and as large as this at least.
                let mut info: siginfo_t = unsafe { core::mem::zeroed() };
                // SAFETY: as above.
                unsafe { (&raw mut info).cast::<Info>().write(kept) };
                directly(signal, &mut info, mask);
            }
        }
        set_mask(mask);
    });
}

/// After a fork, in the child: what was pending for the parent is not pending for the child.
pub(crate) fn drop_deferred() {
    DEFERRED.with(|deferred| {
        // What is free already is not written to, so that its page is not copied.
        let kept = |entry: &&Entry| entry.signal.load(Ordering::SeqCst) != FREE;
        for entry in deferred.entries.iter().filter(kept) {
            entry.signal.store(FREE, Ordering::SeqCst);
        }
        if signal_guard::is_deferred() {
            signal_guard::set_deferred(false);
            set_mask(deferred.mask.replace(!0));
        }
    });
}
