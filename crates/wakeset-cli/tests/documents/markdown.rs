//! A Markdown page, as far as the checks need it: its prose, its code, its headings and its links.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Every page of the repository: what cargo, git and the fuzzer keep for themselves is left out.
pub fn pages(root: &Path) -> Vec<PathBuf> {
    let mut pages = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("an entry"))
        {
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            if entry.file_type().expect("its type").is_dir() {
                if !matches!(&*name, "target" | ".git" | "corpus" | "artifacts") {
                    folders.push(path);
                }
            } else if name.ends_with(".md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    assert!(pages.len() >= 10, "{pages:?}");
    pages
}

/// The lines of a page with their numbers, and whether each is code: in a fence, or indented by
/// four columns after a blank line or more code.
pub fn lines(text: &str) -> Vec<(usize, &str, bool)> {
    let is_fence = |line: &str| line.trim_start().starts_with("```");
    fences(text).into_iter().filter(|(_, line, _)| !is_fence(line)).collect()
}

/// The same with the fences themselves.
fn fences(text: &str) -> Vec<(usize, &str, bool)> {
    let (mut fenced, mut indented, mut blank) = (false, false, true);
    let mut lines = Vec::new();
    for (i, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            lines.push((i + 1, line, true));
            continue;
        }
        let is_blank = line.trim().is_empty();
        indented = !fenced && line.starts_with("    ") && (blank || indented);
        blank = is_blank;
        lines.push((i + 1, line, fenced || indented));
    }
    lines
}

/// A block of code: the line it begins in, the language of its fence, and what it holds. One that
/// is indented has no language.
#[derive(Debug, PartialEq)]
pub struct Block<'a> {
    pub line: usize,
    pub language: &'a str,
    pub text: String,
}

/// The blocks of a page. What is before a fence, a list's indentation, is no part of its lines.
pub fn blocks(page: &str) -> Vec<Block<'_>> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut open: Option<&str> = None;
    for (line, text, is_code) in fences(page) {
        match (text.trim_start().strip_prefix("```"), open) {
            (Some(language), None) => {
                open = Some(&text[..text.len() - text.trim_start().len()]);
                blocks.push(Block { line, language: language.trim(), text: String::new() });
            }
            (Some(_), Some(_)) => open = None,
            (None, Some(before)) => {
                let block = blocks.last_mut().expect("a block is open");
                block.text.push_str(text.strip_prefix(before).unwrap_or(text));
                block.text.push('\n');
            }
            (None, None) if is_code => {
                blocks.push(Block { line, language: "", text: format!("{text}\n") });
            }
            (None, None) => {}
        }
    }
    blocks
}

/// What stands between backquotes in a line of prose.
pub fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// The targets of the links in a line of prose, `[text](target)`.
pub fn links(line: &str) -> Vec<String> {
    // Inline code may look like a link. Its backquotes stay, because a link's text may be code.
    let prose: Vec<_> = line.split('`').step_by(2).collect();
    let prose = prose.join("``");
    prose
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')').map(|(target, _)| target.to_string()))
        .collect()
}

/// The anchors of a page: what the web pages of git servers make of its headings.
pub fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for (_, line, _) in lines(text).into_iter().filter(|(_, _, code)| !code) {
        let heading = line.trim_start_matches('#');
        if heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let name: String = heading
            .trim()
            .to_lowercase()
            .chars()
            .filter_map(|c| match c {
                ' ' => Some('-'),
                c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
                _ => None,
            })
            .collect();
        let mut anchor = name.clone();
        for i in 1.. {
            if anchors.insert(anchor) {
                break;
            }
            anchor = format!("{name}-{i}");
        }
    }
    anchors
}
