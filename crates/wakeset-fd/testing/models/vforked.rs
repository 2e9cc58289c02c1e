//! Models of what a vfork(2) child asks its parent's deputy for.
//!
//! A signal handler that interrupts the child is a thread here. Those of loom's schedules in which
//! it begins and ends while the child stands still are those of a handler.

use crate::sys::vforked_word::Word;
use loom::cell::UnsafeCell;
use loom::thread::{JoinHandle, spawn};
use std::sync::Arc;
use wakeset::explore;

struct World {
    word: Word,
    /// How often the deputy has done each wish.
    done: [UnsafeCell<u32>; 2],
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self { word: Word::new(), done: [UnsafeCell::new(0), UnsafeCell::new(0)] })
    }

    /// What the deputy has done is there to see when it has been asked for.
    fn ask(&self, wish: u32) {
        self.word.ask(wish, || false);
        // SAFETY: the pointer is valid; that the deputy is not at it is what loom checks.
        assert_ne!(self.done[wish as usize].with(|done| unsafe { *done }), 0, "{wish} is not done");
    }

    fn grant(&self, wish: u32) {
        // SAFETY: as above.
        self.done[wish as usize].with_mut(|done| unsafe { *done += 1 });
        self.word.done();
    }

    fn serve(&self) {
        while let Some(wish) = self.word.take() {
            self.grant(wish);
        }
    }

    /// Returns when the deputy has ended.
    fn end(&self, deputy: JoinHandle<()>) {
        self.word.end();
        for done in &self.done {
            // SAFETY: as above. Nobody has to wait for the deputy's end before this memory goes.
            done.with_mut(|done| unsafe { *done = 0 });
        }
        deputy.join().unwrap();
    }
}

fn run(world: &Arc<World>, act: impl FnOnce(&World) + 'static) -> JoinHandle<()> {
    let world = Arc::clone(world);
    spawn(move || act(&world))
}

/// Catches a handler's wish that is written over the child's, and either that returns before its
/// own has been done.
#[test]
fn a_handler_asks_while_the_child_does() {
    explore(2, || {
        let world = World::new();
        let handler = run(&world, |world| world.ask(1));
        let child = run(&world, |world| world.ask(0));
        for _ in 0..2 {
            let wish = world.word.take().unwrap();
            world.grant(wish);
        }
        handler.join().unwrap();
        child.join().unwrap();
    });
}

/// Catches a child that waits for a wish of which nobody tells the deputy.
#[test]
fn a_child_asks_after_one_that_was_killed() {
    explore(3, || {
        let world = World::new();
        let deputy = run(&world, World::serve);
        // Its child, before it wakes the deputy.
        assert!(world.word.claim(1));
        world.ask(0);
        world.end(deputy);
    });
}

/// Catches a deputy that is still at work when the parent goes on.
#[test]
fn a_child_is_killed_while_it_asks() {
    explore(3, || {
        let world = World::new();
        let deputy = run(&world, World::serve);
        assert!(world.word.claim(0));
        world.end(deputy);
    });
}
