//! Whether dispatch is on: in the process, for which addresses, and in each thread.
//!
//! The kernel keeps it for each thread, and neither a new thread nor a child of a fork inherits it.
//! So a thread turns it on for itself when it begins ([`arm_thread`]), and a child anew
//! ([`in_child`]). Nobody can turn it off for another thread: when the process has ended it, each
//! thread does so at the next call of its own that is caught.

use super::range::fill;
use super::{Range, Shape};
use core::cell::Cell;
use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use syscalls::{Errno, Sysno, syscall};

/// prctl(2).
const SET_DISPATCH: c_int = 59;

/// [`OFF`], or how dispatch is on, or [`OVER`]. The last two words are those of the range.
static STATE: AtomicU32 = AtomicU32::new(OFF);
static START: AtomicUsize = AtomicUsize::new(0);
static LEN: AtomicUsize = AtomicUsize::new(0);
const OFF: u32 = 0;
/// The kernel's numbers for the two shapes.
const ALL_BUT: u32 = 1;
const ONLY: u32 = 2;
/// It was on, and every object is the kernel's now, for good.
const OVER: u32 = 3;

/// Every object is the kernel's for good, because of system call instructions.
static LEFT: AtomicBool = AtomicBool::new(false);

/// How the calls are told apart; `None` while dispatch is off.
pub(crate) fn shape() -> Option<Shape> {
    let (start, len) = (START.load(Ordering::SeqCst), LEN.load(Ordering::SeqCst));
    let range = Range { start, end: start + len };
    match STATE.load(Ordering::SeqCst) {
        ALL_BUT => Some(Shape::AllBut(range)),
        ONLY => Some(Shape::Only(range)),
        _ => None,
    }
}

/// Whether dispatch is on.
pub(crate) fn is_on() -> bool {
    matches!(STATE.load(Ordering::Relaxed), ALL_BUT | ONLY)
}

/// Whether dispatch is on, or was on and may still be so in some thread.
pub(crate) fn was_on() -> bool {
    STATE.load(Ordering::Relaxed) != OFF
}

thread_local! {
    // No destructor and no lazy part: a plain word in the thread's static TLS, safe in a handler.
    /// Whether this thread has turned it on. The program may have turned on its own since.
    static ARMED: Cell<bool> = const { Cell::new(false) };
}

/// Whether a call that dispatch has caught in this thread was caught for us, and not for the
/// program.
pub(crate) fn is_armed() -> bool {
    ARMED.with(Cell::get)
}

/// Turns dispatch on, in the only thread there is.
///
/// # Errors
/// EINVAL where the kernel does not have it, or what a filter says. It is off then.
pub(crate) fn begin(shape: Shape) -> Result<(), Errno> {
    let (state, range) = match shape {
        Shape::AllBut(range) => (ALL_BUT, range),
        Shape::Only(range) => (ONLY, range),
    };
    if state == ALL_BUT {
        fill(range);
    }
    START.store(range.start, Ordering::SeqCst);
    LEN.store(range.len(), Ordering::SeqCst);
    STATE.store(state, Ordering::SeqCst);
    arm_thread().inspect_err(|_| STATE.store(OFF, Ordering::SeqCst))
}

/// Turns it on for the calling thread, if it is on.
///
/// # Errors
/// As [`begin`].
pub(crate) fn arm_thread() -> Result<(), Errno> {
    let state = STATE.load(Ordering::SeqCst);
    if !matches!(state, ALL_BUT | ONLY) {
        return Ok(());
    }
    let (start, len) = (START.load(Ordering::SeqCst), LEN.load(Ordering::SeqCst));
    ARMED.with(|armed| armed.set(true));
    // SAFETY: numbers only; without a selector the range alone decides.
    let asked = unsafe { syscall!(Sysno::prctl, SET_DISPATCH, state, start, len, 0) };
    ARMED.with(|armed| armed.set(asked.is_ok()));
    asked.map(drop)
}

/// Turns it off for the calling thread, if it has turned it on.
pub(crate) fn disarm_thread() {
    if !ARMED.with(|armed| armed.replace(false)) {
        return;
    }
    // SAFETY: numbers only.
    let _ = unsafe { syscall!(Sysno::prctl, SET_DISPATCH, 0, 0, 0, 0) };
}

/// In a forked child, for its only thread. Where the kernel refuses what it granted the parent,
/// everything is the kernel's.
pub(crate) fn in_child() {
    if arm_thread().is_err() {
        end();
        wakeset_fd::migrate::everything_for_good(wakeset_fd::stats::Stat::MigratedUnmodelled);
    }
}

/// Turns it off again in the only thread there is, while nothing needs it.
pub(crate) fn stand_down() {
    STATE.store(OFF, Ordering::SeqCst);
    disarm_thread();
}

/// Ends it in the process.
fn end() {
    let on = |state| matches!(state, ALL_BUT | ONLY).then_some(OVER);
    let _ = STATE.fetch_update(Ordering::SeqCst, Ordering::SeqCst, on);
}

/// Notes that every object is the kernel's because of instructions. Whether that is news.
pub(crate) fn leave() -> bool {
    end();
    !LEFT.swap(true, Ordering::SeqCst)
}

/// Whether every object is the kernel's because of instructions.
pub(crate) fn is_left() -> bool {
    LEFT.load(Ordering::SeqCst)
}

/// So many calls may be caught in [`WHILE`].
const OFTEN: u64 = 1024;
/// A second, about, in nanoseconds: a caught call costs some 4 µs, so half a percent of the time.
const WHILE: u64 = 1_000_000_000;

/// Counts a caught call. Whether they come so often that the program had better be left to the
/// kernel, which it then reaches at full speed.
pub(crate) fn is_too_often() -> bool {
    static CAUGHT: AtomicU64 = AtomicU64::new(1);
    static BEFORE: AtomicU64 = AtomicU64::new(0);
    if !CAUGHT.fetch_add(1, Ordering::Relaxed).is_multiple_of(OFTEN) {
        return false;
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: memory for the time.
    let asked =
        unsafe { syscall!(Sysno::clock_gettime, libc::CLOCK_MONOTONIC_COARSE, &raw mut time) };
    let now = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
    let before = BEFORE.swap(now, Ordering::Relaxed);
    asked.is_err() || (before != 0 && now - before < WHILE)
}

/// The bit of SIGSYS in the kernel's signal set.
const SIGSYS: u64 = 1 << (libc::SIGSYS - 1);

/// A signal mask that a thread may have: SIGSYS cannot be blocked while dispatch is on, or the
/// kernel ends the process at the next call that is caught; nor afterwards, while threads may have
/// it on.
pub(crate) fn without_sigsys(mask: u64) -> u64 {
    if was_on() { mask & !SIGSYS } else { mask }
}
