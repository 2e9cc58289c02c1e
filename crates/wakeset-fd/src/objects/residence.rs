//! Where the state of an object is.
//!
//! | value | the state is | set by | from |
//! |---|---|---|---|
//! | `HERE` | in the object's own words | the thread that makes an object in the slot, after it has opened the words and before the number stands for it | any: no other thread has the slot |
//! | `MIGRATING` | sealed, and on its way to the kernel object: a few instructions and system calls | the migrating thread, before it seals the words | `HERE` |
//! | `AWAITED` | the same, and a thread may sleep until it is there | an operation that has found the words sealed | `MIGRATING` |
//! | `IN_KERNEL` | in the kernel object | the migrating thread, which wakes sleepers if it was `AWAITED` | `MIGRATING`, `AWAITED` |
//! | `CLOSED` | nowhere: the number has been closed | the closing thread, before it seals the words | `HERE` |
//!
//! The words themselves say "sealed" in the step that takes the state out, and an operation looks
//! at the residence only after it has found them sealed. So the residence must be `MIGRATING` or
//! `CLOSED` before that step, and it is: both precede it, `MIGRATING` in a total order (SeqCst on
//! both sides) and `CLOSED` by a release.
//! `HERE` therefore means that the words are open, and an operation that finds them sealed and then
//! `HERE` has come upon the next object in the slot, and can try again.
//! A migration and a close of the same object never meet: the closing thread waits for the
//! migrating one, which does not begin once the number stands for the object no longer.

use crate::sys;
use crate::sys::steps::{step_lock, step_waited};
use core::sync::atomic::{AtomicU32, Ordering};

const HERE: u32 = 0;
const MIGRATING: u32 = 1;
const AWAITED: u32 = 2;
const IN_KERNEL: u32 = 3;
const CLOSED: u32 = 4;

/// The residence word of an object.
#[derive(Debug)]
pub(crate) struct Residence(AtomicU32);

/// What an operation is told that looks for the state of a sealed object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whereabouts {
    Here,
    Migrating,
    InKernel,
    Closed,
}

impl Residence {
    /// Of a slot without an object.
    pub(crate) const fn nowhere() -> Self {
        Self(AtomicU32::new(CLOSED))
    }

    fn change(&self, from: u32, to: u32) -> bool {
        self.0.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// For a new object, before its words are unsealed and its number stands for it.
    pub(crate) fn begin_here(&self) {
        // Release: after this the number is published, with a barrier.
        self.0.store(HERE, Ordering::Release);
    }

    pub(crate) fn now(&self) -> Whereabouts {
        match self.0.load(Ordering::SeqCst) {
            HERE => Whereabouts::Here,
            MIGRATING | AWAITED => Whereabouts::Migrating,
            IN_KERNEL => Whereabouts::InKernel,
            _ => Whereabouts::Closed,
        }
    }

    /// Before a migration seals the words; `false` if the state is not here.
    pub(crate) fn begin_migration(&self) -> bool {
        let begun = self.change(HERE, MIGRATING);
        if begun {
            step_lock!(Locked, &self.0);
        }
        begun
    }

    /// After a migration: operations go to the kernel object from now on.
    pub(crate) fn settle_in_kernel(&self) {
        if self.0.swap(IN_KERNEL, Ordering::SeqCst) == AWAITED {
            sys::futex_wake(&self.0, u32::MAX >> 1);
        }
        step_lock!(Unlocked, &self.0);
    }

    /// Before a close seals the words. Of no effect on an object that has migrated.
    pub(crate) fn close(&self) {
        // Not in one step: no migration begins any more, or is under way.
        if self.0.load(Ordering::SeqCst) == HERE {
            // Release: the seal comes after it, and whoever finds that sees this.
            self.0.store(CLOSED, Ordering::Release);
        }
    }

    /// Waits until the migration that has sealed the words is over.
    pub(crate) fn wait_until_settled(&self) {
        while self.now() == Whereabouts::Migrating {
            step_lock!(Waiting, &self.0);
            // It fails if the migration has ended, or another thread has said so.
            self.change(MIGRATING, AWAITED);
            sys::futex_wait(&self.0, AWAITED);
        }
        step_waited!();
    }
}
