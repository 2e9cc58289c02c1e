//! Looks made by hand, for the tests of the findings.

use std::collections::BTreeMap;

use super::super::fdinfo::Watch;
use super::super::kcmp::Number;
use super::super::look::{Look, Set, Target};
use super::super::processes::{Descriptor, Kind, Process, Thread};
use super::super::sockets::Socket;
use super::super::waiting::Wait;
use super::Finding;

pub const LISTENER: u64 = 1000;

/// A look to change and to copy.
pub struct Made(pub Look);

impl Made {
    /// Processes with one thread each that does something else.
    pub fn with_processes(pids: &[i32]) -> Self {
        let process = |&pid| Process {
            pid,
            name: "worker".to_string(),
            uid: 1,
            busy: 0.0,
            age: 100.0,
            most_descriptors: Some(1024),
            descriptors: BTreeMap::new(),
            threads: vec![Thread { tid: pid, wait: Wait::Elsewhere, switches: 7 }],
            under_wakeset: false,
        };
        Made(Look { processes: pids.iter().map(process).collect(), ..Look::default() })
    }

    /// The same with a listener at descriptor 3 of each.
    pub fn with_listener(pids: &[i32]) -> Self {
        let mut made = Made::with_processes(pids);
        for &pid in pids {
            made.open(pid, 3, Kind::Socket(LISTENER));
        }
        let local = "127.0.0.1:80".to_string();
        let listener = Socket { protocol: "tcp", local, listens: true, ..Socket::default() };
        made.0.sockets.insert(LISTENER, listener);
        made
    }

    pub fn process(&mut self, pid: i32) -> &mut Process {
        self.0.processes.iter_mut().find(|it| it.pid == pid).expect("a process")
    }

    pub fn open(&mut self, pid: i32, fd: i32, kind: Kind) {
        let descriptor = Descriptor { kind, level: None, watches: Vec::new() };
        self.process(pid).descriptors.insert(fd, descriptor);
    }

    pub fn waits(&mut self, pid: i32, wait: Wait) {
        self.process(pid).threads[0].wait = wait;
    }

    /// Lets the set `fd` of a process watch its descriptor `number`; makes the set if need be.
    pub fn watch(&mut self, pid: i32, fd: i32, number: i32, events: u32) {
        self.watch_as(pid, fd, number, events, Target::Open(Number { pid, fd: number }));
    }

    pub fn watch_as(&mut self, pid: i32, fd: i32, number: i32, events: u32, target: Target) {
        self.open(pid, fd, Kind::Set);
        let holder = Number { pid, fd };
        let watch = Watch { number, events, data: 0, inode: 0, before: 0 };
        match self.0.sets.iter_mut().find(|set| set.holders.contains(&holder)) {
            Some(set) => set.watches.push((watch, target)),
            None => {
                let watches = vec![(watch, target)];
                self.0.sets.push(Set { holders: vec![holder], watches, waiters: vec![pid] });
            }
        }
    }

    /// Gives a set to another process too, under the same number.
    pub fn share(&mut self, pid: i32, fd: i32, with: i32) {
        self.open(with, fd, Kind::Set);
        self.set(pid, fd).holders.push(Number { pid: with, fd });
    }

    pub fn set(&mut self, pid: i32, fd: i32) -> &mut Set {
        let holder = Number { pid, fd };
        self.0.sets.iter_mut().find(|set| set.holders.contains(&holder)).expect("a set")
    }

    /// So many looks at which all was the same.
    pub fn looks(&self, count: usize) -> Vec<Look> {
        vec![self.0.clone(); count]
    }
}

pub fn kinds(findings: &[Finding]) -> Vec<&'static str> {
    findings.iter().map(|finding| finding.kind).collect()
}
