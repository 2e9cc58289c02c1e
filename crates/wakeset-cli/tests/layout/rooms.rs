//! The rooms of each crate, as ARCHITECTURE.md lists them, and the imports between them.
//!
//! A room is a file or folder directly below a crate's `src/`. The block with the info string
//! `rooms` has a line for each crate, lowest room first:
//!
//! ```text
//! wakeset: error events < sync < memory < wake=watch sources < set
//! ```
//!
//! Rooms on one level may not import each other, unless `=` joins them. `lib.rs`, `main.rs` and
//! `bin/` stand above all rooms.

use crate::modules::{Import, folder_of, imports, is_root};
use crate::repository::Files;
use std::collections::{BTreeMap, BTreeSet};

/// The page that has the block.
pub const PAGE: &str = "ARCHITECTURE.md";

/// Where a room stands: its level, and which of those joined by `=` on that level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    level: usize,
    joined: usize,
}

/// Rooms of one crate.
type Rooms = BTreeMap<String, Place>;

/// Everything that is wrong with the rooms, one line each.
pub fn faults(files: &Files) -> Vec<String> {
    let Some(block) = files.text(PAGE).and_then(block) else {
        return vec![format!("{PAGE}: there is no block with the info string \"rooms\"")];
    };
    let mut faults = Vec::new();
    let mut listed = BTreeMap::new();
    for (line, text) in block {
        match read_line(text) {
            Ok((name, rooms)) => drop(listed.insert(name.to_string(), rooms)),
            Err(fault) => faults.push(format!("{PAGE}:{line}: {fault}")),
        }
    }
    let crates = files.crates();
    let unknown = listed.keys().filter(|name| !crates.contains(name));
    faults.extend(unknown.map(|name| format!("{PAGE}: there is no crates/{name}/src/")));
    for name in crates {
        let Some(rooms) = listed.get(&name) else {
            faults.push(format!("{PAGE}: {name} is not in the block"));
            continue;
        };
        let there = rooms_there(files, &name);
        let missing = there.iter().filter(|room| !rooms.contains_key(*room));
        faults.extend(missing.map(|room| format!("{PAGE}: {name}: {room} is not in the block")));
        let gone = rooms.keys().filter(|room| !there.contains(*room));
        faults.extend(gone.map(|room| format!("{PAGE}: {name}: there is no {room}")));
        match imports(files, &name) {
            Ok(imports) => faults.extend(upward(&name, rooms, &imports)),
            Err(fault) => faults.push(fault),
        }
    }
    faults
}

/// Whether the files are in several rooms, all of which `=` joins.
pub fn are_joined(files: &Files, name: &str, paths: &[&str]) -> bool {
    let lines = files.text(PAGE).and_then(block).unwrap_or_default();
    let mut lines = lines.into_iter().filter_map(|(_, text)| read_line(text).ok());
    let Some((_, listed)) = lines.find(|(other, _)| *other == name) else { return false };
    let folder = folder_of(name);
    let rooms: BTreeSet<_> = paths.iter().map(|path| room_of(&folder, path)).collect();
    let mut places = rooms.iter().map(|room| listed.get((*room)?).copied());
    let first = places.next().flatten();
    rooms.len() > 1 && first.is_some() && places.all(|place| place == first)
}

/// The lines of the block, with their numbers.
fn block(page: &str) -> Option<Vec<(usize, &str)>> {
    let mut lines = page.lines().enumerate().map(|(i, line)| (i + 1, line));
    lines.find(|(_, line)| line.trim_end() == "```rooms")?;
    let block = lines.take_while(|(_, line)| !line.starts_with("```"));
    Some(block.filter(|(_, line)| !line.trim().is_empty()).collect())
}

fn read_line(text: &str) -> Result<(&str, Rooms), String> {
    let (name, levels) = text.split_once(':').ok_or("expected \"crate: room < room\"")?;
    let mut rooms = Rooms::new();
    for (level, text) in levels.split('<').enumerate() {
        if text.trim().is_empty() {
            return Err(format!("{name}: a level has no room"));
        }
        for (joined, names) in text.replace(" = ", "=").split_whitespace().enumerate() {
            for room in names.split('=') {
                if rooms.insert(room.to_string(), Place { level, joined }).is_some() {
                    return Err(format!("{name}: {room} is there twice"));
                }
            }
        }
    }
    Ok((name.trim(), rooms))
}

/// The room of a file below `src/`.
fn room_of<'a>(folder: &str, path: &'a str) -> Option<&'a str> {
    let rest = path.strip_prefix(folder)?;
    let first = rest.split('/').next()?;
    (!is_root(folder, path)).then_some(first.strip_suffix(".rs").unwrap_or(first))
}

fn rooms_there(files: &Files, name: &str) -> BTreeSet<String> {
    let folder = folder_of(name);
    let sources = files.below(&folder).filter(|(path, _)| path.ends_with(".rs"));
    sources.filter_map(|(path, _)| room_of(&folder, path).map(str::to_string)).collect()
}

/// The imports that go to a higher room, to another one on the same level, or to the root.
fn upward(name: &str, rooms: &Rooms, imports: &[Import]) -> Vec<String> {
    let folder = folder_of(name);
    let mut faults = Vec::new();
    for Import { from, to, line } in imports {
        let Some(low) = room_of(&folder, from) else { continue };
        let Some(high) = room_of(&folder, to) else {
            let to = to.strip_prefix(&folder).unwrap_or(to);
            faults.push(format!("{from}:{line}: {low} imports {to}, which is above all rooms"));
            continue;
        };
        let (Some(at), Some(of)) = (rooms.get(low), rooms.get(high)) else { continue };
        if of.level > at.level {
            faults.push(format!("{from}:{line}: {low} imports {high} ({to}), which is above it"));
        } else if of.level == at.level && of.joined != at.joined {
            faults.push(format!(
                "{from}:{line}: {low} imports {high} ({to}), on the same level and not joined"
            ));
        }
    }
    faults
}

#[test]
fn an_upward_import_is_found() {
    let files = fixture("a: low < high");
    let fault = "low imports high (crates/a/src/high/deep.rs), which is above it";
    assert_eq!(faults(&files), [format!("crates/a/src/low.rs:2: {fault}")]);
    assert_eq!(faults(&fixture("a: high=low")), [""; 0]);
    assert_eq!(faults(&fixture("a: high < low")), [""; 0]);
    let level = faults(&fixture("a: high low"));
    assert!(level[0].ends_with("on the same level and not joined"), "{level:?}");
}

#[test]
fn rooms_that_are_not_there_and_not_listed_are_found() {
    let other = "ARCHITECTURE.md: a: ";
    let found = faults(&fixture("a: high < low < attic"));
    assert_eq!(found, [format!("{other}there is no attic")]);
    let found = faults(&fixture("a: high"));
    assert_eq!(found, [format!("{other}low is not in the block")]);
    let found = faults(&fixture("b: high"));
    let expected = ["there is no crates/b/src/", "a is not in the block"];
    assert_eq!(found, expected.map(|fault| format!("ARCHITECTURE.md: {fault}")));
    let found = faults(&fixture("a: high < < low"));
    assert_eq!(found[0], "ARCHITECTURE.md:3: a: a level has no room");
}

#[test]
fn an_import_of_the_root_is_found() {
    let files = Files::of_texts([
        (PAGE, "```rooms\na: low\n```\n"),
        ("crates/a/src/lib.rs", "mod low;\npub struct Top;\npub use low::Low;\n"),
        ("crates/a/src/low.rs", "pub struct Low;\nuse crate::{Low as Me, Top};\n"),
    ]);
    let expected = "crates/a/src/low.rs:2: low imports lib.rs, which is above all rooms";
    assert_eq!(faults(&files), [expected]);
}

fn fixture(rooms: &str) -> Files {
    Files::of_texts([
        (PAGE, &format!("# Rooms\n```rooms\n{rooms}\n```\n")),
        ("crates/a/src/lib.rs", "mod high;\nmod low;\n"),
        ("crates/a/src/high.rs", "mod deep;\npub(crate) use deep::Deep;\n"),
        ("crates/a/src/high/deep.rs", "pub(crate) struct Deep;\n"),
        (
            "crates/a/src/low.rs",
            "//! use crate::nothing;\nuse crate::high::Deep;\n\
             #[cfg(test)]\nmod tests { use crate::high; }\n",
        ),
    ])
}
