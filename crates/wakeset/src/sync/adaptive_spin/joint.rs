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
//! | resting | sleep | after some windows apart, if the process can [pay](Joint::can_pay) |
//! | apart | sleep; their threads' processor time is measured | together |
//! | together | spin; it is measured as well | kept, if that paid; or else resting |
//! | kept | spin | after some windows, or if their rate has changed: apart |
//!
//! A phase lasts for a window of [`WAITS`] waits, or several. Each trial in a row that pays
//! doubles the number of windows that are kept, and each that does not the number that rest. A
//! lasting change of the rate of waits ends a rest. Where a wait comes more rarely than every 100
//! µs, or most wakers run on the waiters' processor, nothing is tried.
//!
//! Only waits take part that would sleep, and whose last sleep a waker of this process has ended
//! that then waited itself: one that keeps busy would have its work taken piece by piece, which
//! looks cheap for each wait and is not. Two threads have to take part, or nobody answers.
//!
//! Processor time is that of the threads that take part, because what another thread does meanwhile
//! says nothing. How much work a window has done is told by the thread whose share of the waits is
//! the least, together by apart: one that serves several wakes for each of them if it spins, and
//! for several at once if it sleeps, so its own waits say little.
//!
//! All of it is a guess and none of it matters for correctness, so the accesses are relaxed.

mod part;

use super::latency::{LATENCY, MOST_JOINT};
use crate::sync::line::Line;
use crate::sync::spin;
use crate::sync::thread_id;
use crate::sync::time::Deadline;
use crate::sync::{Ordering, UnmodelledU32, UnmodelledU64};
use part::{Part, Phase, Window};

/// The waits of a window.
const WAITS: u32 = 128;
/// So many of them pass before what they take is measured.
const SETTLE: u32 = 32;
/// A window in which spins are tried ends after this many if too few have succeeded.
const EARLY: u32 = 32;
/// A wait of the process every so often (ns) or more rarely: too slow to be a chain of threads that
/// wake each other.
const SLOW: u64 = 100_000;
/// How many windows rest before the first trial.
const FIRST_REST: u32 = 8;
/// How often the number of windows that rest, or are kept, doubles at most.
const MOST_FAILURES: u32 = 14;
const MOST_SUCCESSES: u32 = 4;
/// Fewer windows than this are kept only if the time is over.
const KEPT: u32 = 4;
/// So many windows in a row at another rate are a change.
const CHANGED: u32 = 4;
/// The part of the process's processor time that trials may cost.
const PART: u64 = 64;
/// What they may cost at once (ns).
const MOST_CREDIT: i64 = 5_000_000;
/// What they owe at the beginning (ns).
const FIRST_DEBT: i64 = 1_500_000;
/// The threads that take part, at most.
const THREADS: usize = 8;
/// A thread with fewer measured waits in a window is there by chance.
const FEW: u32 = 6;
/// So many waits after the end of a window the thread that was to decide has not: it has ended, or
/// left by a jump.
const STUCK: i32 = 8_192;

/// What the decision needs of the machine.
pub(super) trait Machine {
    fn thread(&self) -> u32;
    fn now(&self) -> u64;
    fn thread_time(&self) -> Option<u64>;
    fn process_time(&self) -> Option<u64>;
    fn has_processors(&self) -> bool;
}

/// This one.
#[derive(Debug)]
pub(super) struct Real;

impl Machine for Real {
    fn thread(&self) -> u32 {
        thread_id::current()
    }

    fn now(&self) -> u64 {
        Deadline::now().as_nanos()
    }

    fn thread_time(&self) -> Option<u64> {
        spin::thread_time()
    }

    fn process_time(&self) -> Option<u64> {
        spin::process_time()
    }

    fn has_processors(&self) -> bool {
        spin::has_processors()
    }
}

/// What a window has taken for each wait (ns): in processor time, and in time.
#[derive(Clone, Copy, Debug)]
struct Taken {
    cost: u64,
    elapsed: u64,
}

impl Taken {
    /// The same for as much work as a wait of the window apart has done. That is told by the thread
    /// whose share of the waits is less than apart. `None`: one has had hardly any.
    fn by_work(self, joint: &Joint, together: Window) -> Option<Self> {
        let parts = || joint.parts.iter().filter_map(|Line(part)| part.both(together));
        let (all, all_apart) =
            parts().fold((0, 0), |(all, apart), part| (all + part.0, apart + part.1));
        let mut more = (1, 1);
        for (waits, apart) in parts().filter(|(_, apart)| *apart >= FEW) {
            if waits < FEW / 2 {
                return None;
            }
            // One wait of 24 may be in either window.
            let this = (u64::from((apart - 1) * all), u64::from(waits * all_apart));
            if this.0 * more.1 > more.0 * this.1 {
                more = this;
            }
        }
        let by_work = |taken: u64| taken.saturating_mul(more.0) / more.1.max(1);
        Some(Self { cost: by_work(self.cost), elapsed: by_work(self.elapsed) })
    }
}

/// How many of [`EARLY`] spins have to find something for the window to go on: the longer each may
/// take, the more.
fn fewest_found() -> u32 {
    let scaled = u64::from(EARLY) * LATENCY.joint_limit() / MOST_JOINT;
    (scaled as u32).clamp(EARLY / 4, EARLY / 2)
}

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
    /// How many windows are left to rest, or to keep; and how many have been kept.
    windows: UnmodelledU32,
    kept: UnmodelledU32,
    /// Trials in a row that have paid, and that have not.
    successes: UnmodelledU32,
    failures: UnmodelledU32,
    /// What the last window apart has taken.
    cost_apart: UnmodelledU64,
    elapsed_apart: UnmodelledU64,
    /// What each wait has taken in time when the spins began to be kept, or were given up.
    elapsed: UnmodelledU64,
    /// How many windows in a row have been at another rate than that.
    changed: UnmodelledU32,
    /// What trials may still cost (ns), as a signed number.
    credit: UnmodelledU64,
    /// The processor time of the process when that was last reckoned (ns).
    time: UnmodelledU64,
    /// The last window in which spins were tried.
    judged: UnmodelledU32,
    parts: [Line<Part>; THREADS],
}

/// The process's.
static JOINT: Joint = Joint::new();

/// A wait of the calling thread begins that takes part; whether it spins jointly, if it can.
#[inline]
pub(super) fn waits(how: Alone) -> bool {
    // Where each spin pays by itself, nobody counts.
    let skips = how == Alone::Spins && JOINT.rests();
    !cfg!(any(loom, shuttle)) && !skips && JOINT.waits(how, &Real)
}

/// What a wait does if no other one matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alone {
    Spins,
    Sleeps,
    /// It sleeps, and would do so in any case.
    OnlySleeps,
}

/// Such a spin has found something.
pub(super) fn found() {
    JOINT.found.fetch_add(1, Ordering::Relaxed);
}

impl Joint {
    const fn new() -> Self {
        Self {
            window: Line(UnmodelledU32::new(0)),
            left: UnmodelledU32::new(WAITS),
            began: UnmodelledU64::new(0),
            found: UnmodelledU32::new(0),
            windows: UnmodelledU32::new(FIRST_REST),
            kept: UnmodelledU32::new(0),
            successes: UnmodelledU32::new(0),
            failures: UnmodelledU32::new(0),
            cost_apart: UnmodelledU64::new(0),
            elapsed_apart: UnmodelledU64::new(0),
            elapsed: UnmodelledU64::new(0),
            changed: UnmodelledU32::new(0),
            credit: UnmodelledU64::new((-FIRST_DEBT) as u64),
            time: UnmodelledU64::new(0),
            judged: UnmodelledU32::new(0),
            parts: [const { Line(Part::new()) }; THREADS],
        }
    }

    fn part(&self, thread: u32) -> &Part {
        &self.parts[thread as usize % THREADS].0
    }

    fn rests(&self) -> bool {
        self.window().phase() == Phase::Resting
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
                left <= 0 || self.is_late(machine.now()) || self.is_in_vain(left)
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
        let thread = machine.thread();
        let part = self.part(thread);
        match window.phase() {
            // Whoever did not take part in the trial has not been judged by it.
            Phase::Kept => part.was_in(Window(self.judged.load(Ordering::Relaxed)), thread),
            phase => {
                if left == (WAITS - SETTLE) as i32 {
                    self.began.store(machine.now(), Ordering::Relaxed);
                }
                let settles = left > (WAITS - SETTLE) as i32;
                let time = machine.thread_time();
                time.is_some_and(|time| part.note(window, settles, thread, time))
                    && phase == Phase::Together
            }
        }
    }

    /// Whether a window in which threads spin lasts too long to go on.
    fn is_late(&self, now: u64) -> bool {
        now.saturating_sub(self.began.load(Ordering::Relaxed)) > u64::from(WAITS) * SLOW
    }

    fn is_in_vain(&self, left: i32) -> bool {
        left == (WAITS - EARLY) as i32 && self.found.load(Ordering::Relaxed) < fewest_found()
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
        let taken = || Some(Taken { cost: self.cost_of(window)?, elapsed });
        let phase = match window.phase() {
            Phase::Resting => self.rest(elapsed, machine),
            Phase::Apart => match taken() {
                Some(taken) if taken.elapsed <= SLOW => {
                    self.cost_apart.store(taken.cost, order);
                    self.elapsed_apart.store(taken.elapsed, order);
                    Phase::Together
                }
                _ => self.fail(),
            },
            Phase::Together => match taken().and_then(|taken| taken.by_work(self, window)) {
                Some(taken) if !self.is_in_vain(left) => self.judge(window, taken),
                _ => {
                    // As if each spin had lasted to its end.
                    let cost = self.cost_apart.load(order) + LATENCY.joint_limit();
                    self.charge(cost, waits);
                    self.reject(cost)
                }
            },
            Phase::Kept => self.keep(elapsed, self.is_in_vain(left)),
            Phase::Turning => self.fail(),
        };
        self.began.store(now, order);
        self.found.store(0, order);
        self.left.store(WAITS, order);
        self.window.0.store(turning.next(phase).0, order);
    }

    /// What a wait of a measured window has cost; `None` if hardly any took part.
    fn cost_of(&self, window: Window) -> Option<u64> {
        let parts = || self.parts.iter().filter_map(|Line(part)| part.of(window));
        let waits = parts().map(|(waits, _)| u64::from(waits)).sum::<u64>();
        let time = parts().map(|(_, time)| time).sum::<u64>();
        let threads = parts().filter(|(waits, _)| *waits >= FEW).count();
        (waits >= u64::from(EARLY / 2) && threads >= 2).then(|| time / waits)
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
        if !is_due || elapsed > SLOW || !machine.has_processors() || !self.can_pay(machine) {
            return Phase::Resting;
        }
        if has_changed {
            self.failures.store(0, Ordering::Relaxed);
        }
        Phase::Apart
    }

    /// Whether the rate of waits is another one than in the last trial.
    fn is_another_rate(&self, elapsed: u64) -> bool {
        let before = self.elapsed.load(Ordering::Relaxed);
        before != 0 && (elapsed > before * 2 || elapsed * 2 < before)
    }

    /// Whether all trials have cost no more than they may: one part in [`PART`] of the processor
    /// time of the process.
    fn can_pay(&self, machine: &impl Machine) -> bool {
        let Some(time) = machine.process_time() else { return false };
        let before = self.time.swap(time, Ordering::Relaxed);
        // The time of a forked child begins anew.
        let earned = time.saturating_sub(before) / PART;
        let credit = self.credit.load(Ordering::Relaxed) as i64;
        let credit = credit.saturating_add(earned as i64).min(MOST_CREDIT);
        self.credit.store(credit as u64, Ordering::Relaxed);
        credit >= 0
    }

    /// Takes what so many spins have cost more than sleeps, each, off the credit.
    fn charge(&self, cost: u64, spins: u64) {
        let more = cost.saturating_sub(self.cost_apart.load(Ordering::Relaxed));
        let credit = self.credit.load(Ordering::Relaxed) as i64;
        let credit = credit.saturating_sub_unsigned(more.saturating_mul(spins));
        self.credit.store(credit as u64, Ordering::Relaxed);
    }

    /// After a trial that does not pay: one comparison may be wrong. After two, what has been kept
    /// was too much as well.
    fn reject(&self, cost: u64) -> Phase {
        if self.successes.load(Ordering::Relaxed) == 0 {
            let kept = self.kept.swap(0, Ordering::Relaxed);
            self.charge(cost, u64::from(WAITS * kept));
        }
        self.fail()
    }

    /// After a trial.
    fn judge(&self, window: Window, together: Taken) -> Phase {
        self.charge(together.cost, u64::from(WAITS));
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
        self.judged.store(window.0, Ordering::Relaxed);
        Phase::Kept
    }

    /// Rests, for twice as long as after the last trial in vain.
    fn fail(&self) -> Phase {
        let failures = (self.failures.load(Ordering::Relaxed) + 1).min(MOST_FAILURES);
        self.failures.store(failures, Ordering::Relaxed);
        self.successes.store(0, Ordering::Relaxed);
        self.windows.store(KEPT << failures, Ordering::Relaxed);
        self.elapsed.store(self.elapsed_apart.load(Ordering::Relaxed), Ordering::Relaxed);
        self.changed.store(0, Ordering::Relaxed);
        Phase::Resting
    }

    fn keep(&self, elapsed: u64, in_vain: bool) -> Phase {
        let windows = self.windows.load(Ordering::Relaxed).saturating_sub(1);
        let kept = self.kept.load(Ordering::Relaxed) + 1;
        self.windows.store(windows, Ordering::Relaxed);
        self.kept.store(kept, Ordering::Relaxed);
        if kept == 1 {
            self.elapsed.store(elapsed, Ordering::Relaxed);
        }
        let is_slower = elapsed > 2 * self.elapsed.load(Ordering::Relaxed);
        if windows == 0 || in_vain || elapsed > SLOW || kept >= KEPT && is_slower {
            return Phase::Apart;
        }
        Phase::Kept
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
