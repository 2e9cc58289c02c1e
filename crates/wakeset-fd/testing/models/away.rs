//! Models of an object that comes home, and of the calls that are made on it meanwhile. What the
//! object holds is a word of the kernel's, or one of the process's, and calls on either add to it.
//! A pair has two numbers, and by each of them calls are made on what it holds.

use crate::table::away_word::{Begun, Word};
use crate::table::gate::{hold_migrations, wait_for_migrations};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use loom::thread::{JoinHandle, spawn};
use std::sync::Arc;
use wakeset::explore;

struct World {
    word: Word,
    /// That of the other end, if it is a pair.
    other: Option<Word>,
    /// Whether the number's entry says that the object is here.
    is_here: AtomicBool,
    /// What it holds here.
    here: AtomicU64,
    /// In the kernel, where one call at a time is in a model; loom tells two that meet.
    kernel: UnsafeCell<u64>,
    /// Of a timer: whether it has been set since it left.
    is_set_away: AtomicBool,
}

impl World {
    /// An object that is away, and holds 1.
    fn away() -> Arc<Self> {
        Self::with(None)
    }

    /// A pair that does.
    fn pair_away() -> Arc<Self> {
        Self::with(Some(Word::new()))
    }

    fn with(other: Option<Word>) -> Arc<Self> {
        let world = Self {
            word: Word::new(),
            other,
            is_here: AtomicBool::new(false),
            here: AtomicU64::new(0),
            kernel: UnsafeCell::new(1),
            is_set_away: AtomicBool::new(false),
        };
        world.words().for_each(Word::leave);
        Arc::new(world)
    }

    fn words(&self) -> impl Iterator<Item = &Word> + Clone {
        [Some(&self.word), self.other.as_ref()].into_iter().flatten()
    }

    fn change_kernels(&self, change: impl FnOnce(&mut u64)) {
        // SAFETY: the pointer is valid; that no one else is at it is what loom checks.
        self.kernel.with_mut(|value| change(unsafe { &mut *value }));
    }

    /// A write of 2, as `objects::home::counted` and its callers make it.
    fn write(&self) {
        self.write_by(&self.word);
    }

    /// The same by the other end of a pair.
    fn write_by_other(&self) {
        self.write_by(self.other.as_ref().unwrap());
    }

    fn write_by(&self, word: &Word) {
        loop {
            if self.is_here.load(SeqCst) {
                self.here.fetch_add(2, SeqCst);
                return;
            }
            match word.begin_call() {
                Begun::Again => wait_for_migrations(),
                Begun::Left => return self.change_kernels(|value| *value += 2),
                Begun::Counted => {
                    self.change_kernels(|value| *value += 2);
                    return word.end_call();
                }
            }
        }
    }

    /// A timer is set to 5, as `objects::timer::home::settime` does it.
    fn set(&self) {
        loop {
            if self.is_here.load(SeqCst) {
                return self.here.store(5, SeqCst);
            }
            match self.word.begin_call() {
                Begun::Again => wait_for_migrations(),
                Begun::Left => unreachable!("nobody doubts it"),
                Begun::Counted => {
                    self.change_kernels(|value| *value = 5);
                    self.is_set_away.store(true, SeqCst);
                    return self.word.end_call();
                }
            }
        }
    }

    /// As `objects::timer::home` brings a timer home with what it carried when it left, if that is
    /// what it is set to.
    fn come_as_it_left(&self) {
        let _migrating = hold_migrations();
        if !self.word.begin_return() {
            return;
        }
        let comes = !self.is_set_away.load(SeqCst);
        if comes {
            self.change_kernels(|value| *value = 0);
            self.here.store(1, SeqCst);
            self.is_here.store(true, SeqCst);
        }
        self.word.end_return(comes);
    }

    /// As `objects::home::come` brings it home.
    fn come(&self) {
        let _migrating = hold_migrations();
        if !Word::begin_return_of(self.words()) {
            return;
        }
        let mut taken = 0;
        self.change_kernels(|value| taken = core::mem::take(value));
        self.here.store(taken, SeqCst);
        self.is_here.store(true, SeqCst);
        self.words().for_each(|word| word.end_return(true));
    }

    /// A call that may show the object to another process, which then adds 4 to the kernel's.
    /// `false`: it has come home, and would migrate.
    fn pass_on(&self) -> bool {
        while !self.is_here.load(SeqCst) {
            // Of a pair the end that sets out last.
            if self.other.as_ref().unwrap_or(&self.word).doubt() {
                self.change_kernels(|value| *value += 4);
                return true;
            }
            wait_for_migrations();
        }
        false
    }

    /// Both are read when all threads are done.
    fn sum(&self) -> u64 {
        // SAFETY: as above.
        let kernels = self.kernel.with(|value| unsafe { *value });
        let is_here = self.is_here.load(SeqCst);
        assert!(!is_here || kernels == 0, "{kernels} is left in the kernel");
        assert!(is_here || self.here.load(SeqCst) == 0, "it is not here");
        kernels + self.here.load(SeqCst)
    }
}

fn run<T: 'static>(world: &Arc<World>, act: impl FnOnce(&World) -> T + 'static) -> JoinHandle<T> {
    let world = Arc::clone(world);
    spawn(move || act(&world))
}

/// Catches an object that comes home beside a call in its kernel object.
#[test]
fn an_object_comes_home_beside_a_call() {
    explore(3, || {
        let world = World::away();
        let writer = run(&world, World::write);
        world.come();
        writer.join().unwrap();
        assert_eq!(world.sum(), 3);
    });
}

/// Catches one that comes home and is passed on all the same.
#[test]
fn an_object_comes_home_or_is_passed_on() {
    explore(3, || {
        let world = World::away();
        let passing = run(&world, World::pass_on);
        world.come();
        let passed = passing.join().unwrap();
        assert_eq!(world.sum(), if passed { 5 } else { 1 });
    });
}

/// A thread that has left a call by a jump stays counted, and the object away.
#[test]
fn an_object_stays_away_for_a_call_that_does_not_end() {
    explore(3, || {
        let world = World::away();
        assert_eq!(world.word.begin_call(), Begun::Counted);
        let writer = run(&world, World::write);
        world.come();
        writer.join().unwrap();
        assert!(!world.is_here.load(SeqCst));
        assert_eq!(world.sum(), 3);
    });
}

/// Catches a timer that comes home with what it was set to before a call that is just setting it.
#[test]
fn a_timer_comes_home_beside_a_call_that_sets_it() {
    explore(3, || {
        let world = World::away();
        let setting = run(&world, World::set);
        world.come_as_it_left();
        setting.join().unwrap();
        assert_eq!(world.sum(), 5);
    });
}

/// Catches a pair that comes home beside a call in its other end.
#[test]
fn a_pair_comes_home_beside_a_call_in_either_end() {
    explore(3, || {
        let world = World::pair_away();
        let writer = run(&world, World::write_by_other);
        world.come();
        writer.join().unwrap();
        assert_eq!(world.sum(), 3);
    });
}

/// Catches one that comes home although its other end is passed on.
#[test]
fn a_pair_comes_home_or_its_other_end_is_passed_on() {
    explore(3, || {
        let world = World::pair_away();
        let passing = run(&world, World::pass_on);
        world.come();
        let passed = passing.join().unwrap();
        assert_eq!(world.sum(), if passed { 5 } else { 1 });
    });
}

/// An end that has set out goes back where the other one cannot come, and calls on it go on.
#[test]
fn a_pair_stays_for_a_call_that_does_not_end() {
    explore(3, || {
        let world = World::pair_away();
        assert_eq!(world.other.as_ref().unwrap().begin_call(), Begun::Counted);
        let writer = run(&world, World::write);
        world.come();
        writer.join().unwrap();
        assert!(!world.is_here.load(SeqCst));
        assert_eq!(world.sum(), 3);
    });
}
