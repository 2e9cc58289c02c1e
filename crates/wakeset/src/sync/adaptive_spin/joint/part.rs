//! The windows of waits that the joint spin compares, and what a thread does in them.

use crate::sync::{Ordering, UnmodelledU32, UnmodelledU64};

/// A thread with fewer measured waits, and fewer writes, in a window is there by chance.
pub(super) const FEW: u32 = 6;

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
}

/// No window has settled yet.
const NEVER: u64 = u64::MAX;

/// What a thread has done and taken in the windows of the trial that it takes part in.
#[derive(Debug)]
pub(super) struct Part {
    thread: UnmodelledU32,
    /// The window apart in which it was there.
    trial: UnmodelledU32,
    /// How often it has waited, and written to something in process, since then.
    waits: UnmodelledU32,
    signals: UnmodelledU32,
    /// These, and its processor time (ns), when the window had settled.
    first_waits: UnmodelledU32,
    first_signals: UnmodelledU32,
    first_time: UnmodelledU64,
    /// What it did in the window apart.
    waits_apart: UnmodelledU32,
    signals_apart: UnmodelledU32,
}

/// What a thread has done in a window since that had settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) waits: u32,
    pub(super) signals: u32,
}

impl Part {
    pub(super) const fn new() -> Self {
        Self {
            thread: UnmodelledU32::new(0),
            trial: UnmodelledU32::new(0),
            waits: UnmodelledU32::new(0),
            signals: UnmodelledU32::new(0),
            first_waits: UnmodelledU32::new(0),
            first_signals: UnmodelledU32::new(0),
            first_time: UnmodelledU64::new(0),
            waits_apart: UnmodelledU32::new(0),
            signals_apart: UnmodelledU32::new(0),
        }
    }

    pub(super) fn thread(&self) -> u32 {
        self.thread.load(Ordering::Relaxed)
    }

    /// Whether this thread is, or was, in that trial.
    pub(super) fn is_in(&self, trial: Window, thread: u32) -> bool {
        self.belongs_to(trial) && self.thread() == thread
    }

    /// Whether a thread is in that trial.
    pub(super) fn belongs_to(&self, trial: Window) -> bool {
        self.trial.load(Ordering::Relaxed) == trial.0
    }

    /// The thread has waited while it was apart, if no other thread has this place.
    pub(super) fn join(&self, trial: Window, thread: u32) {
        if !self.belongs_to(trial) {
            self.thread.store(thread, Ordering::Relaxed);
            self.waits.store(0, Ordering::Relaxed);
            self.signals.store(0, Ordering::Relaxed);
            self.first_time.store(NEVER, Ordering::Relaxed);
            self.trial.store(trial.0, Ordering::Relaxed);
        }
    }

    /// It does not take part any more.
    pub(super) fn leave(&self) {
        self.trial.store(0, Ordering::Relaxed);
    }

    pub(super) fn note_wait(&self) {
        let waits = self.waits.load(Ordering::Relaxed);
        self.waits.store(waits.wrapping_add(1), Ordering::Relaxed);
    }

    pub(super) fn note_signal(&self) {
        let signals = self.signals.load(Ordering::Relaxed);
        self.signals.store(signals.wrapping_add(1), Ordering::Relaxed);
    }

    /// A window has settled. The thread has had so much processor time (ns).
    pub(super) fn begin(&self, time: u64) {
        self.first_waits.store(self.waits.load(Ordering::Relaxed), Ordering::Relaxed);
        self.first_signals.store(self.signals.load(Ordering::Relaxed), Ordering::Relaxed);
        self.first_time.store(time, Ordering::Relaxed);
    }

    /// Whether a window of the trial has settled since it joined.
    pub(super) fn has_begun(&self) -> bool {
        self.first_time.load(Ordering::Relaxed) != NEVER
    }

    /// How much processor time (ns) it has had since then, if it has had so much now.
    pub(super) fn taken(&self, time: u64) -> u64 {
        time.saturating_sub(self.first_time.load(Ordering::Relaxed))
    }

    /// What it has done since then.
    pub(super) fn done(&self) -> Done {
        let since = |all: &UnmodelledU32, first: &UnmodelledU32| {
            all.load(Ordering::Relaxed).wrapping_sub(first.load(Ordering::Relaxed))
        };
        Done {
            waits: since(&self.waits, &self.first_waits),
            signals: since(&self.signals, &self.first_signals),
        }
    }

    /// The window that ends was the one apart.
    pub(super) fn keep_apart(&self) {
        let done = self.done();
        self.waits_apart.store(done.waits, Ordering::Relaxed);
        self.signals_apart.store(done.signals, Ordering::Relaxed);
    }

    pub(super) fn done_apart(&self) -> Done {
        Done {
            waits: self.waits_apart.load(Ordering::Relaxed),
            signals: self.signals_apart.load(Ordering::Relaxed),
        }
    }
}

/// How much work was done apart, and how much together, in a unit of its own. That is told by the
/// thread that has done less than the others together, by what it did apart: by how often it has
/// written, or by its waits if it does not write. `None`: one has done hardly anything.
pub(super) fn work<'a>(parts: impl Iterator<Item = &'a Part>) -> Option<(u64, u64)> {
    let mut least = None;
    for part in parts {
        let (together, apart) = match (part.done(), part.done_apart()) {
            (together, apart) if apart.signals >= FEW => (together.signals, apart.signals),
            (together, apart) if apart.waits >= FEW => (together.waits, apart.waits),
            _ => continue,
        };
        if together < FEW / 2 {
            return None;
        }
        let this = (u64::from(apart), u64::from(together));
        if least.is_none_or(|least: (u64, u64)| this.0 * least.1 > least.0 * this.1) {
            least = Some(this);
        }
    }
    least
}
