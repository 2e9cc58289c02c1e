//! What `wakeset run --stats` says of listeners, and the end of a wait for one.

use serde_json::Value;

use super::compare::compare;
use super::compile::{Build, compile, scratch};
use super::run::{Runner, TIME_LIMIT, run};
use super::stats::{self, count};

/// What a listener's waits counted, with `--order`.
fn listener_counts(order: &str, part: &str) -> Option<Vec<Value>> {
    let program = compile("listeners", Build::Plain, &format!("listeners_{part}_{order}"))?;
    let file = scratch(&format!("listeners_{part}_{order}.json"));
    // The program knows what it expects, so these need no plain run beside them.
    let outcome = run(&program, &[part], Runner::Ordered(order, &file), TIME_LIMIT);
    outcome.expect_success(order);
    assert!(outcome.stderr.contains("busiest/least"), "{}", outcome.stderr);
    let counts = stats::read(&file);
    Some(counts["listeners"].as_array().expect("listeners").clone())
}

/// What `--stats` says of listeners: everything that was asked for was accepted, and more was woken
/// than for nothing. Beside other programs one of two processes may find its part of a hundred
/// questions before its first sleep, and the other be awake for all the rest, so there is more than
/// one try.
#[test]
fn listeners_are_counted() {
    for order in ["auto", "fifo", "turns", "lifo"] {
        let tries: Vec<_> = (0..5).map_while(|_| woken_for_nothing(order)).collect();
        assert!(tries.len() < 5, "{order}, each time: {tries:#?}");
    }
}

/// Listeners with so many wakes for nothing as there were wakes, where several processes answered,
/// or all together.
fn woken_for_nothing(order: &str) -> Option<Vec<Value>> {
    let listeners = listener_counts(order, "unstopped")?;
    let wakes = |of: &Value| (count(of, "/wakes"), count(of, "/spurious_wakes"));
    let is_right = |of: &Value| matches!(wakes(of), (all, spurious) if spurious <= all);
    assert!(listeners.iter().all(is_right), "{order}: {listeners:#?}");
    // Those of a hundred questions to four processes: no other listener of the program has so many.
    let served: Vec<_> = listeners
        .iter()
        .filter(|listener| count(listener, "/connections") == 100)
        .filter(|listener| listener["workers"].as_array().is_some_and(|workers| workers.len() == 4))
        .collect();
    assert!(served.len() >= 10, "{order}: {} of {listeners:#?}", served.len());
    let is_for_nothing = |part: &&[&Value]| {
        part.iter().all(|listener| matches!(wakes(listener), (all, spurious) if all == spurious))
    };
    // One process may answer all the questions to a listener without a sleep, if it is awake.
    let shared = served.iter().filter(|it| stats::answering(it) > 1).map(std::slice::from_ref);
    let found = shared.chain([&served[..]]).find(is_for_nothing)?;
    Some(found.iter().map(|listener| (*listener).clone()).collect())
}

/// Threads of one process are told apart as well as processes. Beside other programs one of four
/// may get no processor for as long as a hundred questions take, so there is more than one try.
#[test]
fn listeners_are_counted_by_thread() {
    for _ in 0..5 {
        let Some(listeners) = listener_counts("fifo", "threads") else {
            return;
        };
        assert_eq!(listeners.len(), 2, "{listeners:#?}");
        let mut answering = Vec::new();
        for listener in listeners {
            let workers = listener["workers"].as_array().expect("workers");
            let shares: Vec<_> =
                workers.iter().map(|worker| count(worker, "/connections")).collect();
            assert_eq!(shares.iter().sum::<u64>(), 100, "{listener:#}");
            // Round robin: no thread has all of them.
            assert!(shares.iter().all(|share| *share < 100), "{listener:#}");
            answering.push(workers.len());
        }
        assert!(answering.iter().all(|threads| *threads <= 4), "{answering:?}");
        if answering == [4, 4] {
            return;
        }
    }
    panic!("a thread has answered nothing each time");
}

/// Each of several children had the wake of the process that forked them, and a spurious one.
#[test]
fn a_wake_is_not_the_forked_childs() {
    for way in ["poll", "set"] {
        let name = format!("woken_{way}");
        let Some(program) = compile("woken", Build::Plain, &name) else { return };
        let file = scratch(&format!("{name}.json"));
        run(&program, &[way], Runner::Ordered("fifo", &file), TIME_LIMIT).expect_success(&name);
        let counts = stats::read(&file);
        let [listener] = &counts["listeners"].as_array().expect("listeners")[..] else {
            panic!("{way}: {counts:#}");
        };
        for (counted, expected) in [("/connections", 1), ("/wakes", 1), ("/spurious_wakes", 0)] {
            assert_eq!(count(listener, counted), expected, "{way}, {counted}: {listener:#}");
        }
    }
}

/// With `--order kernel` Wakeset wakes no thread; accepted connections are counted still.
#[test]
fn the_kernels_order_is_left_alone() {
    let Some(listeners) = listener_counts("kernel", "unstopped") else {
        return;
    };
    assert!(listeners.iter().any(|listener| count(listener, "/connections") == 100));
    for counted in ["/wakes", "/spurious_wakes"] {
        assert!(listeners.iter().all(|listener| count(listener, counted) == 0), "{listeners:#?}");
    }
}

/// A thread that lost its processor after its look, until its time was up, said that nothing was
/// ready.
#[test]
fn what_comes_after_a_look_came_in_time() {
    compare("late_look", Build::Plain, &[]);
}
