//! `docs/` as a book: `SUMMARY.md` names every page, once. That its links lead somewhere is checked
//! with those of all pages.

use std::collections::BTreeMap;

use super::markdown::{links, pages};
use super::{root, text};

#[test]
fn the_book_has_every_page_once() {
    let mut chapters: BTreeMap<String, u32> = BTreeMap::new();
    for link in text("docs/SUMMARY.md").lines().flat_map(links) {
        *chapters.entry(format!("docs/{link}")).or_default() += 1;
    }
    let twice: Vec<_> = chapters.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    let below = |path: &std::path::PathBuf| {
        let path =
            path.strip_prefix(root()).expect("below the root").to_string_lossy().into_owned();
        (path.starts_with("docs/") && path != "docs/SUMMARY.md").then_some(path)
    };
    let there: Vec<_> = pages(&root()).iter().filter_map(below).collect();
    assert_eq!(chapters.into_keys().collect::<Vec<_>>(), there);
    assert!(text("docs/book.toml").contains("\nsrc = \".\"\n"));
}
