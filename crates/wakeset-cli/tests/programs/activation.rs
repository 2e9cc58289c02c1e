//! A service that systemd starts with its listener and waits for: the listener is the program's,
//! and its word that it is ready comes from the process that the supervisor knows.

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::compile::{Build, compile};
use crate::sharing::Runtime;
use crate::surroundings::library;

/// How long a test waits for what must come.
const LIMIT: Option<Duration> = Some(Duration::from_secs(60));

/// Starts a service by `prefix` and talks to it. Returns whether it is the process that was
/// started.
fn is_main_process(runtime: &Runtime, prefix: &[&str], variables: &[(&str, &str)]) -> bool {
    let program = runtime.path().join("activated");
    let place = runtime.path().join("notify");
    let _ = std::fs::remove_file(&place);
    let notified = UnixDatagram::bind(&place).expect("a socket");
    notified.set_read_timeout(LIMIT).expect("a limit");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = listener.local_addr().expect("its address");

    // What systemd does between fork and exec.
    let script = r#"exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec "$@""#;
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).args(prefix).arg(&program);
    command.env("NOTIFY_SOCKET", &place).env("XDG_RUNTIME_DIR", runtime.path());
    command.env_remove("LD_PRELOAD").envs(variables.iter().copied());
    command.stdin(Stdio::from(OwnedFd::from(listener))).stderr(Stdio::null());
    let mut service = command.spawn().expect("it starts");

    let mut word = [0; 64];
    let length = notified.recv(&mut word).expect("a word that it is ready");
    let word = String::from_utf8_lossy(&word[..length]).into_owned();
    let mut connection = TcpStream::connect(address).expect("a connection");
    connection.set_read_timeout(LIMIT).expect("a limit");
    let mut answer = String::new();
    connection.read_to_string(&mut answer).expect("an answer");
    assert_eq!(answer, "x", "{prefix:?}");
    let main = service.id();
    assert!(service.wait().expect("its status").success(), "{prefix:?}");
    word == format!("READY=1 {main}")
}

#[test]
fn a_service_gets_its_listener_and_is_ready() {
    let runtime = Runtime::new("activation");
    let Some(program) = compile("activated", Build::Plain, "activated") else { return };
    std::fs::copy(program, runtime.path().join("activated")).expect("a copy");
    let wakeset = env!("CARGO_BIN_EXE_wakeset");
    assert!(is_main_process(&runtime, &[], &[]), "plain");
    assert!(is_main_process(&runtime, &[wakeset, "run", "--"], &[]));
    assert!(is_main_process(&runtime, &[wakeset, "run", "--share", "--"], &[]));
    // `wakeset run` stays, and prints: see docs/guide-operators.md.
    assert!(!is_main_process(&runtime, &[wakeset, "run", "--stats", "--"], &[]));
    let library = library();
    let library = library.to_str().expect("UTF-8");
    let alone = [("LD_PRELOAD", library), ("WAKESET_STATS", "shared")];
    assert!(is_main_process(&runtime, &[], &alone));
    let disabled = [("LD_PRELOAD", library), ("WAKESET_DISABLE", "1")];
    assert!(is_main_process(&runtime, &[], &disabled));
}
