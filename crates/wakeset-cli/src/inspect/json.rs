//! The report as JSON. `schema` changes when a field changes its meaning or goes; new fields may
//! come at any time.

use serde_json::{Value, json};

use super::Report;
use super::findings::{Finding, describe};
use super::listeners::{self, Listener, Sleeper};
use super::look::{Look, Set, Target};
use super::processes::Process;
use super::render;

pub const SCHEMA: &str = "wakeset-inspect/1";

pub fn value(report: &Report) -> Value {
    let empty = Look::default();
    let last = report.looks.last().unwrap_or(&empty);
    let listeners = listeners::of(&report.looks);
    json!({
        "schema": SCHEMA,
        "pid": report.pid,
        "looks": report.looks.len(),
        "seconds": report.seconds,
        "processes": last.processes.iter().map(process).collect::<Vec<_>>(),
        "listeners": listeners.values().map(listener).collect::<Vec<_>>(),
        "sets": last.sets.iter().map(|set| self::set(last, set)).collect::<Vec<_>>(),
        "findings": report.findings.iter().map(finding).collect::<Vec<_>>(),
        "notes": report.notes,
    })
}

fn process(process: &Process) -> Value {
    let threads = process.threads.iter();
    let threads: Vec<_> =
        threads.map(|it| json!({"tid": it.tid, "waits_in": render::name(&it.wait)})).collect();
    json!({
        "pid": process.pid,
        "name": process.name,
        "uid": process.uid,
        "cpu_seconds": process.busy,
        "age_seconds": process.age,
        "descriptors": process.descriptors.len(),
        "descriptor_limit": process.most_descriptors,
        "under_wakeset": process.under_wakeset,
        "threads": threads,
    })
}

fn listener(listener: &Listener) -> Value {
    let sleepers = |sleepers: &mut dyn Iterator<Item = &Sleeper>| -> Vec<_> {
        sleepers.map(|(pid, tid)| json!({"pid": pid, "tid": tid})).collect()
    };
    let watchers = listener.watchers.iter().map(|watcher| {
        let pids: Vec<_> = watcher.holders.iter().map(|it| it.pid).collect();
        json!({"pids": pids, "exclusive": watcher.exclusive})
    });
    json!({
        "protocol": listener.socket.protocol,
        "address": listener.socket.local,
        "waiting": listener.socket.unread,
        "backlog": listener.socket.backlog,
        "sets": watchers.collect::<Vec<_>>(),
        "polling": sleepers(&mut listener.pollers.iter()),
        "accepting": sleepers(&mut listener.accepters.iter()),
    })
}

fn set(look: &Look, set: &Set) -> Value {
    let holders = set.holders.iter().map(|it| json!({"pid": it.pid, "descriptor": it.fd}));
    let watches = set.watches.iter().map(|(watch, target)| {
        json!({
            "descriptor": watch.number,
            "events": watch.events,
            "flags": watch.flags(),
            // A string: JSON's numbers do not hold 64 bits.
            "data": format!("{:#x}", watch.data),
            "target": describe(look, watch, target),
            "stale": match target {
                Target::Open(_) => Some(false),
                Target::Stale => Some(true),
                Target::Unknown => None,
            },
        })
    });
    json!({
        "holders": holders.collect::<Vec<_>>(),
        "waiting_threads": set.waiters,
        "watches": watches.collect::<Vec<_>>(),
    })
}

fn finding(finding: &Finding) -> Value {
    json!({
        "kind": finding.kind,
        "what": finding.what,
        "remedy": finding.remedy,
        "pids": finding.pids,
    })
}
