//! Two looks at a run, and what happened between them.

use std::collections::BTreeMap;
use std::time::Instant;

use wakeset_fd::stats::{NAMES, SetStat, SetSummary, Stat, Summary, area};

use super::details::{MigrationLine, migrations};
use crate::run::{Listener, Listeners, Snapshot, printable};

/// What had been counted at one moment.
pub struct Look {
    at: Instant,
    processes: BTreeMap<u32, Summary>,
    total: Summary,
    listeners: Listeners,
    /// By process, and what tells its sets apart.
    sets: BTreeMap<(u32, (usize, u32)), SetSummary>,
    migrations: Vec<MigrationLine>,
}

/// What happened per second between two looks.
pub struct Rates {
    pub total: Line,
    /// The busiest first.
    pub processes: Vec<Line>,
    pub listeners: Vec<ListenerLine>,
    /// The busiest first; such as were waited on.
    pub sets: Vec<SetLine>,
    /// What waits on none of these have reported; `None` if that is nothing.
    pub other_sets: Option<OtherSets>,
    /// The latest first.
    pub migrations: Vec<MigrationLine>,
    /// How many objects have migrated for which reason, since the run began.
    pub reasons: Vec<(&'static str, u64)>,
}

/// One process, or all.
#[derive(Clone, Debug, Default)]
pub struct Line {
    pub name: String,
    pub pid: u32,
    pub waits: f64,
    pub events: f64,
    pub wakes: f64,
    /// The share of the wakes after which there was nothing to do; `None` without wakes.
    pub spurious: Option<f64>,
    pub avoided: f64,
    /// The share of the events that came from objects in process; `None` without events.
    pub in_process: Option<f64>,
    /// Writes to eventfds, pipes and pairs, and the share of them that was answered in process.
    pub signals: f64,
    pub signals_in_process: Option<f64>,
    /// Objects in the process, and such as have migrated since it began.
    pub here: u64,
    pub migrated: u64,
}

/// One set.
#[derive(Clone, Debug)]
pub struct SetLine {
    pub name: String,
    pub pid: u32,
    pub fd: u32,
    pub waits: f64,
    pub events: f64,
    /// Events that a wait found on average, which is how many were ready; `None` without waits.
    pub depth: Option<f64>,
    pub wakes: f64,
    pub spurious: Option<f64>,
}

/// Waits on sets that the list has not: on such as the kernel has, and on more sets of a process
/// than it counts apart. Polls and selects count as waits.
#[derive(Clone, Copy, Debug)]
pub struct OtherSets {
    pub waits: f64,
    pub events: f64,
}

/// One listening socket.
#[derive(Clone, Debug)]
pub struct ListenerLine {
    pub name: String,
    pub connections: f64,
    pub wakes: f64,
    pub spurious: Option<f64>,
    /// Connections of each worker between the looks.
    pub workers: Vec<u64>,
}

impl Look {
    pub fn at(run: &Snapshot) -> Self {
        let mut look = Look {
            at: Instant::now(),
            processes: BTreeMap::new(),
            total: run.ended.clone(),
            listeners: Listeners::default(),
            sets: BTreeMap::new(),
            migrations: migrations(run, area::now()),
        };
        for image in &run.images {
            look.total.add(&image.summary);
            look.processes.insert(image.summary.pid, image.summary.clone());
            let pid = image.summary.pid;
            look.sets.extend(image.sets.iter().map(|set| ((pid, set.life), *set)));
            look.listeners.add(Some(image.summary.pid), &image.listeners);
        }
        look.listeners.add(None, &run.ended_listeners);
        look
    }

    /// What happened since an earlier look.
    pub fn since(&self, earlier: &Look) -> Rates {
        let seconds = self.at.duration_since(earlier.at).as_secs_f64().max(1e-3);
        let none = Summary::default();
        let line = |now: &Summary, before: &Summary| line(now, before, seconds);
        let mut processes: Vec<_> = self
            .processes
            .iter()
            .map(|(pid, now)| line(now, earlier.processes.get(pid).unwrap_or(&none)))
            .collect();
        processes.sort_by(|a, b| b.activity().total_cmp(&a.activity()).then(a.pid.cmp(&b.pid)));
        let no_listener = Listener::default();
        let listeners = self.listeners.iter().map(|(name, now)| {
            let before = earlier.listeners.get(name).unwrap_or(&no_listener);
            listener_line(name, now, before, seconds)
        });
        let mut sets: Vec<_> = self
            .sets
            .iter()
            .map(|(key, now)| self.set_line(key.0, now, earlier.sets.get(key), seconds))
            .filter(|line| line.waits > 0.0)
            .collect();
        sets.sort_by(|a, b| (b.waits + b.events).total_cmp(&(a.waits + a.events)));
        let other_sets = other_sets(&processes, &sets);
        let reasons = Stat::ALL[Stat::MOVED].iter();
        let reasons = reasons.map(|&it| (NAMES[it as usize], self.total.get(it)));
        // What has ended has no objects any more.
        let here = processes.iter().map(|line| line.here).sum();
        Rates {
            total: Line { here, ..line(&self.total, &earlier.total) },
            processes,
            listeners: listeners.collect(),
            sets,
            other_sets,
            migrations: self.migrations.clone(),
            reasons: reasons.filter(|(_, count)| *count > 0).collect(),
        }
    }
}

impl Look {
    fn set_line(
        &self,
        pid: u32,
        now: &SetSummary,
        before: Option<&SetSummary>,
        seconds: f64,
    ) -> SetLine {
        let more = |stat| now.get(stat).saturating_sub(before.map_or(0, |before| before.get(stat)));
        let (waits, events) = (more(SetStat::Waits), more(SetStat::Events));
        let wakes = more(SetStat::Wakes);
        SetLine {
            name: self.processes.get(&pid).map_or(String::new(), |it| printable(it.name())),
            pid,
            fd: now.fd,
            waits: waits as f64 / seconds,
            events: events as f64 / seconds,
            depth: (waits > 0).then(|| events as f64 / waits as f64),
            wakes: wakes as f64 / seconds,
            spurious: share(more(SetStat::SpuriousWakes), wakes),
        }
    }
}

impl Line {
    fn activity(&self) -> f64 {
        self.waits + self.events + self.wakes + self.avoided
    }
}

fn line(now: &Summary, before: &Summary, seconds: f64) -> Line {
    // A process that has become another program counts from 0.
    let more = |stat| now.get(stat).saturating_sub(before.get(stat));
    let rate = |stat| more(stat) as f64 / seconds;
    Line {
        name: printable(now.name()),
        pid: now.pid,
        waits: rate(Stat::Waits),
        events: rate(Stat::Events),
        wakes: rate(Stat::Wakes),
        spurious: share(more(Stat::SpuriousWakes), more(Stat::Wakes)),
        avoided: rate(Stat::SyscallsAvoided),
        in_process: share(
            more(Stat::Events).saturating_sub(more(Stat::EventsFromKernel)),
            more(Stat::Events),
        ),
        signals: rate(Stat::Signals) + rate(Stat::SignalsInKernel),
        signals_in_process: share(
            more(Stat::Signals),
            more(Stat::Signals) + more(Stat::SignalsInKernel),
        ),
        here: now.open(),
        migrated: now.migrated(),
    }
}

/// A set that is closed or migrates takes its last counts with it, which are among these then.
fn other_sets(processes: &[Line], sets: &[SetLine]) -> Option<OtherSets> {
    let rest = |of_process: fn(&Line) -> f64, of_set: fn(&SetLine) -> f64| {
        let all: f64 = processes.iter().map(of_process).sum();
        let rest = all - sets.iter().map(of_set).sum::<f64>();
        // The processes count while they are looked at, so some may be on one side alone.
        if rest > 0.01 * all { rest } else { 0.0 }
    };
    let (waits, events) =
        (rest(|it| it.waits, |it| it.waits), rest(|it| it.events, |it| it.events));
    (waits + events > 0.0).then_some(OtherSets { waits, events })
}

fn listener_line(name: &str, now: &Listener, before: &Listener, seconds: f64) -> ListenerLine {
    let more = |count: fn(&Listener) -> u64| count(now).saturating_sub(count(before));
    let [connections, wakes, spurious] =
        [more(|it| it.connections), more(|it| it.wakes), more(|it| it.spurious)];
    let workers = now.workers.iter().map(|(worker, connections)| {
        connections.saturating_sub(before.workers.get(worker).copied().unwrap_or(0))
    });
    ListenerLine {
        name: name.to_string(),
        connections: connections as f64 / seconds,
        wakes: wakes as f64 / seconds,
        spurious: share(spurious, wakes),
        workers: workers.collect(),
    }
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| (part as f64 / whole as f64).min(1.0))
}
