//! Programs that want something particular, or cannot be served.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use super::{
    SOURCE, compile, compile_by, compile_text, has, installed, report, report_of, wakeset,
};

/// Makes a system call past libc in a function with a name. The bytes of the instruction occur as
/// a number too.
const BY_INSTRUCTION: &str = r#"
#include <sys/eventfd.h>
static volatile int number;
__attribute__((noinline)) long own_getpid(void) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(39L) : "rcx", "r11", "memory");
    return result;
}
__attribute__((noinline)) void a_number(void) { number = 0x050f050f; }
int main(void) { a_number(); return eventfd(0, 0) < 0 || own_getpid() <= 0; }
"#;

#[test]
fn calls_by_instruction_are_found_with_their_functions() {
    let Some(program) = compile_text("instructions", BY_INSTRUCTION, &["-O1"]) else { return };
    let (with, is_served) = report(program.to_str().expect("a path"));
    let what = "instructions: 1 in own_getpid";
    assert!(is_served && has(&with, "note", "by instruction", what), "{with:#}");
    let Some(program) = compile_text("no_instructions", SOURCE, &[]) else { return };
    let (without, _) = report(program.to_str().expect("a path"));
    assert!(!has(&without, "note", "by instruction", ""), "{without:#}");
    // Without names they are found all the same.
    let flags = &["-O1", "-s"];
    let Some(program) = compile_text("bare_instructions", BY_INSTRUCTION, flags) else { return };
    let (bare, _) = report(program.to_str().expect("a path"));
    assert!(has(&bare, "note", "by instruction", ": 1 in "), "{bare:#}");
}

/// What Alpine's programs are linked with.
const MUSL: &str = "/lib/ld-musl-x86_64.so.1";

/// Says whether it was preloaded to.
const PRELOADED: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
int main(void) {
    const char *list = getenv("LD_PRELOAD");
    puts(list && *list ? "preloaded" : "alone");
    return eventfd(0, 0) < 0;
}
"#;

/// That the program of another C library is not served, and why.
fn check_not_served(program: &str) {
    let (report, is_served) = report(program);
    assert!(!is_served, "{report:#}");
    assert!(has(&report, "bad", "program", &format!("its loader is {MUSL}")), "{report:#}");
    let verdict = report["verdict"].as_str().expect("a verdict");
    assert!(verdict.starts_with("cannot be served: "), "{verdict}");
    assert!(verdict.contains("another C library"), "{verdict}");
}

/// The program as musl's compiler makes it, which `wakeset run` then leaves alone.
#[test]
fn a_program_of_musl_is_not_served() {
    let Some(program) = compile_by("musl-gcc", "musl", PRELOADED, &[]) else { return };
    let program = program.to_str().expect("a path");
    check_not_served(program);
    let script = Path::new(env!("CARGO_TARGET_TMPDIR")).join("musl.script");
    fs::write(&script, format!("#!{program}\n")).expect("a file");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("our own file");
    check_not_served(script.to_str().expect("a path"));
    for flags in [&["run", "--"][..], &["run", "--stats", "--"], &["run", "--share", "--"]] {
        let output = wakeset(&[flags, &[program]].concat());
        assert_eq!(String::from_utf8_lossy(&output.stdout), "alone\n", "{flags:?}");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && stderr.contains("another C library"), "{stderr}");
    }
    let output = wakeset(&["doctor", "--try", "10", "--", program]);
    assert_eq!(output.status.code(), Some(1), "it is not tried");
    // As docs/limits.md says: what a served program starts has the library in its environment.
    let output = wakeset(&["run", "--", "sh", "-c", "\"$0\"; LD_PRELOAD= \"$0\"", program]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "alone\n", "the second alone starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("Error loading shared library"), "{stderr}");
}

/// The loader that the file names need not be on this machine.
#[test]
fn a_program_whose_loader_is_not_here_is_not_served() {
    let Some(program) = compile("foreign", &[]) else { return };
    let ours = b"/lib64/ld-linux-x86-64.so.2";
    let mut theirs = MUSL.as_bytes().to_vec();
    theirs.resize(ours.len(), 0);
    let mut bytes = fs::read(&program).expect("the program");
    let at = bytes.windows(ours.len()).position(|part| part == ours).expect("its loader");
    bytes[at..at + ours.len()].copy_from_slice(&theirs);
    fs::write(&program, bytes).expect("our own file");
    check_not_served(program.to_str().expect("a path"));
}

#[test]
fn a_program_that_gains_privileges_is_not_served() {
    // SAFETY: it cannot fail.
    let user = unsafe { libc::geteuid() };
    let program = match user {
        0 => {
            let Some(program) = compile("gains", &[]) else { return };
            chown(&program, Some(65534), None).expect("we may");
            fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).expect("our file");
            program
        }
        _ => {
            let places = ["/usr/bin/passwd", "/usr/bin/su", "/bin/su", "/usr/bin/mount"];
            let of_root = |place: &&str| {
                Path::new(place).metadata().is_ok_and(|it| it.uid() == 0 && it.mode() & 0o4000 != 0)
            };
            let Some(program) = places.into_iter().find(of_root) else {
                eprintln!("skipped: there is no set-user-ID program");
                return;
            };
            program.into()
        }
    };
    let (report, is_served) = report(program.to_str().expect("a path"));
    assert!(!is_served && has(&report, "bad", "program", "is set-user-ID"), "{report:#}");
}

/// Go's runtime makes its calls itself, in a program that is linked with libc as well.
#[test]
fn a_go_program_is_not_served() {
    let Some(promtool) = installed("promtool") else { return };
    let (report, is_served) = report(&promtool);
    assert!(!is_served && has(&report, "bad", "runtime", "its Go runtime"), "{report:#}");
    assert!(has(&report, "ok", "program", " is dynamic"), "{report:#}");
    assert!(!has(&report, "note", "by instruction", ""), "it is said once: {report:#}");
}

/// The launcher loads the machine itself only when it runs.
#[test]
fn a_java_machine_is_served() {
    let Some(java) = installed("java") else { return };
    let (report, is_served) = report(&java);
    assert!(is_served && has(&report, "ok", "program", " is dynamic"), "{report:#}");
    let (report, is_served) =
        report_of(&["doctor", "--json", "--try", "60", "--", &java, "-version"]);
    assert!(is_served && report["trial"]["end"] == "by itself", "{report:#}");
    assert!(report["trial"]["counts"]["processes"].as_array().is_some_and(|it| !it.is_empty()));
}

#[test]
fn gunicorn_is_served() {
    let Some(gunicorn) = installed("gunicorn") else { return };
    let (report, is_served) = report(&gunicorn);
    assert!(is_served, "{report:#}");
    assert!(has(&report, "ok", "program", "python3 is dynamic"), "{report:#}");
    assert!(has(&report, "ok", "calls", "listeners: "), "{report:#}");
}
