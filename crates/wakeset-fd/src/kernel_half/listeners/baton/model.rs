//! A model of the passing on: sets whose threads step one at a time, in random order, on queues as
//! the kernel keeps them.
//!
//! When nothing moves any more, no connection may be there while a thread sleeps in a set that
//! could tell of it, unless the set has told of it by edges; and the passes are bounded by the
//! declines.
//!
//! A set may have several threads. One whose threads are awake is passed over, and has what has
//! come at its next look. A thread may have something else to report, and then be away for long or
//! for ever, as may one that has accepted. One that is alone with its set may end at any step, as
//! in a signal handler.
//!
//! Left out: a decline whose parts are steps of their own.

use super::names::{Notes, OTHERS};
use super::{Rounds, begin_round, forget_declined, has_notes};
use crate::table::alone::alone;
use wakeset::mutated;
extern crate std;
use std::vec::Vec;

const LISTENERS: usize = 2;

/// What a thread does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// It sleeps, and a connection or the baton may wake it.
    Nothing,
    /// It looks at what its set has, and goes to sleep if there is nothing.
    Look,
    /// Its program knows of connections on these listeners, and accepts or declines.
    Told([bool; LISTENERS]),
    /// It has declined something of this listener, and wakes another; then of these.
    Decline(usize, [bool; LISTENERS]),
    /// It wakes another. Its program has been told of these.
    Pass([bool; LISTENERS], Away),
    /// It is busy with something else.
    Away,
    /// It is for ever.
    Gone,
}

/// Whether a thread is away after it was told of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Away {
    No,
    Long,
    Ever,
}

/// What a program does that declines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Declines {
    /// It watches the listener no longer.
    Removes,
    /// It stays, and is told again and again.
    ByLevel,
    /// It stays, and is told of the next one.
    ByEdge,
}

struct Set {
    threads: Vec<Next>,
    accepts: bool,
    declines: Declines,
    watches: [bool; LISTENERS],
    /// A look finds what is there.
    looks: [bool; LISTENERS],
    /// It has told of what is there, by edges.
    due: [bool; LISTENERS],
    /// A thread has declined what is there, by level.
    has_declined: [bool; LISTENERS],
    has_baton: bool,
    /// A thread's own set in poll(2): it tells of all that is there when the baton has come.
    is_private: bool,
    rounds: Rounds,
}

impl Set {
    fn can_take(&self, listener: usize) -> bool {
        self.watches[listener] && !self.due[listener]
    }

    /// One thread that sleeps looks.
    fn wake(&mut self) -> bool {
        let sleeper = self.threads.iter_mut().find(|next| **next == Next::Nothing);
        sleeper.map(|sleeper| *sleeper = Next::Look).is_some()
    }
}

/// The world, with the kernel's queues: the first that sleeps is woken.
struct World {
    sets: Vec<Set>,
    pending: [u32; LISTENERS],
    queues: [Vec<usize>; LISTENERS],
    batons: Vec<usize>,
    notes: [Notes; LISTENERS],
    passes: u32,
    declines: u32,
    ends: u32,
    random: u64,
}

impl World {
    fn lot(&mut self, most: usize) -> usize {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.random >> 33) as usize % most
    }

    fn new(seed: u64, notes: [Notes; LISTENERS]) -> Self {
        let (sets, pending, batons) = (Vec::new(), [0; LISTENERS], Vec::new());
        let queues = [const { Vec::new() }; LISTENERS];
        let random = seed;
        let mut world =
            Self { sets, pending, queues, batons, notes, passes: 0, declines: 0, ends: 0, random };
        for set in 0..2 + world.lot(5) {
            let which = world.lot(4);
            let watches = [which != 1, which != 2];
            let kinds = [Declines::Removes, Declines::ByLevel, Declines::ByEdge];
            let (accepts, declines) = (world.lot(2) == 0, kinds[world.lot(3)]);
            // What was declined by level, each thread remembers for itself.
            let is_private = declines == Declines::Removes && world.lot(2) == 0;
            let is_alone = is_private || !accepts && declines == Declines::ByLevel;
            let threads = if is_alone { 1 } else { 1 + world.lot(5).saturating_sub(2) };
            let none = [false; LISTENERS];
            world.sets.push(Set {
                threads: (0..threads).map(|_| Next::Nothing).collect(),
                accepts,
                declines,
                watches,
                looks: none,
                due: none,
                has_declined: none,
                has_baton: false,
                is_private,
                rounds: Rounds::none(),
            });
            for listener in (0..LISTENERS).filter(|listener| watches[*listener]) {
                world.queues[listener].push(set);
            }
            world.batons.push(set);
        }
        world
    }

    /// As the kernel does: the first set of a queue in which a thread sleeps. It and those before
    /// it `note` what has come.
    fn wake(&mut self, queue: &[usize], note: impl Fn(&mut Set)) {
        for set in queue {
            note(&mut self.sets[*set]);
            if self.sets[*set].wake() {
                return;
            }
        }
    }

    fn connect(&mut self) {
        let listener = self.lot(LISTENERS);
        self.pending[listener] += 1;
        let queue = self.queues[listener].clone();
        self.wake(&queue, |set| set.looks[listener] = true);
    }

    /// An addition reports at once.
    fn put_last(&mut self, set: usize) {
        self.sets[set].rounds.note_placed();
        self.sets[set].has_baton = true;
        self.batons.retain(|queued| *queued != set);
        self.batons.push(set);
    }

    /// The baton has come to a set, as in the real one.
    fn take_baton(&mut self, set: usize, is_busy: bool) -> bool {
        let mine = &mut self.sets[set];
        let Some(visit) = mine.rounds.visit() else { return false };
        let (mut own, mut passes) = (0, false);
        for listener in 0..LISTENERS {
            let note = self.notes[listener];
            if !mine.watches[listener] || visit.open(note) == 0 {
                continue;
            }
            if self.pending[listener] == 0 {
                visit.saw_none(note);
            } else if mine.can_take(listener) {
                own |= note;
                passes |= is_busy || visit.asks_more(note);
                mine.looks[listener] = true;
                mine.wake();
            }
        }
        let passes = mine.rounds.passes(passes || visit.is_for_others(own));
        if passes && !mine.is_private && !mutated!("set_passes_before_it_moves") {
            self.put_last(set);
        }
        passes
    }

    fn look(&mut self, set: usize, thread: usize) {
        let pending = self.pending.map(|pending| pending > 0);
        let is_busy = self.lot(3) == 0;
        let away = match self.lot(3) {
            _ if !is_busy => Away::No,
            0 => Away::Ever,
            _ => Away::Long,
        };
        if self.sets[set].rounds.is_due() {
            self.put_last(set);
        }
        let mine = &mut self.sets[set];
        let mut told = [false; LISTENERS];
        for listener in 0..LISTENERS {
            mine.due[listener] &= pending[listener];
            mine.has_declined[listener] &= pending[listener];
            mine.looks[listener] &= pending[listener] && mine.watches[listener];
            told[listener] = mine.looks[listener];
            if mine.declines == Declines::ByEdge {
                mine.due[listener] |= told[listener];
                mine.looks[listener] = false;
            }
        }
        if mine.looks != [false; LISTENERS] {
            mine.wake();
        }
        let has_baton = core::mem::take(&mut mine.has_baton);
        if has_baton && mine.is_private {
            told = core::array::from_fn(|listener| mine.watches[listener] && pending[listener]);
        }
        let none = told == [false; LISTENERS];
        let passes = has_baton && self.take_baton(set, is_busy || !none);
        self.sets[set].threads[thread] = match passes {
            true => Next::Pass(told, away),
            false if has_baton && none => after(away),
            false if none => Next::Nothing,
            false => Next::Told(told),
        };
    }

    /// A program goes through what it was told of.
    fn handle(&mut self, set: usize, thread: usize, mut told: [bool; LISTENERS]) {
        let mine = &mut self.sets[set];
        let Some(listener) = told.iter().position(|told| *told) else {
            let goes = mine.accepts && self.lot(3) == 0;
            self.sets[set].threads[thread] = if goes { Next::Gone } else { Next::Look };
            return;
        };
        told[listener] = false;
        mine.threads[thread] = Next::Told(told);
        if mine.accepts {
            let all = mine.declines == Declines::ByEdge;
            let most = if all { self.pending[listener] } else { 1 };
            self.pending[listener] = self.pending[listener].saturating_sub(most);
            return;
        }
        if mine.declines == Declines::Removes {
            mine.watches[listener] = false;
            self.queues[listener].retain(|queued| *queued != set);
        } else if mine.declines == Declines::ByLevel {
            let again = core::mem::replace(&mut mine.has_declined[listener], true);
            if again {
                return;
            }
        }
        if self.pending[listener] > 0 {
            self.sets[set].threads[thread] = Next::Decline(listener, told);
        }
    }

    fn decline(&mut self, listener: usize) {
        begin_round(self.notes[listener]);
        self.declines += 1;
        self.pass();
    }

    fn pass(&mut self) {
        self.passes += 1;
        let queue = self.batons.clone();
        self.wake(&queue, |set| set.has_baton = true);
    }

    /// First the set is closed; then what the thread was told of, or woken for, counts as declined.
    fn end(&mut self, set: usize) {
        self.ends += 1;
        let mine = &mut self.sets[set];
        let next = core::mem::replace(&mut mine.threads[0], Next::Gone);
        let watches = core::mem::take(&mut mine.watches);
        self.queues.iter_mut().for_each(|queue| queue.retain(|queued| *queued != set));
        self.batons.retain(|queued| *queued != set);
        if has_notes() {
            self.pass();
        }
        for (listener, watched) in watches.into_iter().enumerate() {
            let was_told = watched || matches!(next, Next::Decline(of, _) if of == listener);
            if was_told && self.pending[listener] > 0 {
                self.decline(listener);
            }
        }
    }

    /// Whether a thread moves: not if it is told again and again of what it has declined.
    fn moves(&self, set: &Set, thread: Next) -> bool {
        let is_new = |listener: usize| set.looks[listener] && !set.has_declined[listener];
        let spins = set.has_declined.iter().zip(self.pending).any(|(it, left)| *it && left > 0);
        match thread {
            Next::Nothing | Next::Gone => false,
            Next::Look if spins => set.has_baton || (0..LISTENERS).any(is_new),
            _ => true,
        }
    }

    fn step(&mut self) -> bool {
        let all = self.sets.iter().enumerate().flat_map(|(at, set)| {
            let moves = set.threads.iter().enumerate();
            moves.filter(|(_, next)| self.moves(set, **next)).map(move |(thread, _)| (at, thread))
        });
        let awake: Vec<(usize, usize)> = all.collect();
        if awake.is_empty() {
            return false;
        }
        let (set, thread) = awake[self.lot(awake.len())];
        if self.lot(10) == 0 && self.sets[set].threads.len() == 1 {
            self.end(set);
            return true;
        }
        match self.sets[set].threads[thread] {
            Next::Look => self.look(set, thread),
            Next::Told(told) => self.handle(set, thread, told),
            Next::Decline(listener, told) => {
                self.sets[set].threads[thread] = Next::Told(told);
                self.decline(listener);
            }
            Next::Pass(told, away) => {
                let none = told == [false; LISTENERS];
                self.sets[set].threads[thread] = if none { after(away) } else { Next::Told(told) };
                self.pass();
            }
            Next::Away => self.sets[set].threads[thread] = Next::Look,
            Next::Nothing | Next::Gone => {}
        }
        true
    }

    fn run(&mut self, connections: usize) {
        let mut left = connections;
        loop {
            if left > 0 && self.lot(4) == 0 {
                left -= 1;
                self.connect();
            } else if !self.step() && left == 0 {
                return;
            }
            let most = (self.declines + 1) * (self.sets.len() as u32 + 2) + self.ends;
            assert!(self.passes <= most, "{} passes, {} declined", self.passes, self.declines);
        }
    }
}

/// After it was told of something else, or of nothing.
fn after(away: Away) -> Next {
    match away {
        Away::No => Next::Look,
        Away::Long => Next::Away,
        Away::Ever => Next::Gone,
    }
}

fn explore(notes: [Notes; LISTENERS], seeds: u64) {
    for seed in 1..seeds {
        forget_declined();
        let mut world = World::new(seed, notes);
        let connections = 1 + world.lot(4);
        world.run(connections);
        for (listener, pending) in world.pending.iter().enumerate() {
            let sleeps = world
                .sets
                .iter()
                .any(|set| set.can_take(listener) && set.threads.contains(&Next::Nothing));
            assert!(
                *pending == 0 || !sleeps,
                "seed {seed}: {pending} connections are stranded on listener {listener}"
            );
        }
    }
}

#[test]
fn no_connection_is_stranded_and_the_passing_ends() {
    let _alone = alone();
    explore([1, 2], 50_000);
}

/// Where there are too many of them for a note of its own each.
#[test]
fn no_connection_is_stranded_where_listeners_share_a_note() {
    let _alone = alone();
    explore([Notes::from(OTHERS); LISTENERS], 20_000);
    forget_declined();
}
