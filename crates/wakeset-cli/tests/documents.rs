//! The documents against the sources.
//!
//! - SEMANTICS.md, in this file: whatever it names as a test exists, every body that runs on both
//!   sides is named by it, every row has a test, and every known difference is shown or says that
//!   it is not.
//! - `environment`: the variables that are read are the ones that are documented.
//! - `links`: local links of every page lead to a file and a heading; paths in backquotes exist.
//! - `names`: what pages about the code call by a name is called so there.
//! - `commands`: commands shown name subcommands, flags, packages and scripts that exist.
//! - `blocks`: each block of a page has a language that says what runs it.
//! - `runs`: what a page shows to be typed runs, but for a list of exceptions.
//! - `book`: the book has every page.
//! - `published`: what a crate's package holds; one Rust version everywhere.
//! - `containers`: the image's recipe and the pod's manifest say what the program says.

#[path = "documents/blocks.rs"]
mod blocks;
#[path = "documents/book.rs"]
mod book;
#[path = "support/built.rs"]
mod built;
#[path = "documents/commands.rs"]
mod commands;
#[path = "documents/containers.rs"]
mod containers;
#[path = "documents/environment.rs"]
mod environment;
#[path = "documents/links.rs"]
mod links;
#[path = "documents/markdown.rs"]
mod markdown;
#[path = "documents/names.rs"]
mod names;
#[path = "documents/published.rs"]
mod published;
#[path = "documents/runs.rs"]
mod runs;

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Files that the documents name and that are not here yet.
const PROMISED: [&str; 0] = [];

/// Whether a path has the name of one of those.
fn is_promised(path: &str) -> bool {
    let name = |path: &str| path.trim_end_matches('/').rsplit('/').next().map(str::to_string);
    PROMISED.iter().any(|promised| name(promised) == name(path))
}

fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Whether a Rust source defines the function.
fn defines(source: &str, name: &str) -> bool {
    source.contains(&format!("fn {name}(")) || source.contains(&format!("fn {name}<"))
}

/// The names between `on_both!(` and `);`: the bodies of a topic.
fn listed(source: &str) -> Option<Vec<&str>> {
    let (_, rest) = source.split_once("\non_both!(")?;
    let (names, _) = rest.split_once(");")?;
    Some(names.split(',').map(str::trim).filter(|name| !name.is_empty()).collect())
}

/// The text of a test program: `path.rs` or `path/main.rs`, and the files of the folder `path/`.
fn test_program(path: &str) -> String {
    let folder = root().join(path);
    let mut texts = vec![fs::read_to_string(folder.with_extension("rs")).unwrap_or_default()];
    for entry in fs::read_dir(folder).into_iter().flatten() {
        texts.push(fs::read_to_string(entry.expect("an entry").path()).unwrap_or_default());
    }
    texts.join("\n")
}

/// The bodies by topic: each topic's file lists its own and those of its folder.
fn bodies() -> BTreeMap<String, BTreeSet<String>> {
    let folder = root().join("crates/wakeset-fd/tests/semantics");
    let mut bodies = BTreeMap::new();
    for entry in fs::read_dir(folder).expect("the folder of bodies") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            continue;
        }
        let source = fs::read_to_string(&path).expect("a source");
        if let (Some(names), Some(topic)) = (listed(&source), path.file_stem()) {
            let names = names.into_iter().map(str::to_string).collect();
            bodies.insert(topic.to_string_lossy().into_owned(), names);
        }
    }
    assert!(bodies.len() >= 10, "{bodies:?}");
    bodies
}

/// What stands between backquotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Says what is wrong with the name of a test, or marks the bodies that it means as named.
fn resolve(
    name: &str,
    bodies: &BTreeMap<String, BTreeSet<String>>,
    named: &mut Named,
) -> Result<(), String> {
    let read = |path: String| fs::read_to_string(root().join(path));
    let missing = || Err(format!("`{name}` does not exist"));
    let (first, rest) = name.split_once("::").unwrap_or((name, ""));
    if let Some(topic) = bodies.get(first) {
        let meant: Vec<_> = topic.iter().filter(|body| rest == "*" || *body == rest).collect();
        named.extend(meant.iter().map(|body| (first.to_string(), body.to_string())));
        return if meant.is_empty() { missing() } else { Ok(()) };
    }
    let found = match first {
        _ if first.contains('/') => root().join(first).exists(),
        _ if first.ends_with(".c") => {
            let source = read(format!("crates/wakeset-cli/tests/c/{first}"));
            source.is_ok_and(|source| {
                rest.is_empty() || source.contains(&format!("\nstatic void {rest}(void)\n"))
            })
        }
        _ if first.starts_with("api_") => {
            let path = format!("crates/wakeset/tests/{}", first.trim_end_matches(".rs"));
            root().join(format!("{path}.rs")).exists()
                && (rest.is_empty() || defines(&test_program(&path), rest))
        }
        "loom" => {
            let (model, function) = rest.split_once("::").unwrap_or((rest, ""));
            let source = test_program(&format!("crates/wakeset/tests/loom/{model}"));
            !source.trim().is_empty() && (function.is_empty() || defines(&source, function))
        }
        "in_process" => {
            defines(&test_program("crates/wakeset-fd/tests/semantics/in_process"), rest)
        }
        "programs" => defines(&test_program("crates/wakeset-cli/tests/programs"), rest),
        _ => false,
    };
    if found { Ok(()) } else { missing() }
}

type Named = BTreeSet<(String, String)>;

/// The page in its two parts: the tables' rows, and the differences by number.
struct Page {
    rows: Vec<String>,
    differences: BTreeMap<u32, String>,
}

fn page() -> Page {
    let text = text("SEMANTICS.md");
    let (tables, list) =
        text.split_once("\n## Known differences\n").expect("a list of differences");
    let is_row = |line: &&str| line.starts_with("| ") && !line.starts_with("| where ");
    let rows: Vec<_> = tables.lines().filter(is_row).map(str::to_string).collect();
    let mut differences = BTreeMap::new();
    for entry in format!("\n{list}").split("\n- **").skip(1) {
        let (number, rest) = entry.split_once("** ").expect("a number");
        let rest = rest
            .split("\n#")
            .next()
            .unwrap_or(rest)
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        let number = number.parse().expect("a number");
        assert!(differences.insert(number, rest).is_none(), "number {number} twice");
    }
    assert!(rows.len() > 100 && differences.len() > 20);
    Page { rows, differences }
}

#[test]
fn every_clause_has_its_test() {
    let (page, bodies) = (page(), bodies());
    let mut wrong = Vec::new();
    for row in &page.rows {
        let cells: Vec<_> = row.trim_matches('|').split('|').collect();
        let [place, _, how, tests] = cells[..] else {
            wrong.push(format!("not four cells: {row}"));
            continue;
        };
        let mut names = quoted(tests).peekable();
        if names.peek().is_none() && !tests.contains("exhaustion") {
            wrong.push(format!("no test: {row}"));
        }
        wrong.extend(names.filter_map(|name| resolve(name, &bodies, &mut Named::new()).err()));
        for number in how.split("**").skip(1).step_by(2) {
            if number.parse().is_ok_and(|number| !page.differences.contains_key(&number)) {
                wrong.push(format!("{place} names difference {number}, which is not listed"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_body_is_named() {
    let (page, bodies) = (page(), bodies());
    let mut named = Named::new();
    for row in &page.rows {
        let tests = row.trim_end_matches([' ', '|']).rsplit('|').next().unwrap_or("");
        for name in quoted(tests) {
            let _ = resolve(name, &bodies, &mut named);
        }
    }
    let all = bodies
        .iter()
        .flat_map(|(topic, names)| names.iter().map(|name| (topic.clone(), name.clone())));
    let unnamed: Vec<_> =
        all.filter(|body| !named.contains(body)).map(|(a, b)| format!("{a}::{b}")).collect();
    assert!(unnamed.is_empty(), "not in SEMANTICS.md:\n{}", unnamed.join("\n"));
}

#[test]
fn every_difference_is_shown_or_says_that_it_is_not() {
    let (page, bodies) = (page(), bodies());
    let mut wrong = Vec::new();
    for (number, entry) in &page.differences {
        let shown = entry.split_once("*Shown by*").map(|(_, names)| names);
        if shown.is_none_or(|names| quoted(names).next().is_none())
            && !entry.to_lowercase().contains("*not shown")
        {
            wrong.push(format!("{number} is neither shown nor says so"));
        }
        let is_test = |name: &&str| name.contains("::") || name.ends_with(".c");
        let names = quoted(shown.unwrap_or("")).chain(quoted(entry).filter(is_test));
        let errors = names.filter_map(|name| resolve(name, &bodies, &mut Named::new()).err());
        wrong.extend(errors.map(|error| format!("{number}: {error}")));
    }
    // And the other way round: what the program shows is on the page.
    let program = text("crates/wakeset-cli/tests/c/differences.c");
    let (_, main) = program.split_once("\nint main(").expect("a main");
    let calls = main.lines().filter_map(|line| line.trim().strip_suffix("();"));
    let called = calls.filter(|name| !name.starts_with("return "));
    let text = text("SEMANTICS.md");
    let unnamed = called.filter(|name| !text.contains(&format!("`differences.c::{name}`")));
    wrong.extend(
        unnamed.map(|name| format!("differences.c shows {name}, which the page does not name")),
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A program that no test runs shows nothing.
#[test]
fn every_program_is_run() {
    let tests = test_program("crates/wakeset-cli/tests/programs");
    for entry in
        fs::read_dir(root().join("crates/wakeset-cli/tests/c")).expect("the folder of programs")
    {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            continue;
        }
        let name = path.file_stem().expect("a name").to_string_lossy();
        let runs = tests.contains(&format!("(\"{name}\", "));
        assert!(
            runs || path.extension().is_some_and(|extension| extension == "h"),
            "{name}.c is not run"
        );
    }
}
