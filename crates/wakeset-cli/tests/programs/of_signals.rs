//! Programs about signals: what is registered, when and by whom, and on which stack it runs.

use std::process::Command;

use super::compare::{compare, compare_linked, compare_with, compare_within};
use super::compile::{Build, compile_shared, missing, scratch, source_of};
use super::run::{Runner, TIME_LIMIT};

#[test]
fn polling() {
    compare("polling", Build::Plain, &[]);
}

#[test]
fn early() {
    compare("early", Build::Plain, &[]);
}

#[test]
fn resolvers() {
    compare("resolvers", Build::Plain, &[]);
}

/// The loader calls the resolver before it has gone on to the program.
#[test]
fn resolvers_now() {
    compare("resolvers", Build::Now, &[]);
}

/// With a library of `LD_AUDIT` the loader has less thread-local storage to give.
#[test]
fn audited() {
    let Some(auditor) = compile_shared("audited_auditor", "audited_auditor.so") else { return };
    compare("audited", Build::Plain, &[auditor.to_str().expect("a path in UTF-8")]);
}

#[test]
fn dispositions() {
    compare("dispositions", Build::Plain, &[]);
}

#[test]
fn stacks() {
    compare("stacks", Build::Plain, &[]);
}

#[test]
fn traps() {
    compare("traps", Build::Plain, &[]);
}

/// Its handler has a system call instruction, so once it has a filter all is the kernel's.
/// Here they stay in process.
#[test]
fn traps_in_process() {
    compare_with("traps", Runner::Ignored);
}

#[test]
fn storm() {
    // `ci/storm` sends 1,000,000 signals.
    compare_within("storm", Build::Now, &["5000"], TIME_LIMIT * 5);
}

/// A library that replaces sigaction(2), between the program and libc. The interposer is before it.
#[test]
fn chained() {
    let library = scratch("libchained.so");
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-DLIBRARY", "-o"]);
    match compiler.arg(&library).arg(source_of("chained")).status() {
        Ok(status) => assert!(status.success(), "cc chained.c: {status}"),
        Err(_) => {
            missing("cc");
            return;
        }
    }
    compare_linked("chained", &library);
}
