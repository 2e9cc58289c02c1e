//! `wakeset metrics`.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::compile::{Build, compile};
use crate::sharing::Runtime;

/// The value of a metric.
fn value(text: &str, metric: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(metric)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {metric} in\n{text}")).parse().expect("a number")
}

fn request(socket: &Path, request: &str) -> String {
    let end = Instant::now() + Duration::from_secs(60);
    let mut stream = loop {
        match UnixStream::connect(socket) {
            Ok(stream) => break stream,
            Err(error) => assert!(Instant::now() < end, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    stream.write_all(request.as_bytes()).expect("it listens");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[test]
fn the_counts_are_prometheus_metrics() {
    let Some(program) = compile("stress", Build::Plain, "stress_metrics") else { return };
    let runtime = Runtime::new("metrics");
    let script = r#""$2" 4 1000 >/dev/null && { : >"$1"; read line; }"#;
    let running = runtime.start(script, &[program.to_str().expect("a path")]);

    let output = runtime.wakeset(&["metrics"]).output().expect("it starts");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{text}");
    assert_eq!(value(&text, "wakeset_processes{program=\"sh\"}"), 1);
    assert!(value(&text, "wakeset_objects_made_total{program=\"sh\"}") >= 4);
    assert!(value(&text, "wakeset_syscalls_avoided_total{program=\"sh\"}") >= 4000);
    assert_eq!(value(&text, "wakeset_objects_migrated_total{program=\"sh\",reason=\"fork\"}"), 0);
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split('{').next().expect("a name");
        assert!(text.contains(&format!("# TYPE {name} ")), "{line}");
    }

    let folder = runtime.path().join("collected");
    fs::create_dir(&folder).expect("a directory");
    let file = folder.join("wakeset.prom");
    let arguments = ["metrics", "--textfile", file.to_str().expect("a path")];
    assert!(runtime.wakeset(&arguments).status().expect("it starts").success());
    let written = fs::read_to_string(&file).expect("the file");
    assert_eq!(value(&written, "wakeset_processes{program=\"sh\"}"), 1);
    assert_eq!(fs::read_dir(&folder).expect("a directory").count(), 1, "nothing else is left");

    let socket = runtime.path().join("socket");
    let arguments = ["metrics", "--listen", socket.to_str().expect("a path")];
    let mut server = runtime.wakeset(&arguments).spawn().expect("it starts");
    let answer = request(&socket, "GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
    assert_eq!(value(body, "wakeset_processes{program=\"sh\"}"), 1);
    assert!(request(&socket, "GET / HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 404 "));
    assert!(request(&socket, "POST /metrics HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 405 "));
    server.kill().expect("it goes on");
    server.wait().expect("its status");
    drop(running);

    let output = runtime.wakeset(&["metrics", "--listen", "0.0.0.0:0"]).output();
    let output = output.expect("it starts");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("not a loopback address"));
}
