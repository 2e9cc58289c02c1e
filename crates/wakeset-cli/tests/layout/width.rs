//! Lines wider than what fits beside another window.

use crate::repository::Files;

/// The most columns.
pub const COLUMNS: usize = 100;

/// The lines that are wider, as `path:line: columns`.
///
/// Tables may be wider, also those in comments; so may code blocks of Markdown, whose commands do
/// not wrap, and a line that is nothing but a link or an address.
pub fn wide_lines(files: &Files) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (path, text) in files.below("").filter(|(path, text)| is_text(path, text)) {
        let is_markdown = path.ends_with(".md");
        let mut in_code = false;
        for (i, line) in text.lines().enumerate() {
            if is_markdown && line.trim_start().starts_with("```") {
                in_code = !in_code;
            }
            let is_code = is_markdown && (in_code || line.starts_with("    ") && !is_list(line));
            let columns = line.chars().count();
            if columns > COLUMNS && !is_code && !is_table(line) && !is_address(line) {
                found.push((path.to_string(), format!("{path}:{}: {columns} columns", i + 1)));
            }
        }
    }
    found
}

/// Whether the width of its lines is ours to choose: sources, documents and scripts.
fn is_text(path: &str, text: &str) -> bool {
    const ENDS: [&str; 6] = [".rs", ".c", ".h", ".py", ".md", ".sh"];
    ENDS.iter().any(|end| path.ends_with(end)) || text.starts_with("#!")
}

/// What stands in a line after the marks of a comment.
fn without_marks(line: &str) -> &str {
    let line = line.trim_start();
    let marks = ["//!", "///", "//", "#", "*"];
    marks.iter().find_map(|mark| line.strip_prefix(mark)).unwrap_or(line).trim_start()
}

fn is_table(line: &str) -> bool {
    without_marks(line).starts_with('|')
}

/// Whether the line goes on with an entry of a list, rather than with a code block.
fn is_list(line: &str) -> bool {
    let text = line.trim_start();
    text.starts_with("- ") || text.starts_with("* ")
}

/// Whether a line is one link or address, which cannot be broken.
fn is_address(line: &str) -> bool {
    let text = without_marks(line);
    let text = text.strip_prefix("- ").unwrap_or(text);
    let is_link = text.contains("://") || text.contains("](");
    is_link && text.split_whitespace().all(|word| word.contains("://") || word.contains("]("))
        || text.starts_with('[') && text.contains("]: ")
}

#[test]
fn a_wide_line_is_found() {
    let wide = "x ".repeat(51);
    let found = |path: &str, text: &str| {
        let files = Files::of_texts([(path, text)]);
        wide_lines(&files).into_iter().map(|(_, line)| line).collect::<Vec<_>>()
    };
    for path in ["a.rs", "a.c", "a.h", "a.py", "a.md", "a.sh"] {
        let text = format!("short\n{wide}\n");
        assert_eq!(found(path, &text), [format!("{path}:2: 102 columns")]);
    }
    assert_eq!(found("ci/run", &format!("#!/bin/sh\n# {wide}\n")), ["ci/run:2: 104 columns"]);
    assert_eq!(found("a.json", &wide), [""; 0]);
    // Columns, not bytes.
    assert_eq!(found("a.md", &"é".repeat(100)), [""; 0]);
    for allowed in [
        format!("| {wide} |"),
        format!("```sh\n{wide}\n```"),
        format!("    cargo {wide}"),
        format!("<https://{}>", "x".repeat(100)),
        format!("[text]: https://{}", "x".repeat(100)),
    ] {
        assert_eq!(found("a.md", &allowed), [""; 0], "{allowed}");
    }
    assert_eq!(found("a.rs", &format!("//! | {wide} |\n")), [""; 0]);
    assert_eq!(found("a.rs", &format!("    let {wide}\n")).len(), 1);
    assert_eq!(found("a.md", &format!("    - {wide}\n")).len(), 1);
    assert_eq!(found("a.md", &format!("```\n```\n{wide}\n")).len(), 1);
}
