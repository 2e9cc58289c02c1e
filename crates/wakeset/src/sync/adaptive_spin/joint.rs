//! The joint spin: waits that are too long to spin for, because the others sleep as well.
//!
//! Where a request goes through a chain of threads that all sleep, each of them waits for as long
//! as it takes to wake all the others. That is too long to spin for, so none of them does, though
//! each wait would be short if all did. What one wait knows of itself cannot show that. So now and
//! then the process tries it: for [`WAITS`] waits threads sleep as they would, for as many they
//! spin together, and what that has taken in processor time and in time is compared.
//!
//! | phase | what waits do that would not spin by themselves | after its last wait |
//! |---|---|---|
//! | resting | sleep | after some windows apart, if the process can [pay](Credit::can_pay) |
//! | apart | sleep; their threads' processor time is measured | together |
//! | together | spin; it is measured as well | kept, if that paid; else apart or resting |
//! | kept | spin | after some windows, or if their rate has changed: apart |
//!
//! A phase lasts for a window of [`WAITS`] waits, or several. Each trial in a row that pays doubles
//! the number of windows that are kept, and each that does not the number that rest. A lasting
//! change of the rate of waits ends a rest. Where waits come too [rarely](Machine::slow), or most
//! wakers run on the waiters' processor, nothing is tried. Where other programs [want the
//! processors](super::busy), spins end at once, and are not tried for a while.
//!
//! Only waits take part that would sleep, and whose last sleep a waker of this process has ended
//! that then waited itself: one that keeps busy would have its work taken piece by piece, which
//! looks cheap for each wait and is not. Two threads have to take part, or nobody answers.
//!
//! Processor time is that of the threads that take part, because what another thread does meanwhile
//! says nothing. How much [work](part::work) a window has done is told by what its threads write to
//! wake others, and not by their waits: one that serves several waits for each of them if it spins,
//! and for several at once if it sleeps, and one that finds what it would wait for does not wait.
//! Where a program writes only if its reader sleeps, writes depend on spins as well; so the thread
//! counts that does less than the others together, by what it did apart.
//!
//! All of it is a guess and none of it matters for correctness, so the accesses are relaxed.

mod credit;
mod machine;
mod measure;
mod part;

use super::busy::Busy;
use super::latency::{LATENCY, MOST_JOINT};
use crate::sync::line::Line;
use crate::sync::thread_id;
use crate::sync::{Ordering, UnmodelledU32, UnmodelledU64};
use credit::Credit;
use machine::{Machine, Real};
use measure::Taken;
use part::{FEW, Part, Phase, Window};

/// The waits of a window.
const WAITS: u32 = 128;
/// So many of them pass before what they take is measured.
const SETTLE: u32 = 32;
/// A window in which threads spin ends after this many if too many have spun in vain.
const EARLY: u32 = 32;
/// How many windows rest before the first trial.
const FIRST_REST: u32 = 8;
/// How often the number of windows that rest, or are kept, doubles at most.
const MOST_FAILURES: u32 = 14;
const MOST_SUCCESSES: u32 = 4;
/// Fewer windows than this are kept only if the time is over.
const KEPT: u32 = 4;
/// For how long (ns) windows are kept without a comparison.
const MOST_KEPT: u64 = 400_000_000;
/// So many windows in a row at another rate are a change.
const CHANGED: u32 = 4;
/// The threads that take part, at most.
const THREADS: usize = 8;
/// So many waits after the end of a window the thread that was to decide has not: it has ended, or
/// left by a jump.
const STUCK: i32 = 8_192;

#[derive(Debug)]
pub(super) struct Joint {
    /// Apart from the rest: waits that spin by themselves read it, and nothing else.
    window: Line<UnmodelledU32>,
    /// How many waits of the window are left.
    left: UnmodelledU32,
    /// When it began (ns).
    began: UnmodelledU64,
    /// How many spins of the window have found something; while it rests, how many waits could
    /// have spun.
    found: UnmodelledU32,
    /// How many have found nothing.
    vain: UnmodelledU32,
    /// How many windows are left to rest, or to keep; and how many have been kept.
    windows: UnmodelledU32,
    kept: UnmodelledU32,
    /// Trials in a row that have paid, and that have not.
    successes: UnmodelledU32,
    failures: UnmodelledU32,
    /// What the last window apart has taken since it had settled.
    cost_apart: UnmodelledU64,
    elapsed_apart: UnmodelledU64,
    /// How much time (ns) passed for each wait that rested, before the last trial.
    rested: UnmodelledU64,
    /// The same of the first window that was kept.
    elapsed: UnmodelledU64,
    /// How many windows in a row have rested at another rate than before the last trial.
    changed: UnmodelledU32,
    credit: Credit,
    busy: Busy,
    /// The window apart that the last trial began with.
    trial: UnmodelledU32,
    parts: [Line<Part>; THREADS],
}

/// The process's.
static JOINT: Joint = Joint::new();

/// A wait of the calling thread begins that takes part; whether it spins jointly, if it can.
#[inline]
pub(super) fn waits(how: Alone) -> bool {
    // Where each spin pays by itself, nobody counts.
    let skips = how == Alone::Spins && rests();
    !cfg!(any(loom, shuttle)) && !skips && JOINT.waits(how, &real())
}

/// Whether threads do as they would by themselves, and nobody measures it.
pub(super) fn rests() -> bool {
    JOINT.window().phase() == Phase::Resting
}

fn real() -> Real {
    Real { joint_limit: LATENCY.joint_limit() }
}

/// What a wait does if no other one matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alone {
    Spins,
    Sleeps,
    /// It sleeps, and would do so in any case.
    OnlySleeps,
}

/// Such a spin has ended: it has found something or not.
pub(super) fn spun(found: bool) {
    let count = if found { &JOINT.found } else { &JOINT.vain };
    count.fetch_add(1, Ordering::Relaxed);
}

/// A thread that spun, or had been woken, was without a processor for so long (ns);
/// `all_rest` if that is the end of all spins.
pub(super) fn lost(nanos: u64, all_rest: bool) {
    JOINT.lost(nanos, all_rest, &real());
}

/// The calling thread has written to something that threads of this process may wait for.
#[inline(always)]
pub(crate) fn signals() {
    if !cfg!(any(loom, shuttle)) && JOINT.is_measured() {
        // One that is not known has not waited, and so is not in a trial.
        thread_id::known().inspect(|thread| JOINT.signals(*thread));
    }
}

impl Joint {
    const fn new() -> Self {
        Self {
            window: Line(UnmodelledU32::new(0)),
            left: UnmodelledU32::new(WAITS),
            began: UnmodelledU64::new(0),
            found: UnmodelledU32::new(0),
            vain: UnmodelledU32::new(0),
            windows: UnmodelledU32::new(FIRST_REST),
            kept: UnmodelledU32::new(0),
            successes: UnmodelledU32::new(0),
            failures: UnmodelledU32::new(0),
            cost_apart: UnmodelledU64::new(0),
            elapsed_apart: UnmodelledU64::new(0),
            rested: UnmodelledU64::new(0),
            elapsed: UnmodelledU64::new(0),
            changed: UnmodelledU32::new(0),
            credit: Credit::new(),
            busy: Busy::new(0),
            trial: UnmodelledU32::new(0),
            parts: [const { Line(Part::new()) }; THREADS],
        }
    }

    fn part(&self, thread: u32) -> &Part {
        &self.parts[thread as usize % THREADS].0
    }

    fn window(&self) -> Window {
        Window(self.window.0.load(Ordering::Relaxed))
    }

    fn waits(&self, how: Alone, machine: &impl Machine) -> bool {
        let left = self.left.fetch_sub(1, Ordering::Relaxed) as i32;
        let window = self.window();
        let is_over = match window.phase() {
            Phase::Resting => {
                if how == Alone::Sleeps {
                    self.found.fetch_add(1, Ordering::Relaxed);
                }
                left <= 0
            }
            Phase::Apart => left <= 0,
            Phase::Together | Phase::Kept => {
                left <= 0 || self.is_late(machine) || self.is_in_vain(left, machine)
            }
            Phase::Turning => left < -STUCK,
        };
        if is_over {
            self.turn(window, left, machine);
        }
        let window = self.window();
        if matches!(window.phase(), Phase::Resting | Phase::Turning) {
            return false;
        }
        let (phase, thread) = (window.phase(), machine.thread());
        let part = self.part(thread);
        let is_measured = phase != Phase::Kept;
        if is_measured && left == (WAITS - SETTLE) as i32 {
            self.settle(phase, machine);
        } else if phase == Phase::Apart && !(1..=(WAITS - SETTLE) as i32).contains(&left) {
            part.join(window, thread);
        }
        // Whoever is not in the trial is not judged by it.
        if !part.is_in(self.trial(), thread) {
            return false;
        }
        if is_measured {
            part.note_wait();
        }
        phase != Phase::Apart
    }

    fn trial(&self) -> Window {
        Window(self.trial.load(Ordering::Relaxed))
    }

    fn is_measured(&self) -> bool {
        matches!(self.window().phase(), Phase::Apart | Phase::Together)
    }

    #[cold]
    fn signals(&self, thread: u32) {
        let part = self.part(thread);
        if part.is_in(self.trial(), thread) {
            part.note_signal();
        }
    }

    /// Whether a window in which threads spin lasts too long to go on.
    fn is_late(&self, machine: &impl Machine) -> bool {
        let lasts = machine.now().saturating_sub(self.began.load(Ordering::Relaxed));
        lasts > u64::from(WAITS) * machine.slow()
    }

    fn is_in_vain(&self, left: i32, machine: &impl Machine) -> bool {
        // The longer each spin may take, the more of them have to find something.
        let fewest = u64::from(EARLY) * machine.joint_limit() / MOST_JOINT;
        let fewest = (fewest as u32).clamp(EARLY / 4, EARLY / 2);
        let vain = self.vain.load(Ordering::Relaxed);
        let spins = vain + self.found.load(Ordering::Relaxed);
        left == (WAITS - EARLY) as i32 && vain >= FEW && (spins - vain) * EARLY < spins * fewest
    }

    /// Ends a window with so many waits left, if no other thread does.
    #[cold]
    fn turn(&self, window: Window, left: i32, machine: &impl Machine) {
        let (turning, order) = (window.next(Phase::Turning), Ordering::Relaxed);
        if self.window.0.compare_exchange(window.0, turning.0, order, order).is_err() {
            return;
        }
        let now = machine.now();
        let measured = match window.phase() {
            Phase::Apart | Phase::Together if left < (WAITS - SETTLE) as i32 => WAITS - SETTLE,
            _ => WAITS,
        };
        let waits = (measured as i32 - left).max(1) as u64;
        let elapsed = now.saturating_sub(self.began.load(order)) / waits;
        let phase = match window.phase() {
            Phase::Resting => self.rest(elapsed, machine),
            Phase::Apart if elapsed > machine.slow() => self.postpone(),
            Phase::Apart => match self.taken_apart(now, machine).filter(|_| self.is_chain()) {
                Some(taken) => {
                    self.cost_apart.store(taken.cost, order);
                    self.elapsed_apart.store(taken.elapsed, order);
                    Phase::Together
                }
                None => self.fail(),
            },
            Phase::Together | Phase::Kept if self.busy.rests(|| now) => self.leave(machine),
            // In vain, or too late before it has settled.
            Phase::Together if left >= (WAITS - SETTLE) as i32 => self.give_up(machine),
            Phase::Together => match self.taken(now, machine).and_then(|taken| self.by_work(taken))
            {
                Some(taken) => self.judge(taken),
                None => self.give_up(machine),
            },
            Phase::Kept => {
                let is_over = elapsed > machine.slow() || self.is_in_vain(left, machine);
                self.keep(elapsed, is_over)
            }
            Phase::Turning => self.fail(),
        };
        self.began.store(now, order);
        self.found.store(0, order);
        self.vain.store(0, order);
        self.left.store(WAITS, order);
        let next = turning.next(phase);
        if phase == Phase::Apart {
            self.trial.store(next.0, order);
        }
        // Unless others have not waited for it.
        let _ = self.window.0.compare_exchange(turning.0, next.0, order, order);
    }

    fn rest(&self, elapsed: u64, machine: &impl Machine) -> Phase {
        let windows = self.windows.load(Ordering::Relaxed).saturating_sub(1);
        self.windows.store(windows, Ordering::Relaxed);
        let changed = match self.is_another_rate(elapsed) {
            true => self.changed.load(Ordering::Relaxed) + 1,
            false => 0,
        };
        self.changed.store(changed, Ordering::Relaxed);
        let has_changed = changed >= CHANGED;
        // Where wakers run on the waiters' processor, these sleep in any case.
        let can_spin = self.found.load(Ordering::Relaxed) >= WAITS / 2;
        let is_due = can_spin && (windows == 0 || has_changed);
        if !is_due
            || elapsed > machine.slow()
            || self.busy.rests(|| machine.now())
            || !machine.has_processors()
            || !self.credit.can_pay(machine)
        {
            return Phase::Resting;
        }
        if has_changed {
            self.failures.store(0, Ordering::Relaxed);
        }
        self.rested.store(elapsed, Ordering::Relaxed);
        self.busy.end_rest(machine.now());
        Phase::Apart
    }

    /// Whether the rate of waits is another one than in the last trial.
    fn is_another_rate(&self, elapsed: u64) -> bool {
        let before = self.rested.load(Ordering::Relaxed);
        before != 0 && (elapsed > before * 2 || elapsed * 2 < before)
    }

    /// What so many windows together have cost more than others, if one has taken so much (ns)
    /// since it had settled.
    fn excess(&self, cost: u64, windows: u32) -> u64 {
        let more = cost.saturating_sub(self.cost_apart.load(Ordering::Relaxed));
        more.saturating_mul((WAITS * windows).into()) / u64::from(WAITS - SETTLE)
    }

    /// After a window together whose spins are in vain, or whose work cannot be told: as if each
    /// had lasted to its end. What has been kept was not.
    fn give_up(&self, machine: &impl Machine) -> Phase {
        self.charge(&self.found, machine);
        self.charge(&self.vain, machine);
        self.reject(0)
    }

    fn charge(&self, spins: &UnmodelledU32, machine: &impl Machine) {
        self.credit.charge(machine.joint_limit() * u64::from(spins.load(Ordering::Relaxed)));
    }

    /// After a pair of windows that does not pay. One may be wrong, so what has paid before is
    /// compared once more. After two, what has been kept was too much as well.
    fn reject(&self, cost: u64) -> Phase {
        if self.successes.swap(0, Ordering::Relaxed) > 0 {
            return Phase::Apart;
        }
        let kept = self.kept.swap(0, Ordering::Relaxed);
        self.credit.charge(self.excess(cost, kept));
        self.fail()
    }

    /// After a pair of windows.
    fn judge(&self, together: Taken) -> Phase {
        self.credit.charge(self.excess(together.cost, 1));
        let cost = self.cost_apart.load(Ordering::Relaxed);
        let elapsed = self.elapsed_apart.load(Ordering::Relaxed);
        let successes = self.successes.load(Ordering::Relaxed);
        // What has paid before may just about pay.
        let (most_cost, most_elapsed) = match successes {
            0 => (cost, elapsed - elapsed / 8),
            _ => (cost + cost / 32, elapsed - elapsed / 16),
        };
        if together.cost > most_cost || together.elapsed > most_elapsed {
            return self.reject(together.cost);
        }
        let successes = (successes + 1).min(MOST_SUCCESSES);
        self.successes.store(successes, Ordering::Relaxed);
        self.failures.store(0, Ordering::Relaxed);
        // The first may be luck.
        let windows = if successes == 1 { 1 } else { KEPT << successes };
        self.windows.store(windows, Ordering::Relaxed);
        self.kept.store(0, Ordering::Relaxed);
        Phase::Kept
    }

    /// Rests, for twice as long as after the last trial in vain.
    fn fail(&self) -> Phase {
        let failures = (self.failures.load(Ordering::Relaxed) + 1).min(MOST_FAILURES);
        self.failures.store(failures, Ordering::Relaxed);
        self.successes.store(0, Ordering::Relaxed);
        self.windows.store(KEPT << failures, Ordering::Relaxed);
        self.kept.store(0, Ordering::Relaxed);
        self.changed.store(0, Ordering::Relaxed);
        Phase::Resting
    }

    /// Rests, because waits come too rarely for a trial now.
    fn postpone(&self) -> Phase {
        self.successes.store(0, Ordering::Relaxed);
        self.windows.store(KEPT, Ordering::Relaxed);
        self.kept.store(0, Ordering::Relaxed);
        Phase::Resting
    }

    /// A thread was without a processor for so long (ns), which counts if it is in the trial.
    #[cold]
    fn lost(&self, nanos: u64, all_rest: bool, machine: &impl Machine) {
        let window = self.window();
        let (spins, thread) =
            (matches!(window.phase(), Phase::Together | Phase::Kept), machine.thread());
        let is_in_trial = || self.part(thread).is_in(self.trial(), thread);
        if all_rest {
            self.busy.begin_rest(machine.now());
        }
        let is_lost = || is_in_trial() && self.busy.lose(nanos, machine.now());
        if spins && (all_rest || is_lost()) {
            self.turn(window, self.left.load(Ordering::Relaxed) as i32, machine);
        }
    }

    /// Leaves a busy machine alone, for as long as [`Busy`] says.
    fn leave(&self, machine: &impl Machine) -> Phase {
        self.charge(&self.vain, machine);
        self.successes.store(0, Ordering::Relaxed);
        self.windows.store(0, Ordering::Relaxed);
        self.kept.store(0, Ordering::Relaxed);
        Phase::Resting
    }

    fn keep(&self, elapsed: u64, is_over: bool) -> Phase {
        let windows = self.windows.load(Ordering::Relaxed).saturating_sub(1);
        let kept = self.kept.load(Ordering::Relaxed) + 1;
        self.windows.store(windows, Ordering::Relaxed);
        self.kept.store(kept, Ordering::Relaxed);
        if kept == 1 {
            self.elapsed.store(elapsed, Ordering::Relaxed);
        }
        let is_slower = elapsed > 2 * self.elapsed.load(Ordering::Relaxed);
        let is_long = u64::from(kept * WAITS) * elapsed > MOST_KEPT;
        if windows == 0 || is_over || is_long || kept >= KEPT && is_slower {
            return Phase::Apart;
        }
        Phase::Kept
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
