//! `wakeset doctor --try`.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{compile_text, has, installed, report_of};

/// The report about a trial of a program, and whether it is served.
fn attempt(seconds: &str, program: &Path, arguments: &[&str]) -> (Value, bool) {
    let program = program.to_str().expect("a path");
    report_of(&[&["doctor", "--json", "--try", seconds, "--", program], arguments].concat())
}

fn count(report: &Value, path: &str) -> u64 {
    let value = report.pointer(&format!("/trial/counts/total{path}"));
    value.and_then(Value::as_u64).unwrap_or_else(|| panic!("no {path}: {report:#}"))
}

/// Makes an eventfd and a set, has an event, and forks afterwards if it is asked to. With another
/// argument it does not end by itself.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    int fd = eventfd(0, EFD_CLOEXEC), set = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN};
    uint64_t one = 1;
    if (epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) || write(fd, &one, 8) != 8 ||
        epoll_wait(set, &event, 1, -1) != 1 || read(fd, &one, 8) != 8)
        return 3;
    puts("what it prints");
    fflush(stdout);
    if (!strcmp(how, "forks")) {
        /* What the child does not name would stay. */
        pid_t child = fork();
        if (child == 0)
            _exit(write(fd, &one, 8) != 8 || epoll_wait(set, &event, 1, 0) != 1);
        int status;
        return waitpid(child, &status, 0) != child || status != 0;
    }
    if (!strcmp(how, "splices"))
        return splice(fd, NULL, fd, NULL, 1, 0) != -1;
    if (!strcmp(how, "fails"))
        return 4;
    if (!strcmp(how, "crashes"))
        abort();
    if (!strcmp(how, "stays")) {
        /* A child in a session of its own, which no signal to the group reaches. */
        pid_t child = fork();
        if (child == 0) {
            setsid();
            signal(SIGTERM, SIG_IGN);
        }
        FILE *file = fopen(argv[2], "a");
        fprintf(file, "%d\n", getpid());
        fclose(file);
        for (;;)
            pause();
    }
    if (!strcmp(how, "waits"))
        pause();
    return 0;
}
"#;

#[test]
fn what_stays_in_process_is_told() {
    let Some(program) = compile_text("trial", PROGRAM, &[]) else { return };
    let (report, is_served) = attempt("60", &program, &[]);
    assert!(is_served, "{report:#}");
    assert_eq!((count(&report, "/made"), count(&report, "/migrated")), (2, 0), "{report:#}");
    assert!(count(&report, "/syscalls_avoided") >= 4, "{report:#}");
    assert_eq!(report["trial"]["end"], "by itself");
    let verdict = report["verdict"].as_str().expect("a verdict");
    assert!(verdict.starts_with("is served: 2 of 2 objects stayed in process, "), "{verdict}");
    assert!(has(&report, "ok", "trial", "it ended by itself, after "), "{report:#}");
    assert!(has(&report, "ok", "objects", "2 made, 2 stayed in process, 0 migrated"));
}

#[test]
fn what_migrates_is_told_with_its_reason() {
    let Some(program) = compile_text("trial_forks", PROGRAM, &[]) else { return };
    let (report, is_served) = attempt("60", &program, &["forks"]);
    assert!(is_served && count(&report, "/migrated") == 2, "{report:#}");
    assert!(has(&report, "note", "migrated", "2 of them: fork"), "{report:#}");
    let (report, _) = attempt("60", &program, &["splices"]);
    let what = "1 of them: unmodelled_call, by splice 1";
    assert!(has(&report, "note", "migrated", what), "{report:#}");
}

#[test]
fn how_it_ends_is_told() {
    let Some(program) = compile_text("trial_ends", PROGRAM, &[]) else { return };
    let (report, is_served) = attempt("60", &program, &["fails"]);
    assert!(is_served && has(&report, "note", "trial", "with status 4"), "{report:#}");
    let (report, is_served) = attempt("60", &program, &["crashes"]);
    assert!(!is_served && has(&report, "bad", "trial", "signal 6 ended it"), "{report:#}");
    let (report, is_served) = attempt("0.2", &program, &["waits"]);
    assert!(is_served && has(&report, "ok", "trial", "SIGTERM ended it"), "{report:#}");
    assert_eq!(report["trial"]["end"], "SIGTERM");
}

/// Nothing of it is left, whatever it does about SIGTERM.
#[test]
fn nothing_goes_on_after_a_trial() {
    let Some(program) = compile_text("trial_stays", PROGRAM, &[]) else { return };
    let list = program.with_extension("pids");
    let _ = fs::remove_file(&list);
    let path = list.to_str().expect("a path");
    let (report, _) = attempt("0.5", &program, &["stays", path]);
    assert!(has(&report, "note", "trial", "SIGKILL ended it"), "{report:#}");
    let pids = fs::read_to_string(&list).expect("the processes");
    assert_eq!(pids.lines().count(), 2, "{pids}");
    for pid in pids.lines() {
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&command).contains("trial_stays"), "{pid} goes on");
    }
}

#[test]
fn what_cannot_be_served_is_not_run() {
    let Some(program) = compile_text("trial_static", PROGRAM, &["-static"]) else { return };
    let (report, is_served) = attempt("60", &program, &["waits"]);
    assert!(!is_served && report["trial"].is_null(), "{report:#}");
}

/// The report alone is on standard output, the verdict first.
#[test]
fn the_programs_output_is_apart() {
    let Some(program) = compile_text("trial_apart", PROGRAM, &[]) else { return };
    let output =
        super::wakeset(&["doctor", "--try", "60", "--", program.to_str().expect("a path")]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.starts_with("verdict: is served: "), "{text}");
    assert!(!text.contains("what it prints"), "{text}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("what it prints"));
}

/// On one processor a spin would take the time that its waker needs, so a trial runs without, as
/// `wakeset run` does.
#[test]
fn a_trial_on_one_processor_does_not_spin() {
    let script = "echo spin: ${WAKESET_SPIN-unset}";
    let spin_of = |prefix: &[&str]| {
        let wakeset = env!("CARGO_BIN_EXE_wakeset");
        let words =
            [prefix, &[wakeset, "doctor", "--try", "60", "--", "sh", "-c", script]].concat();
        let output = Command::new(words[0]).args(&words[1..]).env_remove("WAKESET_SPIN").output();
        let said = output.expect("it starts").stderr;
        let said = String::from_utf8_lossy(&said).into_owned();
        said.lines().find_map(|line| line.strip_prefix("spin: ")).map(String::from)
    };
    let status = fs::read_to_string("/proc/self/status").expect("this process");
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let allowed = allowed.expect("the processors").trim();
    let first = allowed.split([',', '-']).next().expect("a processor");
    assert_eq!(spin_of(&["taskset", "-c", first]).as_deref(), Some("off"));
    if allowed != first {
        assert_eq!(spin_of(&[]).as_deref(), Some("unset"));
    }
}

/// Asks until this many answers have come.
fn ask(port: u16, times: usize) {
    let end = Instant::now() + Duration::from_secs(60);
    let mut answers = 0;
    while answers < times {
        assert!(Instant::now() < end, "{answers} answers");
        let mut reply = String::new();
        let asked = TcpStream::connect(("127.0.0.1", port)).and_then(|mut connection| {
            connection.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
            connection.read_to_string(&mut reply)
        });
        match asked.is_ok() && reply.starts_with("HTTP/1.") {
            true => answers += 1,
            false => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

#[test]
fn gunicorn_is_told_its_order() {
    let Some(gunicorn) = installed("gunicorn") else { return };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("doctor_gunicorn");
    fs::create_dir_all(&folder).expect("a folder");
    let application = "def run(environ, start):\n    start('200 OK', [])\n    return [b'ok']\n";
    fs::write(folder.join("application.py"), application).expect("the application");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its address").port();
    drop(listener);
    let address = format!("127.0.0.1:{port}");
    let child = Command::new(env!("CARGO_BIN_EXE_wakeset"))
        .args(["doctor", "--json", "--try", "120", "--", &gunicorn, "--workers", "3"])
        .args(["--bind", &address, "application:run"])
        .current_dir(&folder)
        .env_remove("LD_PRELOAD")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    ask(port, 100);
    // The trial ends, and not the report.
    // SAFETY: our child, which has not been waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    let output = child.wait_with_output().expect("its end");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(output.status.success(), "{report:#}");
    let listener = &report["trial"]["listeners"][0];
    assert_eq!(listener["address"], address.as_str(), "{report:#}");
    // gunicorn closes each of these connections.
    assert_eq!(listener["order"], "auto", "{report:#}");
    let counted = report["trial"]["counts"]["listeners"][0]["connections"].as_u64();
    assert!(counted.is_some_and(|connections| connections >= 100), "{report:#}");
    let verdict = report["verdict"].as_str().expect("a verdict");
    assert!(verdict.contains("threads is woken for a connection"), "{verdict}");
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "it is gone");
}
