//! What `wakeset run --stats` counts of a program.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::compile::{Build, compile, scratch};
use super::run::{Runner, TIME_LIMIT, run};

/// Runs a program with `--stats` and returns the totals, after checking its status.
pub fn counts(source: &str, arguments: &[&str]) -> Option<Value> {
    // Tests of one program run side by side.
    let name = arguments.iter().fold(format!("{source}_counted"), |name, part| name + "_" + part);
    let program = compile(source, Build::Plain, &name)?;
    let file = scratch(&format!("{name}.json"));
    let outcome = run(&program, arguments, Runner::Counted(&file), TIME_LIMIT);
    outcome.expect_success(&name);
    Some(read(&file)["total"].clone())
}

pub fn count(totals: &Value, path: &str) -> u64 {
    totals
        .pointer(path)
        .and_then(Value::as_u64)
        .unwrap_or_else(|| panic!("no count {path} in {totals:#}"))
}

/// How many workers have accepted connections of a listener.
pub fn answering(listener: &Value) -> usize {
    let workers = listener["workers"].as_array().expect("workers");
    workers.iter().filter(|worker| count(worker, "/connections") > 0).count()
}

/// Reads the JSON of `--stats`.
pub fn read(file: &Path) -> Value {
    let text = fs::read_to_string(file).expect("the counts");
    serde_json::from_str(&text).expect("JSON")
}

/// Of more threads than have a place of their own, and of objects that have gone, or never were
/// here: each count exact.
#[test]
fn signals_are_counted_one_by_one() {
    let Some(totals) = counts("signalling", &[]) else { return };
    for (path, expected) in [
        ("/signals_in_process", 100_003),
        ("/signals_in_kernel", 12),
        ("/signals_in_process_percent", 99),
        ("/waits", 100_000),
        ("/waits_in_process", 100_000),
        ("/waits_of_kernel_sets", 0),
        ("/events", 100_000),
        // A write, a wait and a read each, a watch for each thread, and three to a pipe or pair.
        ("/syscalls_avoided", 300_103),
    ] {
        assert_eq!(count(&totals, path), expected, "{path}: {totals:#}");
    }
}

/// Objects beside a listener stay while one thread of one process waits for it.
#[test]
fn objects_beside_a_listener_stay_while_it_is_one_threads() {
    for part in ["alone", "forked", "cloned", "late", "twice", "threads", "set"] {
        let Some(totals) = counts("beside_listener", &[part]) else { return };
        let polled = count(&totals, "/migrated_by_reason/poll");
        assert_eq!(polled > 0, part != "alone", "{part}: {totals:#}");
    }
}
