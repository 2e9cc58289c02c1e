//! The layout of the sources: which room imports which, circles of files, and how long files,
//! functions and lines are. Each check has tests of its own, with faults on purpose.

mod circles;
mod exceptions;
mod modules;
mod repository;
mod rooms;
mod size;
mod source;
mod width;

use exceptions::Exception;
use repository::Files;
use std::collections::{BTreeMap, BTreeSet};

#[track_caller]
fn demand_none(faults: &[String], rule: &str) {
    assert!(faults.is_empty(), "{rule}\n  {}\n", faults.join("\n  "));
}

/// Those that no exception is made for, and the exceptions that nothing needs.
fn without_exceptions(
    found: BTreeMap<String, usize>,
    exceptions: &[Exception],
    most: usize,
) -> Vec<String> {
    let excused: BTreeSet<_> = exceptions.iter().map(|(name, _)| *name).collect();
    let long = found.iter().filter(|(name, _)| !excused.contains(name.as_str()));
    let long = long.map(|(name, lines)| format!("{name}: {lines} lines, {most} are allowed"));
    let stale = excused.iter().filter(|name| !found.contains_key(**name));
    long.chain(stale.map(|name| format!("{name}: an exception that is not needed"))).collect()
}

#[test]
fn rooms_import_downward() {
    let rule = "a room imports only rooms below it; ARCHITECTURE.md has the order:";
    demand_none(&rooms::faults(&Files::of_repository()), rule);
}

#[test]
fn no_circle_crosses_a_folder() {
    let files = Files::of_repository();
    let crates = files.crates();
    let faults: Vec<_> = crates.iter().flat_map(|name| circles::faults(&files, name)).collect();
    demand_none(&faults, "a circle of imports stays inside one folder:");
}

#[test]
fn files_are_short() {
    let found = size::long_files(&Files::of_repository());
    let faults = without_exceptions(found, exceptions::FILES, size::FILE);
    demand_none(&faults, "a source file is one concept (exceptions.rs has those that are longer):");
}

#[test]
fn functions_are_short() {
    let found = size::long_functions(&Files::of_repository());
    let faults = without_exceptions(found, exceptions::FUNCTIONS, size::FUNCTION);
    demand_none(&faults, "a function does one thing (exceptions.rs has those that are longer):");
}

#[test]
fn lines_are_not_wide() {
    let found = width::wide_lines(&Files::of_repository());
    let excused = |path: &str| exceptions::WIDE.iter().any(|(name, _)| *name == path);
    let wide = found.iter().filter(|(path, _)| !excused(path));
    let faults: Vec<_> = wide.map(|(_, line)| line.clone()).collect();
    demand_none(&faults, &format!("a line has at most {} columns:", width::COLUMNS));
    let stale = |(name, _): &&Exception| !found.iter().any(|(path, _)| path == name);
    let stale: Vec<_> = exceptions::WIDE.iter().filter(stale).map(|it| it.0.into()).collect();
    demand_none(&stale, "an exception for wide lines that is not needed:");
}
