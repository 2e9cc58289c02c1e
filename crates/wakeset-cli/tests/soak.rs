//! `wakeset soak`, for a few seconds, in each of its forms: the load itself on the kernel, and on
//! Wakeset as a library and as the preload library.

use std::process::Command;

use serde_json::Value;

fn soak(under_run: bool, through: &str) {
    let wakeset = env!("CARGO_BIN_EXE_wakeset");
    let mut command = Command::new(wakeset);
    if under_run {
        command.args(["run", "--", wakeset]);
    }
    command.args(["soak", "--secs", "3", "--threads", "3", "--json"]).args(["--through", through]);
    let output = command.env_remove("LD_PRELOAD").output().expect("it starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}:\n{text}{errors}", output.status);
    let summary: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(summary["failure"], Value::Null);
    let count = |name: &str| summary["counts"][name].as_u64().unwrap_or(0);
    assert_eq!(count("written"), count("read"));
    for what in [
        "written",
        "objects_made",
        "controls",
        "migrations",
        "blocked_reads",
        "closed_under_a_sleeper",
    ] {
        assert!(count(what) > 0, "no {what}: {text}");
    }
    assert_eq!(summary["descriptors"]["before"], summary["descriptors"]["after"]);
    let by = ["the kernel", "the library", "the preload library"];
    let expected = by[if under_run { 2 } else { usize::from(through == "library") }];
    assert_eq!(summary["through"], expected);
    // One line of progress at least.
    assert!(errors.contains(" units read"), "{errors}");
}

#[test]
fn kernel() {
    soak(false, "libc");
}

#[test]
fn library() {
    soak(false, "library");
}

#[test]
fn preload_library() {
    soak(true, "libc");
}
