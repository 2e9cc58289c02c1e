//! What a fork costs a process that has nothing of ours.

use crate::compile::{Build, compile};
use crate::run::{Runner, TIME_LIMIT, run};

/// A page fault is what a fork mostly consists of: some hundred instructions each, and a copy of
/// the page where it is written to. A library that does nothing costs two or three, because the
/// loader searches it too; our handlers cost the two pages of code that they are on.
#[test]
fn a_fork_of_a_process_without_objects_costs_no_pages() {
    let Some(program) = compile("forks", Build::Plain, "forks") else { return };
    let faults = |runner: Runner| {
        let outcome = run(&program, &[], runner, TIME_LIMIT);
        let faults = outcome.stdout.trim().strip_prefix("faults of a fork: ");
        faults.and_then(|faults| faults.parse::<f64>().ok()).expect(&outcome.stdout)
    };
    let (plain, ours) = (faults(Runner::Kernel), faults(Runner::Wakeset));
    assert!(ours <= plain + 7.0, "{ours} faults a fork instead of {plain}");
}
