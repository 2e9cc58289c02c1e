//! C programs that use nothing but libc, each run plain and under `wakeset run`: the same output and the same exit status,
//! byte for byte.
//!
//! The programs are in `c/`, one topic each, and state what they expect: on the plain kernel every line must be as
//! expected, so that what the second run is held against is known to be right. Each is a test of its own here, named as
//! the program is.
//!
//! | variable | meaning |
//! |---|---|
//! | `WAKESET_REQUIRE_ALL=1` | a missing C compiler is a failure, not a reason to skip |
//! | `WAKESET_ESCAPES=N` | how many random escapes `escapes_random` makes, 2,000 if unset |

use std::fs::{self, File};
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// How long a run may take before it counts as hung.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a program prints behind these differs from run to run.
const MEASURED: [&str; 3] = ["events/ms:", "escapes:", "counts:"];

/// How a program is compiled.
#[derive(Clone, Copy, PartialEq)]
enum Build {
    Plain,
    /// Calls the checking variants in libc (`__read_chk`, `__poll_chk` and so on) where it can.
    Fortified,
    /// With AddressSanitizer, where the compiler has it.
    Sanitized,
}

/// Who runs a program.
#[derive(Clone, Copy, Debug)]
enum Runner<'a> {
    Kernel,
    Wakeset,
    /// With `--order`, and with `--stats` into this file.
    Ordered(&'a str, &'a Path),
    /// With `--stats` into this file.
    Counted(&'a Path),
    /// With a library whose heap refuses: `WAKESET_ALLOCATIONS`, which debug builds of it know.
    Rationed(&'a str),
}

/// What a run left behind.
struct Outcome {
    status: ExitStatus,
    stdout: String,
    stderr: String,
}

impl Outcome {
    /// The lines that do not depend on the time the run took.
    fn lines(&self) -> impl Iterator<Item = &str> {
        self.stdout.lines().filter(|line| !MEASURED.iter().any(|prefix| line.starts_with(prefix)))
    }
}

/// Where programs and their output go; `name` keeps tests that run at the same time apart.
fn scratch(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// A reason to skip, unless nothing may be skipped.
fn missing(what: &str) -> Option<PathBuf> {
    let required = std::env::var_os("WAKESET_REQUIRE_ALL").is_some_and(|v| v == "1");
    assert!(!required, "{what} is missing, and WAKESET_REQUIRE_ALL is set");
    eprintln!("skipped: {what} is missing");
    None
}

/// Compiles `c/SOURCE.c`. `None`, with a word about it, where there is no compiler.
fn compile(source: &str, build: Build, to: &str) -> Option<PathBuf> {
    let program = scratch(to);
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-Wall", "-Wextra", "-Werror", "-U_FORTIFY_SOURCE"]);
    match build {
        Build::Plain => {}
        Build::Fortified => _ = compiler.arg("-D_FORTIFY_SOURCE=2"),
        Build::Sanitized => _ = compiler.arg("-fsanitize=address"),
    }
    compiler
        .arg("-pthread")
        .arg("-o")
        .arg(&program)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(source).with_extension("c"));
    match compiler.output() {
        Ok(output) => {
            let complaints = String::from_utf8_lossy(&output.stderr);
            if build == Build::Sanitized && complaints.contains("-lasan") {
                return missing("libasan");
            }
            assert!(output.status.success(), "cc {source}.c:\n{complaints}");
            Some(program)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => missing("cc"),
        Err(error) => panic!("cc: {error}"),
    }
}

/// Runs a program to its end, or to that of our patience.
///
/// The output goes into files: a pipe would keep us waiting for whatever the program left running.
fn run(program: &Path, arguments: &[&str], runner: Runner, patience: Duration) -> Outcome {
    let suffix = match runner {
        Runner::Kernel => "kernel",
        Runner::Wakeset => "wakeset",
        Runner::Ordered(order, _) => order,
        Runner::Counted(_) => "counted",
        Runner::Rationed(_) => "rationed",
    };
    let output = |stream| PathBuf::from(format!("{}.{suffix}.{stream}", program.display()));
    let create = |path: &Path| File::create(path).expect("a file for the output");
    let (stdout, stderr) = (output("out"), output("err"));
    let mut command = match runner {
        Runner::Kernel => Command::new(program),
        Runner::Wakeset | Runner::Ordered(..) | Runner::Counted(_) | Runner::Rationed(_) => {
            let mut command = Command::new(env!("CARGO_BIN_EXE_wakeset"));
            command.arg("run");
            if let Runner::Ordered(order, file) = runner {
                command.args(["--order", order, &format!("--stats={}", file.display())]);
            }
            if let Runner::Counted(file) = runner {
                command.arg(format!("--stats={}", file.display()));
            }
            if let Runner::Rationed(allocations) = runner {
                command.env("WAKESET_ALLOCATIONS", allocations);
            }
            command.arg("--").arg(program);
            command
        }
    };
    let child = command
        .args(arguments)
        .env_remove("LD_PRELOAD")
        .stdin(Stdio::null())
        .stdout(create(&stdout))
        .stderr(create(&stderr))
        // A group of its own, so that what it starts can be ended with it.
        .process_group(0)
        .spawn()
        .expect("the program starts");
    let status = wait(child, patience);
    let read = |path| String::from_utf8_lossy(&fs::read(path).expect("the output")).into_owned();
    let outcome = Outcome {
        status: status.unwrap_or_else(|| ExitStatus::from_raw(9)),
        stdout: read(&stdout),
        stderr: read(&stderr),
    };
    assert!(
        status.is_some(),
        "{}, {runner:?}: not done after {patience:?}; its last lines:\n{}{}",
        program.display(),
        last_lines(&outcome.stdout),
        outcome.stderr,
    );
    outcome
}

/// `None` if the child had to be killed.
fn wait(mut child: Child, patience: Duration) -> Option<ExitStatus> {
    let end = Instant::now() + patience;
    while Instant::now() < end {
        if let Some(status) = child.try_wait().expect("our own child") {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    // std can kill the child alone; the shell's kill, being built in, is everywhere.
    let group = format!("kill -KILL -{}", child.id());
    let _ = Command::new("sh").args(["-c", &group]).status();
    let _ = child.kill();
    let _ = child.wait();
    None
}

fn last_lines(text: &str) -> String {
    let lines: Vec<_> = text.lines().collect();
    let start = lines.len().saturating_sub(10);
    lines[start..].iter().map(|l| format!("  {l}\n")).collect()
}

/// Compiles a program, runs it both ways and compares.
fn compare(source: &str, build: Build, arguments: &[&str]) {
    compare_patiently(source, build, arguments, PATIENCE);
}

fn compare_patiently(source: &str, build: Build, arguments: &[&str], patience: Duration) {
    let name = match build {
        Build::Plain => source.to_string(),
        Build::Fortified => format!("{source}_fortified"),
        Build::Sanitized => format!("{source}_sanitized"),
    };
    let Some(program) = compile(source, build, &name) else {
        return;
    };
    let kernel = run(&program, arguments, Runner::Kernel, patience);
    assert!(
        kernel.status.success(),
        "{name} has a wrong expectation, plain, {}:\n{}{}",
        kernel.status,
        unexpected(&kernel),
        kernel.stderr,
    );
    let wakeset = run(&program, arguments, Runner::Wakeset, patience);
    let difference = difference(&kernel, &wakeset);
    assert!(
        difference.is_empty() && wakeset.status == kernel.status,
        "{name} under `wakeset run`, {}:\n{difference}{}",
        wakeset.status,
        wakeset.stderr,
    );
}

/// The lines in which a program itself says that something is not as it should be.
fn unexpected(outcome: &Outcome) -> String {
    let wrong: String =
        outcome.lines().filter(|line| line.contains("(should be")).map(|line| format!("  {line}\n")).collect();
    match wrong.is_empty() {
        true => last_lines(&outcome.stdout),
        false => wrong,
    }
}

/// What differs, line by line, with the heading that it stands under. Empty if nothing does.
fn difference(kernel: &Outcome, wakeset: &Outcome) -> String {
    const MOST: usize = 20;
    let (left, right): (Vec<_>, Vec<_>) = (kernel.lines().collect(), wakeset.lines().collect());
    let mut heading = "";
    let mut report = String::new();
    let mut count = 0;
    for i in 0..left.len().max(right.len()) {
        let (kernel, wakeset) = (left.get(i), right.get(i));
        if let Some(line) = kernel.filter(|line| line.starts_with("-- ")) {
            heading = line;
        }
        if kernel == wakeset {
            continue;
        }
        count += 1;
        if count <= MOST {
            let text = |line: Option<&&str>| line.map_or("(no line)".to_string(), |l| l.to_string());
            report +=
                &format!("line {}, {heading}\n  kernel:  {}\n  wakeset: {}\n", i + 1, text(kernel), text(wakeset));
        }
    }
    if count > MOST {
        report += &format!("and {} lines more\n", count - MOST);
    }
    report
}

/// Runs a program with `--stats` and returns the totals, after checking its status.
fn counts(source: &str, arguments: &[&str]) -> Option<Value> {
    let name = format!("{source}_counted");
    let program = compile(source, Build::Plain, &name)?;
    let file = scratch(&format!("{name}.json"));
    let outcome = run(&program, arguments, Runner::Counted(&file), PATIENCE);
    assert!(outcome.status.success(), "{name}, {}:\n{}{}", outcome.status, unexpected(&outcome), outcome.stderr);
    let text = fs::read_to_string(&file).expect("the counts");
    let value: Value = serde_json::from_str(&text).expect("JSON");
    Some(value["total"].clone())
}

fn count(totals: &Value, path: &str) -> u64 {
    totals.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("no count {path} in {totals:#}"))
}

// ---- the programs ----

#[test]
fn errors() {
    compare("errors", Build::Plain, &[]);
}

#[test]
fn eventfd() {
    compare("eventfd", Build::Plain, &[]);
}

#[test]
fn eventfd_fortified() {
    compare("eventfd", Build::Fortified, &[]);
}

#[test]
fn operations() {
    compare("operations", Build::Plain, &[]);
}

#[test]
fn semantics() {
    compare("semantics", Build::Plain, &[]);
}

#[test]
fn timerfd() {
    compare("timerfd", Build::Plain, &[]);
}

#[test]
fn vfork() {
    compare("vfork", Build::Plain, &[]);
}

#[test]
fn threads() {
    compare("threads", Build::Plain, &[]);
}

#[test]
fn mixed() {
    compare("mixed", Build::Plain, &[]);
}

#[test]
fn signals() {
    compare("signals", Build::Plain, &[]);
}

#[test]
fn escape() {
    compare("escape", Build::Plain, &[]);
}

#[test]
fn exec() {
    compare("exec", Build::Plain, &[]);
}

#[test]
fn rings() {
    compare("rings", Build::Plain, &[]);
}

#[test]
fn escapes_random() {
    let escapes = std::env::var("WAKESET_ESCAPES").unwrap_or_else(|_| "2000".to_string());
    // 100,000 take a quarter of a minute on two idle processors.
    let patience = PATIENCE * 10;
    compare_patiently("escapes_random", Build::Plain, &[&escapes], patience);
}

#[test]
fn kills() {
    // `ci/kills` makes 10,000.
    compare_patiently("kills", Build::Plain, &["100"], PATIENCE * 5);
}

#[test]
fn polls() {
    compare("polls", Build::Plain, &[]);
}

#[test]
fn polls_fortified() {
    compare("polls", Build::Fortified, &[]);
}

#[test]
fn pipes() {
    compare("pipes", Build::Plain, &[]);
}

#[test]
fn pipes_fortified() {
    compare("pipes", Build::Fortified, &[]);
}

#[test]
fn cancel() {
    compare("cancel", Build::Plain, &[]);
}

#[test]
fn close() {
    compare("close", Build::Plain, &[]);
}

#[test]
fn moves() {
    compare("moves", Build::Plain, &[]);
}

#[test]
fn closed() {
    compare("closed", Build::Plain, &[]);
}

#[test]
fn atfork() {
    compare("atfork", Build::Plain, &[]);
}

#[test]
fn handlers() {
    compare("handlers", Build::Plain, &[]);
}

#[test]
fn bells() {
    compare("bells", Build::Plain, &[]);
}

#[test]
fn exhaustion() {
    compare("exhaustion", Build::Plain, &[]);
}

/// It is our heap that runs out: what there is no memory for is the kernel's, and the rest stays.
#[test]
fn exhaustion_moves_what_there_is_no_memory_for() {
    let Some(totals) = counts("exhaustion", &[]) else {
        return;
    };
    let made = count(&totals, "/made");
    assert!((100..3000).contains(&made), "{made} of 3000 objects began in user space");
}

/// Runs a program with a heap that refuses everything after some allocations, or one of them, for every number that `numbers` gives, until
/// it needs no more. `exempt` are headings of the program's under which the output may differ.
fn ration(source: &str, numbers: impl Iterator<Item = usize>, exempt: &[&str]) {
    if !cfg!(debug_assertions) {
        missing("a debug build, whose heap can refuse,");
        return;
    }
    let name = format!("{source}_rationed");
    let Some(program) = compile(source, Build::Plain, &name) else {
        return;
    };
    let compared = |runner: Runner| {
        let outcome = run(&program, &[], runner, PATIENCE);
        let mut is_exempt = false;
        let lines = outcome.stdout.lines().filter(|line| {
            if let Some(heading) = line.strip_prefix("-- ") {
                is_exempt = exempt.contains(&heading);
            }
            !is_exempt && !line.is_empty()
        });
        let stdout = lines.map(|line| format!("{line}\n")).collect();
        Outcome { stdout, ..outcome }
    };
    let kernel = compared(Runner::Kernel);
    for (runs, n) in numbers.enumerate() {
        let mut refused = false;
        for how in ["", "!"] {
            let allocations = format!("{n}{how}");
            let wakeset = compared(Runner::Rationed(&allocations));
            let difference = difference(&kernel, &wakeset);
            // The status says whether lines are as expected, those that do not count too.
            let ended = wakeset.status.code() == Some(0) || !exempt.is_empty() && wakeset.status.code() == Some(1);
            assert!(
                difference.is_empty() && ended,
                "{source} with WAKESET_ALLOCATIONS={allocations}, {}:\n{difference}{}",
                wakeset.status,
                wakeset.stderr
            );
            refused |= wakeset.stderr.contains("an allocation is refused");
        }
        if !refused {
            assert!(runs > 5, "{source} needs {n} allocations only, or none was refused");
            return;
        }
    }
}

/// 0, 1, 2, 3, 5, 8 and so on.
fn ever_further() -> impl Iterator<Item = usize> {
    let mut pair = (0, 1);
    std::iter::from_fn(move || {
        let (now, next) = pair;
        pair = (next, (now + next).max(2));
        Some(now)
    })
}

#[test]
fn no_memory_pipes() {
    ration("pipes", ever_further(), &[]);
}

/// At every allocation. What there is no memory for lives in the kernel half of its set, so the order across the halves is not Linux's
/// (SEMANTICS.md, Differences 1 and 2): that is what "maxevents" is about.
#[test]
fn no_memory_semantics() {
    ration("semantics", 0..1000, &["maxevents"]);
}

#[test]
fn no_memory_operations() {
    ration("operations", ever_further(), &[]);
}

#[test]
fn no_memory_close() {
    ration("close", ever_further().take(12), &[]);
}

/// Forks, descriptors passed on, duplicates.
#[test]
fn no_memory_escape() {
    ration("escape", [0, 13].into_iter(), &[]);
}

#[test]
fn realtime() {
    compare("realtime", Build::Plain, &[]);
}

#[test]
fn stress() {
    compare("stress", Build::Plain, &["8", "20000"]);
}

#[test]
fn timeouts() {
    compare("timeouts", Build::Plain, &[]);
}

#[test]
fn listeners() {
    compare("listeners", Build::Plain, &[]);
}

/// Servers that no turn can be kept for, and workers that know nothing of turns beside others that do.
#[test]
fn prefork() {
    compare("prefork", Build::Plain, &[]);
}

/// What a listener's waits counted, with `--order`.
fn listener_counts(order: &str, part: &str) -> Option<Vec<Value>> {
    let program = compile("listeners", Build::Plain, &format!("listeners_{part}_{order}"))?;
    let file = scratch(&format!("listeners_{part}_{order}.json"));
    // The program knows what it expects, so these need no plain run beside them.
    let outcome = run(&program, &[part], Runner::Ordered(order, &file), PATIENCE);
    assert!(outcome.status.success(), "{order}, {}:\n{}{}", outcome.status, unexpected(&outcome), outcome.stderr);
    assert!(outcome.stderr.contains("busiest/least"), "{}", outcome.stderr);
    let counts: Value = serde_json::from_str(&fs::read_to_string(&file).expect("the counts")).expect("JSON");
    Some(counts["listeners"].as_array().expect("listeners").clone())
}

/// What `--stats` says of listeners: everything that was asked for was accepted, and more was woken than for nothing.
#[test]
fn listeners_are_counted() {
    for order in ["fifo", "turns", "lifo"] {
        let Some(listeners) = listener_counts(order, "unstopped") else {
            return;
        };
        // Those of a hundred questions to four processes: no other listener of the program has so many.
        let served: Vec<_> = listeners
            .iter()
            .filter(|listener| count(listener, "/connections") == 100)
            .filter(|listener| listener["workers"].as_array().is_some_and(|workers| workers.len() == 4))
            .collect();
        assert!(served.len() >= 10, "{order}: {} of {listeners:#?}", served.len());
        for listener in served {
            assert!(count(listener, "/wakes") > count(listener, "/spurious_wakes"), "{order}: {listener:#}");
        }
    }
}

/// Threads of one process are told apart as well as processes.
#[test]
fn listeners_are_counted_by_thread() {
    let Some(listeners) = listener_counts("fifo", "threads") else {
        return;
    };
    assert_eq!(listeners.len(), 2, "{listeners:#?}");
    for listener in listeners {
        let workers = listener["workers"].as_array().expect("workers");
        assert_eq!(workers.len(), 4, "{listener:#}");
        assert_eq!(workers.iter().map(|worker| count(worker, "/connections")).sum::<u64>(), 100, "{listener:#}");
        // Each takes its turn: nobody has all of them.
        assert!(workers.iter().all(|worker| count(worker, "/connections") < 100), "{listener:#}");
    }
}

/// With `--order kernel` nobody is woken in turn; accepted connections are counted still.
#[test]
fn the_kernels_order_is_left_alone() {
    let Some(listeners) = listener_counts("kernel", "unstopped") else {
        return;
    };
    assert!(listeners.iter().any(|listener| count(listener, "/connections") == 100));
    assert!(listeners.iter().all(|listener| count(listener, "/wakes") == 0), "{listeners:#?}");
}

/// Whether userfaultfds are to be had. Messages of forks ask for CAP_SYS_PTRACE beside that; without it the program leaves them out.
fn has_userfaultfd() -> bool {
    /// `UFFDIO_API`, with `UFFD_FEATURE_EVENT_FORK`.
    const API: libc::Ioctl = 0xc018_aa3f_u32 as libc::Ioctl;
    let mut api = [0xaa_u64, 1 << 1, 0];
    // SAFETY: a number; UFFD_USER_MODE_ONLY.
    let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | 1) } as i32;
    if fd < 0 {
        missing("userfaultfd(2)");
        return false;
    }
    // SAFETY: our own descriptor, and `struct uffdio_api`.
    unsafe {
        if libc::ioctl(fd, API, api.as_mut_ptr()) != 0 {
            missing("UFFD_FEATURE_EVENT_FORK (CAP_SYS_PTRACE)");
        }
        libc::close(fd);
    }
    true
}

#[test]
fn uffd() {
    if has_userfaultfd() {
        compare("uffd", Build::Plain, &[]);
    }
}

/// What `--stats` says of userfaultfds: each message that the program read, and nobody woken for nothing.
#[test]
fn uffd_messages_are_counted() {
    if !has_userfaultfd() {
        return;
    }
    let Some(program) = compile("uffd", Build::Plain, "uffd_counted") else {
        return;
    };
    for order in ["fifo", "turns", "lifo", "kernel"] {
        let file = scratch(&format!("uffd_{order}.json"));
        let outcome = run(&program, &[], Runner::Ordered(order, &file), PATIENCE);
        assert!(outcome.status.success(), "{order}, {}:\n{}{}", outcome.status, unexpected(&outcome), outcome.stderr);
        let counts: Value = serde_json::from_str(&fs::read_to_string(&file).expect("the counts")).expect("JSON");
        let counted = |name: &str| count(&counts, &format!("/total/uffd_{name}"));
        let read = outcome.stdout.lines().find_map(|line| line.strip_prefix("counts: ")?.strip_suffix(" messages"));
        let read = if order == "kernel" { Some(0) } else { read.and_then(|read| read.parse().ok()) };
        assert_eq!(Some(counted("messages")), read, "{order}");
        // A thread that a busy machine keeps from reading for a second loses its turn to another, which then finds nothing.
        assert!(counted("spurious_wakes") <= 1, "{order}: {counts}");
        assert_eq!(counted("wakes") > 0, order != "kernel", "{order}");
        assert_eq!(outcome.stderr.contains("userfaultfds: "), order != "kernel", "{}", outcome.stderr);
    }
}

// ---- where the two are not the same ----

/// Each known difference that a program can see is still there, on both sides: if one is gone, SEMANTICS.md says too much.
#[test]
fn differences() {
    let Some(program) = compile("differences", Build::Plain, "differences") else {
        return;
    };
    for (runner, world) in [(Runner::Kernel, "kernel"), (Runner::Wakeset, "wakeset")] {
        let outcome = run(&program, &[world], runner, PATIENCE);
        assert!(
            outcome.status.success(),
            "{runner:?}, {}:\n{}{}",
            outcome.status,
            unexpected(&outcome),
            outcome.stderr
        );
    }
}

/// A program built with AddressSanitizer wants its runtime first among the preloaded libraries.
#[test]
fn an_address_sanitizer_refuses_to_start() {
    let Some(program) = compile("timeouts", Build::Sanitized, "timeouts_sanitized") else {
        return;
    };
    assert!(run(&program, &[], Runner::Kernel, PATIENCE).status.success());
    let outcome = run(&program, &[], Runner::Wakeset, PATIENCE);
    assert!(!outcome.status.success() && outcome.stdout.is_empty());
    assert!(outcome.stderr.contains("does not come first"), "{}", outcome.stderr);
}

// ---- what the programs are good for ----

/// The fortified programs are there for the sake of these functions: they must call them.
#[test]
fn fortified_programs_call_checking_functions() {
    let wanted: [(&str, &[&str]); 2] =
        [("eventfd", &["__read_chk"]), ("polls", &["__poll_chk", "__ppoll_chk", "__fdelt_chk"])];
    for (source, functions) in wanted {
        let Some(program) = compile(source, Build::Fortified, &format!("{source}_symbols")) else {
            return;
        };
        let bytes = fs::read(&program).expect("the program");
        for function in functions {
            let found = bytes.windows(function.len()).any(|w| w == function.as_bytes());
            assert!(found, "{source} does not call {function}");
        }
    }
}

/// Where nothing escapes, everything stays: a program that ran on the kernel all along would pass the comparison too.
#[test]
fn stress_stays_in_process() {
    let Some(totals) = counts("stress", &["8", "20000"]) else {
        return;
    };
    assert_eq!(count(&totals, "/counters_made"), 8);
    assert_eq!(count(&totals, "/sets_made"), 1);
    assert_eq!(count(&totals, "/moved"), 0);
    assert_eq!(count(&totals, "/kept"), 9);
    assert!(count(&totals, "/waits") > 0);
    assert!(count(&totals, "/events") >= 8);
    assert_eq!(count(&totals, "/events_from_kernel"), 0);
    assert!(count(&totals, "/syscalls_avoided") >= 8 * 20000);
}

/// Threads that wait and wake each other give no reason to move anything. One case duplicates a descriptor, which moves
/// that eventfd and may take one more object along.
#[test]
fn threads_stay_in_process() {
    let Some(totals) = counts("threads", &[]) else {
        return;
    };
    assert!(count(&totals, "/made") >= 50);
    let moved = count(&totals, "/moved");
    let by_dup =
        count(&totals, "/moved_by_reason/unmodelled_call") + count(&totals, "/moved_by_reason/nested_in_kernel");
    assert!(moved <= 2 && moved == by_dup, "{:#}", totals["moved_by_reason"]);
    assert!(count(&totals, "/wakes") > 0);
    assert_eq!(count(&totals, "/events_from_kernel"), 0);
}

/// A set with kernel descriptors keeps its eventfds in process.
#[test]
fn mixed_sets_keep_their_eventfds() {
    let Some(totals) = counts("mixed", &[]) else {
        return;
    };
    assert!(count(&totals, "/kept") > count(&totals, "/made") / 2);
    assert!(count(&totals, "/events_from_kernel") > 0);
    assert!(count(&totals, "/events") > count(&totals, "/events_from_kernel"));
}

/// Each way out is known by its name.
#[test]
fn escapes_are_counted_by_reason() {
    let Some(totals) = counts("escape", &[]) else {
        return;
    };
    assert!(count(&totals, "/moved") <= count(&totals, "/made"));
    for reason in ["fork", "spawn", "passed_over"] {
        let path = format!("/moved_by_reason/{reason}");
        assert!(count(&totals, &path) > 0, "nothing moved for {reason}: {totals:#}");
    }
}
