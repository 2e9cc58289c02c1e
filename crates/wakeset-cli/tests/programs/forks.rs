//! What a fork costs a process, with objects of ours and without, and what a fork or a vfork leaves
//! in process.

use crate::compare::{compare, compare_within};
use crate::compile::{Build, compile};
use crate::run::{Runner, TIME_LIMIT, run};
use crate::stats::{count, counts};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};

/// What a fork copies on both sides, with so many objects.
struct Copies {
    plain: u32,
    ours: u32,
}

/// One of the lines that the program prints.
///
/// The page faults of a child are more, and the larger part of a fork's price, but how many there
/// are depends on where our code lies in its pages and on how many of those the kernel maps at
/// once.
fn copies(program: &Path, objects: &str, line: &str) -> Copies {
    let [plain, ours] = [Runner::Kernel, Runner::Wakeset].map(|side| {
        let outcome = run(program, &[objects], side, TIME_LIMIT);
        let count = outcome.stdout.lines().find_map(|found| found.strip_prefix(line));
        count.and_then(|count| count.parse().ok()).expect(&outcome.stdout)
    });
    Copies { plain, ours }
}

const PAGES: &str = "pages of a child: ";
const MAPPINGS: &str = "mappings: ";

/// A page that is copied is what a fork mostly consists of. Our handlers write to the thread's own
/// words only, and to the stack.
#[test]
fn a_fork_of_a_process_without_objects_costs_no_pages() {
    let Some(program) = compile("forks", Build::Plain, "forks") else { return };
    let Copies { plain, ours } = copies(&program, "0", PAGES);
    assert!(ours <= plain + 3, "{ours} pages a fork instead of {plain}");
}

/// With objects, what is written to are the page of ours, the thread's own words, the child's notes
/// of what it has from its parent and by what it asks, and, without optimization, some more of the
/// stack: no page for each object.
#[test]
fn a_fork_of_a_process_with_objects_touches_none_of_them() {
    let Some(program) = compile("forks", Build::Plain, "forks_with_objects") else { return };
    for objects in ["1", "100"] {
        let Copies { plain, ours } = copies(&program, objects, PAGES);
        assert!(plain > 0, "the kernel does not tell");
        assert!(ours <= plain + 9, "{objects}: {ours} pages a fork instead of {plain}");
    }
}

/// Each mapping is copied, too, which costs as much as two pages, or ten if something in it is
/// copied. The library has five, as any library has. It had twelve, five of them libgcc's.
#[test]
fn a_process_without_objects_has_no_mappings_but_the_librarys() {
    let Some(program) = compile("forks", Build::Plain, "forks_mappings") else { return };
    let Copies { plain, ours } = copies(&program, "0", MAPPINGS);
    assert!(plain > 0 && ours <= plain + 5, "{ours} mappings instead of {plain}");
}

/// Processes that share a listener share memory, from before they are forked.
#[test]
fn memory_is_shared_where_there_is_a_listener() {
    let shares_memory = |script: &str, stdin: Stdio| {
        let mut shell = Command::new(env!("CARGO_BIN_EXE_wakeset"));
        let output = shell.args(["run", "--", "sh", "-c", script]).stdin(stdin).output();
        let maps = String::from_utf8(output.expect("sh runs").stdout).expect("text");
        assert!(maps.contains("libwakeset_preload.so"), "{maps}");
        maps.lines().any(|line| line.contains(" rw-s ") && line.contains("memfd:wakeset"))
    };
    // A subshell is forked, and `$$` is its parent.
    let forks = "(cat /proc/$$/maps; :)";
    assert!(!shares_memory(forks, Stdio::null()), "for a listener that there is not");
    let listener = OwnedFd::from(TcpListener::bind("127.0.0.1:0").expect("a listener"));
    let as_by_inetd = || Stdio::from(listener.try_clone().expect("a number"));
    assert!(!shares_memory("exec cat /proc/self/maps", as_by_inetd()), "it forks nothing");
    assert!(shares_memory(forks, as_by_inetd()), "as inetd(8) starts it");
}

/// All of them migrated for good once.
#[test]
fn what_a_vfork_child_leaves_alone_stays() {
    let Some(totals) = counts("vforked", &["stay"]) else { return };
    assert_eq!(count(&totals, "/kept"), 4, "{totals:#}");
    assert_eq!(count(&totals, "/migrated"), 0, "{totals:#}");
}

/// A fork migrated all of them, and they never came back.
#[test]
fn what_a_forked_child_leaves_alone_stays() {
    let Some(totals) = counts("forked", &["stay"]) else { return };
    assert_eq!(count(&totals, "/kept"), 4, "{totals:#}");
    assert_eq!(count(&totals, "/migrated"), 0, "{totals:#}");
}

/// Children that live for more than a second migrated all of them, whatever they did.
#[test]
fn what_workers_leave_alone_stays() {
    let Some(totals) = counts("forked", &["pool"]) else { return };
    assert_eq!(count(&totals, "/kept"), 5, "{totals:#}");
    assert_eq!(count(&totals, "/migrated"), 0, "{totals:#}");
}

/// A program of one thread has no second one for long.
#[test]
fn what_workers_of_one_thread_have_migrates() {
    let Some(totals) = counts("forked", &["pool_left"]) else { return };
    assert_eq!(count(&totals, "/migrated"), 5, "{totals:#}");
}

/// To hear of each worker takes one of the process's numbers, of which there are 64 here.
#[test]
fn what_many_workers_have_migrates() {
    let Some(totals) = counts("forked", &["pool_of_many"]) else { return };
    assert_eq!(count(&totals, "/migrated"), 5, "{totals:#}");
}

/// The same without a second thread, and without one of ours. A child that takes its time is not
/// waited for, so a busy machine has more than one try.
#[test]
fn what_the_child_of_one_thread_leaves_alone_stays() {
    for _ in 0..10 {
        let Some(totals) = counts("forked", &["stay_alone"]) else { return };
        if count(&totals, "/migrated") == 0 {
            return assert_eq!(count(&totals, "/kept"), 4, "{totals:#}");
        }
    }
    panic!("everything has migrated each time");
}

#[test]
fn forked() {
    compare("forked", Build::Plain, &[]);
}

#[test]
fn forked_alone() {
    compare("forked", Build::Plain, &["alone"]);
}

/// Where fork(2) waits for the child, children that are meant to run beside each other ran one
/// after the other.
#[test]
fn forked_beside_each_other() {
    compare("forked", Build::Plain, &["beside"]);
}

#[test]
fn forked_workers() {
    compare("forked", Build::Plain, &["workers"]);
}

#[test]
fn vforked() {
    compare("vforked", Build::Plain, &[]);
}

#[test]
fn children() {
    compare("children", Build::Plain, &["400"]);
}

/// `.ci/run` makes more.
#[test]
fn forks_random() {
    compare_within("forks_random", Build::Plain, &["600"], TIME_LIMIT * 3);
}

/// Objects leave for children of that program, and come home: some 10 in a run, but in three runs
/// of 44 it was one, as most are used in ways that keep them in the kernel. So there is more than
/// one try.
#[test]
fn forks_random_have_objects_leave_and_come_home() {
    for seed in ["1", "2", "3", "4"] {
        let Some(totals) = counts("forks_random", &["601", seed]) else { return };
        let [migrated, came_home, kept] =
            ["/migrated", "/came_home", "/kept"].map(|path| count(&totals, path));
        assert!(migrated > 0 && kept > 0, "{totals:#}");
        if came_home > 0 {
            return;
        }
    }
    panic!("nothing has come home in any run");
}

/// Children use nothing else but what may come home there.
#[test]
fn forks_random_have_pairs_and_timers_come_home() {
    for what in ["private pairs that come back", "private timers that come back"] {
        let Some(totals) = counts("forks_random", &["300", "7", what]) else { return };
        assert!(count(&totals, "/came_home") > 30, "{what}: {totals:#}");
    }
}

/// An edge of a timer that expired while it migrated was taken for one that had been reported.
#[test]
fn expiring() {
    compare("expiring", Build::Plain, &[]);
}
