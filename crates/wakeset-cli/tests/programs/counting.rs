//! How `wakeset run --stats` collects: in scarce and hostile surroundings, of many processes, of
//! killed ones.

use std::collections::HashSet;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::compile::{Build, compile, missing, scratch};
use crate::stats::{count, read};

/// A shell script that runs under `wakeset run --stats-file FILE`, and FILE.
fn script(name: &str, script: &str, arguments: &[&str]) -> (Command, PathBuf) {
    let file = scratch(&format!("counting_{name}.json"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_wakeset"));
    command
        .arg("run")
        .arg(format!("--stats-file={}", file.display()))
        .args(["--", "sh", "-c", script]);
    command.arg("sh").args(arguments).env_remove("LD_PRELOAD").stdin(Stdio::null());
    (command, file)
}

fn output(command: &mut Command) -> Output {
    command.output().expect("it starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A program that systemd starts with its listeners takes them only if they are addressed to it.
#[test]
fn what_is_addressed_to_the_program_reaches_it() {
    let runtime = crate::sharing::Runtime::new("addressed");
    let source = r#"LISTEN_PID=$$ WATCHDOG_PID=$$ exec "$@" -- sh -c \
        'echo $(($$ - LISTEN_PID)) $(($$ - WATCHDOG_PID))'"#;
    for flags in [&["run"][..], &["run", "--stats"], &["run", "--share"]] {
        let wakeset = runtime.wakeset(flags);
        let mut command = Command::new("sh");
        command.args(["-c", source, "sh"]).arg(wakeset.get_program()).args(wakeset.get_args());
        command.envs(wakeset.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let output = output(command.env_remove("LD_PRELOAD").stdin(Stdio::null()));
        assert_eq!(text(&output.stdout), "0 0\n", "{flags:?}: {}", text(&output.stderr));
    }
}

/// Runs a script that has to succeed, and returns what it printed and what was counted.
fn counted(name: &str, source: &str, arguments: &[&str]) -> (String, Value) {
    let (mut command, file) = script(name, source, arguments);
    let output = output(&mut command);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{name}, {}:\n{out}{err}", output.status);
    (out, read(&file))
}

/// The table or the JSON, on stderr or in the file, and nothing that was not asked for.
#[test]
fn counts_go_where_they_are_asked_for() {
    const TABLE: &str = "process  pid";
    let run = |flags: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wakeset"));
        command.arg("run").args(flags).args(["--", "true"]).env_remove("LD_PRELOAD");
        let output = output(&mut command);
        assert!(output.status.success(), "{flags:?}: {}", text(&output.stderr));
        text(&output.stderr)
    };
    let is_json = |said: &str| serde_json::from_str::<Value>(said).is_ok();
    let [json, table] = ["counts_in.json", "counts_in.txt"].map(scratch);
    let [to_json, to_table] =
        [&json, &table].map(|file| format!("--stats-file={}", file.display()));
    let written = |file: &PathBuf| fs::read_to_string(file).expect("the counts");

    let said = run(&["--stats"]);
    assert!(said.contains(TABLE) && !said.contains('{'), "{said}");
    for flags in [&["--stats-format=json"][..], &["--stats", "--stats-format=json"]] {
        let said = run(flags);
        assert!(is_json(&said) && said.lines().count() == 1, "{said}");
    }
    assert_eq!(run(&[&to_json]), "");
    assert!(is_json(&written(&json)));
    assert!(run(&["--stats", &to_json]).contains(TABLE));
    assert!(is_json(&written(&json)));
    assert_eq!(run(&[&to_table]), "");
    assert!(written(&table).contains(TABLE));
    assert_eq!(run(&[&to_table, "--stats-format=json"]), "");
    assert!(is_json(&written(&table)));
    assert_eq!(run(&[&to_json, "--stats-format=table"]), "");
    assert!(written(&json).contains(TABLE));
}

/// Processes that were counted.
fn processes(counts: &Value) -> u64 {
    let kept = counts["processes"].as_array().expect("processes").len() as u64;
    kept + counts.pointer("/others/processes").and_then(Value::as_u64).unwrap_or(0)
}

// ---- scarce ----

/// Runs a script in a name space of mounts of its own, as a user who is root there.
/// `None`, with a word about it, where there can be none.
fn with_own_mounts(script: &str, arguments: &[&str]) -> Option<Output> {
    let unshared = |script: &str| {
        let mut command = Command::new("unshare");
        // A user name space only where it takes one: in it, other things are forbidden.
        // SAFETY: it cannot fail.
        let flags = if unsafe { libc::geteuid() } == 0 { "-m" } else { "-Urm" };
        command.args([flags, "sh", "-c", script, "sh"]).env_remove("LD_PRELOAD");
        command.stdin(Stdio::null());
        command
    };
    let can = unshared("mount -t tmpfs none /mnt").output();
    if !can.is_ok_and(|output| output.status.success()) {
        missing("unshare(1) with mounts");
        return None;
    }
    let wakeset = env!("CARGO_BIN_EXE_wakeset");
    Some(unshared(script).arg(wakeset).args(arguments).output().expect("unshare starts"))
}

#[test]
fn a_full_shm_harms_no_process() {
    let file = scratch("counting_full.json");
    let script = r#"
        mount -t tmpfs -o size=64k none /dev/shm
        exec "$1" run --stats-file "$2" -- sh -c '
            dd if=/dev/zero of=/dev/shm/full bs=4k 2>/dev/null
            (sh -c "exit 0"; exit $?) && sh -c "(exit 0)" && echo fine'"#;
    let Some(output) = with_own_mounts(script, &[file.to_str().expect("a path")]) else { return };
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success() && out == "fine\n", "{}:\n{out}{err}", output.status);
    let counts = read(&file);
    assert!(processes(&counts) >= 4, "{counts:#}");
}

/// SIGXFSZ ends a process that makes a file longer than it may.
#[test]
fn a_small_limit_on_files_harms_no_process() {
    let source = "ulimit -f 0
        i=0
        while [ $i -lt 25 ]; do sh -c 'exit 3'; [ $? = 3 ] || exit; (exit 4); [ $? = 4 ] || exit
            i=$((i + 1))
        done";
    let (_, counts) = counted("limited", source, &[]);
    assert_eq!(processes(&counts), 51, "{counts:#}");
}

/// A run that may make no file of the size that the counts need has its program's status, and says
/// that nothing was counted. In a user name space nobody may raise a limit.
#[test]
fn a_run_with_a_small_limit_on_files_says_that_nothing_was_counted() {
    let mut command = Command::new("unshare");
    let script = r#"ulimit -f 0 && exec "$1" run --stats -- sh -c "echo fine; exit 7""#;
    command.args(["-Ur", "sh", "-c", script, "sh", env!("CARGO_BIN_EXE_wakeset")]);
    let output = output(command.env_remove("LD_PRELOAD").stdin(Stdio::null()));
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    if err.contains("unshare failed") {
        missing("unshare(1) with a user name space");
        return;
    }
    assert_eq!((output.status.code(), out.as_str()), (Some(7), "fine\n"), "{err}");
    assert!(err.contains("No process was counted: "), "{err}");
}

/// A process that may not map the counts runs without them, from the limit on at which it runs
/// without `--stats`.
#[test]
fn a_small_limit_on_memory_is_said_and_harms_no_process() {
    // With less, the loader complains, and goes on without our library.
    let source = r#"for kilobytes in $(seq $1 20 $2); do
            said=$( (ulimit -v $kilobytes; exec /bin/true) 2>&1) && [ -z "$said" ] && r=y || r=n
            [ $r = $3 ] && echo $kilobytes
        done; :"#;
    let mut without = Command::new(env!("CARGO_BIN_EXE_wakeset"));
    without.args(["run", "--", "sh", "-c", source, "sh", "2000", "40000", "y"]);
    let out = text(&output(without.env_remove("LD_PRELOAD").stdin(Stdio::null())).stdout);
    let least = out.lines().next().expect("a limit with which /bin/true runs");
    let most = least.parse::<u32>().expect("a number") + 1000;
    let (out, counts) = counted("memory", source, &[least, &most.to_string(), "n"]);
    assert_eq!(out, "", "limits in kilobytes with which /bin/true did not run");
    assert!(count(&counts, "/not_counted/no_address_space") > 5, "{counts:#}");
    assert!(processes(&counts) > 10, "{counts:#}");
}

// ---- hostile ----

/// What lives on after the run creates nothing, wherever a name of the run's leads by then.
#[test]
fn no_name_can_be_taken_over_when_the_run_has_ended() {
    let [go, done, place] = ["go", "done", "place"].map(|name| {
        let path = scratch(&format!("counting_{name}"));
        let _ = fs::remove_file(&path);
        path
    });
    let victim = scratch("counting_victim");
    let _ = fs::remove_dir_all(&victim);
    fs::create_dir(&victim).expect("a directory");
    let source = r#"(
            env | sed -n "s/^WAKESET_STATS[^=]*=//p" >"$3.new" && mv "$3.new" "$3"
            while [ ! -e "$1" ]; do sleep 0.05; done
            (exit 0); sh -c "(exit 0)"; (exit 0); sh -c "exit 0"
            : >"$2"
        ) </dev/null >/dev/null 2>&1 &
        while [ ! -e "$3" ]; do sleep 0.05; done"#;
    let paths = [&go, &done, &place].map(|path| path.to_str().expect("a path"));
    counted("ended", source, &paths);

    let place = fs::read_to_string(&place).expect("the place");
    let name = PathBuf::from(place.trim().rsplit(' ').next().expect("a path"));
    // Its directory, and one of the name itself.
    let mut links = Vec::new();
    for taken in [Some(name.as_path()), name.parent()].into_iter().flatten() {
        if !taken.exists() && symlink(&victim, taken).is_ok() {
            links.push(taken.to_path_buf());
        }
    }
    File::create(&go).expect("a file");
    let end = Instant::now() + Duration::from_secs(30);
    while !done.exists() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
    for link in links {
        let _ = fs::remove_file(link);
    }
    assert!(done.exists(), "what lived on has not ended");
    let made: Vec<_> = fs::read_dir(&victim).expect("a directory").flatten().collect();
    assert!(made.is_empty(), "{made:?}");
}

/// A file in the place of the counts, of another user or without the number that only the run
/// knows, is not written to.
#[test]
fn a_forged_area_is_not_written_to() {
    let (mut command, _) = script("place", "echo \"$LD_PRELOAD\"; echo \"$WAKESET_STATS\"", &[]);
    let out = text(&output(&mut command).stdout);
    let [library, place] = out.lines().collect::<Vec<_>>()[..] else { panic!("{out}") };
    let [owner, nonce, _] = place.split(' ').collect::<Vec<_>>()[..] else { panic!("{place}") };
    let file = scratch("counting_forged");
    let stranger = (owner.parse::<u32>().expect("a user") + 1).to_string();
    for (owner, nonce, magic) in [
        (owner, nonce, "WAKEAREA"),
        (owner, &nonce.replace(|_: char| true, "0"), "NO MAGIC"),
        (&stranger, &nonce.replace(|_: char| true, "0"), "WAKEAREA"),
    ] {
        // As an area without a nonce begins: magic, version 2, 4 slots.
        let mut forged = magic.as_bytes().to_vec();
        forged.extend([2, 0, 0, 0, 4, 0, 0, 0]);
        forged.resize(1 << 20, 0);
        fs::write(&file, &forged).expect("a file");
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "(exit 0); sh -c 'exit 0'"]).env("LD_PRELOAD", library);
        command.env("WAKESET_STATS", format!("{owner} {nonce} {}", file.display()));
        assert!(output(&mut command).status.success());
        assert!(fs::read(&file).expect("the file") == forged, "{owner} {nonce} {magic}");
    }
}

// ---- many, killed, and by every road ----

/// The number of processes, `WAKESET_PROCESSES` if that is set.
fn number_of_processes() -> u64 {
    std::env::var("WAKESET_PROCESSES").ok().and_then(|n| n.parse().ok()).unwrap_or(3000)
}

/// The memory of a process that has ended is used again.
#[test]
fn many_processes_take_the_memory_of_few() {
    let Some(program) = compile("counted_forks", Build::Plain, "counted_forks_many") else {
        return;
    };
    let number = number_of_processes();
    let source = r#""$1" "$2" && stat -L -c "%s %b" "${WAKESET_STATS##* }" && date +%s.%N"#;
    let program = program.to_str().expect("a path");
    let (out, counts) = counted("many", source, &[program, &number.to_string()]);
    let late = std::time::SystemTime::now();
    assert!(processes(&counts) > number, "{counts:#}");
    assert_eq!(count(&counts, "/total/counters_made"), number + 1);
    assert_eq!(count(&counts, "/not_counted/processes"), 0);

    let words: Vec<f64> = out.split_whitespace().map(|word| word.parse().expect(&out)).collect();
    let [size, blocks, ended] = words[..] else { panic!("{out}") };
    let used = blocks * 512.0 / size * 4096.0;
    let late = late.duration_since(std::time::UNIX_EPOCH).expect("a time").as_secs_f64();
    eprintln!("{number} processes, {used:.0} slots, {:.3} s to the end", late - ended);
    assert!(used < number as f64 / 2.0, "memory for {used} processes");
}

#[test]
fn a_child_by_every_road_has_its_own_counts() {
    let Some(program) = compile("counted_forks", Build::Plain, "counted_forks_roads") else {
        return;
    };
    let (out, counts) = counted("roads", "exec \"$1\" roads", &[program.to_str().expect("a path")]);
    let made: HashSet<_> = counts["processes"]
        .as_array()
        .expect("processes")
        .iter()
        .filter(|process| count(process, "/counters_made") == 1)
        .map(|process| count(process, "/pid").to_string())
        .collect();
    let roads: Vec<_> = out.lines().filter_map(|line| line.split_once(' ')).collect();
    assert_eq!(roads.len(), 5, "{out}");
    for (road, pid) in roads {
        assert!(made.contains(pid), "{road}: {counts:#}");
    }
}

/// A process that is killed while it counts is counted, also if its memory is used again.
#[test]
fn killed_processes_are_counted() {
    let Some(program) = compile("stress", Build::Plain, "stress_killed") else { return };
    let source = r#"i=0
        while [ $i -lt 3 ]; do
            "$1" 8 1000000000 >/dev/null & pid=$!
            sleep 0.3; kill -KILL $pid; wait $pid
            i=$((i + 1))
        done; sleep 0.3"#;
    let (_, counts) = counted("killed", source, &[program.to_str().expect("a path")]);
    assert_eq!(count(&counts, "/total/counters_made"), 24);
    assert!(count(&counts, "/total/syscalls_avoided") > 1000, "{counts:#}");
}

/// Nothing of it is left where other programs see it.
#[test]
fn a_run_leaves_no_file() {
    let files = |directory: &str| -> HashSet<PathBuf> {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let own = entries.filter(|entry| {
            entry.file_name().to_string_lossy().starts_with("wakeset-stats")
                // SAFETY: it cannot fail.
                && entry.metadata().is_ok_and(|data| data.uid() == unsafe { libc::geteuid() })
        });
        own.map(|entry| entry.path()).collect()
    };
    let before = files("/dev/shm");
    // Killed itself, it can clear nothing up.
    let (mut command, _) = script("left", "kill -KILL $PPID; sleep 10", &[]);
    assert!(!output(&mut command).status.success());
    assert!(files("/dev/shm").is_subset(&before));
}
