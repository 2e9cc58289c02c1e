//! What comes home after a fork, and what does not.

use crate::compare::compare;
use crate::compile::Build;
use crate::stats::{count, counts};
use std::thread;

#[test]
fn home() {
    compare("home", Build::Plain, &[]);
}

/// A child that takes more than a second to come to its first call is one that others are taken for
/// as well, so a busy machine has more than one try.
#[test]
fn what_only_children_had_comes_home() {
    for _ in 0..5 {
        let Some(totals) = counts("home", &["come"]) else { return };
        if count(&totals, "/came_home") == 5 {
            assert_eq!(count(&totals, "/migrated"), 5, "{totals:#}");
            return assert_eq!(count(&totals, "/migrated_by_reason/fork"), 5, "{totals:#}");
        }
    }
    panic!("something has stayed in the kernel each time");
}

#[test]
fn what_others_may_have_stays_in_the_kernel() {
    let Some(totals) = counts("home", &["stay"]) else { return };
    assert_eq!(count(&totals, "/came_home"), 0, "{totals:#}");
    assert_eq!(count(&totals, "/migrated"), 6, "{totals:#}");
}

/// Sets with their eventfds, as those of asyncio and Node after a child that takes its time. Which
/// of them come home in time depends on the machine, all of them where it is idle.
#[test]
fn loops_come_home() {
    // Beside each other, because they sleep for most of the time.
    thread::scope(|scope| {
        scope.spawn(|| compare("home", Build::Plain, &["loop"]));
        for _ in 0..5 {
            let Some(totals) = counts("home", &["loop"]) else { return };
            if count(&totals, "/came_home") == 6 {
                return;
            }
        }
        panic!("something has stayed in the kernel each time");
    });
}

/// A call that a handler has left by a jump is over, so nothing waits for its end. A busy machine
/// has more than two tries.
#[test]
fn what_was_polled_when_a_handler_jumped_comes_home() {
    for by in ["poll", "select"] {
        compare("jumps", Build::Plain, &[by]);
        let came_home = (0..5).filter(|_| {
            counts("jumps", &[by]).is_none_or(|totals| count(&totals, "/came_home") == 1)
        });
        assert_eq!(came_home.take(2).count(), 2, "{by}: it has stayed in the kernel");
    }
}

/// Objects go out and come home all the time; how often depends on how many calls are made in
/// between.
#[test]
fn home_beside_traffic() {
    let Some(totals) = counts("home", &["traffic", "500"]) else { return };
    assert!(count(&totals, "/came_home") > 100, "{totals:#}");
}

/// Pipes and socket pairs, each with a set that watches it.
#[test]
fn pairs_that_only_children_had_come_home() {
    for _ in 0..5 {
        let Some(totals) = counts("home", &["pairs", "come"]) else { return };
        if count(&totals, "/came_home") == 16 {
            assert_eq!(count(&totals, "/migrated"), 16, "{totals:#}");
            // Each pair's traffic is in process from then on.
            return assert!(count(&totals, "/signals_in_process") > 16 * 80, "{totals:#}");
        }
    }
    panic!("something has stayed in the kernel each time");
}

#[test]
fn pairs_that_others_may_have_stay_in_the_kernel() {
    let Some(totals) = counts("home", &["pairs", "stay"]) else { return };
    assert_eq!(count(&totals, "/came_home"), 0, "{totals:#}");
    // For a child that makes children everything migrates, the sets too.
    assert!(count(&totals, "/migrated_by_reason/fork") >= 11, "{totals:#}");
}

#[test]
fn pairs_come_home_beside_traffic() {
    let Some(totals) = counts("home", &["pairs", "100"]) else { return };
    assert!(count(&totals, "/came_home") > 10, "{totals:#}");
}

/// Timers, without a set and with one, by each of the calls by which they come.
#[test]
fn timers_that_only_children_had_come_home() {
    for _ in 0..5 {
        let Some(totals) = counts("home", &["timers", "come"]) else { return };
        if count(&totals, "/came_home") == 10 {
            return assert_eq!(count(&totals, "/migrated_by_reason/fork"), 10, "{totals:#}");
        }
    }
    panic!("something has stayed in the kernel each time");
}

#[test]
fn timers_that_others_may_have_stay_in_the_kernel() {
    let Some(totals) = counts("home", &["timers", "stay"]) else { return };
    assert_eq!(count(&totals, "/came_home"), 0, "{totals:#}");
}

#[test]
fn timers_come_home_beside_traffic() {
    let Some(totals) = counts("home", &["timers", "100"]) else { return };
    assert!(count(&totals, "/came_home") > 10, "{totals:#}");
}
