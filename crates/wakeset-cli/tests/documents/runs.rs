//! What a page shows to be typed, in a block of `console`, is typed here: page by page, in order,
//! in one shell, in a folder that looks like the repository after `make`. Each command has to
//! succeed. The second table of "What the documents show" in docs/testing.md names what is not
//! typed here, and what runs it instead.
//!
//! The page's blocks of C and C++ are `program.c` and `program.cpp`; what is compiled of them runs.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::blocks::{all, shown};
use super::built::artefacts;
use super::markdown::Block;
use super::root;
use super::support::{have, output, scratch};

/// A page, and how a command on it begins that is not typed.
type Exception = (String, String);

fn exceptions() -> Vec<Exception> {
    let unquoted = |cell: &str| cell.trim_matches('`').to_string();
    let rows = shown("page");
    assert!(rows.iter().all(|row| row.len() == 3 && row[2].len() > 5), "{rows:?}");
    rows.iter().map(|row| (unquoted(&row[0]), unquoted(&row[1]))).collect()
}

/// The commands of a block. A line that begins with `>` goes on with the one before it.
fn commands(block: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for line in block.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            found.push(command.to_string());
        } else if let (Some(more), Some(last)) = (line.strip_prefix("> "), found.last_mut()) {
            *last = format!("{last}\n{more}");
        }
    }
    found
}

/// A folder with what the commands name: the sources, and what `make` leaves.
fn folder() -> PathBuf {
    let folder = scratch("documents-runs");
    let release = folder.join("target/release");
    fs::create_dir_all(&release).expect("a folder");
    fs::create_dir(folder.join("home")).expect("a folder");
    for name in ["crates", "packaging", "Makefile", "LICENSE-MIT", "LICENSE-APACHE"] {
        symlink(root().join(name), folder.join(name)).expect("a link");
    }
    for (file, name) in artefacts() {
        symlink(file, release.join(name)).expect("a link");
    }
    folder
}

/// `program.c` and `program.cpp` of a page. What is no whole program is the body of `main`.
fn write_programs(folder: &Path, blocks: &[Block]) {
    let of_page = |language| blocks.iter().find(|block| block.language == language);
    let program = match of_page("c") {
        Some(block) if block.text.contains("int main(") => block.text.clone(),
        Some(block) => {
            let is_include = |line: &&str| line.starts_with("#include");
            let (includes, body): (Vec<_>, Vec<_>) = block.text.lines().partition(is_include);
            format!("{}\nint main(void)\n{{\n{}\n}}\n", includes.join("\n"), body.join("\n"))
        }
        None => fs::read_to_string(root().join("crates/wakeset-c/examples/c/echo.c")).expect("C"),
    };
    fs::write(folder.join("program.c"), program).expect("a file");
    if let Some(block) = of_page("cpp") {
        fs::write(folder.join("program.cpp"), &block.text).expect("a file");
    }
}

/// A command with what the reader puts in, and installed in his own folder instead of the system's.
fn filled_in(command: &str) -> String {
    let mut command = command.replace("PROGRAM", "true").replace(" ARGS…", "");
    for (word, with) in [("NAME", "epoll_wait"), ("PID", "$pid"), ("/usr/local", "\"$HOME\"/local")]
    {
        command = command.replace(word, with);
    }
    if command.starts_with("crates/wakeset-c/install ") {
        command.push_str(" --from=target/release");
    }
    if command.contains(" program.c") {
        command.push_str("\n./a.out");
    }
    command
}

/// Before the page's own: a process for its `PID`.
const FIRST: &str = "set -eo pipefail
sudo() { \"$@\"; }
export XDG_RUNTIME_DIR=$(mktemp -d -p /dev/shm)
wakeset run --share -- sleep 60 & pid=$!
trap 'kill $pid; wait; rm -r $XDG_RUNTIME_DIR' EXIT
until grep -q libwakeset_preload /proc/$pid/maps; do sleep 0.02; done
";

/// Types the commands of a page.
fn type_in(folder: &Path, page: &str, typed: &[String]) {
    let home = folder.join("home");
    let installed = home.join("local");
    let mut path = std::env::var("PATH").unwrap_or_default();
    for bin in [folder.join("target/release"), installed.join("bin")] {
        path = format!("{}:{path}", bin.display());
    }
    let mut shell = Command::new("timeout");
    shell.args(["60", "bash", "--norc", "-c", &format!("# {page}\n{FIRST}{}", typed.join("\n"))]);
    shell.current_dir(folder).env("HOME", &home).env("PATH", path);
    shell.env("LD_LIBRARY_PATH", installed.join("lib")).env_remove("LD_PRELOAD");
    shell.env("PKG_CONFIG_PATH", installed.join("lib/pkgconfig"));
    output(&mut shell);
}

#[test]
fn what_is_shown_runs() {
    let needed = ["bash", "cc", "c++", "gcc", "make", "nm", "objcopy", "pkg-config", "gzip"];
    if !needed.iter().all(|program| have(program)) {
        return;
    }
    let folder = folder();
    let exceptions = exceptions();
    let mut unused = exceptions.clone();
    let mut run = 0;
    for (page, blocks) in all() {
        let consoles = blocks.iter().filter(|block| block.language == "console");
        let mut typed = Vec::new();
        for command in consoles.flat_map(|block| commands(&block.text)) {
            let is_meant =
                |exception: &Exception| exception.0 == page && command.starts_with(&exception.1);
            match exceptions.iter().any(is_meant) {
                true => unused.retain(|exception| !is_meant(exception)),
                false => typed.push(filled_in(&command)),
            }
        }
        if !typed.is_empty() {
            write_programs(&folder, &blocks);
            type_in(&folder, &page, &typed);
        }
        run += typed.len();
    }
    assert!(unused.is_empty(), "not needed any more: {unused:?}");
    assert!(run >= 20, "only {run} commands");
}

#[test]
fn commands_are_found() {
    let block = "$ one |\n>     two\nwhat it prints\n$ three\n";
    assert_eq!(commands(block), ["one |\n    two", "three"]);
}
