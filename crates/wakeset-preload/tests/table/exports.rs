//! What the library exports is what the table says, and each name and number is in one row.

use super::rows::calls;
use super::{library, run_tool};
use std::collections::BTreeSet;
use std::process::Command;

/// The items as a set; fails if one is there twice.
fn once<'a>(items: impl Iterator<Item = &'a str>) -> BTreeSet<&'a str> {
    let mut set = BTreeSet::new();
    for item in items {
        assert!(set.insert(item), "{item} is in two rows");
    }
    set
}

#[test]
fn every_name_and_number_is_in_one_row() {
    once(calls().map(|call| call.row));
    once(calls().flat_map(|call| call.exported()));
    once(calls().flat_map(|call| call.numbers()));
}

#[test]
fn the_library_exports_the_table() {
    let Some(output) = run_tool(Command::new("nm").args(["-D", "--defined-only"]).arg(library()))
    else {
        return;
    };
    assert!(output.status.success(), "nm: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    let exported: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.split_whitespace().last())
        // Debug builds have the language's own symbol besides.
        .filter(|name| *name != "rust_eh_personality")
        .collect();
    let expected = once(calls().flat_map(|call| call.exported()));
    let missing: Vec<_> = expected.difference(&exported).collect();
    let unknown: Vec<_> = exported.difference(&expected).collect();
    assert!(missing.is_empty(), "in the table, and not exported: {missing:?}");
    assert!(unknown.is_empty(), "exported, and in no row of the table: {unknown:?}");
}

/// The linker takes no notice of a pattern of `wait.ld` that no function has any more.
#[test]
fn what_a_wait_runs_through_lies_together() {
    let Some(output) =
        run_tool(Command::new("nm").args(["-f", "sysv", "--defined-only"]).arg(library()))
    else {
        return;
    };
    assert!(output.status.success(), "nm: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    let section_of = |piece: &str| {
        let line = text.lines().find(|line| {
            let name = line.split('|').next().unwrap_or_default().trim();
            name == piece || piece.ends_with("17h") && name.contains(piece)
        });
        line.unwrap_or_else(|| panic!("no function {piece}")).rsplit('|').next().map(str::trim)
    };
    let wait = ["15epoll_wait_into17h", "4Wait3run17h", "10step_mixed17h", "4Wait7harvest17h"];
    for piece in [&["epoll_wait"][..], &wait].concat() {
        assert_eq!(section_of(piece), Some(".text.wait"), "{piece}");
    }
    let poll = ["14answer_in_time17h", "9EventPoll10add_source17h", "6Poller7release17h"];
    for piece in [&["poll"][..], &poll].concat() {
        assert_eq!(section_of(piece), Some(".text.poll"), "{piece}");
    }
}
