//! Models of a mixed set: a counter in process, a file in the kernel half, and the threads that
//! sleep there, whom the doorbell has to reach.

use super::{EDGE, IN};
use crate::rooms::kernel::{KERNEL, KERNEL_FILE};
use crate::rooms::set::{FdSet, doorbell};
use crate::table::gate::hold_migrations;
use core::ffi::c_int;
use core::sync::atomic::Ordering;
use libc::EPOLL_CTL_ADD;
use loom::thread::{JoinHandle, spawn};
use std::sync::Arc;
use std::vec::Vec;
use wakeset::{Counter, CounterFlags, Description, Engine, Event, Events, Timeout, explore};

/// The number of the counter, its data, and that of the file.
pub(super) const COUNTER: c_int = 6;
pub(super) const OF_COUNTER: u64 = 60;
pub(super) const OF_FILE: u64 = 20;
/// The number of the other counter.
const IDLE: c_int = 7;

pub(super) struct Mixed {
    pub(super) engine: Engine,
    pub(super) set: FdSet,
    pub(super) counter: Description<Counter>,
    /// Another one, at 0.
    idle: Description<Counter>,
    /// The file's index.
    pub(super) file: usize,
}

impl Mixed {
    /// An empty set, a counter at 0, and a file of the kernel's with nothing to read.
    pub(super) fn new() -> Arc<Self> {
        let engine = Engine::new();
        let counter = Description::new(&engine, Counter::new(0, CounterFlags::NONBLOCK));
        let idle = Description::new(&engine, Counter::new(0, CounterFlags::NONBLOCK));
        let (set, file) = (FdSet::of(&engine), KERNEL.open(KERNEL_FILE));
        Arc::new(Self { engine, set, counter, idle, file })
    }

    /// The same with both in the set.
    pub(super) fn watching(events: u32) -> Arc<Self> {
        Self::watching_as(events, events)
    }

    /// The counter and the file, each for these events.
    pub(super) fn watching_as(of_counter: u32, of_file: u32) -> Arc<Self> {
        let mixed = Self::new();
        mixed.add_counter(of_counter);
        mixed.add_file(of_file);
        mixed
    }

    pub(super) fn add_counter(&self, events: u32) {
        self.set.add(COUNTER, &self.counter, events, OF_COUNTER);
    }

    pub(super) fn add_file(&self, events: u32) {
        self.set.ctl(EPOLL_CTL_ADD, KERNEL_FILE, events, OF_FILE).unwrap();
    }

    /// A wait for one event; its data.
    fn wait(&self, timeout: Timeout) -> Vec<u64> {
        self.set.wait(1, timeout)
    }
}

pub(super) fn run<T: 'static>(
    mixed: &Arc<Mixed>,
    body: impl FnOnce(&Mixed) -> T + 'static,
) -> JoinHandle<T> {
    let mixed = Arc::clone(mixed);
    spawn(move || body(&mixed))
}

/// Catches a waiter that sleeps in the kernel half although the counter has been written, because
/// it looked before it was counted.
#[test]
fn a_sleeper_in_the_kernel_half_hears_of_a_write() {
    explore(3, || {
        let mixed = Mixed::watching(IN);
        let writer = run(&mixed, |mixed| mixed.counter.write(1).unwrap());
        assert_eq!(mixed.wait(Timeout::Never), [OF_COUNTER]);
        writer.join().unwrap();
    });
}

/// Catches the same of a waiter that has looked at both halves for a while before, in vain.
#[test]
fn who_has_spun_in_vain_hears_of_a_write_in_the_kernel_half() {
    explore(2, || {
        wakeset::set_model_spin(1);
        let mixed = Mixed::watching(IN);
        let writer = run(&mixed, |mixed| mixed.counter.write(1).unwrap());
        assert_eq!(mixed.wait(Timeout::Never), [OF_COUNTER]);
        writer.join().unwrap();
        wakeset::set_model_spin(0);
    });
}

/// Catches a doorbell that comes too late for a wake and is not rung for it. The set becomes a
/// mixed one while a ready counter is added, and so without a doorbell; the waker finds the waiter
/// counted and nothing to ring.
#[test]
fn a_sleeper_hears_of_what_is_added_while_there_is_no_bell() {
    explore(2, || {
        let mixed = Mixed::new();
        mixed.counter.write(1).unwrap();
        let sleeper = run(&mixed, |mixed| {
            mixed.add_file(IN);
            mixed.wait(Timeout::Never)
        });
        mixed.add_counter(IN);
        assert_eq!(sleeper.join().unwrap(), [OF_COUNTER]);
    });
}

/// Catches a ring that is used up by a wait which has no room for what it was rung for. Of two
/// events each waiter takes one: the one that cannot sleep takes the file's, and may take the
/// doorbell's on the way.
#[test]
fn who_takes_a_ring_for_nothing_passes_it_on() {
    explore(2, || {
        let mixed = Mixed::watching(EDGE);
        let sleeper = run(&mixed, |mixed| mixed.wait(Timeout::Never));
        let passer = run(&mixed, |mixed| mixed.wait(Timeout::Now));
        mixed.counter.write(1).unwrap();
        KERNEL.fill(mixed.file);
        passer.join().unwrap();
        assert_eq!(sleeper.join().unwrap().len(), 1);
    });
}

/// Catches a waiter that sleeps in process when the kernel half has got its first watch.
#[test]
fn a_sleeper_in_process_hears_of_the_first_kernel_watch() {
    explore(3, || {
        let mixed = Mixed::new();
        mixed.add_counter(IN);
        let sleeper = run(&mixed, |mixed| mixed.wait(Timeout::Never));
        mixed.add_file(IN);
        KERNEL.fill(mixed.file);
        assert_eq!(sleeper.join().unwrap(), [OF_FILE]);
    });
}

/// A counter at 1 that is away, watched in the kernel half as a file that can be read; the kernel
/// half is the first to be looked at.
fn away() -> Arc<Mixed> {
    let mixed = Mixed::new();
    let file = KERNEL.open(COUNTER);
    // So that a wait looks here, too.
    mixed.set.add(IDLE, &mixed.idle, IN, 0);
    mixed.set.ctl(EPOLL_CTL_ADD, COUNTER, IN, OF_COUNTER).unwrap();
    KERNEL.fill(file);
    mixed.set.round_robin.store(1, Ordering::SeqCst);
    mixed
}

/// Brings it home, as `objects::home` and `set::handover` do.
fn come_home(mixed: &Mixed) {
    let _migrating = hold_migrations();
    assert_eq!(doorbell::install_held(&mixed.set), Ok(true));
    mixed.set.unsettled.fetch_add(1, Ordering::SeqCst);
    KERNEL.remove(COUNTER).unwrap();
    mixed.set.migrated_watches.fetch_add(1, Ordering::SeqCst);
    mixed.counter.write(1).unwrap();
    let asked = Event::new(Events::from_bits_retain(IN), OF_COUNTER);
    mixed.set.set.add(COUNTER, &mixed.counter, asked).unwrap();
    mixed.set.unsettled.fetch_add(1, Ordering::SeqCst);
}

/// A wait is told once of the counter, which comes home meanwhile.
pub(super) fn expect_once(wait: impl FnOnce(&FdSet) -> Vec<u64>) {
    let mixed = away();
    let home = run(&mixed, come_home);
    assert_eq!(wait(&mixed.set), [OF_COUNTER]);
    home.join().unwrap();
}

/// Catches a wait that is told of a watch in both halves, and one that is told in neither.
#[test]
fn a_wait_is_told_once_of_what_comes_home() {
    explore(2, || expect_once(|set| set.wait(4, Timeout::Now)));
}

/// Catches the same of a wait that sleeps.
#[test]
fn a_sleeper_is_told_once_of_what_comes_home() {
    explore(2, || expect_once(|set| set.wait(4, Timeout::Never)));
}
