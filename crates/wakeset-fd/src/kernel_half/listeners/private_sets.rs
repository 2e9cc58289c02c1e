//! The kernel epolls that threads sleep in while they wait on listeners with poll(2) and its kin.
//!
//! Each thread has an entry in a table, which it keeps until it ends. The program does not see the
//! numbers of the sets: they are hidden, and may change.

use super::last_look::LastLook;
use crate::sys;
use crate::sys::signal_guard::SignalGuard;
use crate::table::lifecycle::{self, Participant, Rank};
use crate::table::{gate, hidden};
use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, Ordering};
use wakeset_group::listener::Sleeper;

/// One thread's set.
struct PrivateSet {
    /// The thread's number, 0 for a free entry.
    owner: AtomicI32,
    /// The set, -1 for none. Changed with the migrations lock held.
    set: AtomicI32,
}

/// Threads that can wait on a listener with poll(2) and its kin at a time; any more are left to the
/// kernel.
const THREADS: usize = 256;
static PRIVATE_SETS: [PrivateSet; THREADS] =
    [const { PrivateSet { owner: AtomicI32::new(0), set: AtomicI32::new(-1) } }; THREADS];

/// When a thread last found that all entries belong to threads that live, which takes a system call
/// for each.
static FULL: LastLook = LastLook::never();

/// The entries are of the parent in a forked child, and the sets' numbers hidden.
static HIDDEN_SETS: Participant = Participant {
    rank: Rank::Listeners,
    begin_anew: forget_all,
    renumber: Some(renumber),
    before_close: None,
};

/// The index of the calling thread's entry, which it keeps; one of a thread that has ended may
/// become its own. `None` if all are taken, or were a moment ago.
pub fn claim_index() -> Option<usize> {
    lifecycle::sign_up(&HIDDEN_SETS);
    if !FULL.until_next().is_zero() {
        return None;
    }
    let own = sys::gettid();
    let owned_by = |tid: c_int| {
        PRIVATE_SETS.iter().position(|private| private.owner.load(Ordering::SeqCst) == tid)
    };
    let claim = |private: &PrivateSet, owner: c_int| {
        private.owner.compare_exchange(owner, own, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    };
    let free = || PRIVATE_SETS.iter().position(|private| claim(private, 0));
    let left = || {
        PRIVATE_SETS.iter().position(|private| {
            let owner = private.owner.load(Ordering::SeqCst);
            !sys::is_thread(owner) && claim(private, owner)
        })
    };
    let index = owned_by(own).or_else(free).or_else(left);
    if index.is_none() {
        FULL.note();
    }
    index
}

/// The number of the set of an entry.
#[inline]
pub fn private_set(index: usize) -> Option<c_int> {
    PRIVATE_SETS
        .get(index)
        .map(|private| private.set.load(Ordering::SeqCst))
        .filter(|set| *set >= 0)
}

impl PrivateSet {
    /// Closes the set, and returns whether there was one. The caller holds the migrations lock.
    fn close(&self) -> bool {
        let set = self.set.swap(-1, Ordering::SeqCst);
        if set >= 0 {
            hidden::disclose(set);
            let _ = sys::close(set);
        }
        set >= 0
    }
}

/// Makes a new set for an entry, which is the calling thread's, and closes the old one. The sleeper
/// goes on with the new set. `None` if there is none to be had, or if it would take the last
/// number.
pub fn renew_private_set(index: usize, sleeper: &mut Sleeper) -> Option<()> {
    let private = PRIVATE_SETS.get(index)?;
    let _guard = SignalGuard::enter();
    let _migrating = gate::hold_migrations();
    private.close();
    let set = hidden::hide(sys::epoll_create1(libc::EPOLL_CLOEXEC).ok()?);
    private.set.store(set, Ordering::SeqCst);
    // The last number is the program's: it may be about to accept a connection.
    let Ok(spare) = sys::fcntl(set, libc::F_DUPFD_CLOEXEC, 0) else {
        private.close();
        return None;
    };
    let _ = sys::close(spare);
    sleeper.adopt(set);
    Some(())
}

/// Closes the set of an entry, which is the calling thread's. Returns whether there was one.
pub fn close_private_set(index: usize) -> bool {
    let _guard = SignalGuard::enter();
    let _migrating = gate::hold_migrations();
    PRIVATE_SETS.get(index).is_some_and(PrivateSet::close)
}

/// A hidden number has become another, or -1.
fn renumber(old: c_int, new: c_int) {
    for private in &PRIVATE_SETS {
        let _ = private.set.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst);
    }
}

/// In a forked child, which has closed all hidden numbers.
fn forget_all() {
    FULL.forget();
    for private in &PRIVATE_SETS {
        private.owner.store(0, Ordering::SeqCst);
        private.set.store(-1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;

    /// Every poll(2) of a thread without an entry asked for each of 256 threads whether it lives.
    #[test]
    fn a_full_table_is_not_searched_again_at_once() {
        // Not on the main thread, which has all the entries here.
        let claims = || {
            let all = |private: &PrivateSet| private.owner.store(sys::getpid(), Ordering::SeqCst);
            PRIVATE_SETS.iter().for_each(all);
            assert_eq!(claim_index(), None);
            // No thread has such a number.
            PRIVATE_SETS[7].owner.store(c_int::MAX, Ordering::SeqCst);
            assert_eq!(claim_index(), None, "it has checked");
            FULL.forget();
            assert_eq!(claim_index(), Some(7));
            assert_eq!(claim_index(), Some(7), "its own");
            FULL.note();
            forget_all();
            assert_eq!(claim_index(), Some(0), "in a forked child");
            forget_all();
        };
        std::thread::scope(|scope| scope.spawn(claims).join()).unwrap();
    }
}
