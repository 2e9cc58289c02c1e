//! docs/environment.md, wakeset(7) and SECURITY.md have every `WAKESET_` variable that is read, and
//! no other.

use super::markdown::quoted;
use super::{root, text};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const PREFIX: &str = "WAKESET_";

/// The variable that a piece of text begins with.
fn variable(text: &str) -> &str {
    let end = text.find(|c: char| !(c.is_ascii_uppercase() || c == '_')).unwrap_or(text.len());
    &text[..end]
}

/// The names between quotation marks in the sources of a folder, alone or with a `=`.
fn collect(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry")) {
        let path = entry.path();
        if path.is_dir() {
            if !path.ends_with("target") {
                collect(&path, names);
            }
            continue;
        }
        // This test names none of them.
        if !path.extension().is_some_and(|ending| ending == "rs" || ending == "c") {
            continue;
        }
        let source = fs::read_to_string(&path).expect("a source");
        for piece in source.split(&format!("\"{PREFIX}")).skip(1) {
            let name = variable(piece);
            let rest = piece[name.len()..].trim_start_matches('=');
            if rest.starts_with('"') && !name.is_empty() {
                names.insert(format!("{PREFIX}{name}"));
            }
        }
    }
}

fn read_in(folder: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    collect(&root().join(folder), &mut names);
    names
}

/// The variables of the first column of a table.
fn of_table(part: &str) -> BTreeSet<String> {
    let rows = part.lines().filter(|line| line.starts_with("| `"));
    let first = rows.filter_map(|row| row.split(" | ").next());
    first.flat_map(|cell| quoted(cell).map(str::to_string).collect::<Vec<_>>()).collect()
}

/// What SECURITY.md says that the library reads: in every build, and in debug builds too.
fn of_security() -> (BTreeSet<String>, BTreeSet<String>) {
    let page = text("SECURITY.md");
    let (_, list) = page.split_once("\n- The library reads ").expect("a list");
    let list = list.split("\n- ").next().expect("its end");
    let (all, debug) = list.split_once("Debug builds read ").expect("those of debug builds");
    let names = |part: &str| {
        quoted(part).filter(|name| name.starts_with(PREFIX)).map(str::to_string).collect()
    };
    (names(all), names(debug))
}

#[test]
fn every_variable_is_documented() {
    let page = text("docs/environment.md");
    let (programs, tests) = page.split_once("\n## ").expect("two tables");
    let (programs, tests) = (of_table(programs), of_table(tests));
    let mut all = read_in("crates");
    all.extend(read_in("fuzz"));
    assert_eq!(programs.union(&tests).cloned().collect::<BTreeSet<_>>(), all);

    let mut library = read_in("crates/wakeset-preload/src");
    let of_debug_builds = format!("{PREFIX}ALLOCATIONS");
    assert!(library.remove(&of_debug_builds), "in debug builds only");
    assert_eq!(programs, library);
    assert_eq!(of_security(), (library, [of_debug_builds].into()));

    let manual = text("crates/wakeset-cli/man/wakeset.7.in");
    let entries = manual.lines().filter_map(|line| line.strip_prefix(".B ")?.strip_prefix(PREFIX));
    let mut entries: BTreeSet<_> = entries.map(|name| format!("{PREFIX}{name}")).collect();
    assert!(entries.remove(&format!("{PREFIX}LIBDIR")), "for the build");
    assert_eq!(entries, programs);
}
