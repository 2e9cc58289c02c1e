//! Critical sections that a signal handler of the same thread must not interrupt halfway.
//!
//! A handler may call any hooked function, also on the object whose lock its thread holds at that
//! moment. Blocking signals around each lock would cost two system calls. Instead a thread holds a
//! [`SignalGuard`], which costs one increment of a thread-local word. Whoever owns the process's
//! signal handlers (the preload library) checks that word when a signal arrives, and defers the
//! signal until the thread holds no guard.
//!
//! Without such an owner guards cost the same and defer nothing. The calls of this crate must not
//! be made from handlers then.

pub use super::signal_safe_lock::SignalSafeLock;
use super::stack;
use super::thread_words::{self, DEFERRED, DEPTH, FAST};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// What runs when a thread drops its last guard and a signal was deferred meanwhile: a `fn()` as an
/// address, 0 for none.
static FLUSH: AtomicUsize = AtomicUsize::new(0);

/// A critical section of the calling thread; it ends when this is dropped. Guards nest.
#[derive(Debug)]
#[must_use = "the critical section ends when this is dropped"]
pub struct SignalGuard(());

impl SignalGuard {
    /// Begins a critical section.
    #[inline(always)]
    pub fn enter() -> Self {
        thread_words::enter();
        Self(())
    }

    /// Begins a critical section of a few instructions, which calls nothing: in a handler, say,
    /// whose stack may be small.
    #[inline(always)]
    pub(super) fn enter_briefly() -> Self {
        thread_words::enter_briefly();
        Self(())
    }

    /// Begins a critical section, unless the thread is in a [`FastSignalGuard`]'s already.
    #[inline]
    pub(crate) fn enter_unless_fast() -> Option<Self> {
        (thread_words::load(FAST) == 0).then(Self::enter)
    }

    /// Ends a critical section whose guard was forgotten.
    #[inline(always)]
    pub fn leave() {
        if thread_words::add_depth(-1) == 0 && thread_words::load(DEFERRED) != 0 {
            flush();
        }
    }
}

impl Drop for SignalGuard {
    #[inline(always)]
    fn drop(&mut self) {
        Self::leave();
    }
}

/// A guard for the fast paths, which does not nest and contains no other guard: two stores and a
/// load instead of two read-modify-writes. It keeps a handler that jumps away (siglongjmp(3)) from
/// leaving between a counter's change and the last of its wakes, which would lose the event.
#[derive(Debug)]
#[must_use = "the critical section ends when this is dropped"]
pub(crate) struct FastSignalGuard(());

impl FastSignalGuard {
    #[inline(always)]
    pub(crate) fn enter() -> Self {
        thread_words::enter_fast();
        Self(())
    }
}

impl Drop for FastSignalGuard {
    #[inline(always)]
    fn drop(&mut self) {
        if thread_words::leave_fast() != 0 && thread_words::load(DEPTH) == 0 {
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

/// Returns whether the calling thread holds a guard. For signal handlers.
pub fn is_inside() -> bool {
    thread_words::load(DEPTH) != 0 || thread_words::load(FAST) != 0
}

/// Says whether a signal waits until this thread holds no guard.
pub fn set_deferred(deferred: bool) {
    thread_words::store(DEFERRED, u32::from(deferred));
}

/// Returns whether a signal waits until this thread holds no guard.
pub fn is_deferred() -> bool {
    thread_words::load(DEFERRED) != 0
}

/// Installs what runs when a thread drops its last guard and a signal was deferred meanwhile.
/// `flush` has to call [`set_deferred`]`(false)`. From now on a critical section begins with a look
/// whether the stack has room for it.
pub fn set_flush(flush: fn()) {
    FLUSH.store(flush as *const () as usize, Ordering::Release);
    if !cfg!(wakeset_libc_heap) {
        stack::look();
    }
}

static MASK_MIGRATIONS: AtomicBool = AtomicBool::new(false);

/// From now on signals are blocked while objects migrate into the kernel. This is for processes
/// without a [`flush`](set_flush): a handler may then write to an eventfd whatever it has
/// interrupted.
pub fn mask_signals_in_migrations() {
    MASK_MIGRATIONS.store(true, Ordering::Relaxed);
}

/// Blocks signals until it is dropped, if [`mask_signals_in_migrations`] was called.
#[must_use = "signals are blocked until this is dropped"]
pub(crate) struct Masked(Option<u64>);

impl Masked {
    pub(crate) fn begin() -> Self {
        Self(MASK_MIGRATIONS.load(Ordering::Relaxed).then(|| super::set_signal_mask(!0)))
    }
}

impl Drop for Masked {
    fn drop(&mut self) {
        if let Some(before) = self.0 {
            super::set_signal_mask(before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicU32;

    #[test]
    fn guards_nest_and_flush_once_at_the_end() {
        static FLUSHED: AtomicU32 = AtomicU32::new(0);
        set_flush(|| {
            set_deferred(false);
            FLUSHED.fetch_add(1, Ordering::Relaxed);
        });
        let outer = SignalGuard::enter();
        assert!(is_inside());
        let inner = SignalGuard::enter();
        set_deferred(true);
        drop(inner);
        assert!(is_inside() && is_deferred());
        drop(outer);
        assert!(!is_inside() && !is_deferred());
        assert_eq!(FLUSHED.load(Ordering::Relaxed), 1);
    }
}
