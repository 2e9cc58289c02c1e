//! Io_urings that stay with the thread that made them.
//!
//! Both io_urings of this crate are set up for one thread (`IORING_SETUP_SINGLE_ISSUER`,
//! `IORING_SETUP_DEFER_TASKRUN`): [`CommandUring`](super::command_uring::CommandUring), which
//! carries out batches, and [`PollUring`](super::poll_uring::PollUring), which polls for a set.
//! When a batch or a set has done with its io_uring, the io_uring is not closed. It is kept here
//! until the thread wants one again, or has ended.
//!
//! **Why they are not closed.** The kernel detaches a closed io_uring from its thread by a signal
//! of its own, some 20 ms later. If the thread sleeps at that moment, in epoll_wait(2) for example,
//! the sleep ends with EINTR although the program has had no signal. A thread that has ended sleeps
//! no more, so its io_urings are let go of, when the next thread looks for a free slot. An io_uring
//! for which there is no free slot has to be closed after all, or must not be made.
//!
//! **Threads.** A thread is known by a name that is given once and never again, so that the
//! io_uring of a thread that has ended is not taken for that of a later one. Whether a thread has
//! ended is asked with its number of the kernel's. If that number is in use again the slot stays
//! taken for as long as it is.
//!
//! **Forks.** A child has none of these io_urings, nor their memory, and must close nothing: the
//! numbers are hidden ones, which are closed with the doorbells. Another thread of the parent may
//! have held the lock at the fork, and does not exist in the child. So the child frees the lock
//! before it uses it, and empties the slots ([`ThreadRings::forget_in_child`]).
//!
//! **Closes and renumberings.** The program cannot close a hidden number. When it takes one for
//! itself by dup2(2), the io_uring's descriptor moves to another number; the owner of the slots
//! follows it with [`ThreadRings::for_each`].
//!
//! The lock is taken below that of a set's polls, and nothing is taken below it.

use crate::sys;
use crate::sys::signal_guard::SignalSafeLock;
use crate::sys::sync::{AtomicU32, Ordering, const_fn, statics};
use core::cell::UnsafeCell;
use core::ffi::c_int;

statics! {
    /// The name that was given last.
    pub(crate) static LAST_NAME: AtomicU32 = AtomicU32::new(0);
}

/// The name of the calling thread, 0 if it has none yet.
#[inline]
pub(crate) fn own_name() -> u32 {
    sys::thread_name()
}

/// The name of the calling thread, which gets one now if it has none.
pub(crate) fn take_name() -> u32 {
    if own_name() == 0 {
        sys::set_thread_name(LAST_NAME.fetch_add(1, Ordering::Relaxed) + 1);
    }
    own_name()
}

/// The thread that an io_uring serves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Thread {
    name: u32,
    tid: c_int,
}

impl Thread {
    pub(crate) fn current() -> Self {
        Self { name: take_name(), tid: sys::gettid() }
    }

    pub(crate) fn is_current(self) -> bool {
        self.name == own_name()
    }

    fn has_ended(self) -> bool {
        !self.is_current() && !sys::is_thread(self.tid)
    }
}

/// An io_uring that serves one thread.
pub(crate) trait ThreadRing {
    fn thread(&self) -> Thread;

    /// Gives back what is left of the io_uring of a thread that has ended. Another thread calls
    /// this.
    fn let_go(self);
}

/// The io_urings of one kind that are kept, at most `N`.
pub(crate) struct ThreadRings<R, const N: usize> {
    pub(crate) lock: SignalSafeLock,
    slots: UnsafeCell<[Option<R>; N]>,
}

// SAFETY: the slots are only touched with the lock held.
unsafe impl<R: ThreadRing, const N: usize> Sync for ThreadRings<R, N> {}

impl<R: ThreadRing, const N: usize> ThreadRings<R, N> {
    const_fn! {
        pub(crate) const fn new() -> Self {
            Self { lock: SignalSafeLock::new(), slots: UnsafeCell::new([const { None }; N]) }
        }
    }

    pub(crate) fn with<T>(&self, f: impl FnOnce(&mut [Option<R>; N]) -> T) -> T {
        self.lock.lock();
        // SAFETY: this thread holds the lock.
        let result = f(unsafe { &mut *self.slots.get() });
        self.lock.unlock();
        result
    }

    /// Calls `f` with the slot of an io_uring of the calling thread that `fits`, or else with a
    /// free slot. `None` if there is neither.
    pub(crate) fn with_slot<T>(
        &self,
        fits: impl Fn(&R) -> bool,
        f: impl FnOnce(&mut Option<R>) -> T,
    ) -> Option<T> {
        self.with(|slots| {
            let is_own = |ring: &R| ring.thread().is_current() && fits(ring);
            let own = slots.iter().position(|slot| slot.as_ref().is_some_and(is_own));
            let index = own.or_else(|| {
                for slot in slots.iter_mut() {
                    if let Some(ring) = slot.take_if(|ring| ring.thread().has_ended()) {
                        ring.let_go();
                    }
                }
                slots.iter().position(Option::is_none)
            });
            index.and_then(|index| slots.get_mut(index)).map(f)
        })
    }

    /// Calls `f` with each io_uring that is kept, whosoever it is.
    pub(crate) fn for_each(&self, f: impl FnMut(&mut R)) {
        self.with(|slots| slots.iter_mut().flatten().for_each(f));
    }

    /// Forgets all of them, in a forked child, and frees the lock.
    ///
    /// # Safety
    /// The process is a forked child with one thread, which is in no other function of this.
    pub(crate) unsafe fn forget_in_child(&self) {
        // SAFETY: by the caller, nothing else touches the lock or the slots. Rings have no
        // destructor.
        unsafe {
            self.lock.free_in_child();
            *self.slots.get() = [const { None }; N];
        }
    }
}
