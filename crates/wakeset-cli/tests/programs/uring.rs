//! Programs with io_urings of their own.

use super::super::compare::compare;
use super::super::compile::Build;
use super::super::stats::{count, counts};

/// By `syscall()`, by instruction, and where a thread of the kernel's takes the requests.
#[test]
fn uring() {
    for arguments in [&[][..], &["instruction"], &["sqpoll"]] {
        compare("uring", Build::Plain, arguments);
    }
}

/// An io_uring that changes watches, as libuv has one, sends no object into the kernel; others send
/// only what a request names.
#[test]
fn an_io_uring_migrates_what_it_names() {
    let Some(totals) = counts("uring", &["commands"]) else { return };
    assert_eq!(count(&totals, "/migrated_by_reason/io_uring"), 0, "{totals:#}");
    assert!(count(&totals, "/kept") >= 10, "{totals:#}");
    assert_eq!(count(&totals, "/events_from_kernel"), 0, "{totals:#}");
    let Some(totals) = counts("uring", &["beside"]) else { return };
    assert_eq!(count(&totals, "/migrated_by_reason/io_uring"), 1, "{totals:#}");
    assert_eq!(count(&totals, "/kept"), 3, "{totals:#}");
}
