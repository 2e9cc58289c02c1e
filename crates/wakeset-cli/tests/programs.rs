//! C programs that use nothing but libc, each run plain and under `wakeset run`: the same output
//! and the same exit status, byte for byte.
//!
//! The programs are in `c/`, one topic each, and state what they expect: on the plain kernel every
//! line must be as expected, so that what the second run is held against is known to be right. Each
//! is a test of its own here, named as the program is.
//!
//! | variable | meaning |
//! |---|---|
//! | `WAKESET_REQUIRE_ALL=1` | a missing C compiler is a failure, not a reason to skip |
//! | `WAKESET_MIGRATIONS=N` | how many objects `migrations_random` migrates, 2,000 if unset |
//! | `WAKESET_PROCESSES=N` | how many processes `many_processes_take_the_memory_of_few` and `generations_of_workers_take_the_memory_of_few` make, 3,000 if unset |
//!
//! | file | what is in it |
//! |---|---|
//! | `activation` | services that systemd starts with their listener |
//! | `counting` | how `--stats` collects: scarce memory, hostile users, many processes |
//! | `declining` | workers that do not accept what they are woken for |
//! | `duplicates` | dup(2) and its kin |
//! | `environment` | what the environment asks of the library without `wakeset run` |
//! | `forks`, `home` | what a fork costs; what comes home after one |
//! | `keeping` | which worker is next, by what workers hold |
//! | `listening` | what `--stats` says of listeners, and the end of a wait for one |
//! | `memory` | programs with a heap that refuses |
//! | `instructions` | programs that make system calls by instruction |
//! | `compare` | a program run both ways, and what differs |
//! | `of_signals` | programs about signals |
//! | `polls` | programs about poll(2) and select(2) |
//! | `sharing`, `top`, `metrics` | counts that are read while the program runs |
//! | `spinning` | the wait before a sleep |
//! | `stats` | what `wakeset run --stats` counts |
//! | `surroundings` | filters, limits, and what is not there |
//! | `run`, `compile` | one run; the compiler |

#[path = "programs/activation.rs"]
mod activation;
#[path = "programs/compare.rs"]
mod compare;
#[path = "programs/compile.rs"]
mod compile;
#[path = "programs/counting.rs"]
mod counting;
#[path = "programs/declining.rs"]
mod declining;
#[path = "programs/duplicates.rs"]
mod duplicates;
#[path = "programs/environment.rs"]
mod environment;
#[path = "programs/forks.rs"]
mod forks;
#[path = "programs/home.rs"]
mod home;
#[path = "programs/instructions.rs"]
mod instructions;
#[path = "programs/keeping.rs"]
mod keeping;
#[path = "programs/listening.rs"]
mod listening;
#[path = "programs/memory.rs"]
mod memory;
#[path = "programs/metrics.rs"]
mod metrics;
#[path = "programs/notified.rs"]
mod notified;
#[path = "programs/of_signals.rs"]
mod of_signals;
#[path = "programs/polls.rs"]
mod polls;
#[path = "programs/run.rs"]
mod run;
#[path = "programs/sharing.rs"]
mod sharing;
#[path = "programs/spinning.rs"]
mod spinning;
#[path = "programs/stats.rs"]
mod stats;
#[path = "programs/surroundings.rs"]
mod surroundings;
#[path = "programs/top.rs"]
mod top;

use std::fs;

use compare::{compare, compare_within};
use compile::{Build, compile, missing, scratch};
use run::{Runner, TIME_LIMIT, run};
use stats::{count, counts};

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
fn migrate() {
    compare("migrate", Build::Plain, &[]);
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
fn migrations_random() {
    let migrations = std::env::var("WAKESET_MIGRATIONS").unwrap_or_else(|_| "2000".to_string());
    // 100,000 take a quarter of a minute on two idle processors.
    let limit = TIME_LIMIT * 10;
    compare_within("migrations_random", Build::Plain, &[&migrations], limit);
}

#[test]
fn kills() {
    // `ci/kills` makes 10,000.
    compare_within("kills", Build::Plain, &["100"], TIME_LIMIT * 5);
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
fn doorbells() {
    compare("doorbells", Build::Plain, &[]);
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

#[test]
fn beside_listener() {
    compare("beside_listener", Build::Plain, &[]);
}

/// A thread that had ended left its private set open, up to 256 of them.
#[test]
fn ended() {
    compare("ended", Build::Plain, &[]);
}

/// Servers for which no round robin is possible, and workers that know nothing of a round robin
/// beside workers that do.
#[test]
fn prefork() {
    compare("prefork", Build::Plain, &[]);
}

/// Whether userfaultfds are to be had. Messages of forks ask for CAP_SYS_PTRACE beside that;
/// without it the program leaves them out.
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

/// What `--stats` says of userfaultfds: each message that the program read, and no spurious
/// wake-ups.
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
        let outcome = run(&program, &[], Runner::Ordered(order, &file), TIME_LIMIT);
        outcome.expect_success(order);
        let counts = stats::read(&file);
        let counted = |name: &str| count(&counts, &format!("/total/uffd_{name}"));
        let read = outcome
            .stdout
            .lines()
            .find_map(|line| line.strip_prefix("counts: ")?.strip_suffix(" messages"));
        let read =
            if order == "kernel" { Some(0) } else { read.and_then(|read| read.parse().ok()) };
        assert_eq!(Some(counted("messages")), read, "{order}");
        // A leader that a busy machine keeps from reading for a second is replaced by another
        // thread, which then finds nothing.
        assert!(counted("spurious_wakes") <= 1, "{order}: {counts}");
        assert_eq!(counted("wakes") > 0, order != "kernel", "{order}");
        assert_eq!(
            outcome.stderr.contains("userfaultfds: "),
            order != "kernel",
            "{}",
            outcome.stderr
        );
    }
}

// ---- where the two are not the same ----

/// Each known difference that a program can see is still there, on both sides: if one is gone,
/// SEMANTICS.md says too much.
#[test]
fn differences() {
    let Some(program) = compile("differences", Build::Plain, "differences") else {
        return;
    };
    for (runner, world) in [(Runner::Kernel, "kernel"), (Runner::Wakeset, "wakeset")] {
        let outcome = run(&program, &[world], runner, TIME_LIMIT);
        outcome.expect_success(&format!("{runner:?}"));
    }
}

/// A program built with AddressSanitizer wants its runtime first among the preloaded libraries.
#[test]
fn an_address_sanitizer_refuses_to_start() {
    let Some(program) = compile("timeouts", Build::Sanitized, "timeouts_sanitized") else {
        return;
    };
    assert!(run(&program, &[], Runner::Kernel, TIME_LIMIT).status.success());
    let outcome = run(&program, &[], Runner::Wakeset, TIME_LIMIT);
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

/// Where nothing escapes, everything stays: a program that ran on the kernel all along would pass
/// the comparison too.
#[test]
fn stress_stays_in_process() {
    let Some(totals) = counts("stress", &["8", "20000"]) else {
        return;
    };
    assert_eq!(count(&totals, "/counters_made"), 8);
    assert_eq!(count(&totals, "/sets_made"), 1);
    assert_eq!(count(&totals, "/migrated"), 0);
    assert_eq!(count(&totals, "/kept"), 9);
    assert!(count(&totals, "/waits") > 0);
    assert!(count(&totals, "/events") >= 8);
    assert_eq!(count(&totals, "/events_from_kernel"), 0);
    assert!(count(&totals, "/syscalls_avoided") >= 8 * 20000);
}

/// Threads that wait and wake each other give no reason to move anything, nor does one case that
/// duplicates a descriptor.
#[test]
fn threads_stay_in_process() {
    let Some(totals) = counts("threads", &[]) else {
        return;
    };
    assert!(count(&totals, "/made") >= 50);
    assert_eq!(count(&totals, "/migrated"), 0, "{:#}", totals["migrated_by_reason"]);
    assert!(count(&totals, "/wakes") > 0);
    // Of the one that moves.
    assert!(count(&totals, "/events_from_kernel") <= 2);
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
    let Some(totals) = counts("migrate", &[]) else {
        return;
    };
    assert!(count(&totals, "/migrated") <= count(&totals, "/made"));
    for reason in ["fork", "spawn", "passed_over"] {
        let path = format!("/migrated_by_reason/{reason}");
        assert!(count(&totals, &path) > 0, "nothing migrated for {reason}: {totals:#}");
    }
}
