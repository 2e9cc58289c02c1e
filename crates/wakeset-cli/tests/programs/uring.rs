//! Programs with io_urings of their own.

use super::super::compare::compare;
use super::super::compile::Build;
use super::super::stats::{count, counts};

#[test]
fn uring() {
    compare("uring", Build::Plain, &[]);
}

#[test]
fn uring_by_instruction() {
    compare("uring", Build::Plain, &["instruction"]);
}

#[test]
fn uring_that_the_kernel_polls() {
    compare("uring", Build::Plain, &["sqpoll"]);
}

/// An io_uring that changes watches, as libuv has one, sends no object into the kernel.
#[test]
fn commands_of_an_io_uring_are_answered() {
    let Some(totals) = counts("uring", &["commands"]) else { return };
    assert_eq!(count(&totals, "/migrated_by_reason/io_uring"), 0, "{totals:#}");
    assert!(count(&totals, "/kept") >= 10, "{totals:#}");
    assert_eq!(count(&totals, "/events_from_kernel"), 0, "{totals:#}");
}

/// Only what a request names migrates.
#[test]
fn an_io_uring_migrates_what_it_names() {
    let Some(totals) = counts("uring", &["beside"]) else { return };
    assert_eq!(count(&totals, "/migrated_by_reason/io_uring"), 1, "{totals:#}");
    assert_eq!(count(&totals, "/kept"), 3, "{totals:#}");
}
