//! The pages of section 3: made from the header's comments and the programs in `examples/manual`,
//! and kept in `man`, so that whoever packages the library needs nothing to have them.
//!
//! `WAKESET_WRITE_DOCS=1 cargo test -p wakeset-c --test c manual` writes them anew.

#[path = "manual/errors.rs"]
mod errors;
#[path = "manual/header.rs"]
mod header;
#[path = "manual/page.rs"]
mod page;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::{Linked, compile, have, here, run};

/// The programs that the pages show: the one that introduces, and then the shortest first.
fn programs() -> Vec<PathBuf> {
    let entries = fs::read_dir(here("examples/manual")).expect("the programs");
    let mut programs: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    programs.sort_by_key(|path| {
        let length = fs::metadata(path).expect("a program").len();
        (!path.ends_with("set.c"), length, path.clone())
    });
    programs
}

/// What the pages have to be, by name.
fn made() -> BTreeMap<String, String> {
    let header = fs::read_to_string(here("include/wakeset.h")).expect("the header");
    let text = |path: &PathBuf| fs::read_to_string(path).expect("a program");
    let examples: Vec<_> = programs().iter().map(text).collect();
    let mut made = BTreeMap::new();
    for page in page::pages(&header::topics(&header), &examples) {
        let (first, others) = page.functions.split_first().expect("a function");
        for other in others {
            made.insert(format!("{other}.3"), format!(".so man3/{first}.3\n"));
        }
        made.insert(format!("{first}.3"), page.text);
    }
    made
}

/// The pages that are there.
fn kept() -> BTreeMap<String, String> {
    let entries = fs::read_dir(here("man")).expect("the pages");
    let page = |path: PathBuf| {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        (name, fs::read_to_string(path).expect("a page"))
    };
    entries.map(|entry| page(entry.expect("an entry").path())).collect()
}

#[test]
fn the_pages_are_those_of_the_header() {
    let made = made();
    if std::env::var_os("WAKESET_WRITE_DOCS").is_some() {
        let _ = fs::remove_dir_all(here("man"));
        fs::create_dir_all(here("man")).expect("a folder");
        for (name, text) in &made {
            fs::write(here("man").join(name), text).expect("a page");
        }
    }
    let kept = kept();
    let names = |pages: &BTreeMap<String, String>| pages.keys().cloned().collect::<BTreeSet<_>>();
    let anew = "write them anew: WAKESET_WRITE_DOCS=1 cargo test -p wakeset-c --test c manual";
    assert_eq!(names(&made), names(&kept), "{anew}");
    for (name, text) in &made {
        assert!(kept[name] == *text, "{name} is not what the header says; {anew}");
    }
}

/// What the library exports has a page, and what has a page is exported.
#[test]
fn every_symbol_has_a_page() {
    let map = fs::read_to_string(here("wakeset.map")).expect("the map");
    let symbols = map.lines().filter_map(|line| line.trim().strip_suffix(';'));
    let symbols: BTreeSet<_> = symbols.filter(|name| name.starts_with("ws_")).collect();
    let pages = kept();
    let described: BTreeSet<_> = pages.keys().filter_map(|name| name.strip_suffix(".3")).collect();
    assert!(symbols.len() > 50, "{symbols:?}");
    assert_eq!(described, symbols);
}

#[test]
fn every_page_has_its_sections() {
    for (name, text) in kept() {
        if let Some(of) = text.strip_prefix(".so man3/") {
            assert!(kept()[of.trim_end()].contains(name.trim_end_matches(".3")), "{name}");
            continue;
        }
        for section in [
            "NAME",
            "SYNOPSIS",
            "DESCRIPTION",
            "\"RETURN VALUE\"",
            "ERRORS",
            "ATTRIBUTES",
            "EXAMPLES",
            "\"SEE ALSO\"",
        ] {
            let heading = format!("\n.SH {section}\n");
            let (_, rest) =
                text.split_once(&heading).unwrap_or_else(|| panic!("{name}: {section}"));
            let body = rest.split("\n.SH ").next().unwrap_or("");
            assert!(!body.trim().is_empty(), "{name}: {section} is empty");
        }
    }
}

#[test]
fn mandoc_finds_nothing_to_mend() {
    if !have("mandoc") {
        return;
    }
    for (name, text) in kept() {
        if text.starts_with(".so ") {
            continue;
        }
        let mut lint = Command::new("mandoc");
        let lint = lint.args(["-T", "lint", "-W", "warning"]).arg(here("man").join(&name));
        let lint = lint.output().expect("mandoc runs");
        let said = String::from_utf8_lossy(&lint.stdout).into_owned();
        assert!(lint.status.success() && said.is_empty(), "{name}:\n{said}");
    }
}

/// What a page shows compiles without a warning, and does what it is to show.
#[test]
fn every_example_runs() {
    for program in programs() {
        let Some(built) = compile("gcc", &program, &[], Linked::Shared) else { return };
        let said = run(&mut Command::new(built));
        let may_be_silent = program.ends_with("fault.c");
        assert!(!said.is_empty() || may_be_silent, "{} says nothing", program.display());
    }
}
