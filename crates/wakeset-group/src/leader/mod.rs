//! The leader: of several threads that want to wait for the same thing, the one that does.
//!
//! Where the kernel wakes all threads that wait (a userfaultfd), only one thread of the process
//! waits in the kernel, the leader; the followers sleep on a futex of their own each. A leader that
//! has got an event frees the leadership, wakes exactly one follower, the *heir*, and goes to work.
//! An event costs two wake-ups at most, however many threads there are.
//!
//! A thread that is done with its work, or comes anew, before the heir has run takes the leadership
//! at once if there is an event, as in Linux a thread that finds a message takes it without a
//! sleep. The heir is queued again then, as the next one. Until it has come no other thread is
//! woken. So threads that have more work than time serve one event after the other and hardly
//! sleep, and where events come one at a time each thread has its turn.
//!
//! | leadership | means | left by |
//! |---|---|---|
//! | free | no thread waits in the kernel; if one is queued, there is an heir | [`Leadership::join`], [`Leadership::come`] |
//! | taken | a thread waits in the kernel, or is about to | [`Leadership::pass`], [`Leadership::hold`] |
//! | held | a thread was told that there is an event (poll(2)) and has not taken it (read(2)): a leader would be told of the same event | [`Leadership::taken`], or a queued thread after a while ([`Leadership::rescue`]) |
//!
//! Invariant: whenever a thread is queued, the leadership is taken or held, or there is an heir,
//! that has been woken and will come. So the only way to strand a thread is to lose the leadership
//! or the heir. Each function here that gives up either makes a queued thread the heir, or finds
//! the queue empty, under one lock.
//!
//! | waiter's state | means | set by |
//! |---|---|---|
//! | `QUEUED` | in the queue | its thread |
//! | `HEIR` | out of the queue, and the heir | the thread that passes the leadership |
//! | `OUT` | neither | its thread, which leads, or a signal handler on it ([`Leadership::leave`]); [`Leadership::disband`] |
//!
//! No function sleeps but [`Waiter::sleep`]. The functions may be called from a signal handler if
//! the caller keeps handlers off the thread while it is in one of them: they take one lock.

mod queue;
mod waiter;

use crate::order::Order;
use crate::sync::{Ordering, mutant};
use core::cell::UnsafeCell;
use queue::{FREE, Queue, TAKEN};
use waiter::{HEIR, Next, OUT, QUEUED, wake};
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

    /// Whether the leadership is free and its heir has not come yet. By the time that this returns
    /// it may not be so any more.
    pub fn awaits_heir(&self) -> bool {
        self.with(|queue| queue.awaits_heir())
    }

    /// Makes the thread the leader if the leadership is free or held by this thread; otherwise
    /// queues it. Returns whether it leads. A waiter without a limit takes a leadership that any
    /// thread holds.
    ///
    /// `has_event`: there is an event, which the thread need not leave to an heir that has not come
    /// yet. Without one the leadership stays the heir's.
    ///
    /// `me` is a number above 1 that no other thread has; `usize::MAX` for a thread that never
    /// calls [`hold`](Self::hold).
    ///
    /// # Safety
    /// A queued waiter stays where it is until it is out of the queue.
    pub unsafe fn join(&self, waiter: &Waiter, me: usize, has_event: bool) -> bool {
        self.with(|queue| {
            let may_take = queue.may_take(waiter, me) && (has_event || !queue.awaits_heir());
            if may_take {
                queue.set_leader(TAKEN);
            } else {
                queue.push(waiter);
            }
            may_take
        })
    }

    /// For the heir, once it runs: makes it the leader, unless another thread has come before it.
    /// Then it is queued again, as the next one. Returns whether it leads.
    ///
    /// # Safety
    /// As [`join`](Self::join). The waiter is the heir's.
    pub unsafe fn come(&self, waiter: &Waiter, me: usize, order: Order) -> bool {
        self.with(|queue| {
            queue.end_heir();
            let may_take = queue.may_take(waiter, me);
            if may_take {
                waiter.word().store(OUT, Ordering::Relaxed);
                queue.hand_on();
            } else {
                queue.push_next(waiter, order);
            }
            may_take
        })
    }

    /// Frees the leadership, which is the caller's, and wakes a queued thread to take it, unless
    /// one has been woken and has not come yet.
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

    /// Takes the thread out of the queue; wakes another if the thread is the heir.
    pub fn leave(&self, waiter: &Waiter, order: Order) {
        let next = self.with(|queue| {
            let state = waiter.word().load(Ordering::Relaxed);
            if state == QUEUED {
                queue.unlink(waiter);
            }
            waiter.word().store(OUT, Ordering::Relaxed);
            if mutant!("leave_with_turn") || state != HEIR {
                return None;
            }
            queue.end_heir();
            if queue.leader() == FREE { queue.pass(order) } else { None }
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
