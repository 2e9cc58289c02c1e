//! What the environment alone asks of the library, without `wakeset run`.

use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::compile::{Build, compile};
use crate::sharing::Runtime;
use crate::stats::count;
use crate::surroundings::library;

/// A program with the library and these variables; without Wakeset's own from outside.
fn preloaded(program: &Path, variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).env("LD_PRELOAD", library());
    command.envs(variables.iter().copied());
    command
}

/// What a program that succeeds prints.
fn printed(command: &mut Command) -> (String, String) {
    let Output { status, stdout, stderr } = command.output().expect("it starts");
    let [out, err] = [stdout, stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(status.success(), "{command:?}: {status}\n{out}{err}");
    (out, err)
}

#[test]
fn a_disabled_library_is_not_to_be_seen() {
    let Some(program) = compile("disabled", Build::Plain, "disabled") else { return };
    let runtime = Runtime::new("disabled");
    let directory = runtime.path().to_str().expect("a path");
    let plain = printed(Command::new(&program).env_remove("LD_PRELOAD"));
    let others = [
        ("WAKESET_STATS", "shared"),
        ("WAKESET_ORDER", "least"),
        ("WAKESET_VERBOSE", "1"),
        ("WAKESET_INSTRUCTIONS", "nonsense"),
        ("XDG_RUNTIME_DIR", directory),
    ];
    let disabled = [&others[..], &[("WAKESET_DISABLE", "1")]].concat();
    assert_eq!(printed(&mut preloaded(&program, &disabled)), plain);
    assert!(runtime.files().is_empty());
    // What makes a difference without it.
    let enabled = [&others[..], &[("WAKESET_DISABLE", "0")]].concat();
    let (out, _) = printed(&mut preloaded(&program, &enabled));
    let sections = |text: &str| text.split_inclusive("\n").map(String::from).collect::<Vec<_>>();
    let (out, plain) = (sections(&out), sections(&plain.0));
    for line in ["eventfd-count:", "SigCgt", "epoll_wait is of", "mappings of counts"] {
        let find = |lines: &[String]| lines.iter().find(|it| it.contains(line)).cloned();
        assert_ne!(find(&out), find(&plain), "{line}");
    }
    assert_eq!(runtime.files().len(), 1);
}

/// Nobody makes EFAULT of what faults there.
#[test]
fn a_disabled_library_reads_no_memory() {
    let Some(program) = compile("unread", Build::Plain, "unread_disabled") else { return };
    let mut plain = Command::new(&program);
    plain.stdin(Stdio::null()).env_remove("LD_PRELOAD");
    let mut disabled = preloaded(&program, &[("WAKESET_DISABLE", "1")]);
    assert_eq!(printed(disabled.arg("timed")), printed(plain.arg("timed")));
}

/// `wakeset run` leaves the library out, and says so.
#[test]
fn a_disabled_run_says_so() {
    let runtime = Runtime::new("disabled_run");
    let mut command = runtime.wakeset(&["run", "--share", "--", "sh", "-c", "echo [$LD_PRELOAD]"]);
    let (out, err) = printed(command.env("WAKESET_DISABLE", "1"));
    assert_eq!((out.as_str(), runtime.files().len()), ("[]\n", 0));
    assert_eq!(err, "wakeset: warning: WAKESET_DISABLE is 1: sh runs without Wakeset\n");
}

/// A value that is not known is said once, by the first program of several.
#[test]
fn what_a_variable_must_not_say_is_said_once() {
    let values = [
        ("WAKESET_ORDER", "random", "\"random\", which is unknown: the order is auto"),
        (
            "WAKESET_MAX_CONNECTIONS",
            "0",
            "\"0\", which is unknown: there is no limit (a number from 1 is one)",
        ),
        ("WAKESET_SPIN", "1000001", "\"1000001\", which is unknown: the spin is auto"),
        (
            "WAKESET_INSTRUCTIONS",
            "caught",
            "\"caught\", which is unknown: such calls are caught, as with catch",
        ),
        ("WAKESET_VERBOSE", "yes", "\"yes\", which is unknown: notices are on, as with 1"),
        ("WAKESET_DISABLE", "yes", "\"yes\", which is unknown: Wakeset stays on (1 turns it off)"),
        (
            "WAKESET_STATS",
            "share",
            "\"share\", which is unknown: nothing is counted (shared counts for others)",
        ),
        #[cfg(debug_assertions)]
        ("WAKESET_ALLOCATIONS", "few", "\"few\", which is unknown: no allocation is refused"),
    ];
    for (name, value, said) in values {
        let mut command = preloaded(Path::new("/bin/sh"), &[(name, value)]);
        let (_, err) = printed(command.args(["-c", "sh -c 'sh -c :; :'; :"]));
        assert_eq!(err, format!("wakeset: {name} is {said}\n"));
    }
    for (name, known) in [
        ("WAKESET_ORDER", &["auto", "least", "fifo", "turns", "lifo", "kernel", ""][..]),
        ("WAKESET_MAX_CONNECTIONS", &["1", "4000000000", ""]),
        ("WAKESET_SPIN", &["auto", "off", "0", "1000000", ""]),
        ("WAKESET_INSTRUCTIONS", &["catch", "kernel", "ignore", ""]),
        ("WAKESET_VERBOSE", &["1", "0", ""]),
        ("WAKESET_DISABLE", &["1", "0", ""]),
        ("WAKESET_STATS", &[""]),
    ] {
        for value in known {
            let (_, err) = printed(&mut preloaded(Path::new("/bin/true"), &[(name, value)]));
            assert_eq!(err, "", "{name}={value}");
        }
    }
}

/// A shell with `WAKESET_STATS=shared` in this runtime directory.
fn shared(runtime: &Runtime, script: &str, arguments: &[&str]) -> Command {
    let directory = runtime.path().to_str().expect("a path");
    let variables = [("WAKESET_STATS", "shared"), ("XDG_RUNTIME_DIR", directory)];
    let mut command = preloaded(Path::new("/bin/sh"), &variables);
    command.args(["-c", script, "sh"]).args(arguments);
    command
}

/// The same as under `wakeset run --share`: one file for the tree of processes, and who may open
/// it.
#[test]
fn the_environment_alone_shares_counts() {
    let Some(program) = compile("stress", Build::Plain, "stress_environment") else { return };
    let runtime = Runtime::new("environment");
    let script = r#""$1" 4 1000 >&2; env -u LD_PRELOAD "$2" stats --json $$"#;
    let arguments = [program.to_str().expect("a path"), env!("CARGO_BIN_EXE_wakeset")];
    let (out, _) = printed(&mut shared(&runtime, script, &arguments));
    let counts: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(count(&counts, "/total/counters_made"), 4, "{counts:#}");
    assert!(count(&counts, "/total/syscalls_avoided") >= 4000, "{counts:#}");
    assert_eq!(count(&counts, "/processes/0/pid"), count(&counts, "/run/pid"));
    let files = runtime.files();
    let [file] = &files[..] else { panic!("{files:?}") };
    let mode = |path: &Path| path.metadata().expect("it is there").permissions().mode() & 0o7777;
    assert_eq!((mode(file), mode(file.parent().expect("a directory"))), (0o600, 0o700));
    let allocated = file.metadata().expect("a file").blocks() * 512;
    assert!(allocated < 1 << 20, "{allocated} bytes");
}

/// A file goes when the next run begins and none of its processes is alive; and whatever else is
/// in the directory stays as it is.
#[test]
fn old_areas_of_the_environment_are_removed() {
    let runtime = Runtime::new("environment_old");
    for _ in 0..3 {
        printed(&mut shared(&runtime, ":", &[]));
        assert_eq!(runtime.files().len(), 1);
    }
    let running = runtime.start(r#": >"$1"; read line"#, &[]);
    printed(&mut shared(&runtime, ":", &[]));
    assert_eq!(runtime.files().len(), 2, "one that is in use stays");
    let directory = runtime.path().join("wakeset");
    let victim = runtime.path().join("victim");
    fs::write(&victim, "untouched").expect("a file");
    // No process has that number: the highest that Linux gives out is 4,194,304.
    symlink(&victim, directory.join("run-5000000-link")).expect("a link");
    File::create(directory.join("run-5000000-public")).expect("a file");
    File::create(directory.join("run-of-somebody")).expect("a file");
    fs::set_permissions(directory.join("run-5000000-public"), fs::Permissions::from_mode(0o644))
        .expect("ours");
    let old = directory.join("run-5000000-short");
    fs::write(&old, "killed before it had begun").expect("a file");
    fs::set_permissions(&old, fs::Permissions::from_mode(0o600)).expect("ours");
    printed(&mut shared(&runtime, ":", &[]));
    let mut names: Vec<_> = runtime
        .files()
        .iter()
        .filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()))
        .filter(|name| name.contains("5000000") || name.contains("somebody"))
        .collect();
    names.sort();
    assert_eq!(names, ["run-5000000-link", "run-5000000-public", "run-of-somebody"]);
    assert_eq!(fs::read(&victim).expect("the file"), b"untouched");
    drop(running);
}

/// Where it cannot be shared, this is said once, and the program runs.
#[test]
fn the_environment_refuses_a_hostile_directory() {
    let runtime = Runtime::new("environment_hostile");
    let directory = runtime.path().join("wakeset");
    let refused = "wakeset: nothing is shared: the directory wakeset in the runtime directory is \
                   refused: it is not this user's with mode 700\n";
    let nested = "sh -c 'echo fine'; :";
    fs::create_dir(&directory).expect("a directory");
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).expect("ours");
    let said = printed(&mut shared(&runtime, nested, &[]));
    assert_eq!(said, ("fine\n".into(), refused.into()));
    fs::remove_dir(&directory).expect("an empty directory");

    let elsewhere = runtime.path().join("elsewhere");
    DirBuilder::new().mode(0o700).create(&elsewhere).expect("a directory");
    symlink(&elsewhere, &directory).expect("a link");
    assert_eq!(printed(&mut shared(&runtime, nested, &[])).1, refused);
    fs::remove_file(&directory).expect("a link");
    fs::write(&directory, "").expect("a file");
    assert_eq!(printed(&mut shared(&runtime, nested, &[])).1, refused);
    assert_eq!(fs::read_dir(&elsewhere).expect("it is there").count(), 0);
    fs::remove_file(&directory).expect("a file");

    let limited = format!("ulimit -f 0; exec sh -c \"{nested}\"");
    let mut plain = Command::new("sh");
    plain.args(["-c", &limited]).env("LD_PRELOAD", library()).env("WAKESET_STATS", "shared");
    let (out, err) = printed(plain.env("XDG_RUNTIME_DIR", runtime.path()));
    // The outer shell shares before the limit; what it has made serves the inner one.
    assert_eq!((out.as_str(), err.as_str()), ("fine\n", ""));
    let mut confined = Command::new("sh");
    let assignments = r#"ulimit -f 0; LD_PRELOAD="$1" WAKESET_STATS=shared exec sh -c 'echo fine'"#;
    confined.args(["-c", assignments, "sh"]).arg(library()).env_remove("LD_PRELOAD");
    let (out, err) = printed(confined.env("XDG_RUNTIME_DIR", runtime.path()));
    let limited = "wakeset: nothing is shared: the size of files is limited\n";
    assert_eq!((out.as_str(), err.as_str()), ("fine\n", limited));
}
