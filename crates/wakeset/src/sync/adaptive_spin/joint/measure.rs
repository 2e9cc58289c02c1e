//! What the threads of a trial take in a window, and how much they do.

use super::machine::Machine;
use super::part::{self, Done, FEW, Part, Phase};
use super::{EARLY, Joint};
use crate::sync::Ordering;
use crate::sync::line::Line;

/// What the threads of a trial have taken in a window since it had settled (ns): in processor time,
/// and in time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    pub(super) cost: u64,
    pub(super) elapsed: u64,
}

impl Joint {
    /// The parts of the trial's threads.
    fn joined(&self) -> impl Iterator<Item = &Part> {
        let trial = self.trial();
        self.parts.iter().map(|Line(part)| part).filter(move |part| part.belongs_to(trial))
    }

    /// The parts of those that were there when the window apart had settled: others cannot be
    /// compared.
    pub(super) fn in_trial(&self) -> impl Iterator<Item = &Part> {
        self.joined().filter(|part| part.has_begun())
    }

    /// A window that is measured has settled.
    pub(super) fn settle(&self, phase: Phase, machine: &impl Machine) {
        for part in self.joined() {
            match machine.time_of(part.thread()) {
                Some(time) if phase == Phase::Apart || part.has_begun() => part.begin(time),
                _ => part.leave(),
            }
        }
        self.began.store(machine.now(), Ordering::Relaxed);
    }

    /// What the trial's threads have taken since the window settled; `None` if one has ended.
    pub(super) fn taken(&self, now: u64, machine: &impl Machine) -> Option<Taken> {
        let elapsed = now.saturating_sub(self.began.load(Ordering::Relaxed));
        let mut cost = 0;
        for part in self.in_trial() {
            cost += part.taken(machine.time_of(part.thread())?);
        }
        Some(Taken { cost, elapsed })
    }

    /// What a window apart has taken. A thread that has hardly waited or written takes no part:
    /// what it computes meanwhile would hide what the others take.
    pub(super) fn taken_apart(&self, now: u64, machine: &impl Machine) -> Option<Taken> {
        for part in self.in_trial() {
            match part.done() {
                Done { waits: ..FEW, signals: ..FEW } => part.leave(),
                _ => part.keep_apart(),
            }
        }
        self.taken(now, machine)
    }

    /// Whether the threads that were apart may be a chain: two of them at least, which wait.
    pub(super) fn is_chain(&self) -> bool {
        let waits = || self.in_trial().map(|part| part.done().waits);
        waits().sum::<u32>() >= EARLY / 2 && waits().filter(|waits| *waits >= FEW).count() >= 2
    }

    /// What a window together has taken for as much work as the one apart has done.
    pub(super) fn by_work(&self, taken: Taken) -> Option<Taken> {
        let (apart, together) = part::work(self.in_trial())?;
        let by_work = |taken: u64| taken.saturating_mul(apart) / together;
        Some(Taken { cost: by_work(taken.cost), elapsed: by_work(taken.elapsed) })
    }
}
