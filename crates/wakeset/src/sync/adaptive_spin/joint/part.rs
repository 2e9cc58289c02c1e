//! The windows of waits that the joint spin compares, and what a thread has had of them.

use crate::sync::{Ordering, UnmodelledU32, UnmodelledU64};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Phase {
    Resting = 0,
    Apart = 1,
    Together = 2,
    Kept = 3,
    /// A thread decides what comes next.
    Turning = 4,
}

/// A window of waits: its number, and its phase in the lowest bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window(pub(super) u32);

impl Window {
    const PHASES: u32 = 8;

    pub(super) fn phase(self) -> Phase {
        match self.0 % Self::PHASES {
            0 => Phase::Resting,
            1 => Phase::Apart,
            2 => Phase::Together,
            3 => Phase::Kept,
            _ => Phase::Turning,
        }
    }

    pub(super) fn next(self, phase: Phase) -> Self {
        let number = self.0 / Self::PHASES;
        Self(number.wrapping_add(1).wrapping_mul(Self::PHASES) + phase as u32)
    }

    /// Whether this one together follows that one apart: between the two a thread decides.
    fn follows(self, apart: Self) -> bool {
        self == apart.next(Phase::Turning).next(Phase::Together) && apart.phase() == Phase::Apart
    }
}

/// What a thread has had of the last window that it took part in.
#[derive(Debug)]
pub(super) struct Part {
    thread: UnmodelledU32,
    window: UnmodelledU32,
    waits: UnmodelledU32,
    /// The waits of the window apart, if that one is together.
    waits_apart: UnmodelledU32,
    /// Its processor time at the first wait and at the last (ns).
    first: UnmodelledU64,
    last: UnmodelledU64,
}

impl Part {
    pub(super) const fn new() -> Self {
        Self {
            thread: UnmodelledU32::new(0),
            window: UnmodelledU32::new(0),
            waits: UnmodelledU32::new(0),
            waits_apart: UnmodelledU32::new(0),
            first: UnmodelledU64::new(0),
            last: UnmodelledU64::new(0),
        }
    }

    /// Takes note of a wait; whether its thread takes part. `settles`: it is not measured.
    pub(super) fn note(&self, window: Window, settles: bool, thread: u32, time: u64) -> bool {
        let before = Window(self.window.load(Ordering::Relaxed));
        let begins = before != window;
        let is_same = self.thread.load(Ordering::Relaxed) == thread;
        // A thread that was not there apart has nothing to be compared with.
        let may_begin = window.phase() == Phase::Apart || is_same && window.follows(before);
        if begins && !may_begin || !begins && !is_same {
            return false;
        }
        if begins {
            let waits = self.waits.load(Ordering::Relaxed);
            self.waits_apart.store(waits, Ordering::Relaxed);
        }
        if begins || settles {
            self.window.store(window.0, Ordering::Relaxed);
            self.thread.store(thread, Ordering::Relaxed);
            self.waits.store(0, Ordering::Relaxed);
            self.first.store(time, Ordering::Relaxed);
        } else {
            let waits = self.waits.load(Ordering::Relaxed);
            self.waits.store(waits + 1, Ordering::Relaxed);
        }
        self.last.store(time, Ordering::Relaxed);
        true
    }

    /// Whether this thread took part in that window.
    pub(super) fn was_in(&self, window: Window, thread: u32) -> bool {
        self.window.load(Ordering::Relaxed) == window.0
            && self.thread.load(Ordering::Relaxed) == thread
    }

    /// Its measured waits in a window, and their processor time (ns).
    pub(super) fn of(&self, window: Window) -> Option<(u32, u64)> {
        let time =
            || self.last.load(Ordering::Relaxed).saturating_sub(self.first.load(Ordering::Relaxed));
        let is_of = self.window.load(Ordering::Relaxed) == window.0;
        is_of.then(|| (self.waits.load(Ordering::Relaxed), time()))
    }

    /// Its measured waits in a window together, and in the one apart before it.
    pub(super) fn both(&self, together: Window) -> Option<(u32, u32)> {
        let (waits, _) = self.of(together)?;
        Some((waits, self.waits_apart.load(Ordering::Relaxed)))
    }
}
