//! A model of stepping back: waiters that step one at a time, in random order, on queues as the
//! kernel keeps them, with the real [`Share`] and [`Rounds`]. Some hang while they sleep, and are
//! passed over by the kernel while their slots say that they are free. Others decline what they are
//! told of, or end a wait in which they have stepped back, and do not come again.
//!
//! When nothing moves any more but time, those that have stepped back look again. No connection may
//! be left then while any waiter can take it.

use super::super::baton::{self, Rounds};
use super::super::{Choice, choose, held};
use super::*;
use crate::table::alone::alone;
extern crate std;
use std::vec::Vec;

/// The note of the only listener: its alone, or shared with others.
const OWN: Notes = 1;
const SHARED: Notes = 1 << 63 | 1 << 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// It sleeps.
    Nothing,
    /// It has been woken, if so by the baton.
    Check { passed: bool },
    /// It goes to sleep.
    Sleep,
}

struct Waiter {
    share: Share,
    rounds: Rounds,
    next: Next,
    has_stepped: bool,
    /// The listener has woken it, or its watch is added anew: its set looks at the listener before
    /// it sleeps.
    looks: bool,
    /// The baton has passed over its set, and ends its next sleep.
    has_baton: bool,
    hangs: bool,
}

struct World {
    waiters: Vec<Waiter>,
    pending: u32,
    queue: Vec<usize>,
    batons: Vec<usize>,
    steps: u32,
    random: u64,
    /// The listener's.
    note: Notes,
}

fn to_the_end(queue: &mut Vec<usize>, waiter: usize) {
    queue.retain(|queued| *queued != waiter);
    queue.push(waiter);
}

impl World {
    fn lot(&mut self, most: usize) -> usize {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.random >> 33) as usize % most
    }

    fn new(seed: u64, note: Notes) -> Self {
        let random = seed;
        let (waiters, queue, batons) = (Vec::new(), Vec::new(), Vec::new());
        let mut world = Self { waiters, pending: 0, queue, batons, steps: 0, random, note };
        for waiter in 0..2 + world.lot(4) {
            let share = Share::new();
            for _ in 0..world.lot(4) {
                held::raise(share.holder());
            }
            share.note_sleep(note);
            // The first one goes on.
            let hangs = waiter > 0 && world.lot(3) == 0;
            let (rounds, next) = (Rounds::none(), Next::Nothing);
            world.waiters.push(Waiter {
                share,
                rounds,
                next,
                has_stepped: false,
                looks: false,
                has_baton: false,
                hangs,
            });
            world.queue.push(waiter);
            world.batons.push(waiter);
        }
        world
    }

    /// As the kernel does: the first of a queue that sleeps. The sets that are passed over have the
    /// event, too.
    fn wake(&mut self, queue: &[usize], passed: bool) {
        for waiter in queue {
            let waiter = &mut self.waiters[*waiter];
            if waiter.next == Next::Nothing && !waiter.hangs {
                waiter.next = Next::Check { passed };
                return;
            }
            waiter.has_baton |= passed;
            waiter.looks |= !passed;
        }
    }

    fn pass(&mut self, waiter: usize) {
        let queue = self.batons.clone();
        self.wake(&queue, true);
        to_the_end(&mut self.batons, waiter);
    }

    fn check(&mut self, waiter: usize, passed: bool) {
        held::put_off_count();
        let (is_there, note) = (self.pending > 0, self.note);
        let mine = &mut self.waiters[waiter];
        mine.next = Next::Sleep;
        let visit = if passed { mine.rounds.visit() } else { None };
        let is_urgent = visit.is_some_and(|visit| visit.is_urgent(note));
        let leaves = !is_urgent && mine.share.leaves(note);
        mine.looks |= !(passed && leaves);
        if passed {
            let Some(visit) = visit else { return };
            if !is_there {
                visit.saw_none(note);
            } else if leaves {
                mine.share.pay();
            }
            if is_there && mine.rounds.passes(leaves || visit.asks_more(note)) {
                self.pass(waiter);
            }
            if leaves {
                return;
            }
        }
        let mine = &mut self.waiters[waiter];
        if !is_there {
            return;
        }
        if leaves {
            mine.share.note_step();
            mine.rounds.begin(note);
            mine.has_stepped = true;
            self.steps += 1;
            self.queue.retain(|queued| *queued != waiter);
            self.pass(waiter);
            return;
        }
        mine.share.note_awake(true);
        mine.has_stepped = false;
        if self.goes_away(waiter) {
            baton::begin_round(note);
            self.pass(waiter);
            return;
        }
        let mine = &mut self.waiters[waiter];
        held::raise(mine.share.holder());
        note_taken(mine.share.holder());
        self.pending -= 1;
    }

    fn sleep(&mut self, waiter: usize) {
        held::put_off_count();
        let note = self.note;
        let mine = &mut self.waiters[waiter];
        if mine.has_stepped && self.goes_away(waiter) {
            self.waiters[waiter].share.note_awake(false);
            if give_up(if self.pending > 0 { note } else { 0 }) {
                self.pass(waiter);
            }
            return;
        }
        let mine = &mut self.waiters[waiter];
        let had_stepped = mine.has_stepped;
        mine.has_stepped &= mine.share.stays_back(note, self.pending > 0);
        let looks = core::mem::take(&mut mine.looks) || had_stepped;
        mine.share.note_sleep(note);
        let has_baton = core::mem::take(&mut mine.has_baton);
        mine.next = if has_baton { Next::Check { passed: true } } else { Next::Nothing };
        if !mine.has_stepped && looks {
            if self.pending > 0 && has_baton {
                mine.looks = true;
            } else if self.pending > 0 {
                mine.next = Next::Check { passed: false };
            }
            to_the_end(&mut self.queue, waiter);
        }
    }

    /// Whether a waiter does not come again. The first one does.
    fn goes_away(&mut self, waiter: usize) -> bool {
        let goes = waiter > 0 && self.lot(6) == 0;
        if goes {
            let mine = &mut self.waiters[waiter];
            (mine.next, mine.has_stepped, mine.hangs) = (Next::Nothing, false, true);
        }
        goes
    }

    fn step(&mut self) -> bool {
        let moves = |waiter: &usize| self.waiters[*waiter].next != Next::Nothing;
        let awake: Vec<usize> = (0..self.waiters.len()).filter(moves).collect();
        if awake.is_empty() {
            return false;
        }
        let lot = self.lot(awake.len());
        let waiter = awake[lot];
        match self.waiters[waiter].next {
            Next::Check { passed } => self.check(waiter, passed),
            Next::Sleep => self.sleep(waiter),
            Next::Nothing => {}
        }
        true
    }

    /// The longest that a waiter stays back is over.
    fn let_time_pass(&mut self) -> bool {
        let stepped = self.waiters.iter_mut().filter(|waiter| waiter.has_stepped);
        let looks = stepped.map(|waiter| {
            waiter.share.stepped.store(0, Relaxed);
            waiter.next = Next::Sleep;
        });
        looks.count() > 0
    }

    fn run(&mut self, seed: u64, connections: usize) {
        let (mut left, mut times) = (connections, 0);
        loop {
            if left > 0 && self.lot(4) == 0 {
                left -= 1;
                self.pending += 1;
                let queue = self.queue.clone();
                self.wake(&queue, false);
            } else if !self.step() && left == 0 {
                times += 1;
                assert!(times < 40, "seed {seed}: {} connections wait for ever", self.pending);
                if !self.let_time_pass() {
                    return;
                }
            }
        }
    }
}

/// Runs so many worlds, and returns how often a waiter has stepped back.
fn explore(choice: Choice, note: Notes) -> u32 {
    choose(choice, None);
    baton::make(-1);
    let mut steps = 0;
    for seed in 1..3_000 {
        slots::all().iter().for_each(|slot| slot.owner.store(0, Relaxed));
        baton::forget_declined();
        let mut world = World::new(seed, note);
        let connections = 1 + world.lot(6);
        world.run(seed, connections);
        assert_eq!(world.pending, 0, "seed {seed}: left where nobody waits");
        steps += world.steps;
        for waiter in &world.waiters {
            while held::count_of(waiter.share.holder()) > 0 {
                held::lower(waiter.share.holder());
            }
        }
    }
    steps
}

#[test]
fn no_connection_is_lost_to_a_waiter_that_steps_back() {
    let _alone = alone();
    let steps = explore(Choice::Least, OWN).min(explore(Choice::Least, SHARED));
    assert!(steps > 1_000, "{steps} steps");
}

/// As often as it can pay for; a waiter that is asked and cannot pay takes the connection.
#[test]
fn no_connection_is_lost_to_a_waiter_that_steps_back_on_credit() {
    let _alone = alone();
    let steps = explore(Choice::Automatic, OWN).min(explore(Choice::Automatic, SHARED));
    assert!(steps > 500, "{steps} steps");
}
