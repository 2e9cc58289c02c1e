//! A program that uses every kind of object and wait, in scarce and hostile surroundings: the same
//! output as plain there. `c/confine.c` makes the surroundings.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use wakeset_fd::Sysno;
use wakeset_fd::own_calls::{CALLS_TO_FIND_OTHERS, OWN_CALLS};

use super::compare::compare;
use super::compile::{Build, compile, scratch};

/// The program, and the one that makes surroundings.
struct Programs {
    confine: PathBuf,
    program: PathBuf,
    library: PathBuf,
}

/// What a program is started by.
#[derive(Clone, Copy, PartialEq)]
enum Side {
    Plain,
    /// With the library alone, so that nothing but the program is confined.
    Preloaded,
    /// By `wakeset run`, which is confined, too.
    Run,
}

/// A run's end and output.
#[derive(PartialEq)]
struct Run {
    status: Option<i32>,
    stdout: String,
    stderr: String,
}

/// The library that `wakeset run` takes: the newer of cargo's two copies.
pub fn library() -> PathBuf {
    let beside = Path::new(env!("CARGO_BIN_EXE_wakeset")).with_file_name("");
    let name = "libwakeset_preload.so";
    [beside.join(name), beside.join("deps").join(name)]
        .into_iter()
        .filter(|path| path.exists())
        .max_by_key(|path| path.metadata().and_then(|data| data.modified()).ok())
        .expect("the library")
}

impl Programs {
    fn compile(name: &str) -> Option<Self> {
        let confine = compile("confine", Build::Plain, &format!("confine_{name}"))?;
        let program = compile("surroundings", Build::Plain, &format!("surroundings_{name}"))?;
        Some(Self { confine, program, library: library() })
    }

    /// The program in these surroundings.
    fn run(&self, surroundings: &[&str], side: Side) -> Run {
        static RUNS: AtomicUsize = AtomicUsize::new(0);
        let name = format!("surroundings.{}", RUNS.fetch_add(1, Ordering::Relaxed));
        let files = ["out", "err"].map(|kind| scratch(&format!("{name}.{kind}")));
        let [stdout, stderr] = files.each_ref().map(|path| File::create(path).expect("a file"));
        // A hang is to be an end of its own. Without timerfd_settime three waits take 10 s each.
        let mut command = Command::new("timeout");
        command.args(["-k", "1", "45"]).arg(&self.confine).args(surroundings);
        if side == Side::Preloaded {
            command.arg(format!("preload:{}", self.library.display()));
        }
        command.arg("--");
        if side == Side::Run {
            command.arg(env!("CARGO_BIN_EXE_wakeset")).args(["run", "--"]);
        }
        let status = command
            .arg(&self.program)
            .env_remove("LD_PRELOAD")
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(stderr)
            .status()
            .expect("timeout(1)");
        let [stdout, stderr] = files.map(|path| {
            let text = String::from_utf8_lossy(&fs::read(&path).expect("output")).into_owned();
            let _ = fs::remove_file(path);
            text
        });
        Run { status: status.code(), stdout, stderr }
    }
}

/// What differs between two runs of one surrounding; empty if nothing does.
fn difference(name: &str, plain: &Run, ours: &Run) -> String {
    if plain.status == ours.status && plain.stdout == ours.stdout {
        return String::new();
    }
    let (left, right): (Vec<_>, Vec<_>) =
        (plain.stdout.lines().collect(), ours.stdout.lines().collect());
    let first = (0..left.len().max(right.len())).find(|i| left.get(*i) != right.get(*i));
    let line = |lines: &[&str]| {
        first.and_then(|i| lines.get(i)).map_or("nothing".to_string(), |line| line.to_string())
    };
    format!(
        "{name}: plain {:?}, ours {:?}\n  plain: {}\n  ours:  {}\n{}",
        plain.status,
        ours.status,
        line(&left),
        line(&right),
        ours.stderr,
    )
}

/// Runs `f` for each of the items, several at a time: the program sleeps most of its time. Returns
/// what they say.
fn each<T: Sync>(items: &[T], f: impl Fn(&T) -> String + Sync) -> String {
    let (next, said) = (AtomicUsize::new(0), Mutex::new(String::new()));
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let text = f(item);
                    said.lock().expect("no panic").push_str(&text);
                }
            });
        }
    });
    said.into_inner().expect("no panic")
}

/// The calls of the table in docs/system-calls.md.
fn table() -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/system-calls.md");
    let text = fs::read_to_string(path).expect("the page");
    let rows = text.lines().filter(|line| line.starts_with("| ")).skip(1);
    let cells = rows.filter_map(|line| line.split('|').nth(1));
    cells.flat_map(|cell| cell.split(',')).map(|name| name.trim().to_string()).collect()
}

fn number(call: &str) -> Sysno {
    call.parse().unwrap_or_else(|_| panic!("{call} is no system call"))
}

#[test]
fn the_table_of_own_calls_is_the_documents() {
    let own_calls = OWN_CALLS.iter().chain(CALLS_TO_FIND_OTHERS);
    let in_code: BTreeSet<_> = own_calls.map(|own| own.number.name().to_string()).collect();
    assert_eq!(in_code, table());
}

/// The calls that a run makes.
fn calls_of(programs: &Programs, side: Side) -> BTreeSet<i32> {
    let file = scratch(&format!("surroundings.calls.{}", side == Side::Plain));
    let mut shell = Command::new("sh");
    let preload = format!("preload:{}", programs.library.display());
    let preload = if side == Side::Plain { String::new() } else { preload };
    let status = shell
        .arg("-c")
        .arg("exec 9>\"$1\"; exec timeout 30 \"$2\" calls $4 -- \"$3\"")
        .arg("sh")
        .args([file.as_os_str(), programs.confine.as_os_str(), programs.program.as_os_str()])
        .arg(preload)
        .env_remove("LD_PRELOAD")
        .stdout(Stdio::null())
        .status()
        .expect("sh");
    assert!(status.success(), "{status}");
    let text = fs::read_to_string(file).expect("the calls");
    text.lines().map(|line| line.parse().expect("a number")).collect()
}

/// What is missing here is missing in docs/system-calls.md.
#[test]
fn no_other_call_is_made() {
    let Some(programs) = Programs::compile("calls") else { return };
    let plain = calls_of(&programs, Side::Plain);
    let known: BTreeSet<_> = table().iter().map(|call| number(call) as i32).collect();
    let ours = calls_of(&programs, Side::Preloaded);
    let others: Vec<_> = ours
        .iter()
        .filter(|call| !plain.contains(call) && !known.contains(call))
        .filter_map(|call| Sysno::new(*call as usize))
        .collect();
    assert!(others.is_empty(), "{others:?} are not in the table");
    assert!(plain.len() > 30 && ours.len() > plain.len(), "{plain:?} {ours:?}");
}

/// No program starts without these; and libc ends one whose threads cannot sleep on a futex.
const FOR_ANY_PROGRAM: [&str; 7] =
    ["read", "write", "close", "mmap", "mprotect", "openat", "futex"];

/// What is in neither of two outputs at the same line: where a call is refused that the program
/// itself makes, Wakeset may answer it by another, or by none.
fn unlike_both(plain: &Run, granted: &Run, ours: &Run) -> bool {
    let lines = |run: &Run| run.stdout.lines().map(str::to_string).collect::<Vec<_>>();
    let (plain_lines, granted_lines) = (lines(plain), lines(granted));
    let is_one = |(i, line): (usize, String)| {
        plain_lines.get(i) == Some(&line) || granted_lines.get(i) == Some(&line)
    };
    let ours_lines = lines(ours);
    let is_short = ours_lines.len() < plain_lines.len();
    is_short || !ours_lines.into_iter().enumerate().all(is_one)
}

#[test]
fn each_call_may_be_refused() {
    let Some(programs) = Programs::compile("refused") else { return };
    let calls: Vec<_> =
        table().into_iter().filter(|call| !FOR_ANY_PROGRAM.contains(&call.as_str())).collect();
    let cases: Vec<_> =
        calls.iter().flat_map(|call| [libc::EPERM, libc::ENOSYS].map(|e| (call, e))).collect();
    let granted = programs.run(&[], Side::Plain);
    let said = each(&cases, |(call, error)| {
        let filter = format!("refuse:{}:{error}", number(call) as i32);
        let plain = programs.run(&[&filter], Side::Plain);
        let ours = programs.run(&[&filter], Side::Preloaded);
        if plain.stdout != granted.stdout && !unlike_both(&plain, &granted, &ours) {
            return String::new();
        }
        difference(&format!("without {call} ({error})"), &plain, &ours)
    });
    assert!(said.is_empty(), "{said}");
}

/// `wakeset run` finds out, and the program runs on the kernel's epoll.
#[test]
fn each_call_may_kill() {
    let Some(programs) = Programs::compile("killed") else { return };
    let plain = calls_of(&programs, Side::Plain);
    let calls: Vec<_> =
        table().into_iter().filter(|call| !plain.contains(&(number(call) as i32))).collect();
    assert!(calls.len() > 8, "{calls:?}");
    let said = each(&calls, |call| {
        let filter = format!("kill:{}", number(call) as i32);
        let plain = programs.run(&[&filter], Side::Plain);
        let ours = programs.run(&[&filter], Side::Run);
        let mut said = difference(&format!("killed by {call}"), &plain, &ours);
        // Rust's own start makes some of them.
        if !ours.stderr.contains(call.as_str()) && ours.status != Some(128 + libc::SIGSYS) {
            said += &format!("{call}: nothing was said\n{}", ours.stderr);
        }
        said
    });
    assert!(said.is_empty(), "{said}");
}

#[test]
fn sandboxed() {
    compare("sandboxed", Build::Plain, &[]);
}

#[test]
fn cloned() {
    compare("cloned", Build::Plain, &[]);
}

/// Limits under which the program runs plain: 9.6 MB of .bss kept it from starting.
#[test]
fn limits_are_as_plain() {
    let Some(programs) = Programs::compile("limits") else { return };
    let limits = [
        "data:400000",
        "data:600000",
        "data:1000000",
        "data:9000000",
        "as:40000000",
        "as:100000000",
        "nofile:20",
        "stack:65536",
        "fsize:100000",
    ];
    let said = each(&limits, |limit| {
        let plain = programs.run(&[limit], Side::Plain);
        let ours = programs.run(&[limit], Side::Preloaded);
        difference(limit, &plain, &ours)
    });
    assert!(said.is_empty(), "{said}");
}

/// Doorbells took numbers, so that a program that used up its numbers got fewer than plain.
#[test]
fn full() {
    compare("full", Build::Plain, &[]);
}
