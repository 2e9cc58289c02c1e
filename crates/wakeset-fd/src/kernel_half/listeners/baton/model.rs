//! A model of the passing on: waiters that step one at a time, in random order, on queues as the
//! kernel keeps them.
//!
//! When nothing moves any more, no connection may be there for which a waiter sleeps that would
//! accept it, unless it has been told; and the passes are bounded by the declines.
//!
//! A waiter may end at any step, as a thread does in a signal handler.
//!
//! Left out: a waiter of several threads (`declining.c` has one), a decline whose parts are steps
//! of their own, and adds of the baton, which report at once.

use super::{Rounds, begin_round, has_notes};
use crate::table::alone::alone;
extern crate std;
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
    /// It reports nothing, or something else, and wakes another.
    Pass,
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
            world.waiters.push(Waiter { next, watches, accepts, stays, rounds });
            for listener in (0..LISTENERS).filter(|listener| watches[*listener]) {
                world.queues[listener].push(waiter);
            }
            world.batons.push(waiter);
        }
        world
    }

    fn wake(&mut self, queue: &[usize], next: Next) {
        if let Some(first) = queue.iter().find(|first| self.waiters[**first].next == Next::Nothing)
        {
            self.waiters[*first].next = next;
        }
    }

    fn connect(&mut self) {
        let listener = self.lot(LISTENERS);
        self.pending[listener] += 1;
        let queue = self.queues[listener].clone();
        self.wake(&queue, Next::Check { passed: false });
    }

    /// The listener of this waiter that has a connection.
    fn found(&self, waiter: usize) -> Option<usize> {
        let watches = self.waiters[waiter].watches;
        (0..LISTENERS).find(|listener| watches[*listener] && self.pending[*listener] > 0)
    }

    /// Of the baton's wake: first whether it is passed on, as the real one does.
    fn check(&mut self, waiter: usize, passed: bool) {
        if passed {
            let listeners = 0..LISTENERS;
            let own = listeners.filter(|listener| self.waiters[waiter].watches[*listener]);
            let own = own.map(|listener| 1 << listener).sum();
            let passes = self.waiters[waiter].rounds.visit(own);
            self.waiters[waiter].next = if passes { Next::Pass } else { Next::Look };
        } else {
            self.look(waiter);
        }
    }

    fn look(&mut self, waiter: usize) {
        self.waiters[waiter].next = Next::Sleep;
        let Some(listener) = self.found(waiter) else { return };
        if self.waiters[waiter].accepts {
            self.pending[listener] -= 1;
        } else {
            self.waiters[waiter].watches[listener] = false;
            self.queues[listener].retain(|queued| *queued != waiter);
            self.waiters[waiter].next = Next::Decline(listener);
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
        self.wake(&queue, Next::Check { passed: true });
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
        let next = match self.found(waiter) {
            Some(_) => Next::Check { passed: false },
            None => Next::Nothing,
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
            Next::Pass => self.pass(waiter, Next::Look),
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
