//! What the scan lock guards, with the interest list.

use crate::error::Error;
use crate::memory::pool::Pool;
use crate::set::base::pending::Pending;
use crate::set::deadlines::plans::Plans;
use crate::set::lease::leases::Leases;
use crate::sync::Ordering;
use crate::wake::watch::{Watch, guarded, shared};
use core::ptr::{self};
use hashbrown::HashTable;

/// What the scan lock guards.
#[derive(Debug)]
pub(crate) struct Scan {
    /// The interest list, by (descriptor, description).
    pub(in crate::set) interest: HashTable<*mut Watch>,
    pub(in crate::set) pending: Pending,
    /// What time makes ready.
    pub(in crate::set) plans: Plans,
    /// Free watches kept for the next add.
    pub(in crate::set) free: *mut Watch,
    /// The leases that may hold events.
    pub(crate) leases: Leases,
}

// SAFETY: the raw pointers lead to type-stable memory that the scan lock guards.
unsafe impl Send for Scan {}

pub(in crate::set) fn hash(fd: i32, source: *const ()) -> u64 {
    let key = (source.addr() as u64).rotate_left(29) ^ u64::from(fd as u32);
    let mixed = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 32)
}

impl Scan {
    pub(in crate::set) fn find(&self, key: u64, fd: i32, source: *const ()) -> Option<*mut Watch> {
        let is_it = |watch: &*mut Watch| {
            // SAFETY: on the interest list of the set whose lock the caller holds.
            let fields = unsafe { guarded(*watch) };
            fields.fd == fd && ptr::addr_eq(fields.source, source)
        };
        self.interest.find(key, is_it).copied()
    }

    pub(in crate::set) fn take_free(&mut self, pool: &Pool<Watch>) -> Result<*mut Watch, Error> {
        if self.free.is_null() {
            // A small set should not hold memory it does not use, a large one should not come back
            // often.
            self.free = pool.take(self.interest.len().clamp(1, 64))?;
        }
        let watch = self.free;
        // SAFETY: free watches are the set's own.
        self.free = unsafe { shared(watch) }.next.load(Ordering::Relaxed);
        Ok(watch)
    }

    /// The first and last of the free watches.
    pub(in crate::set) fn free_chain(&self) -> Option<(*mut Watch, *mut Watch)> {
        let first = self.free;
        if first.is_null() {
            return None;
        }
        let mut last = first;
        loop {
            // SAFETY: free watches are the set's own.
            let next = unsafe { shared(last) }.next.load(Ordering::Relaxed);
            if next.is_null() {
                return Some((first, last));
            }
            last = next;
        }
    }
}
