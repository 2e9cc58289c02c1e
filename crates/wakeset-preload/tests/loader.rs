//! Roads to libc's functions that pass none of the library's names: a plugin opened with
//! `RTLD_DEEPBIND`, dlsym(3) on any handle, dlmopen(3), other preloads before and behind ours.
//!
//! `tests/c/loader/program.c` takes them, plain and with the library, and prints the same. Its
//! lines that begin with `place:` say where a new eventfd is, `i` for in process and `k` for the
//! kernel.
//!
//! | variable | meaning |
//! |---|---|
//! | `WAKESET_REQUIRE_ALL=1` | a missing C compiler or Python is a failure, not a reason to skip |

#[path = "loader/build.rs"]
mod build;

use build::{compile, library, run, run_tool, scratch, shared, unseen};
use std::path::Path;
use std::process::Command;

/// What a program printed of objects' places, and all else.
fn parts(text: &str) -> (Vec<&str>, String) {
    let places = text.lines().filter_map(|line| line.strip_prefix("place: ")).collect();
    let rest: Vec<_> = text.lines().filter(|line| !line.starts_with("place: ")).collect();
    (places, rest.join("\n"))
}

/// The preloads of a run, ours among them or not.
fn preloads(list: &[&Path]) -> String {
    list.iter().map(|path| path.to_str().expect("UTF-8")).collect::<Vec<_>>().join(":")
}

/// Runs one case plain and with the library among `with`, and wants the same output; returns the
/// places with the library.
fn same(program: &Path, arguments: &[&str], plain: &[&Path], with: &[&Path]) -> String {
    let command = |list: &[&Path]| {
        let mut command = Command::new(program);
        command.args(arguments).env("LD_PRELOAD", preloads(list));
        command
    };
    let plain = run(&mut command(plain));
    let ours = run(&mut command(with));
    let (expected, (places, lines)) = (parts(&plain).1, parts(&ours));
    assert!(!expected.is_empty());
    let differs = expected.lines().zip(lines.lines()).find(|(a, b)| a != b);
    assert!(expected == lines, "first in {differs:#?}, of\n{ours}");
    places.concat()
}

fn program() -> Option<std::path::PathBuf> {
    compile("program.c", &["-Wno-unused-function", "-ldl"], "loader")
}

/// The plugin, and the library that it needs.
fn plugin(name: &str, flags: &[&str]) -> Option<String> {
    let needed = shared("plugin.c", &["-DNEEDED"], &format!("{name}_needed"))?;
    let needed = needed.to_str().expect("UTF-8");
    let mut all = vec!["-Wl,--no-as-needed", needed];
    all.extend(flags);
    Some(shared("plugin.c", &all, name)?.to_str().expect("UTF-8").to_string())
}

#[test]
fn a_plugin_opened_with_deepbind_is_bound_to_us() {
    let Some(program) = program() else { return };
    for (name, flags) in [("now", "-Wl,-z,now"), ("lazy", "-Wl,-z,lazy")] {
        let Some(plugin) = plugin(&format!("deepbind_{name}"), &[flags]) else { return };
        for case in ["deepbind", "deepbind-lazy"] {
            assert_eq!(same(&program, &[case, &plugin], &[], &[&library()]), "i");
        }
    }
}

#[test]
fn dlsym_answers_with_ours_by_every_handle() {
    let (Some(program), Some(plugin)) = (program(), plugin("handles", &[])) else { return };
    assert_eq!(same(&program, &["handles", &plugin], &[], &[&library()]), "ii");
}

#[test]
fn a_second_libc_finds_everything_in_the_kernel() {
    let (Some(program), Some(plugin)) = (program(), plugin("name_space", &[])) else { return };
    assert_eq!(same(&program, &["name-space", &plugin], &[], &[&library()]), "ik");
}

#[test]
fn dlmopen_into_the_programs_name_space_is_dlopen() {
    let (Some(program), Some(plugin)) = (program(), plugin("same_name_space", &[])) else {
        return;
    };
    assert_eq!(same(&program, &["same-name-space", &plugin], &[], &[&library()]), "i");
}

/// It calls ours: nothing changes for either.
#[test]
fn a_preload_before_ours_keeps_working() {
    let Some(program) = program() else { return };
    let Some(wrap) = shared("wrap.c", &["-DANSWERED"], "wrap_before") else { return };
    assert_eq!(same(&program, &["wrapped"], &[&wrap], &[&wrap, &library()]), "i");
}

/// It is called by ours, for each call: so ours answers none.
#[test]
fn a_preload_behind_ours_sees_every_call() {
    let Some(program) = program() else { return };
    let Some(wrap) = shared("wrap.c", &["-DANSWERED"], "wrap_behind") else { return };
    assert_eq!(same(&program, &["wrapped"], &[&wrap], &[&library(), &wrap]), "k");
}

/// What it takes over is none of what ours answers. Its own search for libc's functions is no road
/// past ours.
#[test]
fn a_preload_behind_ours_may_leave_objects_in_process() {
    let Some(program) = program() else { return };
    let Some(wrap) = shared("wrap.c", &[], "wrap_others") else { return };
    for list in [[&*library(), &wrap], [&wrap, &library()]] {
        assert_eq!(same(&program, &["wrapped-by-name"], &[&wrap], &list), "i");
    }
    assert_eq!(same(&program, &["wrapped"], &[&wrap], &[&wrap, &library()]), "i");
}

/// libc's symbol for what it takes over has to stay, so libc's handle leads past ours: here to an
/// open(2) of a pipe by the name of its descriptor.
#[test]
fn a_preload_behind_ours_and_libcs_handle_leave_nothing_in_process() {
    let Some(program) = program() else { return };
    let Some(wrap) = shared("wrap.c", &[], "wrap_and_handle") else { return };
    let list = [&*library(), &wrap];
    assert_eq!(same(&program, &["wrapped"], &[&wrap], &list), "k");
    assert_eq!(same(&program, &["opened-by-handle"], &[&wrap], &list), "k");
    assert_eq!(same(&program, &["opened-by-handle"], &[], &[&library()]), "i");
}

/// It has a dlsym(3) in place of libc's, from wherever it stands.
#[test]
fn a_preload_may_have_a_dlsym_of_its_own() {
    let (Some(program), Some(plugin)) = (program(), plugin("own_dlsym", &[])) else { return };
    let Some(hook) = shared("dlsym.c", &[], "own_dlsym_hook") else { return };
    for list in [[&*library(), &hook], [&hook, &library()]] {
        assert_eq!(same(&program, &["handles", &plugin], &[&hook], &list), "ii");
    }
}

/// The shared runtime of ThreadSanitizer stands behind ours, and has to see who synchronizes with
/// whom.
#[test]
fn thread_sanitizer_reports_no_race_that_is_not_there() {
    let flags = ["-fsanitize=thread", "-g", "-pthread"];
    let Some(program) = compile("sanitized.c", &flags, "sanitized") else { return };
    let run = |list: &[&Path]| {
        // Its shadow memory wants addresses that are not random.
        let mut command = Command::new("setarch");
        run_tool(command.arg("-R").arg(&program).env("LD_PRELOAD", preloads(list)))
    };
    let Some(plain) = run(&[]) else { return };
    if !plain.status.success() {
        eprintln!("skipped: ThreadSanitizer does not run here");
        return;
    }
    let ours = run(&[&library()]).expect("it ran before");
    assert_eq!(String::from_utf8_lossy(&ours.stderr), "");
    assert!(ours.status.success());
}

/// A number that was closed by a system call instruction is the next file's, whichever call makes
/// that, and at a migration.
#[test]
fn a_number_used_again_is_another_file() {
    let flags = ["-Wno-unused-function"];
    let Some(program) = compile("reused.c", &flags, "reused") else { return };
    same(&program, &[], &[], &[&library()]);
}

/// Notices name the library; without being asked the library says nothing.
#[test]
fn what_cannot_be_served_is_named() {
    let (Some(program), Some(plugin)) = (program(), plugin("notices", &[])) else { return };
    let Some(wrap) = shared("wrap.c", &["-DANSWERED"], "wrap_notices") else { return };
    for (arguments, list, named) in [
        (
            vec!["name-space", &plugin],
            vec![library()],
            vec![&*plugin, "every object is the kernel's"],
        ),
        (vec!["wrapped"], vec![library(), wrap.clone()], vec!["wrap_notices.so", "the first is"]),
        (vec!["handles", &plugin], vec![library()], vec![]),
    ] {
        let list: Vec<_> = list.iter().map(|path| path.as_path()).collect();
        for asked in [true, false] {
            let mut command = Command::new(&program);
            command.args(&arguments).env("LD_PRELOAD", preloads(&list));
            if asked {
                command.env("WAKESET_VERBOSE", "1");
            }
            let output = unseen(&mut command).output().expect("the program runs");
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{said}");
            if asked {
                assert!(named.iter().all(|word| said.contains(word)), "{said}");
            }
            assert!(asked && !named.is_empty() || said.is_empty(), "{said}");
        }
    }
}

/// Python's `ctypes` closes a pipe by libc's own handle; the next file under that number is the
/// file's.
#[test]
fn python_closes_by_libcs_handle() {
    let script = scratch("libc_handle.py");
    let text = include_str!("loader/libc_handle.py");
    std::fs::write(&script, text).expect("a script");
    let mut python = Command::new("python3");
    let Some(plain) = run_tool(python.arg(&script).env_remove("LD_PRELOAD")) else { return };
    let mut python = Command::new("python3");
    let ours = python.arg(&script).env("LD_PRELOAD", library()).output().expect("it ran before");
    assert!(plain.status.success(), "{}", String::from_utf8_lossy(&plain.stderr));
    assert_eq!(String::from_utf8_lossy(&plain.stdout), String::from_utf8_lossy(&ours.stdout));
    assert!(ours.status.success());
}
