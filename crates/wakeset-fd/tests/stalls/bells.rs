//! Doorbells that meet another file: a waker that is stopped just before it rings one, while the
//! program takes the doorbell's number for a file of its own; and a thread that is stopped just
//! before it puts one into its set, whose number becomes another set's.

use crate::descriptors::{is_readable, mix, own_pipe, write_fast};
use crate::trap::{Place, Progress, Thread};
use crate::world::{IN, World, add, ctl, epoll, eventfd};
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

/// That set has the doorbell for a moment, in which nobody knows of it. Its waits would report what
/// rings it.
pub fn a_doorbell_that_comes_late_is_rung_in_no_other_set() {
    let (set, object) = (epoll(), eventfd());
    // SAFETY: a number that only the kernel knows.
    let kernels = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
    add(set, object, IN, 1);
    let place = Place { step: "doorbell_before_kernel", arrival: 1 };
    let adder = Thread::start(Some(place), move || {
        // In Linux the set would be there until this call ends.
        let _ = ctl(set, libc::EPOLL_CTL_ADD, kernels, IN, 2);
    });
    assert_eq!(adder.until_stopped(), Progress::Stopped);
    fd::close(set).unwrap();
    // SAFETY: a set of the program's, under a number that nobody has.
    unsafe {
        let other = libc::epoll_create1(libc::EPOLL_CLOEXEC);
        assert!(other == set || libc::dup2(other, set) == set && libc::close(other) == 0);
    }
    adder.release();
    assert!(adder.ends_within(Duration::from_secs(5)));
    assert!(!adder.log().contains(&"doorbell_known"), "it can be rung there");
    adder.join().unwrap();
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{set}")).unwrap();
    let watched = info.lines().filter_map(|line| line.strip_prefix("tfd:"));
    let numbers = watched.filter_map(|line| line.split_whitespace().next()?.parse().ok());
    assert!(numbers.into_iter().all(|number: libc::c_int| number == kernels), "{info}");
    for number in [set, object, kernels] {
        fd::close(number).unwrap();
    }
}
