//! Local links lead somewhere: the file exists, and so does the heading.

use super::markdown::{anchors, lines, links, pages, quoted};
use super::{is_promised, root};
use std::fs;
use std::path::Path;

/// Says what is wrong with a link of the page in `folder`.
fn resolve(folder: &Path, page: &str, link: &str) -> Result<(), String> {
    if link.contains("://") || link.starts_with("mailto:") {
        return Ok(());
    }
    let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = if file.is_empty() { page.to_string() } else { read(&folder.join(file))? };
    if !anchor.is_empty() && file.ends_with(".md") | file.is_empty() {
        match anchors(&target).contains(anchor) {
            true => {}
            false if is_promised(file) => {}
            false => return Err(format!("no heading #{anchor}")),
        }
    }
    Ok(())
}

/// A linked file's text, empty for a folder or a file that is not text.
fn read(path: &Path) -> Result<String, String> {
    match fs::read(path) {
        Ok(bytes) => Ok(String::from_utf8(bytes).unwrap_or_default()),
        Err(_) if path.is_dir() || is_promised(&path.to_string_lossy()) => Ok(String::new()),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn every_local_link_leads_somewhere() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for path in pages(&root()) {
        let text = fs::read_to_string(&path).expect("a page");
        let folder = path.parent().expect("its folder");
        for (number, line, _) in lines(&text).into_iter().filter(|(_, _, code)| !code) {
            for link in links(line) {
                count += 1;
                if let Err(error) = resolve(folder, &text, &link) {
                    wrong.push(format!("{}:{number}: {link}: {error}", path.display()));
                }
            }
        }
    }
    assert!(count > 100, "only {count} links");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Whether the reader is to put a name in the place of the file's.
fn is_placeholder(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let stem = name.split('.').next().unwrap_or(name);
    !stem.is_empty() && stem != "README" && !stem.contains(|c: char| c.is_ascii_lowercase())
}

/// Paths from the root of the repository that stand in backquotes.
#[test]
fn every_path_named_exists() {
    let mut wrong = Vec::new();
    for path in pages(&root()) {
        let text = fs::read_to_string(&path).expect("a page");
        for (number, line, _) in lines(&text).into_iter().filter(|(_, _, code)| !code) {
            for name in quoted(line) {
                let name = name.split("::").next().unwrap_or(name);
                let is_path = ["crates/", "ci/", ".ci/", "docs/", "fuzz/"]
                    .iter()
                    .any(|folder| name.starts_with(folder))
                    && !name.contains([' ', '…', '*', '<', '{'])
                    && name.is_ascii();
                let is_known =
                    root().join(name).exists() || is_promised(name) || is_placeholder(name);
                if is_path && !is_known {
                    wrong.push(format!("{}:{number}: {name} does not exist", path.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_link_to_nowhere_is_found() {
    let folder = root();
    let page = "# A page\n\n## Two `words` (2)\n";
    assert_eq!(resolve(&folder, page, "#two-words-2"), Ok(()));
    assert!(resolve(&folder, page, "#another").is_err());
    assert!(resolve(&folder, page, "no-such-file.md").is_err());
    assert!(resolve(&folder, page, "README.md#no-such-heading").is_err());
    assert_eq!(links("[a](b.md#c), `[no](link)` and [`d`](e)"), ["b.md#c", "e"]);
}
