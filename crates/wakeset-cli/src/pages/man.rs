//! The pages of the manual: wakeset(1), one for each subcommand, and wakeset(7).

use std::fs;
use std::io;
use std::path::Path;

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use super::without_hidden;
use crate::failure::Failure;

/// When the pages were last changed in more than their flags.
const DATE: &str = "2026-11-23";
/// wakeset(7), with the date and the version to be filled in.
const CONCEPTS: &str = include_str!("../../man/wakeset.7.in");

/// The words with which a paragraph below the flags begins, and the section it becomes; in the
/// order of man-pages(7). What begins with none of them is in the notes.
const SECTIONS: [(&str, &str); 4] = [
    ("Exit status: ", "EXIT STATUS"),
    ("Environment: ", "ENVIRONMENT"),
    ("", "NOTES"),
    ("Examples:\n", "EXAMPLES"),
];

/// Writes the pages of a program into the folder's `man1` and `man7`.
pub fn write(command: &Command, folder: &Path) -> Result<(), Failure> {
    let fail = |e: io::Error| Failure::own(format!("cannot write to {}: {e}", folder.display()));
    let (commands, concepts) = (folder.join("man1"), folder.join("man7"));
    fs::create_dir_all(&commands).map_err(fail)?;
    fs::create_dir_all(&concepts).map_err(fail)?;
    let mut command = without_hidden(command).disable_help_subcommand(true);
    command.build();
    write_pages(&command, &[], &commands).map_err(fail)?;
    let version = env!("CARGO_PKG_VERSION");
    let page = CONCEPTS.replace("@date@", DATE).replace("@version@", version);
    fs::write(concepts.join("wakeset.7"), page).map_err(fail)
}

/// Writes the page of a command, and those of its subcommands. `above` has the names of the pages
/// of the commands around it.
fn write_pages(command: &Command, above: &[&str], folder: &Path) -> io::Result<()> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_string();
    let mut below = above.to_vec();
    below.push(&name);
    for subcommand in command.get_subcommands() {
        write_pages(subcommand, &below, folder)?;
    }
    let page = page(command, &name, above)?;
    fs::write(folder.join(format!("{name}.1")), page)
}

/// One page.
fn page(command: &Command, name: &str, above: &[&str]) -> io::Result<Vec<u8>> {
    let man = Man::new(command.clone())
        .title(name.to_uppercase())
        .date(DATE)
        .source(format!("wakeset {}", env!("CARGO_PKG_VERSION")))
        .manual("Wakeset");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(&mut page)?;
    }
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    let mut rest = Roff::new();
    if let Some(text) = command.get_after_help() {
        sections(&text.to_string(), &mut rest);
    }
    see_also(command, name, above, &mut rest);
    rest.to_writer(&mut page)?;
    Ok(tidied(&String::from_utf8_lossy(&page)))
}

/// The page without what mandoc's lint rejects: an empty line between two line breaks. What roff
/// writes before each part of a page is needed once.
fn tidied(page: &str) -> Vec<u8> {
    const PREAMBLE: &str = ".ie \\n(.g .ds Aq \\(aq\n.el .ds Aq '\n";
    let page = page.replace(PREAMBLE, "").replace("\n.br\n\n.br\n", "\n.sp\n");
    format!("{PREAMBLE}{page}").into_bytes()
}

/// The paragraphs below the flags, in sections.
fn sections(text: &str, page: &mut Roff) {
    let is_of = |paragraph: &&str, words: &str| match words {
        "" => SECTIONS.iter().all(|(words, _)| words.is_empty() || !paragraph.starts_with(words)),
        words => paragraph.starts_with(words),
    };
    for (words, heading) in SECTIONS {
        let paragraphs = text.split("\n\n").filter(|paragraph| is_of(paragraph, words));
        for (number, paragraph) in paragraphs.enumerate() {
            match number {
                0 => page.control("SH", [heading]),
                _ => page.control("PP", []),
            };
            let body = &paragraph[words.len()..];
            if heading == "EXAMPLES" {
                let lines: Vec<_> = body.lines().map(str::trim).collect();
                page.control("EX", []).text([roman(lines.join("\n"))]).control("EE", []);
            } else {
                let body = body.split_whitespace().collect::<Vec<_>>().join(" ");
                let (first, rest) = body.split_at(1);
                page.text([roman(format!("{}{rest}", first.to_uppercase()))]);
            }
        }
    }
}

/// The pages around this one, and the one for all.
fn see_also(command: &Command, name: &str, above: &[&str], page: &mut Roff) {
    page.control("SH", ["SEE ALSO"]);
    let of =
        |name: &str, section: &str, end: &str| [bold(name), roman(format!("({section}){end}"))];
    let below = command.get_subcommands().map(|it| format!("{name}-{}", it.get_name()));
    for other in above.iter().map(|it| it.to_string()).chain(below) {
        page.text(of(&other, "1", ","));
    }
    page.text(of("wakeset", "7", ""));
}
