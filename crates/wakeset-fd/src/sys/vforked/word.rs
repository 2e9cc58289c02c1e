//! The word by which a vfork(2) child asks its parent's deputy for something, and from which both
//! sides sleep.
//!
//! Its two lowest bits say where the request is. In `ASKED` the wish stands above them, so that
//! both change in one step.
//!
//! | from | to | changed by |
//! |---|---|---|
//! | – | `IDLE` | the thread that is about to call vfork(2), when it makes the word |
//! | `IDLE` | `ASKED` and a wish | who asks: the child, a signal handler in it, a child of the child |
//! | `ASKED` and a wish | `WORKING` | the deputy, which takes the wish over |
//! | `WORKING` | `IDLE` | the deputy, when it has done what was wished |
//! | `IDLE`, `ASKED` and a wish | `OVER` | the thread, when vfork(2) has returned |
//!
//! Nobody changes it in another way. So who has asked finds `IDLE` only when the wish has been
//! done, whoever else has asked meanwhile; and who finds another's wish leaves it to the deputy and
//! waits for its turn. That other one may be
//!
//! - what a signal handler has interrupted at any instruction of [`Word::ask`], and which goes on
//!   when the handler returns, or never if it jumps away;
//! - a child's child that was killed at any instruction of it, also before it woke the deputy.
//!
//! The deputy may end at any moment with its process. Then nothing more is done, and those who wait
//! find out by looking after it now and then.

use crate::sys::sync::{AtomicU32, Ordering, mutant};
use crate::sys::{futex_wait, futex_wait_for, futex_wake};
use core::time::Duration;
use wakeset::mutated;

const IDLE: u32 = 0;
const ASKED: u32 = 1;
const WORKING: u32 = 2;
const OVER: u32 = 3;

/// The bits of the state, and below which bit they are.
const STATE: u32 = 3;
const STATE_BITS: u32 = 2;

/// The greatest wish.
pub(crate) const LAST_WISH: u32 = u32::MAX >> STATE_BITS;

/// Who waits looks after the deputy so often.
const A_WHILE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Word(AtomicU32);

impl Word {
    /// Nobody has asked for anything.
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(IDLE))
    }

    fn change(&self, from: u32, to: u32) -> bool {
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    fn wake(&self) {
        futex_wake(&self.0, u32::MAX >> 1);
    }

    /// Writes a wish of at most [`LAST_WISH`] down, if there is none. It is done once the word is
    /// `IDLE` again.
    pub(crate) fn claim(&self, wish: u32) -> bool {
        let asked = ASKED | wish << STATE_BITS;
        if mutant!("vfork_wish_over_another") {
            self.0.store(asked, Ordering::Release);
            return true;
        }
        self.change(IDLE, asked)
    }

    /// For the child: has the deputy do something. When this returns it has done it, or it is no
    /// more.
    pub(crate) fn ask(&self, wish: u32, is_deputy_gone: impl Fn() -> bool) {
        let mut has_claimed = false;
        // The word of which the deputy has been told from here.
        let mut told = IDLE;
        loop {
            let now = self.0.load(Ordering::Acquire);
            match now & STATE {
                // The child of a child that was killed: its parent's parent goes on beside it.
                OVER => return,
                IDLE if has_claimed => return,
                IDLE => {
                    has_claimed = self.claim(wish);
                    continue;
                }
                // Another's wish too: it may not have come to telling the deputy, or never will.
                ASKED if now != told => {
                    told = now;
                    if has_claimed || !mutant!("vfork_wish_of_another_untold") {
                        self.wake();
                    }
                }
                _ => {}
            }
            if mutated!("vfork_child_asks_and_goes_on") {
                return;
            }
            if futex_wait_for(&self.0, now, A_WHILE) {
                if is_deputy_gone() {
                    return;
                }
                // The same wish may be another's by now.
                told = IDLE;
            }
        }
    }

    /// For the deputy: sleeps until there is a wish, and takes it over. `None` when it is over.
    pub(crate) fn take(&self) -> Option<u32> {
        loop {
            let now = self.0.load(Ordering::Acquire);
            match now & STATE {
                OVER => return None,
                ASKED if self.change(now, WORKING) => return Some(now >> STATE_BITS),
                // It is over by now.
                ASKED => {}
                _ => futex_wait(&self.0, now),
            }
        }
    }

    /// For the deputy: it has done what it took over.
    pub(crate) fn done(&self) {
        self.0.store(IDLE, Ordering::Release);
        if !mutant!("vfork_wish_done_in_silence") {
            self.wake();
        }
    }

    /// For the thread that has called vfork(2): the child is no more, and what it wished no matter.
    /// The deputy works no more when this returns, and the word may be gone.
    pub(crate) fn end(&self) {
        loop {
            let now = self.0.load(Ordering::Acquire);
            if now == WORKING && !mutant!("vfork_ends_beside_its_deputy") {
                futex_wait(&self.0, WORKING);
            } else if self.change(now, OVER) {
                // The deputy may have seen it, and given back this memory: a wake of a futex that
                // is no more.
                self.wake();
                return;
            }
        }
    }
}
