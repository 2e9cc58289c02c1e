//! The examples at the end of each `--help`, which are the manual's too, run: in one shell each, in
//! a folder where stand-ins are called `gunicorn` and `server.py`, beside a run that is called
//! `nginx`. A benchmark is as short as it can be; what the reader names is in the folder.

use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::thread;

use super::support::{WAKESET, have, output, scratch};
use super::{Words, commands};

/// Which examples are not run here, and what runs them.
const ELSEWHERE: [(&str, &str); 2] = [
    ("wakeset demo", "`.ci/run`, as README's first command"),
    ("wakeset bench hop --program epoll,java", "`ci/real/run`: it compiles and measures Java"),
];

/// What stands in an example, and in its place here.
const FILLED_IN: [(&str, &str); 8] = [
    ("1234", "$pid"),
    ("/run/nginx.pid", "nginx.pid"),
    ("127.0.0.1:9464", "$PWD/metrics.socket"),
    ("/var/lib/prometheus/node-exporter/", ""),
    (" /wakeset", " copied"),
    ("/usr/local/share/man", "man"),
    ("nginx.service", "nginx.service --root $PWD/units"),
    (" jq ", " chosen "),
];

/// What runs before each example. `chosen` is jq(1) as far as the examples need it, and wants the
/// value to be there; what goes on for ever is ended after a while.
const FIRST: &str = r#"set -eo pipefail
PATH=$PWD:$PATH
for name in gunicorn server.py; do
    printf '#!/bin/sh\nexec sleep 0.3\n' >$name
done
chmod +x gunicorn
printf '#!/bin/sh\nshift\nexec sleep 0.3\n' >python3
chmod +x python3
mkdir copied units
export XDG_RUNTIME_DIR=$(mktemp -d -p /dev/shm)
cp "$(command -v sleep)" nginx
wakeset run --share -- ./nginx 60 &
pid=$!
trap 'kill $pid 2>kill.log || :; wait; rm -r $XDG_RUNTIME_DIR' EXIT
echo $pid >nginx.pid
until wakeset stats nginx >stats.txt 2>&1; do sleep 0.02; done
chosen() { cat >chosen.json; echo "$1" >chosen.path; }
endless() { timeout 1 "$@" || [ $? -eq 124 ]; }
"#;

/// The lines below `Examples:`.
fn examples(help: &str) -> Vec<&str> {
    let (_, list) = help.split_once("\nExamples:\n").expect("examples");
    list.lines().map(str::trim).filter(|line| !line.is_empty()).collect()
}

/// An example as it is typed here.
fn filled_in(example: &str, help: &str) -> String {
    let mut words: Vec<_> = example.split(' ').map(str::to_string).collect();
    for (flag, shorter) in [("--secs", "0.05"), ("--connections", "50"), ("--size", "4")] {
        if let Some(at) = words.iter().position(|word| word == flag) {
            words[at + 1] = if words[1] == "soak" { "2" } else { shorter }.to_string();
        } else if words.len() > 2 && words[1] == "bench" && help.contains(&format!("{flag} <")) {
            words.extend([flag.to_string(), shorter.to_string()]);
        }
    }
    if words.len() > 2 && words[1] == "bench" {
        words.extend(["--rounds".to_string(), "1".to_string()]);
    }
    let mut line = words.join(" ");
    for (word, with) in FILLED_IN {
        line = line.replace(word, with);
    }
    let is_endless = ["wakeset top", "wakeset metrics --listen", "wakeset stats --every"];
    match is_endless.iter().any(|command| line.starts_with(command)) {
        true => format!("endless {line}"),
        false => line,
    }
}

/// The statuses that the help of a command names for a run that went well.
fn is_fine(words: &Words, status: i32) -> bool {
    match words.first().map(String::as_str) {
        // Nothing to be measured here: a feature or a right is missing.
        Some("bench") => status == 0 || status == 125,
        _ => status == 0,
    }
}

/// Looks up a path such as `.findings[].kind`.
fn has(value: &serde_json::Value, path: &str) -> bool {
    let path = path.trim_start_matches('.');
    let (step, rest) = path.split_once('.').unwrap_or((path, ""));
    let (name, each) = match step.strip_suffix("[]") {
        Some(name) => (name, true),
        None => (step, false),
    };
    let Some(value) = value.get(name) else { return false };
    match (value.as_array(), rest) {
        (Some(items), _) if each => items.iter().all(|item| has(item, rest)),
        (_, "") => !each,
        _ => !each && has(value, rest),
    }
}

/// Runs an example, and says what is wrong with it.
fn run(words: &Words, line: &str, folder: &Path) -> Result<(), String> {
    let bin = Path::new(WAKESET).parent().expect("a folder");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    let mut shell = Command::new("timeout");
    shell.args(["60", "bash", "--norc", "-c", &format!("{FIRST}{line}\n")]);
    shell.current_dir(folder).env("PATH", path).env_remove("LD_PRELOAD");
    let done = shell.output().expect("a shell");
    let status = done.status.code().unwrap_or(-1);
    if !is_fine(words, status) {
        return Err(format!("status {status}\n{}", String::from_utf8_lossy(&done.stderr)));
    }
    let Ok(chosen) = std::fs::read_to_string(folder.join("chosen.path")) else { return Ok(()) };
    let text = std::fs::read_to_string(folder.join("chosen.json")).map_err(|e| e.to_string())?;
    let value = serde_json::from_str(&text).map_err(|error| format!("{error}: {text}"))?;
    has(&value, chosen.trim()).then_some(()).ok_or(format!("no {chosen} in {text}"))
}

#[test]
fn every_example_runs() {
    if !["bash", "timeout"].iter().all(|program| have(program)) {
        return;
    }
    let mut unused: Vec<_> = ELSEWHERE.iter().map(|(command, _)| *command).collect();
    let (mut left, mut count) = (Vec::new(), 0);
    for (words, help) in commands() {
        for example in examples(&help) {
            if ELSEWHERE.iter().any(|(command, _)| example.starts_with(command)) {
                unused.retain(|command| !example.starts_with(command));
                continue;
            }
            left.push((words.clone(), filled_in(example, &help), count));
            count += 1;
        }
    }
    assert!(count >= 35 && unused.is_empty(), "{count} examples; not there any more: {unused:?}");

    // Most of them wait for most of their time.
    let (left, wrong) = (Mutex::new(left), Mutex::new(Vec::new()));
    let run_rest = || {
        while let Some((words, line, number)) = { left.lock().expect("no panic").pop() } {
            let folder = scratch(&format!("examples-{number}"));
            if let Err(error) = run(&words, &line, &folder) {
                wrong.lock().expect("no panic").push(format!("{words:?}: {line}: {error}"));
            }
        }
    };
    thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(run_rest))));
    let wrong = wrong.into_inner().expect("no panic");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn an_example_that_is_wrong_is_found() {
    if !["bash", "timeout"].iter().all(|program| have(program)) {
        return;
    }
    let words = vec!["stats".to_string()];
    for wrong in ["wakeset stats --no-such-flag", "wakeset stats --json $pid | chosen '.totals'"] {
        assert!(run(&words, wrong, &scratch("examples-wrong")).is_err(), "{wrong}");
    }
    assert!(output(Command::new(WAKESET).arg("--help")).contains("\nExamples:\n"));
}
