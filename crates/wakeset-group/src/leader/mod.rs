//! The leader: of several threads that want to wait for the same thing, the one that does.
//!
//! Where the kernel wakes all threads that wait (a userfaultfd), only one thread of the process
//! waits in the kernel, the leader; the followers sleep on a futex of their own each. A leader that
//! has got an event passes the leadership to exactly one follower and goes to work. An event costs
//! two wake-ups, however many threads there are.
//!
//! | leadership | means | left by |
//! |---|---|---|
//! | free | no thread is queued, none waits in the kernel | [`Leadership::join`] |
//! | taken | a thread waits in the kernel, or is about to, or has been given the leadership and has not run yet | [`Leadership::pass`], [`Leadership::hold`] |
//! | held | a thread was told that there is an event (poll(2)) and has not taken it (read(2)): a leader would be told of the same event | [`Leadership::taken`], or a queued thread after a while ([`Leadership::rescue`]) |
//!
//! Invariant: whenever a thread is queued, the leadership is taken or held. So the only way to
//! strand a thread is to lose the leadership. Each function here that gives it up gives it to a
//! queued thread, or frees it with the queue empty, under one lock.
//!
//! | waiter's state | means | set by |
//! |---|---|---|
//! | `QUEUED` | in the queue | its thread |
//! | `LEADS` | out of the queue, and the leader | the thread that passes the leadership |
//! | `OUT` | out of the queue, and not the leader | its thread or a signal handler on it ([`Leadership::leave`]), [`Leadership::disband`] |
//!
//! No function sleeps but [`Waiter::sleep`]. The functions may be called from a signal handler if
//! the caller keeps handlers off the thread while it is in one of them: they take one lock.

mod queue;
mod waiter;

use crate::order::Order;
use crate::sync::{Ordering, mutant};
use core::cell::UnsafeCell;
use queue::{FREE, Queue, TAKEN};
use waiter::{Next, OUT, QUEUED, wake};
pub use waiter::{Waiter, Woken};
use wakeset::RawLock;

/// The threads that wait for one thing.
///
/// All zeros are a free leadership and an empty queue, so it may lie in memory that a fork wipes
/// (`MADV_WIPEONFORK`): in the child none of these threads exists.
#[derive(Debug)]
pub struct Leadership {
    lock: RawLock,
    queue: UnsafeCell<Queue>,
}

// SAFETY: `queue` is only touched with the lock held; the waiters that it leads to are out of it
// before they are freed.
unsafe impl Sync for Leadership {}
// SAFETY: as above.
unsafe impl Send for Leadership {}

impl Default for Leadership {
    fn default() -> Self {
        Self::new()
    }
}

impl Leadership {
    /// Free leadership, and an empty queue.
    #[cfg(not(loom))]
    #[must_use]
    pub const fn new() -> Self {
        Self::with_lock(RawLock::new())
    }

    pub(crate) const fn with_lock(lock: RawLock) -> Self {
        Self { lock, queue: UnsafeCell::new(Queue::new()) }
    }

    fn with<T>(&self, f: impl FnOnce(&mut Queue) -> T) -> T {
        self.lock.lock();
        // SAFETY: the lock is ours.
        let result = f(unsafe { &mut *self.queue.get() });
        self.lock.unlock();
        result
    }

    /// Makes the thread the leader if the leadership is free or held by this thread; otherwise
    /// queues it. Returns whether it leads. A waiter without a limit takes a leadership that any
    /// thread holds.
    ///
    /// `me` is a number above 1 that no other thread has; `usize::MAX` for a thread that never
    /// calls [`hold`](Self::hold).
    ///
    /// # Safety
    /// A queued waiter stays where it is until it is out of the queue.
    pub unsafe fn join(&self, waiter: &Waiter, me: usize) -> bool {
        self.with(|queue| {
            let leader = queue.leader();
            if leader == FREE || leader == me || (leader != TAKEN && waiter.has_no_limit()) {
                queue.set_leader(TAKEN);
                return true;
            }
            queue.push(waiter);
            false
        })
    }

    /// Gives the leadership, which is the caller's, to a queued thread; frees it if there is none.
    pub fn pass(&self, order: Order) {
        let next = self.with(|queue| queue.pass(order));
        if mutant!("pass_without_wake") {
            return;
        }
        wake(next);
    }

    /// Holds the leadership, which is the caller's: the caller was told of an event that it has not
    /// taken. If a waiter without a limit is queued, that one becomes the leader instead, because
    /// it could not [`rescue`](Self::rescue) a leadership that stays held.
    pub fn hold(&self, me: usize, order: Order) {
        let next = self.with(|queue| {
            if queue.has_one_without_limit() || mutant!("told_and_passed") {
                return queue.pass(order);
            }
            queue.set_leader(me);
            None
        });
        wake(next);
    }

    /// An event was taken, or was found to be gone: a leadership that is held goes to the next
    /// thread.
    pub fn taken(&self, order: Order) {
        let next = self.with(|queue| if queue.is_held() { queue.pass(order) } else { None });
        wake(next);
    }

    /// Takes the thread out of the queue; passes the leadership on if the thread has been given it.
    pub fn leave(&self, waiter: &Waiter, order: Order) {
        let next = self.with(|queue| {
            let state = waiter.word().load(Ordering::Relaxed);
            if state == QUEUED {
                queue.unlink(waiter);
            }
            waiter.word().store(OUT, Ordering::Relaxed);
            if mutant!("leave_with_turn") {
                return None;
            }
            if state == waiter::LEADS { queue.pass(order) } else { None }
        });
        wake(next);
    }

    /// A number that changes whenever the leadership does.
    pub fn stamp(&self) -> u32 {
        self.with(|queue| queue.stamp())
    }

    /// For a queued thread that has slept long enough: makes it the leader if the leadership is
    /// still held as it was at `stamp`. Returns whether it leads.
    pub fn rescue(&self, waiter: &Waiter, stamp: u32) -> bool {
        self.with(|queue| {
            let stuck = queue.is_held() && queue.stamp() == stamp;
            if !stuck || !waiter.is_queued() {
                return false;
            }
            queue.unlink(waiter);
            waiter.word().store(OUT, Ordering::Relaxed);
            queue.set_leader(TAKEN);
            true
        })
    }

    /// Sends every thread out of the queue.
    pub fn disband(&self) {
        loop {
            let next: Option<Next> =
                self.with(|queue| queue.pop(Order::Fifo).map(|waiter| waiter.tell(OUT)));
            if next.is_none() {
                return;
            }
            if !mutant!("disband_without_wake") {
                wake(next);
            }
        }
    }

    /// Whether a thread is queued.
    pub fn has_queue(&self) -> bool {
        self.with(|queue| !queue.is_empty())
    }

    /// How often the leadership went from one thread to another.
    pub fn handed_on(&self) -> u64 {
        self.with(|queue| queue.handed_on())
    }
}
