//! Programs that make system calls by instruction besides those through libc.
//!
//! A program whose calls are seen says nothing; one that is left to the kernel says why.

use std::path::PathBuf;

use super::compare::difference;
use super::compile::{Build, compile, compile_shared};
use super::run::{Outcome, Runner, TIME_LIMIT, run, unexpected};

/// Runs a program both ways. What it says on stderr under `wakeset run`; `None` where there is no
/// compiler.
fn compared(source: &str, name: &str, arguments: &[&str]) -> Option<String> {
    let program = compile(source, Build::Plain, name)?;
    let kernel = run(&program, arguments, Runner::Kernel, TIME_LIMIT);
    assert!(
        kernel.status.success(),
        "{name} has a wrong expectation, plain, {}:\n{}",
        kernel.status,
        unexpected(&kernel)
    );
    let wakeset: Outcome = run(&program, arguments, Runner::Wakeset, TIME_LIMIT);
    let difference = difference(&kernel, &wakeset);
    assert!(
        difference.is_empty() && wakeset.status == kernel.status,
        "{name} under `wakeset run`, {}:\n{difference}{}",
        wakeset.status,
        wakeset.stderr
    );
    Some(wakeset.stderr)
}

/// Whether it is left to the kernel for this reason, and names what made the calls.
fn is_left(stderr: &str, name: &str, why: &str) -> bool {
    let mut lines = stderr.lines();
    let line = lines.next().unwrap_or("");
    let expected = format!("{name} makes system calls by instruction, and {why}");
    line.starts_with("wakeset: ") && line.contains(&expected) && lines.next().is_none()
}

fn plugin(name: &str) -> Option<PathBuf> {
    compile_shared("instructions_plugin", name)
}

/// A vfork(2) by instruction is the last thing that the program does with its objects.
#[test]
fn instructions_of_the_program() {
    let Some(stderr) = compared("instructions", "instructions", &[]) else { return };
    assert!(is_left(&stderr, "the program", "one of them cannot be looked at"), "{stderr}");
}

#[test]
fn instructions_that_the_kernel_does_not_report() {
    let Some(stderr) = compared("instructions", "instructions_refused", &["refused"]) else {
        return;
    };
    assert!(is_left(&stderr, "the program", "the kernel does not report them"), "{stderr}");
}

#[test]
fn instructions_that_come_too_often() {
    let Some(stderr) = compared("instructions", "instructions_often", &["often"]) else { return };
    assert!(is_left(&stderr, "the program", "they are too many"), "{stderr}");
}

#[test]
fn instructions_in_memory() {
    for what in ["memory", "open"] {
        let name = format!("instructions_in_{what}");
        let Some(stderr) = compared("instructions_memory", &name, &[what]) else { return };
        assert_eq!(stderr, "", "{what}");
    }
}

#[test]
fn instructions_in_memory_of_a_process_with_threads() {
    let arguments = ["memory", "late"];
    let Some(stderr) = compared("instructions_memory", "instructions_late", &arguments) else {
        return;
    };
    assert!(is_left(&stderr, "code made at run time", "it came when"), "{stderr}");
}

#[test]
fn instructions_of_a_plugin() {
    let Some(plugin) = plugin("instructions_plugin.so") else { return };
    let plugin = plugin.to_str().expect("a path in UTF-8");
    let Some(stderr) = compared("instructions_memory", "instructions_loading", &[plugin]) else {
        return;
    };
    assert_eq!(stderr, "");
}

#[test]
fn instructions_of_a_plugin_of_a_process_with_threads() {
    let Some(plugin) = plugin("instructions_late_plugin.so") else { return };
    let plugin = plugin.to_str().expect("a path in UTF-8");
    let arguments = [plugin, "late"];
    let Some(stderr) = compared("instructions_memory", "instructions_loading_late", &arguments)
    else {
        return;
    };
    assert!(is_left(&stderr, "instructions_late_plugin.so", "it came when"), "{stderr}");
}
