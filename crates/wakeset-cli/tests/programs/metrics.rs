//! `wakeset metrics`.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::compile::{Build, compile, missing, scratch};
use crate::sharing::Runtime;

/// The value of a metric.
fn value(text: &str, metric: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(metric)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {metric} in\n{text}")).parse().expect("a number")
}

/// Where the dashboard and the alert rules are.
fn files() -> [PathBuf; 2] {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/metrics");
    ["wakeset-dashboard.json", "wakeset-rules.yml"].map(|name| folder.join(name))
}

/// The names of metrics in a text.
fn names(text: &str) -> BTreeSet<&str> {
    let is_part = |c: char| c.is_ascii_lowercase() || c == '_';
    text.split(|c| !is_part(c)).filter(|word| word.starts_with("wakeset_")).collect()
}

/// All that the dashboard and the rules ask for is there, and all that is there is shown. Only a
/// worker that is alive has a count of its own.
fn check_files(printed: &str) {
    let mut known = names(printed);
    known.insert("wakeset_worker_connections_total");
    let [dashboard, rules] = files().map(|path| fs::read_to_string(path).expect("a file"));
    for text in [&dashboard, &rules] {
        let unknown: Vec<_> = names(text).into_iter().filter(|it| !known.contains(it)).collect();
        assert!(unknown.is_empty(), "not printed: {unknown:?}");
    }
    let shown = names(&dashboard);
    let hidden: Vec<_> = known.iter().filter(|it| !shown.contains(*it)).collect();
    assert!(hidden.is_empty(), "not in the dashboard: {hidden:?}");
    let dashboard: Value = serde_json::from_str(&dashboard).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels").len();
    assert!(queries(&dashboard).count() >= panels && panels >= 8);
    assert!(queries(&dashboard).all(|query| query["expr"].is_string()));
}

/// What the panels of a dashboard ask for.
fn queries(dashboard: &Value) -> impl Iterator<Item = &Value> {
    let panels = dashboard["panels"].as_array().expect("panels").iter();
    panels.flat_map(|panel| panel["targets"].as_array().expect("queries"))
}

/// As Prometheus' own tool has it, where that is installed: the text, the alert rules, when they
/// fire, and what the dashboard asks for.
fn check_by_promtool(printed: &str) {
    if Command::new("promtool").arg("--version").output().is_err() {
        missing("promtool");
        return;
    }
    promtool(&["check", "metrics"], printed);
    let [dashboard, rules] = files();
    promtool(&["check", "rules", rules.to_str().expect("a path")], "");
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/metrics/rules-test.yml");
    promtool(&["test", "rules", cases.to_str().expect("a path")], "");
    let queries = scratch("metrics_queries.json");
    fs::write(&queries, as_rules(&dashboard)).expect("a file");
    promtool(&["check", "rules", queries.to_str().expect("a path")], "");
}

fn promtool(arguments: &[&str], input: &str) {
    let mut check = Command::new("promtool")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    check.stdin.take().expect("its input").write_all(input.as_bytes()).expect("it reads");
    let output = check.wait_with_output().expect("its end");
    assert!(output.status.success(), "{arguments:?}: {output:?}");
}

/// The dashboard's queries as a file of rules, in JSON, which YAML includes. The names that Grafana
/// fills in are filled in.
fn as_rules(dashboard: &Path) -> String {
    let text = fs::read_to_string(dashboard).expect("a file");
    let text = text.replace("$__rate_interval", "5m").replace("$program", ".*");
    let dashboard: Value = serde_json::from_str(&text).expect("JSON");
    let name = |i| format!("query:{i}");
    let rule = |(i, query): (usize, &Value)| json!({ "record": name(i), "expr": query["expr"] });
    let rules: Vec<_> = queries(&dashboard).enumerate().map(rule).collect();
    json!({ "groups": [{ "name": "dashboard", "rules": rules }] }).to_string()
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
    let Some(server) = compile("prefork", Build::Plain, "prefork_metrics") else { return };
    let runtime = Runtime::new("metrics");
    let script = r#""$2" 4 1000 >/dev/null && "$3" >/dev/null && { : >"$1"; read line; }"#;
    let programs = [&program, &server].map(|it| it.to_str().expect("a path"));
    let running = runtime.start(script, &programs);

    let output = runtime.wakeset(&["metrics"]).output().expect("it starts");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{text}");
    assert_eq!(value(&text, "wakeset_processes{program=\"sh\"}"), 1);
    assert!(value(&text, "wakeset_objects_made_total{program=\"sh\"}") >= 4);
    assert!(value(&text, "wakeset_syscalls_avoided_total{program=\"sh\"}") >= 4000);
    assert_eq!(value(&text, "wakeset_objects_migrated_total{program=\"sh\",reason=\"aio\"}"), 0);
    check_files(&text);
    check_by_promtool(&text);
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
