//! A program run both ways, and what differs.

use std::path::Path;
use std::time::Duration;

use super::compile::{Build, compile, compile_with};
use super::run::{Outcome, Runner, TIME_LIMIT, run};

/// Compiles a program, runs it both ways and compares.
pub fn compare(source: &str, build: Build, arguments: &[&str]) {
    compare_within(source, build, arguments, TIME_LIMIT);
}

pub fn compare_within(source: &str, build: Build, arguments: &[&str], limit: Duration) {
    let name = match build {
        Build::Plain => source.to_string(),
        Build::Fortified => format!("{source}_fortified"),
        Build::Now => format!("{source}_now"),
        Build::Sanitized => format!("{source}_sanitized"),
    };
    // Tests of one program run side by side. Of a path the last part is enough.
    let parts = arguments.iter().filter_map(|argument| argument.rsplit('/').next());
    let name = parts.fold(name, |name, part| format!("{name}_{part}"));
    if let Some(program) = compile(source, build, &name) {
        compare_program(&name, &program, arguments, limit);
    }
}

/// The same with another run under `wakeset run`.
pub fn compare_with(source: &str, runner: Runner) {
    let name = format!("{source}_{runner:?}");
    if let Some(program) = compile(source, Build::Plain, &name) {
        compare_runs(&name, &program, &[], runner, TIME_LIMIT);
    }
}

/// The same for a program that is linked with a library.
pub fn compare_linked(source: &str, library: &Path) {
    if let Some(program) = compile_with(source, Build::Plain, source, &[library]) {
        compare_program(source, &program, &[], TIME_LIMIT);
    }
}

fn compare_program(name: &str, program: &Path, arguments: &[&str], limit: Duration) {
    compare_runs(name, program, arguments, Runner::Wakeset, limit);
}

fn compare_runs(name: &str, program: &Path, arguments: &[&str], runner: Runner, limit: Duration) {
    let kernel = run(program, arguments, Runner::Kernel, limit);
    kernel.expect_success(&format!("{name} has a wrong expectation, plain"));
    let wakeset = run(program, arguments, runner, limit);
    let difference = difference(&kernel, &wakeset);
    assert!(
        difference.is_empty() && wakeset.status == kernel.status,
        "{name} under `wakeset run`, {}:\n{difference}{}",
        wakeset.status,
        wakeset.stderr,
    );
}

/// What differs, line by line, with the heading that it stands under. Empty if nothing does.
pub fn difference(kernel: &Outcome, wakeset: &Outcome) -> String {
    const MOST: usize = 20;
    let (left, right): (Vec<_>, Vec<_>) = (kernel.lines().collect(), wakeset.lines().collect());
    let mut heading = "";
    let mut report = String::new();
    let mut count = 0;
    for i in 0..left.len().max(right.len()) {
        let (kernel, wakeset) = (left.get(i), right.get(i));
        if let Some(line) = kernel.filter(|line| line.starts_with("-- ")) {
            heading = line;
        }
        if kernel == wakeset {
            continue;
        }
        count += 1;
        if count <= MOST {
            let text =
                |line: Option<&&str>| line.map_or("(no line)".to_string(), |l| l.to_string());
            report += &format!(
                "line {}, {heading}\n  kernel:  {}\n  wakeset: {}\n",
                i + 1,
                text(kernel),
                text(wakeset)
            );
        }
    }
    if count > MOST {
        report += &format!("and {} lines more\n", count - MOST);
    }
    report
}
