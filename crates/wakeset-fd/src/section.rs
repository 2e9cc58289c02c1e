//! Sections that a signal handler of the same thread must not interrupt halfway.
//!
//! A handler may call anything we hook, also on the object whose lock the thread holds at that moment. Blocking signals
//! around each lock would cost two system calls; instead a section is one increment of a thread-local word, and whoever owns
//! the process's signal handlers (the preload library) looks at that word when a signal arrives: inside a section it defers
//! the signal to the section's end.
//!
//! Without such an owner sections cost the same and defer nothing: then these calls must not be made from handlers.

use crate::sys;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use wakeset::RawLock;

/// The part of the thread-local block that this module needs.
///
/// | word | means | changed by |
/// |---|---|---|
/// | `depth` | sections this thread is in | the thread |
/// | `deferred` | a signal waits for the end | a handler on the thread; the thread |
/// | `busy` | the thread is in a [`Moment`] | the thread |
/// | `stripe` | the thread's statistics stripe plus one, 0 for none yet | the thread |
/// | `owner` | the thread's name as an owner of polls, 0 for none yet | the thread |
mod thread_words {
    #[cfg(target_arch = "x86_64")]
    core::arch::global_asm!(
        ".section .tbss.wakeset_thread_words,\"awT\",@nobits",
        ".balign 8",
        ".hidden wakeset_thread_words",
        ".globl wakeset_thread_words",
        ".type wakeset_thread_words,@object",
        ".size wakeset_thread_words,24",
        "wakeset_thread_words:",
        ".zero 24",
        ".previous",
    );

    // Initial-exec: the library is there when the program starts, so each word is one instruction away, never a
    // call that may allocate.

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(super) fn add_depth(step: i32) -> i32 {
        let after: i32;
        // SAFETY: the word is this thread's own; xadd without LOCK is one instruction, so a handler sees it before or after.
        unsafe {
            core::arch::asm!(
                "mov {place}, qword ptr [rip + wakeset_thread_words@GOTTPOFF]",
                "mov {after:e}, {step:e}",
                "xadd dword ptr fs:[{place}], {after:e}",
                "add {after:e}, {step:e}",
                place = out(reg) _,
                step = in(reg) step,
                after = out(reg) after,
                options(nostack),
            );
        }
        after
    }

    /// Stores to the word at 12 and returns the one at 4.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(super) fn leave_moment() -> u32 {
        let deferred: u32;
        // SAFETY: the words are this thread's own.
        unsafe {
            core::arch::asm!(
                "mov {place}, qword ptr [rip + wakeset_thread_words@GOTTPOFF]",
                "mov dword ptr fs:[{place} + 12], 0",
                "mov {deferred:e}, dword ptr fs:[{place} + 4]",
                place = out(reg) _,
                deferred = out(reg) deferred,
                options(nostack, preserves_flags),
            );
        }
        deferred
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(super) fn enter_moment() {
        // SAFETY: the words are this thread's own.
        unsafe {
            core::arch::asm!(
                "mov {place}, qword ptr [rip + wakeset_thread_words@GOTTPOFF]",
                "mov dword ptr fs:[{place} + 12], 1",
                place = out(reg) _,
                options(nostack, preserves_flags),
            );
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(super) fn load(offset: usize) -> u32 {
        let value: u32;
        // SAFETY: the words are this thread's own.
        unsafe {
            core::arch::asm!(
                "mov {place}, qword ptr [rip + wakeset_thread_words@GOTTPOFF]",
                "mov {value:e}, dword ptr fs:[{place} + {offset}]",
                place = out(reg) _,
                offset = in(reg) offset,
                value = out(reg) value,
                options(nostack, preserves_flags),
            );
        }
        value
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(super) fn store(offset: usize, value: u32) {
        // SAFETY: the words are this thread's own.
        unsafe {
            core::arch::asm!(
                "mov {place}, qword ptr [rip + wakeset_thread_words@GOTTPOFF]",
                "mov dword ptr fs:[{place} + {offset}], {value:e}",
                place = out(reg) _,
                offset = in(reg) offset,
                value = in(reg) value,
                options(nostack, preserves_flags),
            );
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    mod portable {
        extern crate std;
        use core::cell::Cell;
        std::thread_local! { static WORDS: [Cell<u32>; 5] = const { [const { Cell::new(0) }; 5] }; }

        pub(in super::super) fn load(offset: usize) -> u32 {
            WORDS.with(|words| words[offset / 4].get())
        }
        pub(in super::super) fn store(offset: usize, value: u32) {
            WORDS.with(|words| words[offset / 4].set(value));
        }
        pub(in super::super) fn enter_moment() {
            store(12, 1);
        }
        pub(in super::super) fn leave_moment() -> u32 {
            store(12, 0);
            load(4)
        }
        pub(in super::super) fn add_depth(step: i32) -> i32 {
            let after = load(0) as i32 + step;
            store(0, after as u32);
            after
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    pub(super) use portable::{add_depth, enter_moment, leave_moment, load, store};
}

const DEFERRED: usize = 4;
const STRIPE: usize = 8;
const BUSY: usize = 12;
const OWNER: usize = 16;

/// What runs when a section ends in which a signal was deferred: a `fn()` as an address, 0 for none.
static FLUSH: AtomicUsize = AtomicUsize::new(0);

/// A section; it ends when dropped. Sections nest.
#[derive(Debug)]
#[must_use = "the section ends when this is dropped"]
pub struct Section(());

impl Section {
    /// Enters a section.
    #[inline(always)]
    pub fn enter() -> Self {
        thread_words::add_depth(1);
        Self(())
    }
}

impl Section {
    /// Leaves a section whose guard was forgotten.
    #[inline(always)]
    pub fn leave() {
        if thread_words::add_depth(-1) == 0 && thread_words::load(DEFERRED) != 0 {
            flush();
        }
    }
}

impl Drop for Section {
    #[inline(always)]
    fn drop(&mut self) {
        Self::leave();
    }
}

/// A section that does not nest and contains no other, for the fast paths: two stores and a load instead of two
/// read-modify-writes. What stands between a counter's change and the last of its wakes must not be left by a handler that
/// jumps away (siglongjmp(3)), or the event is lost.
#[derive(Debug)]
#[must_use = "the moment ends when this is dropped"]
pub(crate) struct Moment(());

impl Moment {
    #[inline(always)]
    pub(crate) fn enter() -> Self {
        thread_words::enter_moment();
        Self(())
    }
}

impl Drop for Moment {
    #[inline(always)]
    fn drop(&mut self) {
        if thread_words::leave_moment() != 0 && thread_words::load(0) == 0 {
            flush();
        }
    }
}

#[cold]
fn flush() {
    let flush = FLUSH.load(Ordering::Acquire);
    if flush != 0 {
        // SAFETY: only `set_flush` stores here, and it stores a `fn()`.
        let flush: fn() = unsafe { core::mem::transmute::<*const (), fn()>(flush as *const ()) };
        flush();
    }
}

/// Whether this thread is inside a section. For signal handlers.
pub fn is_inside() -> bool {
    thread_words::load(0) != 0 || thread_words::load(BUSY) != 0
}

/// Says whether a signal waits for the end of this thread's section.
pub fn set_deferred(deferred: bool) {
    thread_words::store(DEFERRED, u32::from(deferred));
}

/// Whether a signal waits for the end of this thread's section.
pub fn is_deferred() -> bool {
    thread_words::load(DEFERRED) != 0
}

/// Installs what runs at the end of a section in which a signal was deferred. It has to call
/// [`set_deferred`]`(false)`.
pub fn set_flush(flush: fn()) {
    FLUSH.store(flush as *const () as usize, Ordering::Release);
}

static MASK_MOVES: AtomicBool = AtomicBool::new(false);

/// From now on signals are blocked while objects move into the kernel. For who has no [`flush`](set_flush): a handler may then write to an
/// eventfd whatever it has interrupted.
pub fn mask_signals_in_moves() {
    MASK_MOVES.store(true, Ordering::Relaxed);
}

/// Signals are blocked until this is dropped, if [`mask_signals_in_moves`] was called.
#[must_use]
pub(crate) struct Masked(Option<u64>);

impl Masked {
    pub(crate) fn begin() -> Self {
        Self(MASK_MOVES.load(Ordering::Relaxed).then(|| sys::set_signal_mask(!0)))
    }
}

impl Drop for Masked {
    fn drop(&mut self) {
        if let Some(before) = self.0 {
            sys::set_signal_mask(before);
        }
    }
}

/// This thread's statistics stripe.
pub(crate) fn stripe() -> Option<usize> {
    (thread_words::load(STRIPE) as usize).checked_sub(1)
}

/// This thread's name as an owner of polls, 0 for none.
#[inline(always)]
pub(crate) fn owner() -> u32 {
    thread_words::load(OWNER)
}

pub(crate) fn set_owner(owner: u32) {
    thread_words::store(OWNER, owner);
}

pub(crate) fn set_stripe(stripe: Option<usize>) {
    thread_words::store(STRIPE, stripe.map_or(0, |stripe| stripe as u32 + 1));
}

/// A lock whose holder is in a section, so that a signal handler on the same thread cannot want it. Can be held across a fork, and
/// released by the child. Who finds it taken sleeps, and lends its priority as at a set's scan lock.
#[derive(Debug)]
pub struct SectionLock(RawLock);

impl SectionLock {
    /// A free lock.
    pub const fn new() -> Self {
        Self(RawLock::new())
    }

    /// Takes the lock; this thread is in a section until [`unlock`](Self::unlock).
    pub fn lock(&self) {
        core::mem::forget(Section::enter());
        self.0.lock();
    }

    /// Takes the lock if it is free; whether it was.
    pub fn try_lock(&self) -> bool {
        let section = Section::enter();
        let taken = self.0.try_lock();
        if taken {
            core::mem::forget(section);
        }
        taken
    }

    /// Gives the lock back, in the thread that took it or in its copy in a forked child.
    pub fn unlock(&self) {
        self.0.unlock();
        Section::leave();
    }

    /// As [`RawLock::free_in_child`]. It leaves no section.
    ///
    /// # Safety
    /// The same.
    pub(crate) unsafe fn free_in_child(&self) {
        // SAFETY: the caller's contract.
        unsafe { self.0.free_in_child() };
    }
}

impl Default for SectionLock {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicU32;

    #[test]
    fn sections_nest_and_flush_once_at_the_end() {
        static FLUSHED: AtomicU32 = AtomicU32::new(0);
        set_flush(|| {
            set_deferred(false);
            FLUSHED.fetch_add(1, Ordering::Relaxed);
        });
        let outer = Section::enter();
        assert!(is_inside());
        let inner = Section::enter();
        set_deferred(true);
        drop(inner);
        assert!(is_inside() && is_deferred());
        drop(outer);
        assert!(!is_inside() && !is_deferred());
        assert_eq!(FLUSHED.load(Ordering::Relaxed), 1);
    }
}
