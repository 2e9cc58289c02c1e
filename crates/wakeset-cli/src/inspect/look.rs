//! One look at the tree: processes, sockets, and the sets with what each entry watches.

use std::collections::HashMap;
use std::fs;

use super::backlog;
use super::bounds::{self, Budget, Notes};
use super::fdinfo::Watch;
use super::kcmp::{Number, compare, is_watched};
use super::processes::{self, Budgets, Kind, Process};
use super::sockets::{self, Sockets};
use super::waiting::Wait;

/// What a watch is about.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// A description that this number refers to.
    Open(Number),
    /// No number of the processes that were looked at refers to it.
    Stale,
    /// It cannot be told.
    Unknown,
}

/// One epoll set, however many numbers and processes share it.
#[derive(Clone, Debug, PartialEq)]
pub struct Set {
    pub holders: Vec<Number>,
    pub watches: Vec<(Watch, Target)>,
    /// Threads asleep in epoll_wait(2) on it.
    pub waiters: Vec<i32>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Look {
    pub processes: Vec<Process>,
    pub sets: Vec<Set>,
    pub sockets: Sockets,
    /// `/proc/sys/fs/epoll/max_user_watches`.
    pub most_watches: Option<u64>,
}

impl Look {
    /// Looks at these processes. Those that have ended are left out silently, those that may not
    /// be read with a note.
    pub fn at(pids: &[i32], notes: &mut Notes) -> Self {
        let mut look = Look::default();
        let mut budgets = Budgets::new();
        for &pid in pids {
            match processes::read(pid, &mut budgets, notes) {
                Ok(process) => look.processes.push(process),
                Err(_) if fs::metadata(format!("/proc/{pid}")).is_err() => {}
                Err(why) => {
                    notes.insert(format!("Process {pid} was left out: {why}."));
                }
            }
        }
        look.read_sockets(notes);
        look.group_sets(notes);
        let limit = bounds::read("/proc/sys/fs/epoll/max_user_watches", notes);
        look.most_watches = limit.and_then(|text| text.trim().parse().ok());
        look
    }

    pub fn process(&self, pid: i32) -> Option<&Process> {
        self.processes.iter().find(|process| process.pid == pid)
    }

    pub fn kind(&self, number: Number) -> Option<&Kind> {
        Some(&self.process(number.pid)?.descriptors.get(&number.fd)?.kind)
    }

    /// The set that a number refers to.
    pub fn set(&self, number: Number) -> Option<&Set> {
        self.sets.iter().find(|set| set.holders.contains(&number))
    }

    /// Reads the tables of each network name space once.
    fn read_sockets(&mut self, notes: &mut Notes) {
        let mut seen = Vec::new();
        let own = fs::read_link("/proc/self/ns/net").ok();
        for process in &self.processes {
            let has_sockets =
                process.descriptors.values().any(|it| matches!(it.kind, Kind::Socket(_)));
            let pid = process.pid;
            // One that has ended since is in none.
            let Ok(space) = fs::read_link(format!("/proc/{pid}/ns/net")) else { continue };
            if !has_sockets || seen.contains(&space) {
                continue;
            }
            for (file, protocol) in
                [("tcp", "tcp"), ("tcp6", "tcp"), ("udp", "udp"), ("udp6", "udp")]
            {
                if let Some(text) = bounds::read(&format!("/proc/{pid}/net/{file}"), notes) {
                    sockets::add_inet(&mut self.sockets, protocol, &text);
                }
            }
            if let Some(text) = bounds::read(&format!("/proc/{pid}/net/unix"), notes) {
                sockets::add_unix(&mut self.sockets, &text);
            }
            if Some(&space) == own.as_ref() {
                backlog::fill(&mut self.sockets);
            } else {
                notes.insert(format!(
                    "Process {pid} is in another network name space: how full the queues of its \
                     listeners and unix sockets are is not seen."
                ));
            }
            seen.push(space);
        }
    }

    /// Finds which numbers are one set, what its entries are, and who waits on it.
    fn group_sets(&mut self, notes: &mut Notes) {
        let mut budget = Budget::new(bounds::COMPARISONS, "pairs of descriptors");
        let mut sets: Vec<Set> = Vec::new();
        for process in &self.processes {
            for (&fd, descriptor) in &process.descriptors {
                if descriptor.kind != Kind::Set {
                    continue;
                }
                let number = Number { pid: process.pid, fd };
                // Sorted by description; where kcmp(2) does not say, by number.
                let order = |set: &Set| {
                    let first = set.holders[0];
                    compare(first, number).unwrap_or_else(|| first.cmp(&number))
                };
                match sets.binary_search_by(order) {
                    Ok(at) => sets[at].holders.push(number),
                    Err(at) => {
                        let unknown = |watch: &Watch| (watch.clone(), Target::Unknown);
                        let watches = descriptor.watches.iter().map(unknown).collect();
                        let set = Set { holders: vec![number], watches, waiters: Vec::new() };
                        sets.insert(at, set);
                    }
                }
            }
        }
        sets.sort_by_key(|set| set.holders[0]);
        let resolver = Resolver::new(&self.processes);
        let mut none = Budget::new(0, "pairs of descriptors in sets of more than 2,000 watches");
        for set in &mut sets {
            let budget = if set.watches.len() > bounds::COMPARED { &mut none } else { &mut budget };
            for (watch, target) in &mut set.watches {
                *target = resolver.resolve(&set.holders, watch, budget, notes);
            }
            set.waiters = waiters(&self.processes, &set.holders);
        }
        let first = sets.first().map(|set| set.holders[0].pid);
        if first.is_some_and(|pid| !can_compare(pid)) {
            notes.insert(
                "kcmp(2) is not permitted here: sets that processes share are shown as several, \
                 and stale watches are found by inode alone."
                    .to_string(),
            );
        }
        self.sets = sets;
    }
}

/// Whether kcmp(2) may be used on this process, as far as can be told: a number that is not open is
/// then refused as such, and so is a process that has ended.
fn can_compare(pid: i32) -> bool {
    let never = |fd| Number { pid, fd };
    compare(never(i32::MAX), never(i32::MAX - 1)).is_some()
        || matches!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EBADF | libc::ESRCH))
}

/// The threads that sleep in epoll_wait(2) on a set. Where only the function of the kernel is
/// known, the process's only set is meant.
fn waiters(processes: &[Process], holders: &[Number]) -> Vec<i32> {
    let mut waiters = Vec::new();
    for process in processes {
        let numbers: Vec<_> =
            holders.iter().filter(|it| it.pid == process.pid).map(|it| it.fd).collect();
        let all = process.descriptors.values().filter(|it| it.kind == Kind::Set).count();
        for thread in &process.threads {
            let waits = match thread.wait {
                Wait::Epoll(Some(fd)) => numbers.contains(&fd),
                Wait::Epoll(None) => !numbers.is_empty() && all == numbers.len(),
                _ => false,
            };
            if waits {
                waiters.push(thread.tid);
            }
        }
    }
    waiters
}

/// Finds a number for what an entry of a set watches.
struct Resolver<'a> {
    processes: &'a [Process],
    /// Sockets and pipes by inode; what has no inode of its own is under 0.
    by_inode: HashMap<u64, Vec<Number>>,
}

impl<'a> Resolver<'a> {
    fn new(processes: &'a [Process]) -> Self {
        let mut by_inode: HashMap<_, Vec<_>> = HashMap::new();
        for process in processes {
            for (&fd, descriptor) in &process.descriptors {
                let number = Number { pid: process.pid, fd };
                by_inode.entry(inode(&descriptor.kind)).or_default().push(number);
            }
        }
        Resolver { processes, by_inode }
    }

    fn resolve(
        &self,
        holders: &[Number],
        watch: &Watch,
        budget: &mut Budget,
        notes: &mut Notes,
    ) -> Target {
        // Mostly it is the number under which it was added, in a process that has the set.
        let usual = holders.iter().map(|it| Number { pid: it.pid, fd: watch.number });
        let usual: Vec<_> =
            usual.filter_map(|number| Some((number, self.inode(number)?))).collect();
        // A socket's or pipe's inode is its own.
        let own = |(_, inode): &&(Number, u64)| *inode != 0 && *inode == watch.inode;
        if let Some((number, _)) = usual.iter().find(own) {
            return Target::Open(*number);
        }
        let same_inode = self.by_inode.get(&watch.inode).filter(|_| watch.inode != 0);
        let others = same_inode.or_else(|| self.by_inode.get(&0)).into_iter().flatten();
        let candidates = usual.iter().map(|(number, _)| number).chain(others);
        for &number in candidates {
            let answer = match budget.take(notes) {
                true => is_watched(number, holders[0], watch),
                false => None,
            };
            match answer {
                Some(true) => return Target::Open(number),
                Some(false) => {}
                // It may not be asked, or the watch has gone; an inode still says something.
                None => return same_inode.map_or(Target::Unknown, |it| Target::Open(it[0])),
            }
        }
        Target::Stale
    }

    /// The inode of a number, 0 if it is not its own; `None` if the number is closed.
    fn inode(&self, number: Number) -> Option<u64> {
        let process = self.processes.iter().find(|process| process.pid == number.pid)?;
        process.descriptors.get(&number.fd).map(|it| inode(&it.kind))
    }
}

fn inode(kind: &Kind) -> u64 {
    match kind {
        Kind::Socket(inode) | Kind::Pipe(inode) => *inode,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::processes::Descriptor;

    /// It was taken for one in another network name space, and kcmp(2) for not permitted.
    #[test]
    fn a_process_that_ends_during_the_look_leaves_no_note() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().expect("it starts");
        let pid = i32::try_from(child.id()).expect("a process id");
        let mut notes = Notes::new();
        let mut look = Look::at(&[pid], &mut notes);
        let [process] = &mut look.processes[..] else { panic!("{notes:?}") };
        for (number, kind) in [(3, Kind::Socket(1)), (4, Kind::Set), (5, Kind::Set)] {
            process.descriptors.insert(number, Descriptor { kind, level: None, watches: vec![] });
        }
        child.kill().and_then(|()| child.wait()).expect("it ends");
        look.read_sockets(&mut notes);
        look.group_sets(&mut notes);
        assert!(notes.is_empty(), "{notes:?}");
    }
}
