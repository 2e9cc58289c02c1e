//! `wakeset run --spin`: the wait before a sleep.

use super::compare::{compare, compare_with};
use super::compile::Build;
use super::run::Runner;
use std::process::Command;

/// What the default, `auto`, decides, it decides by the clock: nothing may depend on it.
#[test]
fn waits_that_spin_end_as_waits_that_sleep() {
    compare("spin", Build::Plain, &[]);
}

#[test]
fn waits_that_always_spin_end_as_waits_that_sleep() {
    compare_with("spin", Runner::Spinning("50"));
}

#[test]
fn waits_that_never_spin_end_as_ever() {
    compare_with("spin", Runner::Spinning("off"));
}

#[test]
fn a_worker_that_is_alone_may_spin_and_leaves_nothing_waiting() {
    compare("alone", Build::Plain, &[]);
    compare_with("alone", Runner::Spinning("50"));
    compare_with("alone", Runner::Spinning("20000"));
}

#[test]
fn workers_that_share_a_listener_do_as_ever_when_told_to_spin() {
    compare_with("prefork", Runner::Spinning("50"));
}

#[test]
fn a_spin_that_is_no_word_and_no_number_is_refused() {
    for wrong in ["on", "", "-1", "1000001", "5us", "99999999999999999999"] {
        let output = Command::new(env!("CARGO_BIN_EXE_wakeset"))
            .args(["run", &format!("--spin={wrong}"), "--", "true"])
            .output()
            .expect("wakeset runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{wrong}: {said}");
        assert!(said.contains("auto"), "{wrong}: {said}");
    }
}
