//! The word of an object that may come home: whether it may, and how many calls of this process are
//! in its kernel object.
//!
//! | state | the object is | next |
//! |---|---|---|
//! | `HOME` | here, or nothing is known of it | `AWAY` when it migrates and may come home |
//! | `AWAY` | in the kernel, and calls on it are counted | `COMING` when no call is in it; `LEFT` at a doubt |
//! | `COMING` | on its way home: only the thread that holds the migrations lock is at it | `HOME`, or `AWAY` where it could not come |
//! | `LEFT` | in the kernel for good | `AWAY` when the next object of its number migrates |
//!
//! The count stands beside the state, so that a call counts itself only while the object is away,
//! and the object sets out only while no call is counted, each in one step. A call that is left by
//! a jump out of a signal handler, or by a cancellation, stays counted: the object stays away, and
//! so does what migrates under its number afterwards.
//!
//! Each end of a pair has a word. The pair sets out when both ends do: no thread waits for a call
//! to end, so it does not matter in which order they are asked, and one that refuses lets the other
//! go back to `AWAY`.

use crate::sys::sync::{AtomicUsize, Ordering, mutant};

/// Below it is the count.
const STATE: u32 = 32;
const ONE_CALL: usize = 1;
const CALLS: usize = (1 << STATE) - 1;

const HOME: usize = 0;
const AWAY: usize = 1 << STATE;
const COMING: usize = 2 << STATE;
const LEFT: usize = 3 << STATE;

/// The word of one number.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Word(AtomicUsize);

/// What a call is told that is about to be made on the kernel object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begun {
    /// It may be made, and is counted until [`Word::end_call`].
    Counted,
    /// The object is on its way home, or there: look the number up again.
    Again,
    /// The object is in the kernel for good.
    Left,
}

impl Word {
    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Self(AtomicUsize::new(HOME))
    }

    fn change(&self, next: impl Fn(usize) -> Option<usize>) -> Result<usize, usize> {
        self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next)
    }

    fn state(word: usize) -> usize {
        word & !CALLS
    }

    /// The object has migrated, and may come home. The migrating thread, before a call can find it
    /// in the kernel.
    pub(crate) fn leave(&self) {
        let _ = self.change(|word| Some(word & CALLS | AWAY));
    }

    /// In place of [`leave`](Self::leave), after it: the number stands for nothing any more.
    pub(crate) fn forget(&self) {
        let _ = self.change(|word| Some(word & CALLS | HOME));
    }

    /// In a forked child: neither the object nor the calls are its own.
    pub(crate) fn forget_all(&self) {
        // Where it says so already it may be on a page that cannot be written to.
        if self.0.load(Ordering::SeqCst) != HOME {
            self.0.store(HOME, Ordering::SeqCst);
        }
    }

    /// Whether the object may come home, now or later, or is just coming.
    pub(crate) fn may_return(&self) -> bool {
        matches!(Self::state(self.0.load(Ordering::SeqCst)), AWAY | COMING)
    }

    /// Whether it is in the kernel, and not on its way home.
    pub(crate) fn is_in_kernel(&self) -> bool {
        matches!(Self::state(self.0.load(Ordering::SeqCst)), AWAY | LEFT)
    }

    /// Whether it is in the kernel for good.
    pub(crate) fn has_left(&self) -> bool {
        Self::state(self.0.load(Ordering::SeqCst)) == LEFT
    }

    /// Whether it may now.
    pub(crate) fn is_idle(&self) -> bool {
        self.0.load(Ordering::SeqCst) == AWAY
    }

    /// Before a call on the kernel object.
    pub(crate) fn begin_call(&self) -> Begun {
        if mutant!("call_away_is_not_counted") {
            return match Self::state(self.0.load(Ordering::SeqCst)) {
                AWAY => Begun::Counted,
                LEFT => Begun::Left,
                _ => Begun::Again,
            };
        }
        let count = |word| (Self::state(word) == AWAY).then_some(word + ONE_CALL);
        match self.change(count) {
            Ok(_) => Begun::Counted,
            Err(word) if Self::state(word) == LEFT => Begun::Left,
            Err(_) => Begun::Again,
        }
    }

    /// After it. Where none is counted that stays so, and the state is not touched.
    pub(crate) fn end_call(&self) {
        if !mutant!("call_away_is_not_counted") {
            let _ = self.change(|word| (word & CALLS > 0).then(|| word - ONE_CALL));
        }
    }

    /// Something may reach the object, from now on, that is not seen: it stays in the kernel.
    /// `false`: it is on its way home, or there.
    pub(crate) fn doubt(&self) -> bool {
        let leave = |word| match Self::state(word) {
            AWAY | LEFT => Some(word & CALLS | LEFT),
            COMING if mutant!("doubt_beside_a_return") => Some(word & CALLS | LEFT),
            _ => None,
        };
        self.change(leave).is_ok()
    }

    /// The object sets out for home; `false` if a call is in it, or it may not. The caller holds
    /// the migrations lock.
    pub(crate) fn begin_return(&self) -> bool {
        let set_out = |word| match word {
            AWAY => Some(COMING),
            word if Self::state(word) == AWAY && mutant!("comes_home_beside_a_call") => {
                Some(word & CALLS | COMING)
            }
            _ => None,
        };
        self.change(set_out).is_ok()
    }

    /// All of them set out, or none: an object with several numbers comes home by all of them. The
    /// caller holds the migrations lock.
    pub(crate) fn begin_return_of<'a>(words: impl Iterator<Item = &'a Self> + Clone) -> bool {
        let sets_out = |(index, word): &(usize, &Self)| {
            word.begin_return() || *index > 0 && mutant!("pair_comes_home_by_one_end")
        };
        let begun = words.clone().enumerate().take_while(sets_out).count();
        let all = words.clone().count() == begun;
        if !all {
            words.take(begun).for_each(|word| word.end_return(false));
        }
        all
    }

    /// Its number stands for it again; or it could not come, and is in the kernel as before.
    pub(crate) fn end_return(&self, has_come: bool) {
        let state = if has_come { HOME } else { AWAY };
        let _ = self.change(|word| Some(word & CALLS | state));
    }
}
