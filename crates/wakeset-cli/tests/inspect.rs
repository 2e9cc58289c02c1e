//! `wakeset inspect` on live programs: the C program `c/inspect/cases.c`, gunicorn and nginx.
//!
//! Each finding is shown by a program that has it and by one beside it that has not.

#[path = "programs/compile.rs"]
#[allow(dead_code)]
mod compile;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use compile::{Build, compile, missing, scratch};
use serde_json::Value;

/// A program that ends when its input does, or by its process id.
struct Running {
    child: Child,
    input: Option<ChildStdin>,
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.input.take());
        // SAFETY: the process is our child, and was not waited for.
        unsafe { libc::kill(self.child.id() as i32, libc::SIGTERM) };
        let _ = self.child.wait();
    }
}

/// What `inspect` says, and its exit status.
fn inspect(pid: u32, options: &[&str]) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wakeset"));
    command.arg("inspect").args(options).arg(pid.to_string()).env_remove("LD_PRELOAD");
    let output = command.output().expect("it starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &errors;
    (output.status.code().expect("a status"), text)
}

/// The JSON report of a process, with the status that must go with it.
fn report(pid: u32, options: &[&str]) -> Value {
    let (status, text) = inspect(pid, &[options, &["--json"]].concat());
    let report: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{status}: {text}"));
    assert_eq!(report["schema"], "wakeset-inspect/1");
    assert_eq!(status, i32::from(!kinds(&report).is_empty()), "{text}");
    report
}

fn kinds(report: &Value) -> Vec<&str> {
    let findings = report["findings"].as_array().expect("findings");
    findings.iter().filter_map(|finding| finding["kind"].as_str()).collect()
}

/// Starts a case of the program, whose line `ready` it waits for so often.
fn start(case: &str, ready: usize) -> Option<Running> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    let program = PROGRAM.get_or_init(|| compile("inspect/cases", Build::Plain, "inspect_cases"));
    let mut command = Command::new(program.as_ref()?);
    command.arg(case).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let input = child.stdin.take();
    let mut lines = BufReader::new(child.stdout.take().expect("its output"));
    for _ in 0..ready {
        let mut line = String::new();
        lines.read_line(&mut line).expect("a line");
        assert_eq!(line, "ready\n", "{case}");
    }
    thread::sleep(Duration::from_millis(200));
    Some(Running { child, input })
}

/// The kinds that `inspect` finds in a case.
fn expect(case: &str, ready: usize, expected: &[&str]) -> Option<Value> {
    let running = start(case, ready)?;
    let report = report(running.child.id(), &[]);
    assert_eq!(kinds(&report), expected, "{case}: {report:#}");
    Some(report)
}

fn what(report: &Value) -> &str {
    report["findings"][0]["what"].as_str().expect("a sentence")
}

#[test]
fn a_stale_watch_is_found() {
    // A child has the file: a descriptor refers to it, but the process's own is closed.
    expect("stale", 1, &[]);
    let Some(running) = start("stale", 1) else { return };
    let alone = report(running.child.id(), &["--alone"]);
    assert_eq!(kinds(&alone), ["stale"], "{alone:#}");
    // Nobody has it, and the number is another file's, of the same inode.
    let Some(report) = expect("stale_in_flight", 1, &["stale"]) else { return };
    assert!(what(&report).contains("1 watch of what was closed"), "{report:#}");
    expect("copied", 1, &[]);
}

#[test]
fn an_undrained_level_is_found() {
    let Some(report) = expect("level", 1, &["level"]) else { return };
    let what = what(&report);
    assert!(what.contains("(tcp 127.0.0.1:") && what.contains("12 unread"), "{what}");
    expect("edge", 1, &[]);
    expect("level_eventfd", 1, &["level"]);
    expect("level_unix", 1, &["level"]);
}

#[test]
fn an_unattended_set_is_found() {
    expect("unattended", 1, &["unattended"]);
    expect("polled", 1, &[]);
}

#[test]
fn a_chain_of_sets_is_found() {
    expect("nested", 1, &["nesting"]);
}

#[test]
fn nearness_to_limits_is_found() {
    expect("descriptors", 1, &["limit"]);
    let Some(report) = expect("full_queue", 1, &["limit"]) else { return };
    assert!(what(&report).contains("4 connections wait to be accepted, of 4"), "{report:#}");
}

#[test]
fn a_herd_is_found() {
    expect("herd", 3, &["herd"]);
    expect("exclusive", 3, &[]);
    expect("mixed", 3, &["mixed"]);
    expect("shared", 2, &[]);
    let Some(report) = expect("threads", 1, &["herd"]) else { return };
    assert!(what(&report).contains("2 threads in poll(2) or select(2)"), "{report:#}");
    assert_eq!(report["listeners"][0]["accepting"].as_array().map(Vec::len), Some(1));
}

/// The text, and the status of a process that is not there.
#[test]
fn text_and_trouble() {
    let Some(running) = start("herd", 3) else { return };
    let (status, text) = inspect(running.child.id(), &["--seconds", "0.2"]);
    assert_eq!(status, 1, "{text}");
    for part in ["listeners\n  tcp 127.0.0.1:", "1. herd: ", "Remedy: Run", "\n3 looks in "] {
        assert!(text.contains(part), "no {part}: {text}");
    }
    assert!(text.contains("2 sets without EPOLLEXCLUSIVE: "), "{text}");
    let (status, text) = inspect(i32::MAX as u32, &[]);
    assert_eq!((status, text.as_str()), (2, "wakeset: there is no process 2147483647\n"));
    assert_eq!(inspect(0, &[]).0, 2);
}

// ---- servers ----

/// Root in a container may list the descriptors of another user's process, and not read them: that
/// is not a process without descriptors.
#[test]
fn what_may_not_be_read_is_said() {
    // SAFETY: it cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return eprintln!("skipped: only root may list them");
    }
    let mut other = Command::new("sleep").arg("600").uid(65534).gid(65534).spawn().expect("sleep");
    let pid = other.id().to_string();
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", "-sys_ptrace", env!("CARGO_BIN_EXE_wakeset"), "inspect"]);
    let refused = command.arg(&pid).env_remove("LD_PRELOAD").output();
    let (status, text) = inspect(other.id(), &[]);
    other.kill().and_then(|()| other.wait()).expect("its end");
    assert!(status == 0 && text.contains("sleep"), "{status}: {text}");
    match refused {
        Err(_) => _ = missing("setpriv"),
        Ok(refused) => {
            let said = String::from_utf8_lossy(&refused.stderr);
            assert_eq!(refused.status.code(), Some(2), "{said}");
            assert!(said.contains("its descriptors may not be read"), "{said}");
        }
    }
}

/// The path of an installed program.
fn installed(name: &str) -> Option<PathBuf> {
    let places = ["/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"];
    let found = places.iter().map(|place| Path::new(place).join(name)).find(|path| path.exists());
    found.or_else(|| missing(name))
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("its address").port()
}

/// A folder of a server that any user can read.
fn room(name: &str) -> PathBuf {
    let room = std::env::temp_dir().join(format!("wakeset-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&room).expect("a folder");
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&room, open).expect("its mode");
    room
}

fn ask(port: u16) -> Option<()> {
    let mut connection = TcpStream::connect(("127.0.0.1", port)).ok()?;
    connection.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    connection.write_all(b"GET / HTTP/1.0\r\n\r\n").ok()?;
    let mut reply = Vec::new();
    connection.read_to_end(&mut reply).ok()?;
    reply.starts_with(b"HTTP/1.").then_some(())
}

/// Starts a server and waits until it answers.
fn serve(command: &mut Command, port: u16, workers: usize) -> Running {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let running = Running { child: command.spawn().expect("it starts"), input: None };
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let pid = running.child.id();
        let path = format!("/proc/{pid}/task/{pid}/children");
        let children = std::fs::read_to_string(path).unwrap_or_default();
        if children.split_whitespace().count() >= workers && ask(port).is_some() {
            break;
        }
        assert!(Instant::now() < end, "the server does not answer");
        thread::sleep(Duration::from_millis(100));
    }
    thread::sleep(Duration::from_millis(1500));
    running
}

fn gunicorn(workers: usize) -> Option<Running> {
    let program = installed("gunicorn")?;
    let folder = scratch("inspect_gunicorn");
    std::fs::create_dir_all(&folder).expect("a folder");
    let application = "def run(environ, start):\n    start('200 OK', [])\n    return [b'ok']\n";
    std::fs::write(folder.join("application.py"), application).expect("the application");
    let port = free_port();
    let mut command = Command::new(program);
    command.current_dir(&folder).args(["--workers", &workers.to_string()]);
    command.args(["--bind", &format!("127.0.0.1:{port}"), "application:run"]);
    Some(serve(&mut command, port, workers))
}

#[test]
fn a_herd_of_gunicorn_is_found() {
    let Some(server) = gunicorn(3) else { return };
    let report = report(server.child.id(), &["--seconds", "2", "--looks", "5"]);
    assert_eq!(kinds(&report), ["herd"], "{report:#}");
    let pids = report["findings"][0]["pids"].as_array().map(Vec::len);
    assert!(pids.is_some_and(|pids| pids >= 2), "{report:#}");
}

#[test]
fn one_worker_of_gunicorn_is_healthy() {
    let Some(server) = gunicorn(1) else { return };
    let report = report(server.child.id(), &[]);
    assert_eq!(kinds(&report), [""; 0], "{report:#}");
}

/// Asks many things on one connection, until `is_over`.
fn ask_on_one_connection(port: u16, is_over: impl Fn() -> bool) {
    let mut connection = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    let mut reply = [0; 4096];
    while !is_over() {
        connection.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("a request");
        assert!(connection.read(&mut reply).expect("a reply") > 0);
    }
}

/// Four workers with `EPOLLEXCLUSIVE`: idle they are healthy, and one that has all the work, since
/// the only client keeps its connection, is a skew. (How connections themselves spread depends on
/// how busy the machine is.)
#[test]
fn a_skew_of_nginx_is_found() {
    let Some(program) = installed("nginx") else { return };
    let (port, room) = (free_port(), room("nginx"));
    let at = room.display();
    let configuration = format!(
        "daemon off; worker_processes 4; pid {at}/pid; error_log /dev/null;\n\
         events {{ worker_connections 64; }}\n\
         http {{ access_log off; keepalive_requests 100000000;\n\
         client_body_temp_path {at}/1; proxy_temp_path {at}/2;\n\
         fastcgi_temp_path {at}/3; uwsgi_temp_path {at}/4; scgi_temp_path {at}/5;\n\
         server {{ listen 127.0.0.1:{port}; location / {{ return 200 ok; }} }} }}\n"
    );
    std::fs::write(room.join("nginx.conf"), configuration).expect("the configuration");
    let mut command = Command::new(program);
    let server = serve(command.arg("-c").arg(room.join("nginx.conf")), port, 4);
    let pid = server.child.id();
    let healthy = report(pid, &[]);
    assert_eq!(kinds(&healthy), [""; 0], "{healthy:#}");
    let exclusive = healthy["listeners"][0]["sets"].as_array().expect("sets");
    assert!(exclusive.len() == 4 && exclusive.iter().all(|set| set["exclusive"] == true));

    let inspector = thread::spawn(move || report(pid, &["--seconds", "5"]));
    ask_on_one_connection(port, || inspector.is_finished());
    let loaded = inspector.join().expect("a report");
    let found = kinds(&loaded);
    let _ = std::fs::remove_dir_all(&room);
    assert!(found.contains(&"skew") && !found.contains(&"herd"), "{loaded:#}");
}
