//! A model of a thread that stops watching a listener while another one of its set sleeps there: a
//! wake for a connection is used up, reported, or looked for.

use crate::kernel_half::listeners::leftover::Leftover;
use crate::sys::sync::{AtomicBool, AtomicU32, Ordering};
use core::ffi::c_int;
use loom::sync::Mutex;
use loom::thread::spawn;
use std::sync::Arc;
use wakeset::explore;

/// A set and its kernel epoll, as far as a listener goes.
struct Set {
    /// The calls that are in it, and one.
    users: AtomicU32,
    /// The version of the members.
    version: AtomicU32,
    /// Whether there is a listener.
    any: AtomicBool,
    leftover: Leftover,
    kernel: Mutex<Kernel>,
}

#[derive(Default)]
struct Kernel {
    is_watched: bool,
    is_ready: bool,
    sleeps: bool,
    /// The connection has woken this set, and no other.
    is_used_up: bool,
}

impl Set {
    fn new() -> Arc<Self> {
        let kernel = Kernel { is_watched: true, ..Kernel::default() };
        Arc::new(Self {
            users: AtomicU32::new(1),
            version: AtomicU32::new(0),
            any: AtomicBool::new(true),
            leftover: Leftover::none(),
            kernel: Mutex::new(kernel),
        })
    }

    fn connect(&self) {
        let mut kernel = self.kernel.lock().unwrap();
        if kernel.is_watched {
            kernel.is_ready = true;
            kernel.is_used_up = kernel.sleeps;
        }
    }

    /// A wait with so much room, after something else has filled one place. Whether it reports the
    /// connection.
    fn wait(&self, capacity: c_int) -> bool {
        self.users.fetch_add(1, Ordering::SeqCst);
        let version = self.version.load(Ordering::SeqCst);
        let notes = self.leftover.begin_wait();
        self.kernel.lock().unwrap().sleeps = true;
        let is_there = {
            let mut kernel = self.kernel.lock().unwrap();
            kernel.sleeps = false;
            kernel.is_ready && kernel.is_watched
        };
        let found = (1 + c_int::from(is_there)).min(capacity);
        let any = self.any.load(Ordering::Acquire);
        let is_still = version == 0 && self.version.load(Ordering::SeqCst) == 0;
        if any || !is_still {
            self.leftover.note_wait(notes, found, capacity, is_still);
        }
        self.users.fetch_sub(1, Ordering::SeqCst);
        found == 2
    }

    /// Removes the watch. Whether the thread looks for a connection.
    fn remove(&self) -> bool {
        self.version.store(1, Ordering::SeqCst);
        self.kernel.lock().unwrap().is_watched = false;
        self.any.store(false, Ordering::Release);
        self.version.store(2, Ordering::SeqCst);
        let before = self.users.fetch_add(1, Ordering::SeqCst);
        let looks = self.leftover.may_have(before == 1);
        self.users.fetch_sub(1, Ordering::SeqCst);
        looks
    }
}

fn remove_beside_a_wait(capacity: c_int) {
    let set = Set::new();
    let waiter = {
        let set = Arc::clone(&set);
        spawn(move || set.wait(capacity))
    };
    let client = {
        let set = Arc::clone(&set);
        spawn(move || set.connect())
    };
    let looks = set.remove();
    let is_reported = waiter.join().unwrap();
    client.join().unwrap();
    let is_used_up = set.kernel.lock().unwrap().is_used_up;
    assert!(!is_used_up || is_reported || looks, "no waiter knows of the connection");
}

/// Catches a wake that a thread has used up whose wait finds the watch gone.
#[test]
fn a_wake_beside_a_removal_is_looked_for() {
    explore(3, || remove_beside_a_wait(3));
}

/// Catches one of which a wait had no room to tell.
#[test]
fn a_wake_without_room_is_looked_for() {
    explore(3, || remove_beside_a_wait(1));
}
