//! `wakeset doctor` on programs of each kind, and with `--try`.

mod kinds;
mod trial;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn wakeset(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wakeset"));
    command.args(arguments).env_remove("LD_PRELOAD").stdin(Stdio::null());
    command.output().expect("it starts")
}

/// The report about a program, and whether the exit status says that it is served.
fn report(program: &str) -> (Value, bool) {
    report_of(&["doctor", "--json", "--", program])
}

fn report_of(arguments: &[&str]) -> (Value, bool) {
    let output = wakeset(arguments);
    let status = output.status.code();
    assert!(matches!(status, Some(0 | 1)), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["schema"], "wakeset-doctor/1");
    assert_eq!(report["served"], status == Some(0));
    (report, status == Some(0))
}

fn has(report: &Value, level: &str, about: &str, what: &str) -> bool {
    report["checks"].as_array().expect("checks").iter().any(|check| {
        let text = check["what"].as_str().expect("text");
        check["level"] == level && check["about"] == about && text.contains(what)
    })
}

const SOURCE: &str = "#include <sys/eventfd.h>\n#include <unistd.h>\n\
    int main(void) { int pair[2]; return eventfd(0, 0) < 0 || pipe(pair) < 0; }\n";

/// Compiles a program; `None`, with a word about it, where that cannot be done.
fn compile(name: &str, flags: &[&str]) -> Option<PathBuf> {
    compile_text(name, SOURCE, flags)
}

fn compile_text(name: &str, text: &str, flags: &[&str]) -> Option<PathBuf> {
    compile_by("gcc", name, text, flags)
}

fn compile_by(compiler: &str, name: &str, text: &str, flags: &[&str]) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("doctor");
    fs::create_dir_all(&folder).expect("a folder");
    let source = folder.join(format!("{name}.c"));
    fs::write(&source, text).expect("a file");
    let program = folder.join(name);
    let mut command = Command::new(compiler);
    command.arg("-o").arg(&program).arg(&source).args(flags);
    match command.output() {
        Ok(output) if output.status.success() => Some(program),
        _ => {
            assert!(std::env::var_os("WAKESET_REQUIRE_ALL").is_none(), "no {name} by {compiler}");
            eprintln!("skipped: {compiler} makes no {name}");
            None
        }
    }
}

/// The path of a program that may be there; where it is not, says so, or fails where nothing may be
/// skipped.
fn installed(name: &str) -> Option<String> {
    let folders = ["/usr/bin", "/usr/sbin", "/usr/local/bin"];
    let places = folders.iter().map(|folder| format!("{folder}/{name}"));
    let found = places.into_iter().find(|place| Path::new(place).exists());
    if found.is_none() {
        assert!(std::env::var_os("WAKESET_REQUIRE_ALL").is_none(), "no {name}");
        eprintln!("skipped: {name} is missing");
    }
    found
}

#[test]
fn a_dynamic_program_is_served() {
    let Some(program) = compile("dynamic", &[]) else { return };
    let (report, is_served) = report(program.to_str().expect("a path"));
    assert!(is_served, "{report:#}");
    assert_eq!(report["verdict"], "can be served, and calls what Wakeset answers");
    assert!(has(&report, "ok", "calls", "eventfds: dynamic"), "{report:#}");
    assert!(has(&report, "ok", "calls", "pipes: dynamic"), "{report:#}");
    assert!(!has(&report, "ok", "calls", "timers"), "{report:#}");
}

#[test]
fn a_static_program_is_not() {
    let Some(program) = compile("static", &["-static"]) else { return };
    let (report, is_served) = report(program.to_str().expect("a path"));
    assert!(!is_served);
    assert!(has(&report, "bad", "program", "statically linked"), "{report:#}");
    assert!(report["verdict"].as_str().is_some_and(|it| it.starts_with("cannot be served: ")));
}

#[test]
fn a_program_with_address_sanitizer_is_told_what_it_wants() {
    for (name, flags) in [
        ("asan", &["-fsanitize=address"][..]),
        ("asan_static", &["-fsanitize=address", "-static-libasan"]),
    ] {
        let Some(program) = compile(name, flags) else { continue };
        let (report, is_served) = report(program.to_str().expect("a path"));
        // `wakeset run` preloads the library alone.
        assert!(!is_served && has(&report, "bad", "sanitizer", "AddressSanitizer"), "{report:#}");
    }
}

#[test]
fn a_program_with_privileges_is_not_served_unless_it_gains_none() {
    let Some(program) = compile("privileged", &[]) else { return };
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).expect("our own file");
    // It belongs to who runs it.
    let (report, is_served) = report(program.to_str().expect("a path"));
    assert!(is_served && has(&report, "note", "program", "is set-user-ID"), "{report:#}");
}

#[test]
fn a_script_is_its_interpreter() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let script = folder.join("doctor.sh");
    fs::write(&script, "#!/bin/sh\nexit 0\n").expect("a file");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("our own file");
    let (report, is_served) = report(script.to_str().expect("a path"));
    assert!(is_served && has(&report, "ok", "program", "/bin/sh is dynamic"), "{report:#}");
}

/// One policy for whoever reads the report: it may have read enough, also where nobody dies of
/// SIGPIPE.
#[test]
fn a_reader_that_has_gone_is_no_error() {
    let script = "trap '' PIPE; exec \"$0\" doctor";
    let mut child = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_wakeset")])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a shell");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("its end");
    assert!(output.status.success(), "{:?}", output.status);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn what_is_not_there_is_said() {
    let output = wakeset(&["doctor", "--", "/no/such/program"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no such program"));
}

#[test]
fn the_machine_alone_is_looked_at() {
    let output = wakeset(&["doctor"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(text.starts_with("verdict: programs can be served on this machine\n"), "{text}");
    for about in ["library", "kernel", "filter", "instructions", "descriptors", "statistics"] {
        assert!(text.contains(&format!("  {about}: ")), "{about}:\n{text}");
    }
}
