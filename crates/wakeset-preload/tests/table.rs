//! The table of calls (`src/calls/table/`) against what comes of it: the library's exported
//! names, `docs/calls.md`, and the calls themselves by both roads.
//!
//! | variable | meaning |
//! |---|---|
//! | `WAKESET_REQUIRE_ALL=1` | a missing C compiler or `nm` is a failure, not a reason to skip |
//! | `WAKESET_WRITE_DOCS=1` | `docs/calls.md` is written, not compared |

#[path = "table/exports.rs"]
mod exports;
#[path = "table/page.rs"]
mod page;
#[path = "table/roads.rs"]
mod roads;
#[path = "table/rows.rs"]
mod rows;

use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::{Command, Output};

/// The library that these tests were built beside.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("this test's path");
    test.with_file_name("libwakeset_preload.so")
}

/// Runs a tool to its end. `None`, with a word about it, if there is no such tool.
fn run_tool(command: &mut Command) -> Option<Output> {
    match command.output() {
        Ok(output) => Some(output),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let required = std::env::var_os("WAKESET_REQUIRE_ALL").is_some_and(|v| v == "1");
            assert!(!required, "{command:?} is missing, and WAKESET_REQUIRE_ALL is set");
            eprintln!("skipped: {command:?} is missing");
            None
        }
        Err(error) => panic!("{command:?}: {error}"),
    }
}
