//! `docs/calls.md` is made from the table.

use super::rows::{Call, Class, calls};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

const BEGIN: &str = "\
# What happens to each call

<!-- Made from crates/wakeset-preload/src/calls/table/ by
     WAKESET_WRITE_DOCS=1 cargo test -p wakeset-preload --test table -->

This page is for you if you want to know what `wakeset run` does to a call that your program makes.

An eventfd, a timerfd, an end of a pipe or socket pair, or an epoll set is *in process*
while its state lives in user space. It owns a real kernel object under the same number, so
fstat(2), `F_GETFD` and `/proc/self/fd` need no hook. When something is about to reach the object by
another road, its state *migrates* into that kernel object, and from then on it is an ordinary
descriptor: exact as ever, at the kernel's speed. What has migrated for forked children alone may
come back ([home.md](design/home.md)); nothing else does.

For a descriptor that is not in process, a call that is answered in user space, or before which the
named objects migrate, costs one look-up of the number. A call that is not on this page is not
hooked and costs nothing.

*By number* are the system calls that `syscall()` takes the same way. A call that has a name and a
number does the same by both roads; a test makes each of them by both, on objects of every kind.
";

const CLASSES: [(Class, &str, &str); 8] = [
    (
        Class::Answered,
        "Answered in user space",
        "If the object is in process, the call is answered without the kernel. If it is not, the \
         kernel answers.",
    ),
    (
        Class::WaitsInTurn,
        "Waits in turn",
        "A wait for listening sockets or for a userfaultfd joins a queue, so that a connection or \
         a fault wakes one thread. Every other wait for what is not in process is the kernel's. \
         The epoll_wait family and reads of a userfaultfd wait in turn, too.",
    ),
    (
        Class::Noted,
        "Answered by the kernel, and noted",
        "The kernel answers, and what the call changes is remembered.",
    ),
    (
        Class::MigratesNamed,
        "The named objects migrate",
        "The objects that the call names migrate first; then the kernel answers.",
    ),
    (
        Class::MigratesPipes,
        "Pipes migrate",
        "If the path may be the name of a descriptor, every pipe and pair migrates first; then the \
         kernel answers.",
    ),
    (
        Class::MigratesInherited,
        "What the new program inherits migrates",
        "Objects without close-on-exec migrate first; then the kernel answers.",
    ),
    (
        Class::MigratesAll,
        "Every object migrates",
        "Every object migrates first. New objects begin in process again when the call has \
         returned in the parent.",
    ),
    (
        Class::ForGood,
        "Every object migrates, for good",
        "Every object migrates first, and new objects begin in the kernel, too.",
    ),
];

/// Where the C library's headers say which names it takes over.
const HEADERS: [&str; 4] = ["epoll.h", "eventfd.h", "io.h", "timerfd.h"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn quoted<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" ")
}

/// A paragraph, wrapped as the rest of the documents are.
fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("one line at least");
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > 100 {
            lines.push(word.to_string());
        } else {
            *line += if line.is_empty() { "" } else { " " };
            *line += word;
        }
    }
    lines.join("\n") + "\n"
}

fn row(call: &Call) -> String {
    let (names, numbers) = (quoted(call.exported()), quoted(call.numbers()));
    format!("| {names} | {numbers} | {} |\n", call.note)
}

/// The names that the C library takes over in programs that include its headers.
fn shims() -> BTreeSet<String> {
    let folder = root().join("crates/wakeset-c/include/wakeset");
    let mut shims = BTreeSet::new();
    for header in HEADERS {
        let text = fs::read_to_string(folder.join(header)).expect("a header");
        for line in text.lines() {
            let mut words = line.split_whitespace();
            if words.next() == Some("#define")
                && let (Some(name), Some(shim)) = (words.next(), words.next())
                && shim.strip_prefix("ws_") == Some(name)
            {
                shims.insert(name.to_string());
            }
        }
    }
    shims
}

fn page() -> String {
    let mut page = BEGIN.to_string();
    for (class, title, text) in CLASSES {
        write!(page, "\n## {title}\n\n{}\n", wrapped(text)).expect("a string");
        page += "| call | by number | |\n|---|---|---|\n";
        page.extend(calls().filter(|call| call.class == class).map(row));
    }
    page += "\n## Roads that are not compared\n\nThe test of both roads leaves these out.\n\n";
    page += "| call | because |\n|---|---|\n";
    for call in calls() {
        if let Some(reason) = call.apart {
            writeln!(page, "| `{}` | {reason} |", call.row).expect("a string");
        }
    }
    page += "\n## In the C library\n\n";
    page += &wrapped(
        "A program that is compiled with `<wakeset/epoll.h>`, `<wakeset/eventfd.h>` or \
         `<wakeset/timerfd.h>` calls these functions of libwakeset instead, each with the prefix \
         `ws_`. They do the same for eventfds, timerfds and sets; the library has no in-process \
         pipes, so other calls need nothing of it.",
    );
    write!(page, "\n{}", wrapped(&quoted(shims().iter().map(String::as_str)))).expect("a string");
    page
}

#[test]
fn the_page_is_made_from_the_table() {
    let path = root().join("docs/calls.md");
    let page = page();
    if std::env::var_os("WAKESET_WRITE_DOCS").is_some_and(|v| v == "1") {
        fs::write(&path, page).expect("docs/calls.md can be written");
        return;
    }
    let written = fs::read_to_string(&path).expect("docs/calls.md");
    let differs = page.lines().zip(written.lines()).find(|(page, written)| page != written);
    assert!(
        page == written,
        "docs/calls.md is not what the table says, first in {differs:?}; \
         WAKESET_WRITE_DOCS=1 writes it",
    );
}

#[test]
fn every_shim_is_a_call_of_the_table() {
    let names: BTreeSet<&str> = calls().flat_map(Call::exported).collect();
    for shim in shims() {
        assert!(names.contains(shim.as_str()), "ws_{shim} stands for no call of the table");
    }
}
