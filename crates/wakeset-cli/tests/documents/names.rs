//! Names of the code that stand in backquotes are names of the code: a field or function that has
//! been renamed is found in the page that tells of it.

use super::markdown::{lines, pages, quoted};
use super::root;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The words that may be the name of something of ours: `snake_case` and `CamelCase`.
fn names(quoted: &str) -> impl Iterator<Item = &str> {
    let words = quoted.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| {
        // In `api_NAME` and `ws_timerfd_*` the reader puts in the rest.
        let is_snake = word.contains('_')
            && word.starts_with(|c: char| c.is_ascii_lowercase())
            && !word.ends_with('_')
            && !word.contains(|c: char| c.is_ascii_uppercase());
        let is_camel = word.starts_with(|c: char| c.is_ascii_uppercase())
            && word.chars().filter(char::is_ascii_uppercase).count() > 1
            && word.contains(|c: char| c.is_ascii_lowercase());
        is_snake || is_camel
    })
}

/// Every word of every source, script and program, and of their names.
fn words(folder: &Path, known: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry")) {
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        known.extend(name.split('.').next().map(str::to_string));
        if entry.file_type().expect("its type").is_dir() {
            if !matches!(&*name, "target" | ".git" | "corpus" | "artifacts") {
                words(&path, known);
            }
        } else if !name.ends_with(".md")
            && let Ok(text) = fs::read_to_string(&path)
        {
            let all = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
            known.extend(all.map(str::to_string));
        }
    }
}

/// The pages that tell how it is built; those for users name what is the kernel's or a server's.
fn tells_of_code(page: &Path) -> bool {
    let page = page.strip_prefix(root()).expect("a page of the repository");
    page.starts_with("docs/design")
        || page.starts_with("crates")
        || page == Path::new("ARCHITECTURE.md")
        || page == Path::new("CONTRIBUTING.md")
}

#[test]
fn every_name_of_the_code_is_in_the_code() {
    let mut known = BTreeSet::new();
    words(&root(), &mut known);
    let (mut wrong, mut count) = (Vec::new(), 0);
    for path in pages(&root()).into_iter().filter(|path| tells_of_code(path)) {
        let text = fs::read_to_string(&path).expect("a page");
        for (number, line, _) in lines(&text).into_iter().filter(|(_, _, code)| !code) {
            for name in quoted(line).flat_map(names) {
                count += 1;
                if !known.contains(name) {
                    wrong.push(format!("{}:{number}: nothing is called {name}", path.display()));
                }
            }
        }
    }
    assert!(count > 300, "only {count} names");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_may_be_a_name_is_told_from_what_is_none() {
    let found = |text| names(text).collect::<Vec<_>>();
    assert_eq!(found("WakeSide::has_left(fd)"), ["WakeSide", "has_left"]);
    assert!(found("EPOLL_CTL_ADD, read(2), Linux, -1").is_empty());
}
