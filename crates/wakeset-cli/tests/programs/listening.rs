//! What `wakeset run --stats` says of listeners.

use serde_json::Value;

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
/// than for nothing.
#[test]
fn listeners_are_counted() {
    for order in ["auto", "fifo", "turns", "lifo"] {
        let Some(listeners) = listener_counts(order, "unstopped") else {
            return;
        };
        // Those of a hundred questions to four processes: no other listener of the program has so
        // many.
        let served: Vec<_> = listeners
            .iter()
            .filter(|listener| count(listener, "/connections") == 100)
            .filter(|listener| {
                listener["workers"].as_array().is_some_and(|workers| workers.len() == 4)
            })
            .collect();
        assert!(served.len() >= 10, "{order}: {} of {listeners:#?}", served.len());
        // One process may answer all the questions to a listener without a sleep, if it is awake.
        let sum = |of: &[&Value], counted| of.iter().map(|it| count(it, counted)).sum::<u64>();
        let shared = served.iter().filter(|it| stats::answering(it) > 1).map(std::slice::from_ref);
        for part in shared.chain([&served[..]]) {
            assert!(sum(part, "/wakes") > sum(part, "/spurious_wakes"), "{order}: {part:#?}");
        }
    }
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

/// With `--order kernel` Wakeset wakes no thread; accepted connections are counted still.
#[test]
fn the_kernels_order_is_left_alone() {
    let Some(listeners) = listener_counts("kernel", "unstopped") else {
        return;
    };
    assert!(listeners.iter().any(|listener| count(listener, "/connections") == 100));
    assert!(listeners.iter().all(|listener| count(listener, "/wakes") == 0), "{listeners:#?}");
}
