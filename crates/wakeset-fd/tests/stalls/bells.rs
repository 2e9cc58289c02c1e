//! A waker that is stopped just before it rings a doorbell, while the program takes the doorbell's
//! number for a file of its own.

use crate::descriptors::{is_readable, mix, own_pipe, write_fast};
use crate::trap::{Place, Progress, Thread};
use crate::world::{IN, World};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use wakeset_fd as fd;

/// Nothing of ours is written into that file, and the waiter hears of the change.
pub fn a_late_ring_reaches_the_doorbell_and_nothing_else() {
    let world = World::new(IN);
    mix(&world);
    world.start_worker();
    thread::sleep(Duration::from_millis(100));
    let hidden: Vec<_> = (3..2_000).filter(|number| fd::descriptor::is_hidden(*number)).collect();
    assert!(!hidden.is_empty(), "a set of both halves has a doorbell");
    let place = Place { step: "doorbell_before_ring", arrival: 1 };
    let writer = {
        let world = Arc::clone(&world);
        Thread::start(Some(place), move || world.write_a(write_fast))
    };
    assert_eq!(writer.until_stopped(), Progress::Stopped);
    let before = world.of(1);
    let [reader, file] = own_pipe();
    let taken = hidden.clone();
    let taker = thread::spawn(move || {
        for number in taken {
            let _ = fd::duplicate::dup2(file, number);
            // SAFETY: puts one of our files under a number that is ours.
            assert_eq!(unsafe { libc::dup2(file, number) }, number);
        }
    });
    thread::sleep(Duration::from_millis(50));
    writer.release();
    writer.join().unwrap();
    taker.join().unwrap();
    world.hear(1, before).unwrap();
    assert!(!is_readable(reader), "a ring in the program's file");
    world.stop_workers().unwrap();
    for number in hidden.into_iter().chain([reader, file]) {
        fd::close(number).unwrap();
    }
}
