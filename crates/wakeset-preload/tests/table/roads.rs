//! Each call does the same through its libc name and through `syscall()`: `tests/c/roads.c` makes
//! it by both roads, plain and with the library. A third road is the system call instruction.

use super::rows::calls;
use super::{library, run_tool};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles the program. `None` where there is no compiler.
fn program(name: &str) -> Option<PathBuf> {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/roads.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-Wall", "-Wextra", "-Werror", "-U_FORTIFY_SOURCE", "-o"]);
    let output = run_tool(compiler.arg(&program).arg(source))?;
    assert!(output.status.success(), "cc: {}", String::from_utf8_lossy(&output.stderr));
    Some(program)
}

/// Runs the program to its end; its output, and whether it has found no difference.
fn run(command: &mut Command) -> (String, bool) {
    let output = command.output().expect("the program runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.code().is_some(), "{}:\n{text}", output.status);
    (text, output.status.success())
}

/// The program with the library. It looks at the kernel's objects by system call instructions,
/// which are to be seen only where they are a road of their own.
fn with_library(program: &Path, instructions: &str) -> Command {
    let mut command = Command::new(program);
    command.env("LD_PRELOAD", library()).env("WAKESET_INSTRUCTIONS", instructions);
    command
}

#[test]
fn the_instruction_does_the_same() {
    let Some(program) = program("roads_instructions") else { return };
    let (text, same) = run(Command::new(&program).arg("instructions").env_remove("LD_PRELOAD"));
    assert!(same, "wrong expectations, on the plain kernel:\n{text}");
    let (text, same) = run(with_library(&program, "").arg("instructions"));
    assert!(same, "by name and by instruction:\n{text}");
}

#[test]
fn both_roads_do_the_same() {
    let Some(program) = program("roads") else { return };
    let (text, same) = run(Command::new(&program).env_remove("LD_PRELOAD"));
    assert!(same, "wrong expectations, on the plain kernel:\n{text}");
    let (text, same) = run(&mut with_library(&program, "ignore"));
    assert!(same, "by name and by number:\n{text}");
    // What the other lines are held against: the objects begin in process, and stay there.
    assert!(text.contains("untouched objects: iiiiiii i\n"), "not all in process:\n{text}");
}

/// Both roads come from one row, so their agreement does not show that the row names the right
/// argument: with the policy `migrates`, the object that the call is made on has to migrate. So has
/// a pipe or pair that an entry says it names by a path or by a descriptor.
#[test]
fn what_a_row_names_migrates() {
    let Some(program) = program("roads_objects") else { return };
    let (text, _) = run(with_library(&program, "ignore").arg("objects"));
    let rows: BTreeSet<&str> =
        calls().filter(|call| call.policy == "migrates").map(|call| call.row).collect();
    let mut seen = BTreeSet::new();
    let mut stayed = Vec::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let [row, what, residence] = fields[..] else { panic!("not a record: {line}") };
        let named = what.starts_with("by the name of a descriptor, of a p")
            || what.starts_with("by a descriptor, of a p");
        if rows.contains(row) || named {
            seen.insert(row);
            if residence != "k" {
                stayed.push(what);
            }
        }
    }
    assert!(seen.len() > 10 && seen.contains("fanotify_mark"), "{seen:?}");
    assert!(stayed.is_empty(), "in process after a call that migrates them: {stayed:#?}");
}

#[test]
fn every_row_is_made_by_both_roads() {
    let Some(program) = program("roads_rows") else { return };
    let (text, _) = run(Command::new(&program).arg("rows"));
    let made: BTreeSet<&str> = text.lines().filter(|row| *row != "none").collect();
    for call in calls() {
        let has_both = call.exported().next().is_some() && call.numbers().next().is_some();
        match (made.contains(call.row), call.apart) {
            (true, None) | (false, Some(_)) => {}
            (true, Some(reason)) => {
                panic!("{} is made by both roads, though the table says that {reason}", call.row)
            }
            (false, None) if has_both => panic!("{} is not in roads_calls.h", call.row),
            (false, None) => panic!("{} has one road and no reason for it", call.row),
        }
    }
    let rows: BTreeSet<&str> = calls().map(|call| call.row).collect();
    let unknown: Vec<_> = made.difference(&rows).collect();
    assert!(unknown.is_empty(), "in roads_calls.h, and not in the table: {unknown:?}");
}

#[test]
fn every_name_is_called() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/roads_calls.h");
    let source = std::fs::read_to_string(source).expect("the calls");
    let is_called = |name: &str| {
        source.match_indices(&format!("{name}(")).any(|(at, _)| {
            let before = source[..at].chars().next_back();
            !before.is_some_and(|c| c.is_alphanumeric() || c == '_')
        })
    };
    for call in calls().filter(|call| call.apart.is_none()) {
        for name in call.exported() {
            assert!(is_called(name), "{name} is not in roads_calls.h");
        }
        for number in call.numbers() {
            assert!(
                source.contains(&format!("SYS_{number},")),
                "SYS_{number} is not in roads_calls.h"
            );
        }
    }
}
