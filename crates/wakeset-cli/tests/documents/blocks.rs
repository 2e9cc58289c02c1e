//! Each block of each page has a language, and the first table of "What the documents show" in
//! docs/testing.md says what runs a block of that language. Here are the languages that are not
//! typed into a shell; `runs` has that one.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::markdown::{Block, blocks, pages};
use super::support::{output, scratch};
use super::{root, text};

/// The rows of a table in the section "What the documents show", by its heading's first cell.
pub fn shown(heading: &str) -> Vec<Vec<String>> {
    let page = text("docs/testing.md");
    let (_, section) = page.split_once("\n## What the documents show\n").expect("a section");
    let section = section.split("\n## ").next().expect("its end");
    let (_, rows) = section.split_once(&format!("\n| {heading} | ")).expect("a table");
    let rows = rows.lines().skip(2).take_while(|line| line.starts_with("| "));
    let cells = |row: &str| {
        let cells = row.trim_matches('|').split(" | ");
        cells.map(|cell| cell.trim().to_string()).collect()
    };
    rows.map(cells).collect()
}

/// Every page by its name, with its blocks.
pub fn all() -> Vec<(String, Vec<Block<'static>>)> {
    let name = |page: &PathBuf| {
        page.strip_prefix(root()).expect("below the root").to_string_lossy().into_owned()
    };
    let read = |page: &PathBuf| &*fs::read_to_string(page).expect("a page").leak();
    pages(&root()).iter().map(|page| (name(page), blocks(read(page)))).collect()
}

/// Those of a language, each with its page.
fn of(language: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (page, blocks) in all() {
        let meant = blocks.into_iter().filter(|block| block.language == language);
        found.extend(meant.map(|block| (page.clone(), block.text)));
    }
    assert!(!found.is_empty(), "no block of {language}");
    found
}

#[test]
fn every_block_has_a_language_that_says_what_runs_it() {
    let rows = shown("block");
    let known: Vec<_> = rows.iter().flat_map(|row| row[0].split('`').skip(1).step_by(2)).collect();
    assert!(known.contains(&"console") && known.contains(&"text"), "{known:?}");
    let mut wrong = Vec::new();
    for (page, blocks) in all() {
        for Block { line, language, text } in blocks {
            if !known.contains(&language) {
                wrong.push(format!("{page}:{line}: a block of `{language}`"));
            }
            // A prompt: it would be typed.
            let is_typed = text.lines().any(|line| line.trim_start().starts_with("$ "));
            if is_typed != (language == "console") {
                wrong.push(format!("{page}:{line}: `{language}`, and prompts: {is_typed}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for language in known {
        assert!(!of(language).is_empty());
    }
}

/// rustdoc compiles and runs what a crate includes as its documentation.
#[test]
fn what_is_shown_of_rust_is_a_documentation_test() {
    let mut included = Vec::new();
    for entry in fs::read_dir(root().join("crates")).expect("the crates") {
        let folder = entry.expect("an entry").path().join("src");
        let source = fs::read_to_string(folder.join("lib.rs")).unwrap_or_default();
        for path in source.split("#[doc = include_str!(\"").skip(1) {
            let path = path.split('"').next().expect("a path");
            included.push(folder.join(path).canonicalize().expect("a page"));
        }
    }
    for (page, _) in of("rust") {
        let path = root().join(&page).canonicalize().expect("a page");
        assert!(included.contains(&path), "{page} is part of no crate's documentation");
    }
}

/// The manifest of a program that stands beside the repository.
#[test]
fn what_is_shown_of_a_manifest_resolves() {
    for (page, manifest) in of("toml") {
        assert!(manifest.contains("\"../wakeset/"), "{page}: {manifest}");
        let ours = format!("\"{}/", root().canonicalize().expect("the root").display());
        let manifest = manifest.replace("\"../wakeset/", &ours);
        // With the features of the comment, too.
        let with_features = manifest.replace(" }    # features", ", features") + "}";
        assert!(with_features.contains("features = ["), "{page}: {manifest}");
        let with_features = with_features.replace("] for that loop\n}", "] }");
        for manifest in [&manifest, &with_features] {
            let folder = scratch("documents-manifest");
            fs::create_dir(folder.join("src")).expect("a folder");
            fs::write(folder.join("src/main.rs"), "fn main() {}\n").expect("a file");
            // Where nothing can be fetched, the versions are those that are there.
            fs::copy(root().join("Cargo.lock"), folder.join("Cargo.lock")).expect("a file");
            let head = "[package]\nname = \"program\"\nedition = \"2024\"\n[workspace]\n";
            fs::write(folder.join("Cargo.toml"), format!("{head}{manifest}")).expect("a file");
            let mut cargo = Command::new(env!("CARGO"));
            cargo.args(["metadata", "--offline", "--format-version=1"]);
            cargo.arg("--filter-platform=x86_64-unknown-linux-gnu").current_dir(&folder);
            assert!(output(&mut cargo).contains("/crates/wakeset-io"), "{page}");
        }
    }
}

#[test]
fn blocks_are_found() {
    let page = "- a\n\n  ```c\n  int x;\n    y\n  ```\n\n    indented\n\n```text\n```\n";
    let block = |line, language, text: &str| Block { line, language, text: text.to_string() };
    let found =
        [block(3, "c", "int x;\n  y\n"), block(8, "", "    indented\n"), block(10, "text", "")];
    assert_eq!(blocks(page), found);
}
