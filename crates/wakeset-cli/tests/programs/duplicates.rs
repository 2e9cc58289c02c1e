//! One object with several numbers.

use super::compare::compare_within;
use super::compile::Build;
use super::run::TIME_LIMIT;
use super::stats::{count, counts};

#[test]
fn duplicates() {
    compare_within("duplicates", Build::Plain, &["100000"], TIME_LIMIT * 3);
}

/// What is hidden was replaced or closed by calls that named its number just before the table said
/// that it was hidden.
#[test]
fn births() {
    compare_within("births", Build::Plain, &["1"], TIME_LIMIT);
    compare_within("births", Build::Plain, &["1", "forks"], TIME_LIMIT);
}

/// A duplicate is no reason to move anything but a pipe, and what is closed and made again leaves
/// nothing behind that would be one.
#[test]
fn duplicates_stay_in_process() {
    let Some(totals) = counts("duplicates", &["5000"]) else {
        return;
    };
    let by_dup = count(&totals, "/migrated_by_reason/duplicate");
    assert!(by_dup > 0 && by_dup < count(&totals, "/made") / 2, "{totals:#}");
    assert_eq!(count(&totals, "/migrated_by_reason/unmodelled_call"), 0, "{totals:#}");
    assert!(count(&totals, "/kept") > count(&totals, "/made") / 2, "{totals:#}");
}
