//! Who has a hidden number: the thread that closes what is hidden there, or the one that gives the
//! number to the program. Each claims it in its entry first, in one step, so that only one of them
//! acts on it.
//!
//! | tag of the entry | the number is | next |
//! |---|---|---|
//! | `DOORBELL`, `SPARE_DOORBELL` | hidden | `CLAIMED` |
//! | `CLAIMED` | one thread's, for a few system calls | as it was; `SPARE_DOORBELL`; `VACANT` when it is closed, or the program's; `LEFT` |
//! | `LEFT` | hidden, and of no more use: its owner would have closed it, but a fork is under way | `CLAIMED` when the fork is over, to be closed |
//!
//! A thread that meets a claimed number waits until that is settled, whether it closes the number,
//! puts a file there or only looks it up: before the close the number is ours, and after it the
//! kernel may have given it to the program. Within a claim a thread takes no lock, waits for no
//! other and has a signal guard, so any thread may wait for it with any lock held. What is claimed
//! for longest is what the kernel takes to let go of a file.
//!
//! **A number that changes.** A thread reads the number that it is to close from a field, which
//! another changes when it gives that number to the program:
//!
//! | the closing thread | the thread that gives the number away |
//! |---|---|
//! | reads the number and claims it | has what is hidden under another number, too |
//! | takes it out of the field, if it is still there; else it lets go of it and begins again | changes the field to that number |
//! | closes it | claims the old number, and puts the program's file there |
//!
//! One of the two finds the number in the field. Where it is the closing thread, the other finds
//! later that the number is not hidden any more, and closes its duplicate. A field that is guarded
//! by a lock, which the change takes, needs no second look.
//!
//! **Forks.** A child has a copy of the numbers, made at one moment, and one of the table, made
//! later. So nothing hidden is closed in between: a fork waits for the closes under way, which is
//! short, and what is to be closed meanwhile is left to it. No thread waits for a fork: the thread
//! that forks may need another, in a handler of pthread_atfork(3).

use crate::sys::steps::{step_lock, step_waited};
use crate::sys::sync::{AtomicI32, AtomicU32, AtomicUsize, Ordering, const_fn, mutant};
use crate::sys::{futex_wait, futex_wake};
use core::ffi::c_int;

pub(crate) const TAG: usize = 15;
pub(crate) const VACANT: usize = 3;
pub(crate) const DOORBELL: usize = 4;
pub(crate) const SPARE_DOORBELL: usize = 5;
pub(crate) const CLAIMED: usize = 13;
pub(crate) const LEFT: usize = 14;

/// In [`Claims::closing`]: a fork is under way. Below it is the count.
const FORKING: u32 = 1 << 31;

/// What the claims of a process have in common.
#[derive(Debug)]
pub(crate) struct Claims {
    /// How many closes are under way, and whether a fork is.
    closing: AtomicU32,
    /// Whether closes have been left to the fork.
    left: AtomicU32,
    /// How many threads wait until a claim is settled.
    waiting: AtomicU32,
    /// What they sleep on.
    settled: AtomicU32,
}

/// The word with another tag. One that says nothing is zero.
fn with_tag(word: usize, tag: usize) -> usize {
    let slot = word & !TAG;
    if slot == 0 && tag == VACANT { 0 } else { slot | tag }
}

impl Claims {
    const_fn! {
        pub(crate) const fn new() -> Self {
            Self {
                closing: AtomicU32::new(0),
                left: AtomicU32::new(0),
                waiting: AtomicU32::new(0),
                settled: AtomicU32::new(0),
            }
        }
    }

    /// Claims a number with this entry; `None` if nothing is hidden there. Returns the tag that it
    /// had. The caller has a signal guard until it has [settled](Self::settle) that.
    pub(crate) fn claim(&self, entry: &AtomicUsize, is_copy: impl Fn() -> bool) -> Option<usize> {
        loop {
            let now = entry.load(Ordering::SeqCst);
            match now & TAG {
                CLAIMED => self.wait(entry, &is_copy),
                tag @ (DOORBELL | SPARE_DOORBELL) => {
                    let claimed = with_tag(now, CLAIMED);
                    if change(entry, now, claimed) {
                        step_lock!(Locked, entry);
                        return Some(tag);
                    }
                }
                _ => return None,
            }
        }
    }

    /// Claims the number that `field` has, and has `none` there instead. `None`: it had none, or
    /// one that is not ours any more. Without an `entry`, nobody knows the number but its owner.
    pub(crate) fn take<'a>(
        &self,
        field: &AtomicI32,
        none: c_int,
        entry: impl Fn(c_int) -> Option<&'a AtomicUsize>,
        is_copy: impl Fn() -> bool,
    ) -> Option<c_int> {
        loop {
            let fd = field.load(Ordering::SeqCst);
            if fd < 0 {
                return None;
            }
            if mutant!("hidden_taken_unclaimed") {
                field.swap(none, Ordering::SeqCst);
                return Some(fd);
            }
            let entry = entry(fd);
            let claimed = entry.and_then(|entry| self.claim(entry, &is_copy));
            let is_still_there = mutant!("hidden_claimed_unlooked")
                || field.compare_exchange(fd, none, Ordering::SeqCst, Ordering::SeqCst).is_ok();
            match (entry, claimed) {
                (None, _) | (_, Some(_)) if is_still_there => return Some(fd),
                (Some(_), None) if is_still_there => return None,
                (Some(entry), Some(tag)) => self.settle(entry, tag),
                _ => {}
            }
        }
    }

    /// Ends a claim: the entry has this tag now.
    pub(crate) fn settle(&self, entry: &AtomicUsize, tag: usize) {
        let settle = |now: usize| (now & TAG == CLAIMED).then(|| with_tag(now, tag));
        if entry.fetch_update(Ordering::SeqCst, Ordering::SeqCst, settle).is_ok() {
            step_lock!(Unlocked, entry);
        }
        // A read-modify-write: it comes after that of a waiting thread, or that one finds the entry
        // changed.
        let waiting = self.waiting.fetch_add(0, Ordering::SeqCst);
        if waiting != 0 && !mutant!("claim_settled_in_silence") {
            self.settled.fetch_add(1, Ordering::SeqCst);
            futex_wake(&self.settled, u32::MAX >> 1);
        }
    }

    /// Waits until a number is not claimed. Where `is_copy` says that this is a forked child that
    /// has not said so yet, it is not this process's claim, and is forgotten.
    #[cold]
    pub(crate) fn wait(&self, entry: &AtomicUsize, is_copy: &impl Fn() -> bool) {
        step_lock!(Waiting, entry);
        self.waiting.fetch_add(1, Ordering::SeqCst);
        loop {
            let now = self.settled.load(Ordering::SeqCst);
            if entry.load(Ordering::SeqCst) & TAG != CLAIMED {
                break;
            }
            if is_copy() {
                self.settle(entry, VACANT);
                break;
            }
            futex_wait(&self.settled, now);
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        step_waited!();
    }

    /// Closes a claimed number, or leaves that to a fork that is under way.
    pub(crate) fn close(&self, entry: &AtomicUsize, close: impl Fn()) {
        loop {
            if self.begin() {
                if mutant!("hidden_forgotten_before_its_close") {
                    self.settle(entry, VACANT);
                }
                close();
                self.settle(entry, VACANT);
                return self.end();
            }
            self.settle(entry, LEFT);
            self.left.fetch_add(1, Ordering::SeqCst);
            // The fork may be over: it says so first, and then looks for what was left to it.
            let is_forking = self.closing.load(Ordering::SeqCst) & FORKING != 0;
            if is_forking || mutant!("hidden_left_unlooked") || !take_back(entry) {
                return;
            }
        }
    }

    /// Begins a close; `false` while a fork is under way.
    fn begin(&self) -> bool {
        let begin = |now: u32| (now & FORKING == 0).then(|| now + 1);
        self.closing.fetch_update(Ordering::SeqCst, Ordering::SeqCst, begin).is_ok()
    }

    fn end(&self) {
        if self.closing.fetch_sub(1, Ordering::SeqCst) == FORKING + 1 {
            futex_wake(&self.closing, u32::MAX >> 1);
        }
    }

    /// Before a fork: from here on nothing hidden is closed. The caller holds the migrations lock.
    pub(crate) fn begin_fork(&self) {
        self.closing.fetch_or(FORKING, Ordering::SeqCst);
        loop {
            let now = self.closing.load(Ordering::SeqCst);
            if now & !FORKING == 0 || mutant!("fork_beside_a_hidden_close") {
                return;
            }
            futex_wait(&self.closing, now);
        }
    }

    /// After it, in the parent: whether [closes](Self::close_left) have been left to it.
    pub(crate) fn end_fork(&self) -> bool {
        self.closing.fetch_and(!FORKING, Ordering::SeqCst);
        self.left.swap(0, Ordering::SeqCst) != 0
    }

    /// Closes a number if that was left to a fork which is over.
    pub(crate) fn close_left(&self, entry: &AtomicUsize, close: impl Fn()) {
        if take_back(entry) {
            self.close(entry, close);
        }
    }

    /// Whether a fork is under way: in its child, whether a claimed number is ours.
    pub(crate) fn is_forking(&self) -> bool {
        self.closing.load(Ordering::SeqCst) & FORKING != 0
    }

    /// In a forked child.
    #[cfg(not(loom))]
    pub(crate) fn begin_anew(&self) {
        for word in [&self.closing, &self.left, &self.waiting] {
            // A page that is not written to is not copied.
            if word.load(Ordering::SeqCst) != 0 {
                word.store(0, Ordering::SeqCst);
            }
        }
    }
}

fn change(entry: &AtomicUsize, from: usize, to: usize) -> bool {
    entry.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
}

/// Claims a number whose close was left to a fork; whether it was this thread that did.
fn take_back(entry: &AtomicUsize) -> bool {
    let now = entry.load(Ordering::SeqCst);
    now & TAG == LEFT && change(entry, now, with_tag(now, CLAIMED))
}
