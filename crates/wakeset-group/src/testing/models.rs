//! The models of the leadership.

use crate::Order;
use crate::leader::{Leadership, Waiter, Woken};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread::{JoinHandle, spawn};
use std::boxed::Box;
use wakeset::explore;

/// The leadership, and the kernel's end: messages, and the leader asleep until there is one.
struct World {
    leadership: Leadership,
    messages: Mutex<u32>,
    posted: Condvar,
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(World {
            leadership: Leadership::new(),
            messages: Mutex::new(0),
            posted: Condvar::new(),
        })
    }

    fn post(&self) {
        *self.messages.lock().unwrap() += 1;
        self.posted.notify_all();
    }

    fn wait_for_message(&self) -> loom::sync::MutexGuard<'_, u32> {
        let mut messages = self.messages.lock().unwrap();
        while *messages == 0 {
            messages = self.posted.wait(messages).unwrap();
        }
        messages
    }

    fn until_read(&self) {
        let mut messages = self.messages.lock().unwrap();
        while *messages > 0 {
            messages = self.posted.wait(messages).unwrap();
        }
    }

    /// Sleeps until the thread leads.
    fn come(&self, waiter: &'static Waiter, me: usize) {
        loop {
            assert_eq!(waiter.sleep(None), Woken::Heir);
            // SAFETY: the waiter stays for ever.
            if unsafe { self.leadership.come(waiter, me, Order::Fifo) } {
                return;
            }
        }
    }

    /// Takes one message as a blocking read does.
    fn read(&self) {
        let waiter = leak(Waiter::without_limit());
        // SAFETY: the waiter stays for ever.
        if !unsafe { self.leadership.join(waiter, usize::MAX, true) } {
            self.come(waiter, usize::MAX);
        }
        *self.wait_for_message() -= 1;
        self.leadership.pass(Order::Fifo);
    }

    /// Takes one message as a poll and a read do.
    fn poll_and_read(&self, me: usize) {
        let waiter = leak(Waiter::new(None));
        // SAFETY: the waiter stays for ever.
        if !unsafe { self.leadership.join(waiter, me, false) } {
            self.come(waiter, me);
        }
        drop(self.wait_for_message());
        self.leadership.hold(me, Order::Fifo);
        let mut messages = self.messages.lock().unwrap();
        assert!(*messages > 0, "told of a message that another thread has taken");
        *messages -= 1;
        self.posted.notify_all();
        drop(messages);
        self.leadership.taken(Order::Fifo);
    }

    /// Asks for the leadership and goes away at once.
    fn give_up(&self) {
        let waiter = leak(Waiter::new(None));
        // SAFETY: the waiter stays for ever.
        if unsafe { self.leadership.join(waiter, usize::MAX, false) } {
            self.leadership.pass(Order::Fifo);
        } else {
            self.leadership.leave(waiter, Order::Fifo);
        }
    }
}

/// The leader may wake a thread that has gone on already; in a model its waiter must still be
/// there.
fn leak(waiter: Waiter) -> &'static Waiter {
    Box::leak(Box::new(waiter))
}

fn run(world: &Arc<World>, body: impl FnOnce(&World) + 'static) -> JoinHandle<()> {
    let world = Arc::clone(world);
    spawn(move || body(&world))
}

/// Catches a leadership that is given before the sleeper can see it, and one that is lost between a
/// pass and a join.
#[test]
fn each_message_is_read() {
    explore(3, || {
        let world = World::new();
        let other = run(&world, World::read);
        world.post();
        world.post();
        world.read();
        other.join().unwrap();
    });
}

/// Catches an heir that comes too late, and is never woken again.
#[test]
fn an_heir_that_comes_late_is_woken_again() {
    explore(3, || {
        let world = World::new();
        let other = run(&world, World::read);
        (0..3).for_each(|_| world.post());
        world.read();
        world.read();
        other.join().unwrap();
    });
}

/// Catches an heir that goes away and wakes no other.
#[test]
fn who_gives_up_strands_nobody() {
    explore(2, || {
        let world = World::new();
        let others = [run(&world, World::read), run(&world, World::give_up)];
        world.post();
        world.post();
        world.read();
        for other in others {
            other.join().unwrap();
        }
    });
}

/// Catches two threads that are told of one message, and a leadership that stays held after the
/// holder has read.
#[test]
fn a_message_is_told_to_one() {
    explore(2, || {
        let world = World::new();
        let others = [
            run(&world, |world| world.poll_and_read(2)),
            run(&world, |world| world.poll_and_read(3)),
        ];
        world.post();
        world.until_read();
        world.post();
        for other in others {
            other.join().unwrap();
        }
    });
}

/// Catches a disband that leaves a sleeper behind.
#[test]
fn a_disband_wakes_who_sleeps() {
    explore(3, || {
        let world = World::new();
        // SAFETY: the waiter stays for ever.
        assert!(unsafe { world.leadership.join(leak(Waiter::without_limit()), usize::MAX, true) });
        let waiter = leak(Waiter::without_limit());
        // SAFETY: the waiter stays for ever.
        assert!(!unsafe { world.leadership.join(waiter, usize::MAX, true) });
        let sleeper = spawn(move || assert_eq!(waiter.sleep(None), Woken::Out));
        world.leadership.disband();
        sleeper.join().unwrap();
        assert!(!world.leadership.has_queue());
    });
}
