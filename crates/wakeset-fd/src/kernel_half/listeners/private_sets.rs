//! The kernel epolls that threads sleep in while they wait on listeners with poll(2) and its kin.
//!
//! Each thread has an entry in a table, which it keeps until it ends. The program does not see the
//! numbers of the sets: they are hidden, and may change.
//!
//! A thread that ends closes its set and gives its entry back ([`release_private_set`]). One that
//! could not, because it ended by a system call of its own, leaves both to the next thread that
//! asks for an entry: so there are never more sets than threads that live, and one for each thread
//! that ended so since the last one asked. Nobody else closes a set, because its thread may be
//! about to sleep in it.
//!
//! What a thread knows of its set, its [`Sleeper`], is two kilobytes. It stays with the entry, also
//! when that goes to another thread, and is not in thread-local storage: the loader has less than
//! that to give where it gives such storage after the program's start (`LD_AUDIT`).

use super::baton;
use super::ending;
use super::rescue_clock::RescueClock;
use crate::sys::births::Birth;
use crate::sys::signal_guard::SignalGuard;
use crate::sys::{self, memory, process};
use crate::table::lifecycle::{self, Participant, Rank};
use crate::table::{gate, hidden};
use core::ffi::c_int;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicI32, AtomicPtr, Ordering};
use wakeset::mutated;
use wakeset_group::listener::{BATON_DATA, Sleeper};

/// One thread's set.
struct PrivateSet {
    /// The thread's number, 0 for a free entry.
    owner: AtomicI32,
    /// The set, -1 for none. Changed with the migrations lock held.
    set: AtomicI32,
    /// What its thread knows of the set; null before the entry's first. Only the owner touches what
    /// it points to.
    sleeper: AtomicPtr<Sleeper>,
}

impl PrivateSet {
    const fn free() -> Self {
        Self {
            owner: AtomicI32::new(0),
            set: AtomicI32::new(-1),
            sleeper: AtomicPtr::new(ptr::null_mut()),
        }
    }
}

/// Threads that can wait on a listener with poll(2) and its kin at a time; any more are left to the
/// kernel.
const THREADS: usize = 256;
static PRIVATE_SETS: [PrivateSet; THREADS] = [const { PrivateSet::free() }; THREADS];

/// When a thread last found that all entries belong to threads that live, which takes a system call
/// for each.
static FULL: RescueClock = RescueClock::never();

/// The entries are of the parent in a forked child, and the sets' numbers hidden.
static HIDDEN_SETS: Participant = Participant {
    rank: Rank::Listeners,
    begin_anew: forget_all,
    renumber: Some(renumber),
    before_close: None,
};

/// The index of the calling thread's entry, which it keeps; one of a thread that has ended becomes
/// its own, with a set that its owner is to make anew. `None` if all are taken, or were a moment
/// ago.
pub fn claim_index() -> Option<usize> {
    lifecycle::sign_up(&HIDDEN_SETS);
    if !FULL.until_next().is_zero() {
        return None;
    }
    let own = sys::gettid();
    if own == 0 {
        // A filter refuses to say it.
        return None;
    }
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
            owner != 0 && !sys::is_thread(owner) && claim(private, owner)
        })
    };
    let index = owned_by(own).or_else(left).or_else(free);
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

/// The numbers of all sets.
pub(super) fn private_sets() -> impl Iterator<Item = c_int> {
    (0..THREADS).filter_map(private_set)
}

/// The sleeper of an entry, which is the calling thread's in this process; nobody else touches it
/// until the thread gives the entry back or ends. A new owner has to give it a set
/// ([`renew_private_set`]) before anything else. `None` if there is no memory for it.
pub fn sleeper(index: usize) -> Option<NonNull<Sleeper>> {
    let place = &PRIVATE_SETS.get(index)?.sleeper;
    NonNull::new(place.load(Ordering::Acquire)).or_else(|| make_sleeper(place))
}

/// The first owner's.
#[cold]
fn make_sleeper(place: &AtomicPtr<Sleeper>) -> Option<NonNull<Sleeper>> {
    let _guard = SignalGuard::enter();
    // SAFETY: numbers only.
    let sleeper = unsafe { memory::leak_copy(&EMPTY) }?;
    place.store(sleeper.as_ptr(), Ordering::Release);
    Some(sleeper)
}

/// What a sleeper begins as: copied from here, so that it is never on a stack.
static EMPTY: Sleeper = Sleeper::new();

impl PrivateSet {
    /// Closes the set, and returns whether there was one. The caller holds the migrations lock.
    fn close(&self) -> bool {
        hidden::close_in(&self.set, -1)
    }
}

/// Makes a new set for an entry, which is the calling thread's, and closes the old one. The sleeper
/// goes on with the new set. `None` if there is none to be had, or if it would take the last
/// number.
pub fn renew_private_set(index: usize, sleeper: &mut Sleeper) -> Option<()> {
    let private = PRIVATE_SETS.get(index)?;
    ending::note_waiting();
    let _guard = SignalGuard::enter();
    let _migrating = gate::hold_migrations();
    private.close();
    let _birth = Birth::begin();
    let set = hidden::hide(sys::epoll_create1(libc::EPOLL_CLOEXEC).ok()?);
    private.set.store(set, Ordering::SeqCst);
    // The last number is the program's: it may be about to accept a connection.
    let Some(spare) = sys::duplicate_above(set, 0) else {
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

/// The calling thread is about to end, and uses its set no more: closes the set and gives the entry
/// back. Of no effect for a thread without an entry, such as the only one of a forked child.
pub fn release_private_set() {
    if process::is_foreign() {
        return;
    }
    let own = sys::gettid();
    let _guard = SignalGuard::enter();
    let _migrating = gate::hold_migrations();
    for private in PRIVATE_SETS.iter().filter(|each| each.owner.load(Ordering::SeqCst) == own) {
        if !mutated!("ended_thread_keeps_set") {
            private.close();
        }
        private.owner.store(0, Ordering::SeqCst);
        FULL.forget();
    }
}

/// Closes the sets of all entries, for good: their threads leave the rest to the kernel. The caller
/// holds the migrations lock.
pub(crate) fn close_private_sets() {
    for private in &PRIVATE_SETS {
        private.close();
    }
}

/// A hidden number has become another, or -1.
fn renumber(old: c_int, new: c_int) {
    for private in &PRIVATE_SETS {
        let set = private.set.load(Ordering::SeqCst);
        if set >= 0 && new == baton::number() {
            baton::renumber_in(set, BATON_DATA, old, new);
        }
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
mod tests;
