//! Several threads.

use super::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A poll is not exclusive.
pub(super) fn every_poller_is_told<B: Polls>() {
    let (counter, (reader, _writer)) = (Counter::<B>::new(0), pipe::<B>());
    let asked = [(counter.as_raw_fd(), POLLIN), (reader.as_raw_fd(), POLLIN)];
    let set = Set::<B>::new();
    set.add(&counter, IN, 1);
    let tasks: Vec<_> = (0..6).map(|i| polling::<B>(&asked[..1 + i % 2], LONG)).collect();
    counter.write(1);
    for task in tasks {
        let (result, told) = task.join();
        assert_eq!((result, told[0]), (Ok(1), POLLIN));
    }
    assert_eq!(set.ready(), [(1, IN)]);
}

pub(super) fn nobody_is_told_of_what_was_not_asked_for<B: Polls>() {
    let (reader, writer) = own_pipe::<B>();
    let task = polling::<B>(&[(reader.as_raw_fd(), POLLPRI)], LONG);
    writer.write(b"x").unwrap();
    task.until_asleep();
    assert!(!task.has_ended());
    drop(writer);
    assert_eq!(task.join(), (Ok(1), vec![POLLHUP]));
}

const ROUNDS: u64 = 3_000;

/// Two threads that answer each other, with polls of several numbers.
pub(super) fn nothing_is_lost_between_pollers<B: Polls>() {
    for kernels in [false, true] {
        let counters = Arc::new([(); 4].map(|()| Counter::<B>::new(0)));
        let (reader, _writer) = pipe::<B>();
        let quiet = reader.as_raw_fd();
        let turn = move |counters: &[Counter<B>], first: usize| {
            let numbers = [first, first + 1].map(|i| (counters[i].as_raw_fd(), POLLIN));
            let mut asked = numbers.to_vec();
            if kernels {
                asked.push((quiet, POLLIN));
            }
            let (result, told) = poll::<B>(&asked, LONG);
            assert_eq!(result, Ok(1));
            let i = told.iter().position(|told| *told != 0).unwrap();
            counters[first + i].read()
        };
        let theirs = Arc::clone(&counters);
        let task = Task::start(move || {
            for i in 0..ROUNDS {
                assert_eq!(turn(&*theirs, 0), i + 1);
                theirs[2 + (i % 3 == 0) as usize].write(i + 1);
            }
        });
        for i in 0..ROUNDS {
            counters[(i % 2) as usize].write(i + 1);
            assert_eq!(turn(&*counters, 2), i + 1);
        }
        task.join();
    }
}

/// The same while another thread sends the objects to the kernel.
pub(super) fn nothing_is_lost_while_objects_move<B: Polls>() {
    for _ in 0..150 {
        let counters = Arc::new([(); 2].map(|()| Counter::<B>::new(0)));
        let moving = Arc::new(AtomicBool::new(false));
        let (theirs, begun) = (Arc::clone(&counters), Arc::clone(&moving));
        let task = Task::start(move || {
            for i in 0..40 {
                let asked = [(theirs[0].as_raw_fd(), POLLIN)];
                assert_eq!(poll::<B>(&asked, LONG), (Ok(1), vec![POLLIN]));
                assert_eq!(theirs[0].read(), i + 1);
                begun.store(true, Ordering::Relaxed);
                theirs[1].write(i + 1);
            }
        });
        let (theirs, begun) = (Arc::clone(&counters), Arc::clone(&moving));
        let mover = Task::start(move || {
            while !begun.load(Ordering::Relaxed) {
                thread::yield_now();
            }
            drop(theirs.each_ref().map(Counter::dup));
        });
        for i in 0..40 {
            counters[0].write(i + 1);
            let asked = [(counters[1].as_raw_fd(), POLLIN)];
            assert_eq!(poll::<B>(&asked, LONG), (Ok(1), vec![POLLIN]));
            assert_eq!(counters[1].read(), i + 1);
        }
        task.join();
        mover.join();
    }
}
