//! Doorbells that meet another file: a waker that is stopped just before it rings one, while the
//! program takes the doorbell's number for a file of its own; and a thread that is stopped just
//! before it puts one into its set, whose number becomes another set's, or before it sleeps there.

use crate::descriptors::{is_readable, migrate, mix, own_pipe, write_fast};
use crate::trap::{LIMIT, Place, Progress, Thread};
use crate::world::{IN, World, add, ctl, epoll, eventfd, wait, write};
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

/// A wait whose set is closed when it is about to sleep in its kernel half, and whose number is
/// another set's by then. It reports nothing of that set's, and takes no ring from its waiters.
pub fn a_wait_in_a_closed_set_takes_no_ring_of_the_next_one() {
    const SLEEPS: &str = "elsewhere_before_sleep";
    const A_MOMENT: Duration = Duration::from_millis(100);
    for step in ["elsewhere_before_look", SLEEPS] {
        let (set, object, [reader, writer]) = (epoll(), eventfd(), own_pipe());
        migrate(reader).unwrap();
        let fill = |set, data| {
            add(set, object, IN, data);
            add(set, reader, IN, data + 1);
        };
        fill(set, 1);
        let waiter = Thread::start(Some(Place { step, arrival: 1 }), move || {
            assert_eq!(wait(set, 1_000), [], "it is in the other set");
        });
        assert_eq!(waiter.until_stopped(), Progress::Stopped);
        // In Linux the wait goes on, with what it watches.
        ctl(set, libc::EPOLL_CTL_DEL, object, 0, 0).unwrap();
        fd::close(set).unwrap();
        assert_eq!(epoll(), set, "the lowest number is given first");
        fill(set, 7);
        let others = Thread::asleep(move || assert_eq!(wait(set, -1), [7]));
        thread::sleep(A_MOMENT);
        waiter.release();
        // Of the threads that sleep there the kernel wakes the one that came last.
        thread::sleep(A_MOMENT);
        assert!(write(object, 1));
        let slept = waiter.log().iter().filter(|reached| **reached == SLEEPS).count();
        assert_eq!(slept, usize::from(step == SLEEPS), "it sleeps by the number");
        assert!(others.ends_within(LIMIT), "a ring was lost");
        others.join().unwrap();
        waiter.join().unwrap();
        [set, object, reader, writer].into_iter().for_each(|number| fd::close(number).unwrap());
    }
}
