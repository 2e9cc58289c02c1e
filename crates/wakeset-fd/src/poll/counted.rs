//! What a call names that has migrated for forked children and may come home. A call that may not
//! sleep, and has no mask, is counted in the object, as a read is, so that the object does not come
//! home while the kernel is asked about it. Any other call keeps the object in the kernel: nothing
//! would wake one that sleeps there when the object came home.

use crate::table;
use crate::table::away::{self, Begun};
use core::cell::Cell;
use core::ffi::c_int;
use wakeset::mutated;

/// Keeps in the kernel what has been found away under a number, if it has not come home. It waits
/// for nothing: the poll may have a doorbell, for which a thread waits that holds the migrations
/// lock.
#[cold]
pub(super) fn keep_in_kernel(fd: c_int) -> Begun {
    if mutated!("sleeping_poll_is_counted") {
        return Begun::Counted;
    }
    let stays = match mutated!("poll_doubts_with_its_doorbell") {
        true => Some(away::doubt(fd)),
        false => away::try_doubt(fd),
    };
    if stays == Some(true) { Begun::Left } else { Begun::Again }
}

/// A call can be counted in so many objects. Further ones stay in the kernel, and so do sets.
const MOST: usize = 8;

/// The numbers in which a call is counted until this goes.
pub(super) struct Counted {
    /// How many forks there had been: a handler may fork within the call, which then counts in the
    /// parent alone.
    forks: Cell<u32>,
    numbers: [Cell<c_int>; MOST],
    n: Cell<usize>,
}

impl Counted {
    #[inline(always)]
    pub(super) fn new() -> Self {
        let numbers = [const { Cell::new(0) }; MOST];
        Self { forks: Cell::new(away::forks()), numbers, n: Cell::new(0) }
    }

    fn all(&self) -> &[Cell<c_int>] {
        self.numbers.get(..self.n.get()).unwrap_or_default()
    }

    /// Counts the call in what has been found away under a number, once, or keeps that in the
    /// kernel. The caller has a signal guard.
    #[cold]
    pub(super) fn begin(&self, fd: c_int) -> Begun {
        let forks = away::forks();
        if self.forks.replace(forks) != forks {
            self.n.set(0);
        }
        if self.all().iter().any(|counted| counted.get() == fd) {
            return Begun::Counted;
        }
        let is_countable =
            matches!(away::kind(fd), Some(table::COUNTER | table::TIMER | table::PIPE));
        let Some(place) = self.numbers.get(self.n.get()).filter(|_| is_countable) else {
            return keep_in_kernel(fd);
        };
        let begun = away::try_begin_call(fd);
        if begun == Begun::Counted {
            place.set(fd);
            self.n.set(self.n.get() + 1);
        }
        begun
    }

    #[cold]
    fn end(&self) {
        for fd in self.all() {
            away::end_call(fd.get(), self.forks.get());
        }
    }
}

impl Drop for Counted {
    #[inline(always)]
    fn drop(&mut self) {
        if self.n.get() != 0 {
            self.end();
        }
    }
}
