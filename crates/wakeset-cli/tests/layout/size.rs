//! Files and functions that have become too long to be read in one go.

use crate::modules::folder_of;
use crate::repository::Files;
use crate::source::Source;
use std::collections::BTreeMap;

/// The most lines of a source file, of the product or of a test.
pub const FILE: usize = 500;
/// The most lines of a function of the product, from `fn` to the closing brace.
pub const FUNCTION: usize = 60;

/// Source files with more than [`FILE`] lines, and how many they have.
pub fn long_files(files: &Files) -> BTreeMap<String, usize> {
    let is_source = |path: &str| [".rs", ".c", ".h"].iter().any(|end| path.ends_with(end));
    let sources = files.below("").filter(|(path, _)| is_source(path));
    let counted = sources.map(|(path, text)| (path.to_string(), text.lines().count()));
    counted.filter(|(_, lines)| *lines > FILE).collect()
}

/// Functions below `src/` with more than [`FUNCTION`] lines, as `path: name`, and how many they
/// have. Those for tests do not count.
pub fn long_functions(files: &Files) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for name in files.crates() {
        let folder = folder_of(&name);
        for (path, text) in files.below(&folder).filter(|(path, _)| path.ends_with(".rs")) {
            let source = Source::parse(text).unwrap_or_else(|error| panic!("{path}: {error}"));
            for function in source.functions.iter().filter(|it| it.lines > FUNCTION) {
                let key = format!("{path}: {}", function.name);
                let lines = found.entry(key).or_insert(0);
                *lines = function.lines.max(*lines);
            }
        }
    }
    found
}

#[test]
fn a_long_file_is_found() {
    let (long, short) = ("\n".repeat(501), "\n".repeat(500));
    let files = Files::of_texts([
        ("crates/a/src/long.rs", &long),
        ("crates/a/src/short.rs", &short),
        ("crates/a/tests/c/long.c", &long),
        ("long.md", &long),
    ]);
    let found: Vec<_> = long_files(&files).into_keys().collect();
    assert_eq!(found, ["crates/a/src/long.rs", "crates/a/tests/c/long.c"]);
}

#[test]
fn a_long_function_is_found() {
    let function = |name: &str, lines: usize| {
        format!(
            "impl A {{\npub const fn {name}<T>() -> T\nwhere T: B<3> {{{}}}\n}}\n",
            "\n".repeat(lines)
        )
    };
    let text = format!(
        "{}{}#[cfg(test)]\nmod tests {{\n{}\n}}\n",
        function("long", 59),
        function("short", 58),
        function("tested", 90)
    );
    let files = Files::of_texts([("crates/a/src/lib.rs", &text)]);
    let found: Vec<_> = long_functions(&files).into_iter().collect();
    assert_eq!(found, [("crates/a/src/lib.rs: long".to_string(), 61)]);
}
