//! Files that outlive their numbers: a call that sleeps in an object goes on with the file it began
//! with when another thread closes the number, or puts another file under it. The kernel holds a
//! file for the length of a call; here a hidden duplicate does.

use crate::table::lifecycle::{self, Participant, Rank};
use crate::table::{self, hidden};
use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, Ordering};

/// The duplicate for those that sleep in one object, while there is one.
#[derive(Debug)]
pub(crate) struct KeptFile(AtomicI32);

const NONE: c_int = -1;

impl KeptFile {
    pub(crate) const fn none() -> Self {
        Self(AtomicI32::new(NONE))
    }

    /// Keeps the file of a number that is about to be closed. Where no number is left for the
    /// duplicate there is none. The caller holds the migrations lock.
    pub(crate) fn keep(&self, fd: c_int) {
        lifecycle::sign_up(&KEPT);
        if let Some(hidden) = hidden::hidden_duplicate(fd) {
            self.0.store(hidden, Ordering::SeqCst);
        }
    }

    /// The number of the duplicate. It stays what it is while the caller uses the object, unless
    /// the program puts a file of its own under that very number.
    pub(crate) fn number(&self) -> Option<c_int> {
        Some(self.0.load(Ordering::SeqCst)).filter(|number| *number != NONE)
    }

    /// Nobody uses the object any more.
    pub(crate) fn let_go(&self) {
        hidden::close_in(&self.0, NONE);
    }

    fn renumber(&self, old: c_int, new: c_int) {
        let _ = self.0.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst);
    }
}

static KEPT: Participant = Participant {
    rank: Rank::Kept,
    // The table is forgotten, with the slots that know of such numbers.
    begin_anew: || {},
    renumber: Some(renumber),
    before_close: None,
};

fn renumber(old: c_int, new: c_int) {
    for fd in table::numbers() {
        table::each_slot(fd, |slot| {
            if let Some(kept) = slot.object().kept() {
                kept.renumber(old, new);
            }
        });
    }
}
