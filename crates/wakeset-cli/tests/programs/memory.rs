//! Programs that run with a heap that refuses.

use super::compare::difference;
use super::compile::{Build, compile, missing};
use super::run::{Outcome, Runner, TIME_LIMIT, run};

/// Runs a program with a heap that refuses everything after some allocations, or one of them, for
/// every number that `numbers` gives, until it needs no more. `exempt` are headings of the
/// program's under which the output may differ.
fn ration(source: &str, numbers: impl Iterator<Item = usize>, exempt: &[&str]) {
    if !cfg!(debug_assertions) {
        missing("a debug build, whose heap can refuse,");
        return;
    }
    let name = format!("{source}_rationed");
    let Some(program) = compile(source, Build::Plain, &name) else {
        return;
    };
    let compared = |runner: Runner| {
        let outcome = run(&program, &[], runner, TIME_LIMIT);
        let mut is_exempt = false;
        let lines = outcome.stdout.lines().filter(|line| {
            if let Some(heading) = line.strip_prefix("-- ") {
                is_exempt = exempt.contains(&heading);
            }
            !is_exempt && !line.is_empty()
        });
        let stdout = lines.map(|line| format!("{line}\n")).collect();
        Outcome { stdout, ..outcome }
    };
    let kernel = compared(Runner::Kernel);
    for (runs, n) in numbers.enumerate() {
        let mut refused = false;
        for how in ["", "!"] {
            let allocations = format!("{n}{how}");
            let wakeset = compared(Runner::Rationed(&allocations));
            let difference = difference(&kernel, &wakeset);
            // The status says whether lines are as expected, those that do not count too.
            let ended = wakeset.status.code() == Some(0)
                || !exempt.is_empty() && wakeset.status.code() == Some(1);
            assert!(
                difference.is_empty() && ended,
                "{source} with WAKESET_ALLOCATIONS={allocations}, {}:\n{difference}{}",
                wakeset.status,
                wakeset.stderr
            );
            refused |= wakeset.stderr.contains("an allocation is refused");
        }
        if !refused {
            assert!(runs > 5, "{source} needs {n} allocations only, or none was refused");
            return;
        }
    }
}

/// 0, 1, 2, 3, 5, 8 and so on.
fn ever_further() -> impl Iterator<Item = usize> {
    let mut pair = (0, 1);
    std::iter::from_fn(move || {
        let (now, next) = pair;
        pair = (next, (now + next).max(2));
        Some(now)
    })
}

#[test]
fn no_memory_pipes() {
    ration("pipes", ever_further(), &[]);
}

/// At every allocation. What there is no memory for lives in the kernel half of its set, so the
/// order across the halves is not Linux's (SEMANTICS.md, Differences 1 and 2): that is what
/// "maxevents" is about.
#[test]
fn no_memory_semantics() {
    ration("semantics", 0..1000, &["maxevents"]);
}

#[test]
fn no_memory_operations() {
    ration("operations", ever_further(), &[]);
}

#[test]
fn no_memory_close() {
    ration("close", ever_further().take(12), &[]);
}

/// Forks, descriptors passed on, duplicates.
#[test]
fn no_memory_migrate() {
    ration("migrate", [0, 13].into_iter(), &[]);
}
