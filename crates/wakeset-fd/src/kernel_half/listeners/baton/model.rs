//! A model of the passing on: waiters that step one at a time, in random order, on queues as the
//! kernel keeps them.
//!
//! When nothing moves any more, no connection may be there for which a waiter sleeps that would
//! accept it, unless it has been told; and the passes are bounded by the declines.
//!
//! A waiter may end at any step, as a thread does in a signal handler.
//!
//! A set whose thread is awake is passed over, and has what has come at its next wait. A waiter may
//! have something else to report whenever the baton ends its wait.
//!
//! Left out: a waiter of several threads (`declining.c` has one), a decline whose parts are steps
//! of their own, and adds of the baton, which report at once.

use super::{Rounds, answers, begin_round, has_notes, is_noted};
use crate::table::alone::alone;
extern crate std;
use core::mem;
use std::vec::Vec;

const LISTENERS: usize = 2;

/// What a waiter does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// It sleeps, and a connection or the baton may wake it.
    Nothing,
    /// It has been woken, if so by the baton, and checks its listeners.
    Check { passed: bool },
    /// It has declined something of this listener, and wakes another.
    Decline(usize),
    /// It wakes another, and checks its listeners then, or reports something else.
    Pass { checks: bool },
    /// It checks its listeners.
    Look,
    /// It goes to sleep, unless there is something.
    Sleep,
}

struct Waiter {
    next: Next,
    watches: [bool; LISTENERS],
    accepts: bool,
    /// It stays in the baton's queue when it has declined, as a set does by edges.
    stays: bool,
    /// Its set has been passed over for a connection, or has reported one, and looks again.
    looks: [bool; LISTENERS],
    /// It has declined a connection, and its set is told of it again and again.
    declined: [bool; LISTENERS],
    /// Its set has been passed over for the baton.
    has_baton: bool,
    rounds: Rounds,
}

/// The world, with the kernel's queues: the first that sleeps is woken.
struct World {
    waiters: Vec<Waiter>,
    pending: [u32; LISTENERS],
    queues: [Vec<usize>; LISTENERS],
    batons: Vec<usize>,
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

    fn new(seed: u64) -> Self {
        let mut world = Self {
            waiters: Vec::new(),
            pending: [0; LISTENERS],
            queues: [const { Vec::new() }; LISTENERS],
            batons: Vec::new(),
            passes: 0,
            declines: 0,
            ends: 0,
            random: seed,
        };
        for waiter in 0..2 + world.lot(5) {
            let which = world.lot(4);
            let watches = [which != 1, which != 2];
            let accepts = world.lot(3) == 0;
            let stays = world.lot(2) == 0;
            let (next, rounds) = (Next::Nothing, Rounds::none());
            world.waiters.push(Waiter {
                next,
                watches,
                accepts,
                stays,
                looks: [false; LISTENERS],
                declined: [false; LISTENERS],
                has_baton: false,
                rounds,
            });
            for listener in (0..LISTENERS).filter(|listener| watches[*listener]) {
                world.queues[listener].push(waiter);
            }
            world.batons.push(waiter);
        }
        world
    }

    /// Wakes the first of a queue that sleeps; it and those before it `note` what has come.
    fn wake(&mut self, queue: &[usize], next: Next, note: impl Fn(&mut Waiter)) {
        for waiter in queue {
            let waiter = &mut self.waiters[*waiter];
            note(waiter);
            if waiter.next == Next::Nothing {
                waiter.next = next;
                return;
            }
        }
    }

    fn connect(&mut self) {
        let listener = self.lot(LISTENERS);
        self.pending[listener] += 1;
        let queue = self.queues[listener].clone();
        let note = |waiter: &mut Waiter| waiter.looks[listener] = true;
        self.wake(&queue, Next::Check { passed: false }, note);
    }

    /// The listener of this waiter that has a connection.
    fn found(&self, waiter: usize) -> Option<usize> {
        let watches = self.waiters[waiter].watches;
        (0..LISTENERS).find(|listener| watches[*listener] && self.pending[*listener] > 0)
    }

    /// Asked by the baton: whether it is passed on, as the real one does. The set looks at all of
    /// its listeners.
    fn visit(&mut self, waiter: usize) -> Next {
        let mine = &mut self.waiters[waiter];
        let own = (0..LISTENERS).filter(|listener| {
            mine.watches[*listener] || mine.declined[*listener] && answers(true)
        });
        mine.looks = mine.watches;
        match mine.rounds.visit(own.map(|listener| 1 << listener).sum()) {
            true => Next::Pass { checks: true },
            false => Next::Look,
        }
    }

    /// Of the baton's wake: first whether it is passed on.
    fn check(&mut self, waiter: usize, passed: bool) {
        if !passed {
            self.look(waiter);
            return;
        }
        let is_busy = self.lot(2) == 0;
        let mine = &mut self.waiters[waiter];
        let next = match is_busy.then(|| mine.rounds.visit_busy()) {
            Some(true) => Next::Pass { checks: false },
            Some(false) => Next::Sleep,
            None if !is_noted() => Next::Sleep,
            None => self.visit(waiter),
        };
        self.waiters[waiter].next = next;
    }

    fn look(&mut self, waiter: usize) {
        self.waiters[waiter].next = Next::Sleep;
        let Some(listener) = self.found(waiter) else { return };
        self.waiters[waiter].looks[listener] = true;
        if self.waiters[waiter].accepts {
            self.pending[listener] -= 1;
        } else {
            let mine = &mut self.waiters[waiter];
            mine.watches[listener] = false;
            mine.declined[listener] = mine.stays;
            mine.next = Next::Decline(listener);
            self.queues[listener].retain(|queued| *queued != waiter);
        }
    }

    fn decline(&mut self, waiter: usize, listener: usize) {
        begin_round(1 << listener);
        self.declines += 1;
        self.pass(waiter, Next::Sleep);
    }

    fn pass(&mut self, waiter: usize, next: Next) {
        self.passes += 1;
        self.waiters[waiter].next = next;
        let queue = self.batons.clone();
        self.wake(&queue, Next::Check { passed: true }, |waiter| {
            waiter.has_baton = waiter.next != Next::Nothing;
        });
    }

    fn sleep(&mut self, waiter: usize) {
        let has_none = self.waiters[waiter].watches == [false; LISTENERS];
        if has_none && !self.waiters[waiter].stays {
            self.batons.retain(|queued| *queued != waiter);
        } else if self.waiters[waiter].rounds.is_due() {
            self.waiters[waiter].rounds.note_placed();
            self.batons.retain(|queued| *queued != waiter);
            self.batons.push(waiter);
        }
        if self.waiters[waiter].rounds.take_asked() {
            self.waiters[waiter].next = self.visit(waiter);
            return;
        }
        let pending = self.pending;
        let mine = &mut self.waiters[waiter];
        let looks = &mut mine.looks;
        looks.iter_mut().zip(pending).for_each(|(looks, pending)| *looks &= pending > 0);
        let finds = mine.looks.iter().zip(mine.watches).any(|(looks, watches)| *looks && watches);
        let next = match mem::take(&mut mine.has_baton) {
            true => Next::Check { passed: true },
            false if finds => Next::Check { passed: false },
            false => Next::Nothing,
        };
        self.waiters[waiter].next = next;
    }

    /// First the set is closed; then what the waiter was told of, or woken for, counts as declined.
    fn end(&mut self, waiter: usize) {
        self.ends += 1;
        let Waiter { next, watches, .. } = self.waiters[waiter];
        self.waiters[waiter].watches = [false; LISTENERS];
        self.queues.iter_mut().for_each(|queue| queue.retain(|queued| *queued != waiter));
        self.batons.retain(|queued| *queued != waiter);
        if has_notes() {
            self.pass(waiter, Next::Nothing);
        }
        for (listener, watched) in watches.into_iter().enumerate() {
            let was_told = watched || next == Next::Decline(listener);
            if was_told && self.pending[listener] > 0 {
                self.decline(waiter, listener);
            }
        }
        self.waiters[waiter].next = Next::Nothing;
    }

    fn step(&mut self) -> bool {
        let moves = |waiter: &Waiter| waiter.next != Next::Nothing;
        let awake: Vec<usize> =
            (0..self.waiters.len()).filter(|waiter| moves(&self.waiters[*waiter])).collect();
        if awake.is_empty() {
            return false;
        }
        let lot = self.lot(awake.len());
        let waiter = awake[lot];
        if self.lot(10) == 0 {
            self.end(waiter);
            return true;
        }
        match self.waiters[waiter].next {
            Next::Check { passed } => self.check(waiter, passed),
            Next::Look => self.look(waiter),
            Next::Decline(listener) => self.decline(waiter, listener),
            Next::Pass { checks } => {
                self.pass(waiter, if checks { Next::Look } else { Next::Sleep });
            }
            Next::Sleep => self.sleep(waiter),
            Next::Nothing => {}
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
            let most = (self.declines + 1) * (self.waiters.len() as u32 + 2) + self.ends;
            assert!(self.passes <= most, "{} passes, {} declined", self.passes, self.declines);
        }
    }
}

#[test]
fn no_connection_is_stranded_and_the_passing_ends() {
    let _alone = alone();
    for seed in 1..30_000 {
        let mut world = World::new(seed);
        let connections = 1 + world.lot(4);
        world.run(connections);
        for (listener, pending) in world.pending.iter().enumerate() {
            let mut waiters = world.waiters.iter();
            let sleeps = waiters.any(|waiter| waiter.watches[listener]);
            assert!(
                *pending == 0 || !sleeps,
                "seed {seed}: {pending} connections are stranded on listener {listener}"
            );
        }
    }
}
