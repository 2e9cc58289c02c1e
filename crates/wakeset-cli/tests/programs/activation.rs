//! A service that systemd starts with its listener and waits for: the listener is the program's,
//! and what it says of itself comes from the process that systemd knows.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::compile::{Build, compile};
use crate::notified::Notified;
use crate::sharing::Runtime;
use crate::surroundings::library;

/// The user that a service becomes which gives up its rights.
const NOBODY: u32 = 65534;
/// How long a test waits for what must come.
const LIMIT: Option<Duration> = Some(Duration::from_secs(60));

/// How a service is started.
#[derive(Clone, Copy, Default, Debug)]
struct How<'a> {
    prefix: &'a [&'a str],
    arguments: &'a [&'a str],
    variables: &'a [(&'a str, &'a str)],
    /// Whether `wakeset run` stays, and passes on what the service says.
    is_relayed: bool,
}

/// Starts the service with its listener, as systemd does between fork and exec.
fn start(runtime: &Runtime, how: How, listener: TcpListener, notified: &Notified) -> Child {
    let script = r#"exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec "$@""#;
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).args(how.prefix);
    command.arg(runtime.path().join("activated")).args(how.arguments);
    command.env("NOTIFY_SOCKET", &notified.name).env("XDG_RUNTIME_DIR", runtime.path());
    command.env_remove("LD_PRELOAD").envs(how.variables.iter().copied());
    command.stdin(Stdio::from(OwnedFd::from(listener))).stderr(Stdio::null());
    command.spawn().expect("it starts")
}

/// Starts a service, and is systemd and a client for it.
fn check(runtime: &Runtime, notified: &Notified, how: How) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = listener.local_addr().expect("its address");
    let mut service = start(runtime, how, listener, notified);
    let main = service.id();

    let ready = notified.next();
    assert_eq!(ready.pid, main, "{how:?}");
    assert_eq!(ready.text, format!("READY=1\nMAINPID={main}"), "{how:?}");
    let [kept] = <[OwnedFd; 1]>::try_from(ready.descriptors).expect("a descriptor");
    let mut text = String::new();
    fs::File::from(kept).read_to_string(&mut text).expect("what is in it");
    assert_eq!(text, "kept", "{how:?}");
    // SAFETY: it cannot fail.
    let own = unsafe { libc::geteuid() };
    let user = if how.arguments.is_empty() { own } else { NOBODY };
    assert_eq!(ready.uid, user, "{how:?}");

    // Not the main process, and one of the unit: systemd decides by `NotifyAccess=`.
    let status = notified.next();
    assert_eq!((status.uid, status.pid == main), (user, false), "{how:?}");
    assert!(status.text.starts_with("STATUS="), "{how:?}: {}", status.text);
    let itself = status.text == format!("STATUS={}", status.pid);
    assert_eq!(itself, !how.is_relayed, "{how:?}");
    assert_eq!(status.group, fs::read_to_string("/proc/self/cgroup").ok(), "{how:?}");

    let mut connection = TcpStream::connect(address).expect("a connection");
    connection.set_read_timeout(LIMIT).expect("a limit");
    let mut answer = String::new();
    connection.read_to_string(&mut answer).expect("an answer");
    assert_eq!(answer, "x", "{how:?}");
    assert!(service.wait().expect("its status").success(), "{how:?}");
    let last = notified.next();
    assert_eq!((last.text.as_str(), last.pid), ("STOPPING=1", main), "{how:?}");
}

#[test]
fn a_service_gets_its_listener_and_is_ready() {
    let runtime = Runtime::new("activation");
    let Some(program) = compile("activated", Build::Plain, "activated") else { return };
    fs::copy(program, runtime.path().join("activated")).expect("a copy");
    let notified = Notified::at(&runtime.path().join("notify"));
    let wakeset = env!("CARGO_BIN_EXE_wakeset");
    let check = |how: How<'_>| check(&runtime, &notified, how);
    check(How::default());
    check(How { prefix: &[wakeset, "run", "--"], ..How::default() });
    check(How { prefix: &[wakeset, "run", "--share", "--"], ..How::default() });
    let stays = &[wakeset, "run", "--stats", "--"];
    check(How { prefix: stays, is_relayed: true, ..How::default() });
    let library = library();
    let library = library.to_str().expect("UTF-8");
    let alone = [("LD_PRELOAD", library), ("WAKESET_STATS", "shared")];
    check(How { variables: &alone, ..How::default() });
    let disabled = [("LD_PRELOAD", library), ("WAKESET_DISABLE", "1")];
    check(How { variables: &disabled, ..How::default() });
}

/// Where a program that has given up its rights may write, and with its own user.
#[test]
fn a_service_that_gives_up_its_rights_is_ready() {
    // SAFETY: it cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return eprintln!("skipped: only root has rights to give up");
    }
    let runtime = Runtime::new("rights");
    let Some(program) = compile("activated", Build::Plain, "activated_rights") else { return };
    fs::copy(program, runtime.path().join("activated")).expect("a copy");
    let notified = Notified::called(&format!("wakeset-test-{}", std::process::id()));
    let arguments = &["nobody"];
    check(&runtime, &notified, How { arguments, ..How::default() });
    let stays = &[env!("CARGO_BIN_EXE_wakeset"), "run", "--stats", "--"];
    let how = How { prefix: stays, arguments, is_relayed: true, ..How::default() };
    check(&runtime, &notified, how);
}

/// systemd sends SIGABRT to the process that it has started.
#[test]
fn a_watchdogs_signal_is_the_programs() {
    let mut run = Command::new(env!("CARGO_BIN_EXE_wakeset"))
        .args(["run", "--stats", "--", "sh", "-c", "ulimit -c 0; echo; exec sleep 600"])
        .env_remove("LD_PRELOAD")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut line = String::new();
    BufReader::new(run.stdout.take().expect("its output")).read_line(&mut line).expect("a line");
    // SAFETY: our child, which has not been waited for.
    unsafe { libc::kill(run.id() as i32, libc::SIGABRT) };
    let output = run.wait_with_output().expect("its end");
    assert_eq!(output.status.code(), Some(128 + libc::SIGABRT));
    assert!(String::from_utf8_lossy(&output.stderr).contains("what ran in user space"));
}
