//! `wakeset bench`, briefly: that it measures what it says it does. No timing is a pass condition.

use std::collections::HashSet;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

/// Runs `wakeset bench` with these arguments and a JSON file, which is read back if the run went
/// well.
fn bench(name: &str, arguments: &[&str]) -> (Output, Vec<Value>) {
    // One at a time: beside a real-time thread another benchmark may not get to run for as long as
    // it measures.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("bench");
    std::fs::create_dir_all(&directory).expect("a directory to write to");
    let json = directory.join(name);
    let output = Command::new(env!("CARGO_BIN_EXE_wakeset"))
        .arg("bench")
        .args(arguments)
        .arg("--json")
        .arg(&json)
        .output()
        .expect("wakeset runs");
    if !output.status.success() {
        return (output, Vec::new());
    }
    let text = std::fs::read_to_string(&json).expect("the JSON was written");
    let rows = serde_json::from_str::<Vec<Value>>(&text).expect("an array of rows");
    (output, rows)
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn policies_measures_every_list_and_the_kernel() {
    let (output, rows) = bench("policies", &["policies", "--secs", "0.1", "--threads", "2,3"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let labels: Vec<_> =
        rows.iter().map(|row| (&row["workload"], &row["params"]["producers"])).collect();
    assert_eq!(
        format!("{labels:?}"),
        r#"[(String("stress"), Number(2)), (String("stress"), Number(3)), (String("wait"), Null)]"#
    );
    assert!(rows[2]["params"]["threads"].as_u64() >= Some(2), "{}", rows[2]);
    for row in &rows {
        let median = |side: &str| {
            row[side]["median"].as_f64().unwrap_or_else(|| panic!("no {side} in {row}"))
        };
        let sides = ["kernel", "rwlock", "spinlock", "lock_free"].map(median);
        assert!(sides.iter().all(|&median| median > 0.0), "{row}");
        let [kernel, rwlock, spinlock, lock_free] = sides;
        let ratios = [
            ("spinlock/rwlock", spinlock / rwlock),
            ("lock-free/rwlock", lock_free / rwlock),
            ("lock-free/kernel", lock_free / kernel),
        ];
        for (name, ratio) in ratios {
            let printed = row["ratios"][name].as_f64().unwrap_or(f64::NAN);
            assert!((printed / ratio - 1.0).abs() < 1e-9, "{name} in {row}");
        }
    }
}

#[test]
fn rows_name_the_list_they_were_measured_with() {
    for workload in ["stress", "wait"] {
        for list in [Some("spinlock"), Some("rwlock"), None] {
            let measured = |row: &Value| row["wakeset"]["median"].as_f64() > Some(0.0);
            // On a busy machine nothing may happen in so short a time: then once more, for longer.
            for secs in ["0.05", "0.5"] {
                let mut arguments = vec![workload, "--secs", secs, "--threads", "1"];
                arguments.extend(list.map(|_| "--ready-list").into_iter().chain(list));
                let (output, rows) = bench(&format!("{workload}-{list:?}"), &arguments);
                assert!(output.status.success(), "{}", stderr(&output));
                assert!(!rows.is_empty());
                for row in &rows {
                    assert_eq!(row["params"]["ready_list"].as_str(), list, "{row}");
                    assert!(secs == "0.05" || measured(row), "{row}");
                }
                if rows.iter().all(measured) {
                    break;
                }
            }
        }
    }
}

/// Says that a test does not run, and why; a failure where everything has to run.
fn skip(why: &str) {
    let required = std::env::var_os("WAKESET_REQUIRE_ALL").is_some_and(|v| v == "1");
    assert!(!required, "{why}, and WAKESET_REQUIRE_ALL is set");
    eprintln!("skipped: {why}");
}

/// A lock that spins hangs a real-time thread if the thread has interrupted the holder; nothing
/// else does. What the kernel does depends on its version.
#[test]
fn inversion_sticks_only_where_a_lock_spins() {
    // Whether a holder is ever interrupted with the lock is chance, and less likely the less the
    // low threads get to run.
    const ATTEMPTS: usize = 5;
    for attempt in 1..=ATTEMPTS {
        let (output, rows) = bench("inversion", &["inversion", "--secs", "1", "--threads", "2"]);
        if output.status.code() == Some(125) && stderr(&output).contains("SCHED_FIFO") {
            return skip("SCHED_FIFO is not permitted");
        }
        assert!(output.status.success(), "{}", stderr(&output));
        let stuck = |contended: &str, low: u64, side: &str| {
            let is_it = |row: &&Value| {
                let params = &row["params"];
                params["contended"] == contended && params["low"] == low && params["side"] == side
            };
            let row = rows
                .iter()
                .find(is_it)
                .unwrap_or_else(|| panic!("no {contended} {low} {side} in {rows:?}"));
            let times = ["median", "p99", "p999", "worst"]
                .map(|name| row[name].as_f64().unwrap_or(f64::NAN));
            assert!(
                row["calls"].as_u64() > Some(0) && times[0] > 0.0 && times.is_sorted(),
                "{row}"
            );
            row["stuck"].as_u64().unwrap_or_else(|| panic!("{row}")) > 0
        };
        for low in [0, 2] {
            for contended in ["ready list", "scan lock"] {
                stuck(contended, low, "kernel");
            }
            assert!(!stuck("ready list", low, "lock-free"));
            assert!(!stuck("scan lock", low, "wakeset"));
            // With the priority not lent, a holder gets on when everything else on this machine
            // lets it.
            stuck("scan lock", low, "not lent");
        }
        let spinners = ["rwlock", "spinlock"];
        assert!(
            !spinners.iter().any(|side| stuck("ready list", 0, side)),
            "with no thread to hold the lock"
        );
        if spinners.iter().all(|side| stuck("ready list", 2, side)) {
            return;
        }
        assert!(attempt < ATTEMPTS, "a side that spins was not stuck in any of {ATTEMPTS} runs");
    }
}

#[test]
fn inversion_measures_only_who_was_asked_for() {
    let (output, rows) = bench(
        "lock-free",
        &["inversion", "--secs", "0.1", "--threads", "1", "--policy", "lock-free"],
    );
    if output.status.code() == Some(125) && stderr(&output).contains("SCHED_FIFO") {
        return skip("SCHED_FIFO is not permitted");
    }
    assert!(output.status.success(), "{}", stderr(&output));
    let sides: HashSet<_> =
        rows.iter().map(|row| row["params"]["side"].as_str().unwrap_or("?")).collect();
    assert_eq!(sides, HashSet::from(["lock-free", "not lent", "wakeset"]));
}

/// Whatever may have been granted to us, this process may not.
#[test]
fn inversion_says_what_it_needs() {
    const CAP_SYS_NICE: libc::c_ulong = 23;
    let mut command = Command::new(env!("CARGO_BIN_EXE_wakeset"));
    command.args(["bench", "inversion", "--secs", "0.1"]);
    let give_up_privileges = || {
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: an initialised value, and numbers. The second call fails where there is nothing
        // to give up.
        unsafe {
            libc::setrlimit(libc::RLIMIT_RTPRIO, &none);
            libc::prctl(libc::PR_CAPBSET_DROP, CAP_SYS_NICE, 0, 0, 0);
        }
        Ok(())
    };
    // SAFETY: two system calls, which are async-signal-safe.
    let output = unsafe { command.pre_exec(give_up_privileges) }.output().expect("wakeset runs");
    assert_eq!(output.status.code(), Some(125));
    for word in ["SCHED_FIFO", "Operation not permitted", "CAP_SYS_NICE", "ulimit -r"] {
        assert!(stderr(&output).contains(word), "{}", stderr(&output));
    }
}

/// The kernel wakes all service threads for a fault; with Wakeset one is woken for a message and
/// one to be the next leader.
#[test]
fn uffd_sees_the_herd_on_the_kernel_only() {
    // On a busy machine the kernel's threads may not get to sleep between two faults; then there is
    // no herd to see. And a thread that is awake may take what another was woken for.
    let seen = (0..5).any(|_| uffd_shows_the_herd().unwrap_or(true));
    assert!(seen, "the kernel woke few, or Wakeset many in vain, in each of five runs");
}

/// One run: whether the kernel woke many for a fault, and Wakeset none in vain. That few sleep with
/// Wakeset is required. `None`: there is no userfaultfd.
fn uffd_shows_the_herd() -> Option<bool> {
    let arguments = ["uffd", "--size", "4", "--rounds", "1", "--workers", "2", "--handlers", "12"];
    let (output, rows) = bench("uffd", &arguments);
    let (mut herds, mut wakes_few) = (0, true);
    if output.status.code() == Some(125) && stderr(&output).contains("needs userfaultfd") {
        skip("userfaultfd(2) is not permitted");
        return None;
    }
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(rows.len(), 6);
    for row in &rows {
        let number =
            |name: &str| row[name].as_f64().unwrap_or_else(|| panic!("no {name} in {row}"));
        assert_eq!(number("faults"), 1024.0);
        match row["params"]["side"].as_str() {
            Some("kernel") => herds += usize::from(number("sleeps_per_fault") > 3.0),
            Some("pool" | "wakeset run") => {
                assert!(number("sleeps_per_fault") < 2.2, "{row}");
                let few = number("spurious_per_fault") < 0.1;
                if !few {
                    println!("many: {row}");
                }
                wakes_few &= few;
            }
            _ => panic!("{row}"),
        }
    }
    Some(herds == 2 && wakes_few)
}

#[test]
fn batch_measures_adds_and_removals_of_every_kind() {
    let (output, rows) = bench("batch", &["batch", "--secs", "0.05"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let rates = |row: &Value| {
        [&row["kernel"]["median"], &row["wakeset"]["median"], &row["params"]["singly"]]
            .map(Value::as_f64)
    };
    assert!(
        rows.iter().all(|row| rates(row).iter().all(|rate| rate.is_some_and(|rate| rate > 0.0))),
        "{rows:?}"
    );
    let param = |row: &Value, name: &str| row["params"][name].to_string();
    let points: HashSet<_> =
        rows.iter().map(|row| ["of", "call", "n"].map(|name| param(row, name))).collect();
    assert_eq!(points.len(), 4 * 2 * 3);
}

#[test]
fn herd_counts_every_connection() {
    let arguments =
        ["herd", "--connections", "500", "--rounds", "1", "--workers", "4", "--order", "fifo,lifo"];
    let (output, rows) = bench("herd", &arguments);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(rows.len(), 16);
    for row in &rows {
        let number =
            |name: &str| row[name].as_f64().unwrap_or_else(|| panic!("no {name} in {row}"));
        // Connections are counted as they are made and as they are accepted, and have to be the
        // same.
        assert!(number("accepts_per_connection") >= 1.0, "{row}");
        assert!(number("busiest") >= 125.0 && number("least_busy") <= 125.0, "{row}");
        if row["params"]["side"] == "wakeset" {
            assert!(number("wakes_per_connection") < 1.3, "{row}");
        }
        if row["params"]["side"] == "own listeners" {
            assert_eq!(number("busiest"), number("least_busy"), "{row}");
        }
    }
}

/// Each of its programs checks that what it writes is read.
#[test]
fn selfpipe_measures_each_means_on_both_sides() {
    let (output, rows) = bench("selfpipe", &["selfpipe", "--secs", "0.5"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let means: Vec<_> =
        rows.iter().map(|row| row["params"]["means"].as_str().unwrap_or("?")).collect();
    let [raw @ .., last] = means.as_slice() else { panic!("no rows") };
    if *last == "asyncio" {
        assert_eq!(raw, ["pipe", "socketpair", "pipe", "socketpair"]);
    } else {
        skip("there is no python3 with asyncio");
        assert_eq!(means, ["pipe", "socketpair", "pipe", "socketpair"]);
    }
    for row in &rows {
        for side in ["kernel", "wakeset"] {
            assert!(row[side]["median"].as_f64() > Some(0.0), "{row}");
        }
    }
}

/// The rows of `bench hop` by program, each with the names of its sides.
fn hop(name: &str, arguments: &[&str]) -> (String, Vec<(String, Vec<String>)>) {
    let (output, rows) = bench(name, &[&["hop", "--rounds", "1"], arguments].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let mut programs: Vec<(String, Vec<String>)> = Vec::new();
    for row in &rows {
        let median = row["microseconds"]["median"].as_f64();
        assert!(median > Some(0.0) && row["ratio"].as_f64() > Some(0.0), "{row}");
        // Java knows its processor time to ten milliseconds.
        for count in ["processor_us", "switches"] {
            assert!(row[count].as_f64() >= Some(0.0), "{count} in {row}");
        }
        let word = |name: &str| row["params"][name].as_str().unwrap_or_default();
        let side = format!("{} {}", word("side"), word("spin")).trim_end().to_string();
        match programs.last_mut() {
            Some((program, sides)) if program == word("program") => sides.push(side),
            _ => programs.push((word("program").to_string(), vec![side])),
        }
    }
    (String::from_utf8_lossy(&output.stdout).into_owned(), programs)
}

/// Each of these checks that what it writes is read.
#[test]
fn hop_measures_each_pair_of_threads_on_every_side() {
    let served = [
        "epoll",
        "epoll-socket",
        "epoll-1000-sockets",
        "read-eventfd",
        "read-pipe",
        "poll",
        "select",
    ];
    let list = format!("{},futex,spin", served.join(","));
    let (printed, programs) =
        hop("hop", &["--secs", "0.2", "--program", &list, "--spin", "auto,off,50"]);
    let sides = |program: &str| match program {
        "spin" => vec!["plain"],
        "futex" => vec!["one core", "plain"],
        _ => vec!["one core", "plain", "wakeset run auto", "wakeset run off", "wakeset run 50"],
    };
    for program in served.into_iter().chain(["futex", "spin"]) {
        match programs.iter().find(|(name, _)| name == program) {
            Some((_, measured)) => assert_eq!(*measured, sides(program), "{program}"),
            // With one processor, or with few descriptors.
            None => {
                assert!(printed.contains(&format!("{program}: not run, it takes ")), "{printed}");
                skip(&format!("{program} cannot be measured here"));
            }
        }
    }
}

/// The programs that never wait are there while a side is measured, and gone at the end.
#[test]
fn hop_measures_beside_programs_that_never_wait() {
    let arguments = ["hop", "--rounds", "1", "--secs", "0.2", "--program", "read-pipe"];
    let (output, rows) = bench("hop-beside", &[&arguments[..], &["--beside", "3"]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.contains("beside programs that never wait: 3"), "{printed}");
    assert_eq!(rows.len(), 3);
    for row in &rows {
        assert_eq!(row["params"]["beside"].as_u64(), Some(3), "{row}");
        assert!(row["microseconds"]["median"].as_f64() > Some(0.0), "{row}");
    }
    let (_, rows) = bench("hop-alone", &arguments);
    assert!(rows.iter().all(|row| row["params"]["beside"].is_null()));
}

/// What is not installed is named, whatever that is: the benchmark is for any machine.
#[test]
fn hop_measures_or_names_each_runtime() {
    let runtimes = [
        "java",
        "node-worker",
        "node-stat",
        "asyncio",
        "uvloop",
        "asio",
        "zeromq-pair",
        "zeromq-tcp",
        "glib",
        "tokio",
    ];
    let (printed, programs) =
        hop("hop-runtimes", &["--secs", "0.6", "--program", &runtimes.join(",")]);
    for runtime in runtimes {
        match programs.iter().find(|(name, _)| name == runtime) {
            Some((_, sides)) => assert_eq!(*sides, ["one core", "plain", "wakeset run auto"]),
            None => {
                let named = printed.contains(&format!("{runtime}: not run, there is no "));
                assert!(named, "{runtime} is neither measured nor named: {printed}");
                eprintln!("not measured: {runtime}");
            }
        }
    }
}

#[test]
fn make_measures_each_kind_on_both_sides() {
    let (output, rows) =
        bench("make", &["make", "--secs", "0.1", "--rounds", "2", "--kind", "pipe,set"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let kinds: Vec<_> =
        rows.iter().map(|row| row["params"]["kind"].as_str().unwrap_or("?")).collect();
    assert_eq!(kinds, ["pipe", "pipe", "set", "set"]);
    for row in &rows {
        for side in ["kernel", "wakeset"] {
            assert!(row[side]["median"].as_f64() > Some(0.0), "{row}");
        }
    }
}

#[test]
fn flags_of_one_benchmark_are_refused_by_another() {
    let cases = [
        ("stress", ["--order", "lifo"]),
        ("uffd", ["--clients", "2"]),
        ("herd", ["--size", "8"]),
        ("policies", ["--ready-list", "rwlock"]),
        ("batch", ["--ready-list", "rwlock"]),
        ("ctl", ["--policy", "kernel"]),
        ("hop", ["--spin", "never"]),
        ("make", ["--spin", "off"]),
    ];
    for (name, [flag, value]) in cases {
        let (output, _) = bench("refused", &[name, flag, value]);
        assert_eq!(output.status.code(), Some(2), "{name} {flag}");
        assert!(stderr(&output).contains(flag), "{}", stderr(&output));
    }
}

/// What `wakeset bench` prints with these arguments.
fn printed(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wakeset"));
    let output = command.arg("bench").args(arguments).output().expect("wakeset runs");
    assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn every_benchmark_is_listed_and_says_what_it_measures() {
    let list = printed(&[]);
    let (_, commands) = list.split_once("\nCommands:\n").expect("a list");
    let lines = commands.lines().take_while(|line| !line.is_empty());
    let names: Vec<_> = lines.filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names.len(), 16, "{names:?}");
    for name in names {
        let help = printed(&[name, "--help"]);
        for part in ["One operation is", "nit", "Examples:\n  wakeset bench "] {
            assert!(help.contains(part), "{name}: no {part:?} in {help}");
        }
        assert!(help.lines().all(|line| line.chars().count() <= 100), "{name} is too wide: {help}");
    }
}

#[test]
fn timer_measures_both_operations_at_every_size() {
    let (output, rows) = bench("timer", &["timer", "--secs", "0.05"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let labels: Vec<_> = rows
        .iter()
        .map(|row| {
            (
                row["params"]["timers"].as_u64().unwrap_or(0),
                row["params"]["operation"].as_str().unwrap_or(""),
            )
        })
        .collect();
    let sizes = [1, 1_000, 10_000, 100_000, 1_000_000];
    assert_eq!(labels, sizes.map(|timers| [(timers, "fire"), (timers, "arm")]).concat());
    for row in &rows {
        assert!(row["wakeset"]["median"].as_f64() > Some(0.0), "{row}");
    }
}

#[test]
fn ring_measures_every_mode_with_one_taker_and_with_several() {
    let (output, rows) = bench("ring", &["ring", "--secs", "0.05", "--threads", "1,3"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let (sockets, counters): (Vec<_>, Vec<_>) =
        rows.iter().partition(|row| row["params"]["sockets"].is_u64());
    assert_eq!((counters.len(), sockets.len()), (12, 12));
    for row in &rows {
        assert!(
            ["kernel", "wakeset"].iter().all(|side| row[side]["median"].as_f64() > Some(0.0)),
            "{row}"
        );
    }
}
