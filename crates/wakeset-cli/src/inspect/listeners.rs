//! Listeners, and how each thread and set waits on them.

use std::collections::{BTreeMap, BTreeSet};

use super::fdinfo::EXCLUSIVE;
use super::kcmp::Number;
use super::look::{Look, Target};
use super::processes::{Kind, Process};
use super::sockets::Socket;
use super::waiting::Wait;

/// A set that watches a listener.
#[derive(Clone, Debug, PartialEq)]
pub struct Watcher {
    pub holders: Vec<Number>,
    pub exclusive: bool,
}

/// A thread: its process, and its own id.
pub type Sleeper = (i32, i32);

/// A listening socket of the tree.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listener {
    pub socket: Socket,
    pub watchers: Vec<Watcher>,
    /// Threads that slept in poll(2) or select(2) on it in any of the looks.
    pub pollers: BTreeSet<Sleeper>,
    /// The same for accept(2).
    pub accepters: BTreeSet<Sleeper>,
}

impl Listener {
    /// The sets that wake for each connection, however many others do.
    pub fn not_exclusive(&self) -> impl Iterator<Item = &Watcher> {
        self.watchers.iter().filter(|watcher| !watcher.exclusive)
    }

    /// The processes that take connections.
    pub fn workers(&self) -> BTreeSet<i32> {
        let holders = self.watchers.iter().flat_map(|it| &it.holders).map(|it| it.pid);
        let sleepers = self.pollers.iter().chain(&self.accepters).map(|it| it.0);
        holders.chain(sleepers).collect()
    }
}

/// The listeners of the tree by inode: the watches of the last look, the sleepers of all. What
/// processes under Wakeset do is left out: their private sets wake one worker for a connection.
pub fn of(looks: &[Look]) -> BTreeMap<u64, Listener> {
    let mut listeners: BTreeMap<u64, Listener> = BTreeMap::new();
    for look in looks {
        for process in look.processes.iter().filter(|process| !process.under_wakeset) {
            add_sleepers(look, process, &mut listeners);
        }
    }
    let Some(last) = looks.last() else { return listeners };
    for process in &last.processes {
        for descriptor in process.descriptors.values() {
            if let Some((inode, socket)) = listening(last, &descriptor.kind) {
                listeners.entry(inode).or_default().socket = socket.clone();
            }
        }
    }
    for set in &last.sets {
        let holds = |it: &&Number| last.process(it.pid).is_some_and(|it| !it.under_wakeset);
        let holders: Vec<_> = set.holders.iter().filter(holds).copied().collect();
        for (watch, target) in set.watches.iter().filter(|_| !holders.is_empty()) {
            let Target::Open(number) = target else { continue };
            let listener = last.kind(*number).and_then(|kind| listening(last, kind));
            if let Some((inode, _)) = listener {
                let exclusive = watch.has(EXCLUSIVE);
                let watcher = Watcher { holders: holders.clone(), exclusive };
                listeners.entry(inode).or_default().watchers.push(watcher);
            }
        }
    }
    // What was closed between the looks has no address any more.
    listeners.retain(|_, listener| listener.socket.listens);
    listeners
}

fn add_sleepers(look: &Look, process: &Process, listeners: &mut BTreeMap<u64, Listener>) {
    for thread in &process.threads {
        let (numbers, accepts) = match &thread.wait {
            Wait::Poll(Some(numbers)) => (numbers.as_slice(), false),
            Wait::Accept(Some(number)) => (std::slice::from_ref(number), true),
            _ => continue,
        };
        for number in numbers {
            let kind = process.descriptors.get(number).map(|it| &it.kind);
            if let Some((inode, _)) = kind.and_then(|kind| listening(look, kind)) {
                let listener = listeners.entry(inode).or_default();
                let into = match accepts {
                    true => &mut listener.accepters,
                    false => &mut listener.pollers,
                };
                into.insert((process.pid, thread.tid));
            }
        }
    }
}

fn listening<'a>(look: &'a Look, kind: &Kind) -> Option<(u64, &'a Socket)> {
    let Kind::Socket(inode) = kind else { return None };
    let socket = look.sockets.get(inode)?;
    socket.listens.then_some((*inode, socket))
}
