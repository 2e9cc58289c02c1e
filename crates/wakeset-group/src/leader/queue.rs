//! What the lock of a leadership guards: the leader, and the queue of the followers, a doubly
//! linked list through the waiters.

use super::waiter::{LEADS, Links, Next, QUEUED, Waiter};
use crate::order::Order;
use crate::sync::Ordering;
use core::ptr;

/// No thread leads.
pub(super) const FREE: usize = 0;
/// A thread leads. Any other number: the thread of that number holds the leadership.
pub(super) const TAKEN: usize = 1;

#[derive(Debug)]
pub(super) struct Queue {
    leader: usize,
    oldest: *const Waiter,
    newest: *const Waiter,
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

    /// Makes the next waiter the leader, or frees the leadership if there is none.
    pub fn pass(&mut self, order: Order) -> Option<Next> {
        let next = self.pop(order).map(|waiter| waiter.tell(LEADS));
        self.handed_on += u64::from(next.is_some());
        self.set_leader(if next.is_some() { TAKEN } else { FREE });
        next
    }

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
