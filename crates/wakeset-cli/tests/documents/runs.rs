//! What a page shows to be typed, in a block of `console` or `sh`, is typed here: page by page, in
//! order, in one shell, in a folder that looks like the repository after a release build. Each
//! command has to succeed.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::markdown::pages;
use super::root;
use super::support::{WAKESET, have, output, scratch};

/// What is not run: a page, how the command begins, and why.
const EXCEPTIONS: [(&str, &str, &str); 9] = [
    ("README.md", "make", "a release build takes minutes; the test `install` runs make"),
    ("README.md", "sudo", "it installs into the system; the test `install` runs make"),
    ("README.md", "cargo run", "a release build; .ci/run runs the demo"),
    ("CONTRIBUTING.md", "cargo build", "a release build, which .ci/run makes"),
    ("docs/doctor.md", "wakeset doctor -- nginx", "nginx may be missing; see the test `doctor`"),
    ("docs/inspect.md", "gunicorn", "gunicorn may be missing, and the port taken"),
    ("docs/inspect.md", "wakeset inspect", "a process id of that moment; see the test `inspect`"),
    ("docs/live.md", "wakeset", "a server of the reader's; see the test `programs`"),
    ("docs/measurements.md", "cargo run", "a release build, and minutes of measuring"),
];

/// The commands of a page. A line that begins with `>` goes on with the one before it.
fn commands(page: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut inside = false;
    for line in page.lines().map(str::trim) {
        if let Some(language) = line.strip_prefix("```") {
            inside = !inside && ["console", "sh"].contains(&language);
        } else if !inside {
        } else if let Some(command) = line.strip_prefix("$ ") {
            found.push(command.to_string());
        } else if let (Some(more), Some(last)) = (line.strip_prefix("> "), found.last_mut()) {
            *last = format!("{last}\n{more}");
        }
    }
    found
}

/// A folder with what the commands name: the sources, and what a release build leaves.
fn folder() -> PathBuf {
    let folder = scratch("documents-runs");
    let release = folder.join("target/release");
    fs::create_dir_all(&release).expect("a folder");
    symlink(root().join("crates"), folder.join("crates")).expect("a link");
    let program = Path::new(WAKESET);
    symlink(program, release.join("wakeset")).expect("a link");
    // The newer of cargo's two copies.
    let file = "libwakeset_preload.so";
    let built = [program.with_file_name(file), program.with_file_name("deps").join(file)];
    let age = |path: &&PathBuf| path.metadata().and_then(|it| it.modified()).ok();
    let library = built.iter().filter(|path| path.exists()).max_by_key(age).expect("a library");
    symlink(library, release.join(file)).expect("a link");
    folder
}

#[test]
fn what_is_shown_runs() {
    if !["bash", "gcc", "nm"].iter().all(|program| have(program)) {
        return;
    }
    let folder = folder();
    let path = format!(
        "{}:{}",
        folder.join("target/release").display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let mut needed: Vec<_> = EXCEPTIONS.iter().collect();
    let mut run = 0;
    for page in pages(&root()) {
        let name =
            page.strip_prefix(root()).expect("below the root").to_string_lossy().into_owned();
        let text = fs::read_to_string(&page).expect("a page");
        let mut script = String::from("set -eo pipefail\n");
        for command in commands(&text) {
            let is_meant = |exception: &(&str, &str, &str)| {
                exception.0 == name && command.starts_with(exception.1)
            };
            if EXCEPTIONS.iter().any(is_meant) {
                needed.retain(|exception| !is_meant(exception));
                continue;
            }
            // What is for the reader to fill in.
            let command = command.replace("PROGRAM", "true").replace(" ARGS…", "");
            script.push_str(&command.replace("NAME", "epoll_wait"));
            script.push('\n');
            run += 1;
        }
        let mut shell = Command::new("timeout");
        shell.args(["60", "bash", "--norc", "-c", &script]).current_dir(&folder);
        output(shell.env("PATH", &path).env_remove("LD_PRELOAD"));
    }
    assert!(needed.is_empty(), "not needed any more: {needed:?}");
    assert!(run >= 6, "only {run} commands");
}

#[test]
fn commands_are_found() {
    let page = "```console\n$ one |\n>     two\nwhat it prints\n```\n\n    $ not this\n";
    assert_eq!(commands(page), ["one |\n    two"]);
}
