//! What the lock of a leadership guards: the leader, and the queue of the followers, a doubly
//! linked list through the waiters.

use super::waiter::{HEIR, Links, Next, QUEUED, Waiter};
use crate::order::Order;
use crate::sync::{Ordering, mutant};
use core::ptr;

/// No thread leads. If there is an heir, one has been woken to lead.
pub(super) const FREE: usize = 0;
/// A thread leads. Any other number: the thread of that number holds the leadership.
pub(super) const TAKEN: usize = 1;

#[derive(Debug)]
pub(super) struct Queue {
    leader: usize,
    oldest: *const Waiter,
    newest: *const Waiter,
    /// A thread was made the heir, and has not come for the leadership yet.
    has_heir: bool,
    /// Queued waiters without a limit.
    without_limit: u32,
    /// Counts up whenever the leadership changes: a thread that has seen the same number for long
    /// has seen the same holder.
    stamp: u32,
    /// How often the leadership went from one thread to another.
    handed_on: u64,
}

impl Queue {
    pub const fn new() -> Self {
        Self {
            leader: FREE,
            oldest: ptr::null(),
            newest: ptr::null(),
            has_heir: false,
            without_limit: 0,
            stamp: 0,
            handed_on: 0,
        }
    }

    pub fn leader(&self) -> usize {
        self.leader
    }

    pub fn set_leader(&mut self, leader: usize) {
        self.leader = leader;
        self.stamp = self.stamp.wrapping_add(1);
    }

    pub fn is_held(&self) -> bool {
        !matches!(self.leader, FREE | TAKEN)
    }

    pub fn has_one_without_limit(&self) -> bool {
        self.without_limit > 0
    }

    pub fn is_empty(&self) -> bool {
        self.oldest.is_null()
    }

    pub fn stamp(&self) -> u32 {
        self.stamp
    }

    pub fn handed_on(&self) -> u64 {
        self.handed_on
    }

    /// Frees the leadership, and makes the next waiter the heir unless there is one.
    pub fn pass(&mut self, order: Order) -> Option<Next> {
        self.set_leader(FREE);
        if self.has_heir {
            return None;
        }
        let heir = self.pop(order).map(|waiter| waiter.tell(HEIR));
        self.has_heir = heir.is_some();
        heir
    }

    /// Whether the leadership is free, and an heir will come for it.
    pub fn awaits_heir(&self) -> bool {
        self.leader == FREE && self.has_heir
    }

    /// The heir has come, or goes away.
    pub fn end_heir(&mut self) {
        self.has_heir = mutant!("heir_stays");
    }

    /// The heir leads.
    pub fn hand_on(&mut self) {
        self.set_leader(TAKEN);
        self.handed_on += 1;
    }

    /// Whether a thread may take the leadership: it is free, or held by that thread; one that
    /// sleeps without a limit may take it from any holder.
    pub fn may_take(&self, waiter: &Waiter, me: usize) -> bool {
        self.leader == FREE || self.leader == me || (self.leader != TAKEN && waiter.has_no_limit())
    }

    /// Queues a waiter that has come last.
    pub fn push(&mut self, waiter: &Waiter) {
        waiter.word().store(QUEUED, Ordering::Relaxed);
        // SAFETY: the lock is held, and queued waiters are where they were.
        unsafe {
            *waiter.links.get() = Links { older: self.newest, newer: ptr::null() };
            match self.newest.as_ref() {
                Some(newest) => (*newest.links.get()).newer = waiter,
                None => self.oldest = waiter,
            }
        }
        self.newest = waiter;
        self.without_limit += u32::from(waiter.has_no_limit());
    }

    /// Queues a waiter as the next one.
    pub fn push_next(&mut self, waiter: &Waiter, order: Order) {
        if order == Order::Lifo {
            return self.push(waiter);
        }
        waiter.word().store(QUEUED, Ordering::Relaxed);
        // SAFETY: as in `push`.
        unsafe {
            *waiter.links.get() = Links { older: ptr::null(), newer: self.oldest };
            match self.oldest.as_ref() {
                Some(oldest) => (*oldest.links.get()).older = waiter,
                None => self.newest = waiter,
            }
        }
        self.oldest = waiter;
        self.without_limit += u32::from(waiter.has_no_limit());
    }

    /// Takes the next waiter out of the queue. It stays where it is until it is told.
    pub fn pop(&mut self, order: Order) -> Option<&'static Waiter> {
        let chosen = match order {
            Order::Fifo | Order::Turns => self.oldest,
            Order::Lifo => self.newest,
        };
        // SAFETY: queued waiters are where they were, and stay there until they are told.
        let chosen = unsafe { chosen.as_ref() }?;
        self.unlink(chosen);
        Some(chosen)
    }

    pub fn unlink(&mut self, waiter: &Waiter) {
        // SAFETY: the lock is held, and queued waiters are where they were.
        unsafe {
            let Links { older, newer } = *waiter.links.get();
            match older.as_ref() {
                Some(older) => (*older.links.get()).newer = newer,
                None => self.oldest = newer,
            }
            match newer.as_ref() {
                Some(newer) => (*newer.links.get()).older = older,
                None => self.newest = older,
            }
        }
        self.without_limit -= u32::from(waiter.has_no_limit());
    }
}
