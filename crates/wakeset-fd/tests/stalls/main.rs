//! The engine's stalled-thread test (`crates/wakeset/tests/stalls`) for objects by number: a thread
//! stopped anywhere in a write, a read or a ring stops no other, not even one that migrates the
//! very object, and nothing is lost when it goes on.
//!
//! `RUSTFLAGS="--cfg wakeset_steps" cargo test -p wakeset-fd --test stalls`, or `ci/stalls`. Also:
//! a thread that is stopped in a wait, a migration or a close delays only threads that need a lock
//! it holds, or the very object that it migrates or closes.
#![cfg(wakeset_steps)]
#![allow(missing_docs)]

mod bells;
mod course;
mod descriptors;
mod looks;
mod migrations;
mod operations;
#[path = "../../../wakeset/tests/stalls/patience.rs"]
mod patience;
mod polls;
mod scenarios;
#[path = "../../../wakeset/tests/stalls/trap.rs"]
#[allow(dead_code, reason = "the engine's test uses more of it")]
mod trap;
mod world;

use course::{attempt, record};
use operations::operations;
use scenarios::scenarios;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;
use trap::{Place, failures_wanted};
use wakeset_fd as fd;
use world::{ET, IN, ONESHOT};

#[test]
fn a_thread_stopped_at_any_step_stops_no_other_and_loses_nothing() {
    // Not a test of its own: descriptor numbers are the whole process's.
    migrations::what_is_made_during_a_fork_moves();
    migrations::what_is_written_during_a_move_comes_behind();
    migrations::an_add_beside_a_close_is_no_loss();
    bells::a_late_ring_reaches_the_doorbell_and_nothing_else();
    bells::a_doorbell_that_comes_late_is_rung_in_no_other_set();
    bells::a_wait_in_a_closed_set_takes_no_ring_of_the_next_one();
    polls::a_look_beside_a_dup2_finds_one_object_or_the_other();
    polls::a_wait_whose_time_runs_out_beside_it_finds_what_came_in_time();
    looks::a_pump_beside_a_move_finds_what_was_written();
    looks::a_look_beside_a_move_finds_what_was_written();
    let operations = operations();
    let mut stopped_at = BTreeSet::new();
    let mut failures = Vec::new();
    let mut waiting = BTreeMap::<_, BTreeSet<_>>::new();
    let mut courses = 0;
    trap::prepare();
    for scenario in scenarios() {
        let began = Instant::now();
        wakeset::set_spin_limit(Some(scenario.spin));
        let kinds: &[u32] = if scenario.wakes { &[IN, IN | ET, IN | ONESHOT] } else { &[IN | ET] };
        for &kind in kinds {
            for (step, n) in record(&scenario, kind) {
                for arrival in 1..=n.min(2) {
                    let place = Place { step, arrival };
                    for operation in &operations {
                        let Some(result) = attempt(&scenario, kind, place, operation) else {
                            continue;
                        };
                        stopped_at.insert(step);
                        courses += 1;
                        match result {
                            Ok(false) => {}
                            Ok(true) => _ = waiting.entry(operation.name).or_default().insert(step),
                            Err(error) => {
                                let at = format!(
                                    "{}, spin {}, {kind:#x}, stopped at {step} ({arrival})",
                                    scenario.name, scenario.spin
                                );
                                failures.push(format!("{at}: {}: {error}", operation.name));
                                println!("{}", failures.last().unwrap());
                            }
                        }
                        assert!(
                            failures.len() < failures_wanted(),
                            "{courses} courses, too many failures:\n{}",
                            failures.join("\n")
                        );
                    }
                }
            }
        }
        println!(
            "{}, spin {}: {courses} courses so far, {:.1?}",
            scenario.name,
            scenario.spin,
            began.elapsed()
        );
    }
    wakeset::set_spin_limit(Some(0));
    println!("{courses} courses, stopped at {} steps", stopped_at.len());
    for (operation, steps) in &waiting {
        println!("{operation} waits at {} steps", steps.len());
    }
    assert!(failures.is_empty(), "of {courses} courses:\n{}", failures.join("\n"));
    let unreached: Vec<_> =
        fd::steps::ALL.iter().filter(|step| !stopped_at.contains(*step)).collect();
    assert!(unreached.is_empty(), "unreached steps: {unreached:?}");
}
