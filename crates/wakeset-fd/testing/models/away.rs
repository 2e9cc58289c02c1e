//! Models of an object that comes home, and of the calls that are made on it meanwhile. What the
//! object holds is a word of the kernel's, or one of the process's, and calls on either add to it.

use crate::table::away_word::{Begun, Word};
use crate::table::gate::{hold_migrations, wait_for_migrations};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use loom::thread::{JoinHandle, spawn};
use std::sync::Arc;
use wakeset::explore;

struct World {
    word: Word,
    /// Whether the number's entry says that the object is here.
    is_here: AtomicBool,
    /// What it holds here.
    here: AtomicU64,
    /// In the kernel, where one call at a time is in a model; loom tells two that meet.
    kernel: UnsafeCell<u64>,
}

impl World {
    /// An object that is away, and holds 1.
    fn away() -> Arc<Self> {
        let world = Self {
            word: Word::new(),
            is_here: AtomicBool::new(false),
            here: AtomicU64::new(0),
            kernel: UnsafeCell::new(1),
        };
        world.word.leave();
        Arc::new(world)
    }

    fn change_kernels(&self, change: impl FnOnce(&mut u64)) {
        // SAFETY: the pointer is valid; that no one else is at it is what loom checks.
        self.kernel.with_mut(|value| change(unsafe { &mut *value }));
    }

    /// A write of 2, as `objects::home::call` and its callers make it.
    fn write(&self) {
        loop {
            if self.is_here.load(SeqCst) {
                self.here.fetch_add(2, SeqCst);
                return;
            }
            match self.word.begin_call() {
                Begun::Again => wait_for_migrations(),
                Begun::Left => return self.change_kernels(|value| *value += 2),
                Begun::Counted => {
                    self.change_kernels(|value| *value += 2);
                    return self.word.end_call();
                }
            }
        }
    }

    /// As `objects::home::come` brings it home.
    fn come(&self) {
        let _migrating = hold_migrations();
        if !self.word.begin_return() {
            return;
        }
        let mut taken = 0;
        self.change_kernels(|value| taken = core::mem::take(value));
        self.here.store(taken, SeqCst);
        self.is_here.store(true, SeqCst);
        self.word.end_return(true);
    }

    /// A call that may show the object to another process, which then adds 4 to the kernel's.
    /// `false`: it has come home, and would migrate.
    fn pass_on(&self) -> bool {
        while !self.is_here.load(SeqCst) {
            if self.word.doubt() {
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
