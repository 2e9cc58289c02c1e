//! Programs that make system calls by instruction besides those through libc.
//!
//! `wakeset run --verbose` says of each whether its calls are caught, or why all is the kernel's.
//! Below, in `uring`: programs with io_urings, whose libraries make such calls.

#[path = "uring.rs"]
mod uring;

use std::path::PathBuf;

use super::compare::difference;
use super::compile::{Build, compile, compile_shared};
use super::run::{Outcome, Runner, TIME_LIMIT, run};

/// Runs a program plain and under `wakeset run`, and compares. The lines that the latter prints on
/// stderr; `None` where there is no compiler.
fn compared(source: &str, name: &str, arguments: &[&str], runner: Runner) -> Option<Vec<String>> {
    let program = compile(source, Build::Plain, name)?;
    let kernel = run(&program, arguments, Runner::Kernel, TIME_LIMIT);
    kernel.expect_success(&format!("{name} has a wrong expectation, plain"));
    let wakeset: Outcome = run(&program, arguments, runner, TIME_LIMIT);
    let difference = difference(&kernel, &wakeset);
    assert!(
        difference.is_empty() && wakeset.status == kernel.status,
        "{name} under `wakeset run`, {}:\n{difference}{}",
        wakeset.status,
        wakeset.stderr
    );
    Some(wakeset.stderr.lines().map(str::to_string).collect())
}

/// Asserts that one line says that the calls are caught, and what makes them.
fn assert_caught(lines: &[String], name: &str) {
    let expected = ["makes", "may make"]
        .map(|makes| format!("{name} {makes} system calls by instruction: they are caught"));
    let is_said = |line: &String| expected.iter().any(|expected| line.ends_with(expected));
    assert!(lines.len() == 1 && is_said(&lines[0]), "{expected:?}: {lines:?}");
}

/// Asserts that the last line says that everything is the kernel's, for this reason.
fn assert_left(lines: &[String], name: &str, why: &str) {
    let expected = format!("{name} makes system calls by instruction, and {why}");
    let left = |line: &&String| line.contains(&expected);
    let is_last = lines.last().as_ref().is_some_and(left);
    assert!(is_last && lines.iter().filter(left).count() == 1, "{expected:?}: {lines:?}");
}

fn plugin(name: &str) -> Option<PathBuf> {
    compile_shared("instructions_plugin", name)
}

/// A vfork(2) by instruction is the last thing that the program does with its objects.
#[test]
fn instructions_of_the_program() {
    let Some(lines) = compared("instructions", "instructions", &[], Runner::Verbose) else {
        return;
    };
    assert_caught(&lines[..1], "the program");
    assert_left(&lines, "the program", "one of them cannot be looked at");
}

/// The program is told nothing.
#[test]
fn instructions_in_silence() {
    let Some(lines) = compared("instructions", "instructions_silent", &[], Runner::Wakeset) else {
        return;
    };
    assert!(lines.is_empty(), "{lines:?}");
}

#[test]
fn instructions_that_are_not_to_be_caught() {
    let name = "instructions_uncaught";
    let Some(lines) = compared("instructions", name, &[], Runner::Uncaught) else { return };
    assert_left(&lines, "the program", "they are not to be caught");
}

#[test]
fn instructions_that_the_kernel_does_not_report() {
    let name = "instructions_refused";
    let Some(lines) = compared("instructions", name, &["refused"], Runner::Verbose) else {
        return;
    };
    assert_left(&lines, "the program", "the kernel does not report them");
}

#[test]
fn instructions_that_come_too_often() {
    let name = "instructions_often";
    let Some(lines) = compared("instructions", name, &["often"], Runner::Verbose) else { return };
    assert_left(&lines, "the program", "they are too many");
}

#[test]
fn instructions_in_memory() {
    for what in ["memory", "open"] {
        let name = format!("instructions_in_{what}");
        let Some(lines) = compared("instructions_memory", &name, &[what], Runner::Verbose) else {
            return;
        };
        assert_caught(&lines, "code made at run time");
    }
}

#[test]
fn instructions_in_memory_of_a_process_with_threads() {
    let (source, arguments) = ("instructions_memory", ["memory", "late"]);
    let Some(lines) = compared(source, "instructions_late", &arguments, Runner::Verbose) else {
        return;
    };
    assert_left(&lines, "code made at run time", "it came when");
}

#[test]
fn instructions_of_a_plugin() {
    let Some(plugin) = plugin("instructions_plugin.so") else { return };
    let plugin = plugin.to_str().expect("a path in UTF-8");
    let source = "instructions_memory";
    let Some(lines) = compared(source, "instructions_loading", &[plugin], Runner::Verbose) else {
        return;
    };
    assert_caught(&lines, "instructions_plugin.so");
}

#[test]
fn instructions_of_a_plugin_of_a_process_with_threads() {
    let Some(plugin) = plugin("instructions_late_plugin.so") else { return };
    let plugin = plugin.to_str().expect("a path in UTF-8");
    let (source, arguments) = ("instructions_memory", [plugin, "late"]);
    let name = "instructions_loading_late";
    let Some(lines) = compared(source, name, &arguments, Runner::Verbose) else { return };
    assert_left(&lines, "instructions_late_plugin.so", "it came when");
}

fn apart(mode: &str) -> Option<Vec<String>> {
    compared("instructions_apart", &format!("instructions_{mode}"), &[mode], Runner::Verbose)
}

/// There is no look before the first object, so it must come with that, even before our start.
#[test]
fn instructions_before_any_constructor() {
    let Some(lines) = apart("early") else { return };
    assert_caught(&lines, "the program");
}

#[test]
fn instructions_in_handlers_of_before() {
    let Some(lines) = apart("handler") else { return };
    assert_caught(&lines, "the program");
}

#[test]
fn instructions_in_a_child_with_the_first_object() {
    let Some(lines) = apart("child") else { return };
    assert_caught(&lines, "the program");
}

#[test]
fn instructions_in_a_thread_by_clone() {
    let Some(lines) = apart("clone") else { return };
    assert_left(&lines, "the program", "one of them cannot be looked at");
}

#[test]
fn instructions_that_a_filter_lets_pass() {
    let Some(lines) = apart("filter") else { return };
    assert_left(&lines, "the program", "a filter of its own");
}

#[test]
fn instructions_that_the_program_has_reported_to_itself() {
    let Some(lines) = apart("dispatch") else { return };
    assert_left(&lines, "the program", "it has the kernel report them to itself");
}

/// The difference that SEMANTICS.md says: SIGSYS is not blocked where calls are caught.
#[test]
fn instructions_and_sigsys() {
    let name = "instructions_and_sigsys";
    let Some(program) = compile("instructions_sigsys", Build::Plain, name) else { return };
    for (runner, world) in [(Runner::Kernel, "kernel"), (Runner::Wakeset, "wakeset")] {
        let outcome = run(&program, &[world], runner, TIME_LIMIT);
        outcome.expect_success(world);
    }
}
