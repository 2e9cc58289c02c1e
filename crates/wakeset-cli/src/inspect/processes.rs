//! The processes of a tree: descriptors, threads and what they sleep in, processor time, limits.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;

use procfs::process::{self, LimitValue};

use super::bounds::{self, Budget, Notes};
use super::fdinfo::{FdInfo, Watch};
use super::waiting::{self, Wait};

/// What a number refers to, as far as its link says.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    Set,
    /// By inode.
    Socket(u64),
    Pipe(u64),
    /// `[eventfd]` and its like, which share an inode.
    Anonymous(String),
    Path(String),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Descriptor {
    pub kind: Kind,
    /// An eventfd's count, or a timerfd's expiries that were not read.
    pub level: Option<u64>,
    pub watches: Vec<Watch>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Thread {
    pub tid: i32,
    pub wait: Wait,
    /// How often it has stopped running. It has slept all along if this is the same in two looks.
    pub switches: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Process {
    pub pid: i32,
    pub name: String,
    pub uid: u32,
    /// Processor time since it started, and since when it runs, in seconds.
    pub busy: f64,
    pub age: f64,
    /// `RLIMIT_NOFILE`, if there is a limit.
    pub most_descriptors: Option<u64>,
    pub descriptors: BTreeMap<i32, Descriptor>,
    pub threads: Vec<Thread>,
    /// It runs under `wakeset run`: what it has in user space is not seen from outside.
    pub under_wakeset: bool,
}

/// The process and its descendants, each before its children. `Err` if there is no such process.
pub fn tree(root: i32, alone: bool, notes: &mut Notes) -> Result<Vec<i32>, String> {
    process::Process::new(root).map_err(|_| format!("there is no process {root}"))?;
    let mut pids = vec![root];
    if alone {
        return Ok(pids);
    }
    let mut children: BTreeMap<i32, BTreeSet<i32>> = BTreeMap::new();
    let all = process::all_processes().map_err(|error| format!("/proc: {error}"))?;
    for stat in all.flatten().filter_map(|process| process.stat().ok()) {
        children.entry(stat.ppid).or_default().insert(stat.pid);
    }
    let (mut at, mut budget) = (0, Budget::new(bounds::PROCESSES - 1, "processes"));
    while let Some(pid) = pids.get(at) {
        for child in children.remove(pid).unwrap_or_default() {
            if budget.take(notes) {
                pids.push(child);
            }
        }
        at += 1;
    }
    Ok(pids)
}

/// What is left of the bounds of a look.
pub struct Budgets {
    descriptors: Budget,
    threads: Budget,
}

impl Budgets {
    pub fn new() -> Self {
        Budgets {
            descriptors: Budget::new(bounds::DESCRIPTORS, "descriptors"),
            threads: Budget::new(bounds::THREADS, "threads"),
        }
    }
}

/// Reads one process. `Err` says why it cannot be: it has ended, or is another user's.
pub fn read(pid: i32, budgets: &mut Budgets, notes: &mut Notes) -> Result<Process, String> {
    let process = process::Process::new(pid).map_err(|error| error.to_string())?;
    let stat = process.stat().map_err(|error| error.to_string())?;
    let tick = procfs::ticks_per_second() as f64;
    let up = bounds::read("/proc/uptime", notes).unwrap_or_default();
    let up: f64 = up.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0.0);
    let limit = process.limits().ok().and_then(|limits| match limits.max_open_files.soft_limit {
        LimitValue::Value(most) => Some(most),
        LimitValue::Unlimited => None,
    });
    let descriptors = descriptors(pid, &mut budgets.descriptors, notes)
        .map_err(|error| format!("its descriptors may not be read ({error})"))?;
    let maps = bounds::read(&format!("/proc/{pid}/maps"), notes).unwrap_or_default();
    Ok(Process {
        pid,
        name: stat.comm.chars().filter(|c| !c.is_control()).collect(),
        uid: process.uid().unwrap_or(u32::MAX),
        busy: busy(pid).unwrap_or((stat.utime + stat.stime) as f64 / tick),
        age: (up - stat.starttime as f64 / tick).max(0.0),
        most_descriptors: limit,
        descriptors,
        threads: threads(&process, &mut budgets.threads, notes),
        under_wakeset: maps.contains("libwakeset_preload"),
    })
}

/// Processor time of a process in seconds, by its clock (clock_getcpuclockid(3)): `stat` counts it
/// in hundredths.
fn busy(pid: i32) -> Option<f64> {
    const SCHEDULED: i32 = 2;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is ours to write.
    let failed = unsafe { libc::clock_gettime((!pid << 3) | SCHEDULED, &mut time) };
    (failed == 0).then(|| time.tv_sec as f64 + time.tv_nsec as f64 / 1e9)
}

fn descriptors(
    pid: i32,
    budget: &mut Budget,
    notes: &mut Notes,
) -> std::io::Result<BTreeMap<i32, Descriptor>> {
    let mut descriptors = BTreeMap::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))?.flatten() {
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        if !budget.take(notes) {
            break;
        }
        let link = match fs::read_link(entry.path()) {
            Ok(link) => link,
            // Root without CAP_SYS_PTRACE may list the numbers of another user's process only.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => return Err(error),
            // The number has been closed since.
            Err(_) => continue,
        };
        let kind = kind(&link.to_string_lossy());
        let info = match has_info(&kind) {
            true => bounds::read(&format!("/proc/{pid}/fdinfo/{number}"), notes),
            false => None,
        };
        let FdInfo { watches, level } = FdInfo::parse(&info.unwrap_or_default());
        descriptors.insert(number, Descriptor { kind, level, watches });
    }
    Ok(descriptors)
}

/// Reads a link of `/proc/PID/fd`.
fn kind(link: &str) -> Kind {
    let inode = |prefix: &str| {
        link.strip_prefix(prefix)
            .and_then(|rest| rest.strip_suffix(']'))
            .and_then(|n| n.parse().ok())
    };
    if let Some(inode) = inode("socket:[") {
        Kind::Socket(inode)
    } else if let Some(inode) = inode("pipe:[") {
        Kind::Pipe(inode)
    } else if link == "anon_inode:[eventpoll]" {
        Kind::Set
    } else if let Some(name) = link.strip_prefix("anon_inode:") {
        Kind::Anonymous(name.trim_matches(['[', ']']).to_string())
    } else {
        Kind::Path(link.chars().filter(|c| !c.is_control()).collect())
    }
}

/// Whether fdinfo says something that the link does not.
fn has_info(kind: &Kind) -> bool {
    match kind {
        Kind::Set => true,
        Kind::Anonymous(name) => name == "eventfd" || name == "timerfd",
        _ => false,
    }
}

fn threads(process: &process::Process, budget: &mut Budget, notes: &mut Notes) -> Vec<Thread> {
    let mut threads = Vec::new();
    for task in process.tasks().into_iter().flatten().flatten() {
        if !budget.take(notes) {
            break;
        }
        // Counted first: a thread that wakes between the two has then another count next time.
        let Ok(status) = task.status() else { continue };
        let switches = status.voluntary_ctxt_switches.unwrap_or(0)
            + status.nonvoluntary_ctxt_switches.unwrap_or(0);
        threads.push(Thread { tid: task.tid, wait: waiting::of(task.pid, task.tid), switches });
    }
    threads
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_told_apart() {
        assert_eq!(kind("socket:[77]"), Kind::Socket(77));
        assert_eq!(kind("pipe:[8]"), Kind::Pipe(8));
        assert_eq!(kind("anon_inode:[eventpoll]"), Kind::Set);
        assert_eq!(kind("anon_inode:[eventfd]"), Kind::Anonymous("eventfd".to_string()));
        assert_eq!(kind("anon_inode:inotify"), Kind::Anonymous("inotify".to_string()));
        assert_eq!(kind("/tmp/socket:[x"), Kind::Path("/tmp/socket:[x".to_string()));
    }

    #[test]
    fn this_process_is_read() {
        let mut notes = Notes::new();
        let pid = std::process::id() as i32;
        assert_eq!(tree(pid, true, &mut notes), Ok(vec![pid]));
        let process = read(pid, &mut Budgets::new(), &mut notes).expect("this process");
        assert!(!process.threads.is_empty() && !process.descriptors.is_empty());
        assert!(tree(i32::MAX, true, &mut notes).is_err());
    }
}
