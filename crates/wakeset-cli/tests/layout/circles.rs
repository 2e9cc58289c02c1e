//! Circles of files: each imports the next one, and the last one the first.
//!
//! A circle inside one folder is that folder's affair. The root of a module that has a folder of
//! its own (`set.rs` or `set/mod.rs` beside `set/ring.rs`) belongs both to that folder and to the
//! one above it. Rooms that ARCHITECTURE.md joins by `=` may have a circle between them.

use crate::modules::{Import, folder_of, imports};
use crate::repository::Files;
use crate::rooms;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The circles that no folder holds, one line each: of files that can all reach each other, the
/// shortest one.
pub fn faults(files: &Files, name: &str) -> Vec<String> {
    let imports = match imports(files, name) {
        Ok(imports) => imports,
        Err(fault) => return vec![fault],
    };
    let mut graph = Graph::new();
    for import in &imports {
        graph.entry(&import.from).or_default().push(import);
    }
    let mut circles: BTreeMap<BTreeSet<&str>, Vec<&Import>> = BTreeMap::new();
    for import in &imports {
        let Some(back) = way(&graph, &import.to, &import.from) else { continue };
        let circle: Vec<_> = [import].into_iter().chain(back).collect();
        let paths: Vec<_> = circle.iter().map(|import| import.from.as_str()).collect();
        if is_in_one_folder(files, &circle) || rooms::are_joined(files, name, &paths) {
            continue;
        }
        let shortest = circles.entry(tied(&graph, &import.from)).or_insert(circle.clone());
        if circle.len() < shortest.len() {
            *shortest = circle;
        }
    }
    circles.into_iter().map(|(tied, circle)| describe(name, tied.len(), &circle)).collect()
}

/// Imports by the file that they are in.
type Graph<'a> = BTreeMap<&'a str, Vec<&'a Import>>;

/// All files that the file can reach and that can reach it.
fn tied<'a>(graph: &Graph<'a>, file: &'a str) -> BTreeSet<&'a str> {
    let reach = |from: &'a str| {
        let mut reached = BTreeSet::from([from]);
        let mut next = vec![from];
        while let Some(at) = next.pop() {
            let imports = graph.get(at).into_iter().flatten();
            next.extend(imports.map(|it| it.to.as_str()).filter(|to| reached.insert(to)));
        }
        reached
    };
    reach(file).into_iter().filter(|other| reach(other).contains(file)).collect()
}

fn is_in_one_folder(files: &Files, circle: &[&Import]) -> bool {
    let mut folders = circle.iter().map(|import| folders(files, &import.from));
    let first = folders.next().unwrap_or_default();
    let common = folders.fold(first, |common, other| &common & &other);
    !common.is_empty()
}

/// The shortest way from one file to another.
fn way<'a>(graph: &Graph<'a>, from: &'a str, to: &str) -> Option<Vec<&'a Import>> {
    let mut reached: BTreeMap<&str, &Import> = BTreeMap::new();
    let mut next = VecDeque::from([from]);
    while let Some(at) = next.pop_front() {
        for import in graph.get(at).into_iter().flatten() {
            if import.to != from && !reached.contains_key(import.to.as_str()) {
                reached.insert(&import.to, import);
                next.push_back(&import.to);
            }
        }
    }
    let mut way = Vec::new();
    let mut at = to;
    while at != from {
        let import = reached.get(at)?;
        way.push(*import);
        at = &import.from;
    }
    way.reverse();
    Some(way)
}

fn folders(files: &Files, path: &str) -> BTreeSet<String> {
    let above = |path: &str| path.rsplit_once('/').map_or("", |(folder, _)| folder).to_string();
    let own = path.trim_end_matches(".rs").trim_end_matches("/mod");
    let mut folders = BTreeSet::from([above(own)]);
    if files.below(&format!("{own}/")).next().is_some() {
        folders.insert(own.to_string());
    }
    folders
}

fn describe(name: &str, tied: usize, circle: &[&Import]) -> String {
    let source = folder_of(name);
    let short = |path: &str| path.trim_start_matches(&source).to_string();
    let step = |import: &&Import| format!("{}:{}", short(&import.from), import.line);
    let steps: Vec<_> = circle.iter().map(step).collect();
    let first = circle.first().map_or(String::new(), |import| short(&import.from));
    format!("{source}: {tied} files are tied: {} → {first}", steps.join(" → "))
}

#[test]
fn a_circle_is_found() {
    let texts = [
        ("crates/a/src/lib.rs", "mod inner;\nmod outer;\n"),
        ("crates/a/src/inner/mod.rs", "mod leaf;\npub use leaf::Leaf;\n"),
        ("crates/a/src/inner/leaf.rs", "\nuse crate::outer::Outer;\npub struct Leaf;\n"),
        (
            "crates/a/src/outer.rs",
            "pub struct Outer;\nmacro_rules! m { () => { $crate::inner::Leaf } }",
        ),
    ];
    let circle = "crates/a/src/: 2 files are tied: inner/leaf.rs:2 → outer.rs:2 → inner/leaf.rs";
    assert_eq!(faults(&Files::of_texts(texts), "a"), [circle]);
    // Between rooms that are joined it is allowed.
    for (joint, circles) in [("=", 0), (" < ", 1)] {
        let page = format!("```rooms\na: inner{joint}outer\n```\n");
        let [a, b, c, d] = texts;
        let files = Files::of_texts([(rooms::PAGE, page.as_str()), a, b, c, d]);
        assert_eq!(faults(&files, "a").len(), circles, "{joint}");
    }
    // Within one folder too.
    let texts = [
        ("crates/a/src/lib.rs", "mod inner;\n"),
        ("crates/a/src/inner.rs", "mod leaf;\nstruct Root(leaf::Leaf);\n"),
        ("crates/a/src/inner/leaf.rs", "struct Leaf(super::Root);\n"),
    ];
    assert_eq!(faults(&Files::of_texts(texts), "a"), [""; 0]);
    // So is one through code for tests only.
    let texts = [
        ("crates/a/src/lib.rs", "mod inner;\nmod outer;\n"),
        ("crates/a/src/inner/mod.rs", "#[cfg(all(test, not(loom)))]\nuse crate::{outer::Outer};\n"),
        ("crates/a/src/outer.rs", "pub struct Outer(crate::inner::X);\n"),
    ];
    assert_eq!(faults(&Files::of_texts(texts), "a"), [""; 0]);
}

#[test]
fn every_way_to_name_a_file_counts() {
    let ways = [
        "use crate::outer::Outer;",
        "use crate::{self as root, outer::{Outer as Other, *}};",
        "use super::super::outer;",
        "fn f() -> u8 { crate::outer::f::<u8>() }",
        "fn f() { let _ = <crate::outer::Outer as Default>::default(); }",
        "fn f() { call!(super::super::outer::Outer) }",
        "#[cfg(not(test))] use crate::outer::Outer;",
        "use crate::again::Outer;",
        "mod inline { use super::super::super::outer::Outer; }",
    ];
    for way in ways {
        let texts = [
            ("crates/a/src/lib.rs", "mod again;\nmod inner;\nmod outer;\n"),
            ("crates/a/src/again.rs", "pub use super::outer::*;\n"),
            ("crates/a/src/inner/mod.rs", "mod leaf;\n"),
            ("crates/a/src/inner/leaf.rs", &format!("struct Leaf;\n{way}\n")),
            ("crates/a/src/outer.rs", "pub struct Outer(crate::inner::leaf::Leaf);\n"),
        ];
        let found = faults(&Files::of_texts(texts), "a");
        let circle = "inner/leaf.rs:2 → outer.rs:1 → inner/leaf.rs";
        assert_eq!(found.len(), 1, "{way}");
        assert!(found[0].ends_with(circle), "{way}: {}", found[0]);
    }
}
