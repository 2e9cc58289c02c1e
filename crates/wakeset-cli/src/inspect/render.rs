//! The report as text.

use std::fmt::Write as _;

use super::Report;
use super::findings::{count, describe, list, place};
use super::listeners::{self, Listener};
use super::look::{Look, Set};
use super::processes::Kind;
use super::waiting::Wait;
use crate::format;

/// Processes, sets, and watches of one set that are shown; the JSON has all.
const SHOWN: usize = 20;

pub fn text(report: &Report) -> String {
    let Some(last) = report.looks.last() else { return String::new() };
    let mut text = processes(last);
    let listeners = listeners::of(&report.looks);
    if !listeners.is_empty() {
        text += "\nlisteners\n";
        listeners.values().for_each(|listener| text += &self::listener(listener));
    }
    if !last.sets.is_empty() {
        text += "\nsets\n";
        last.sets.iter().take(SHOWN).for_each(|set| text += &self::set(last, set));
        more(&mut text, last.sets.len(), "sets");
    }
    text += "\nfindings\n";
    for (i, finding) in report.findings.iter().enumerate() {
        let _ = writeln!(text, "  {}. {}: {}", i + 1, finding.kind, finding.what);
        let _ = writeln!(text, "     Remedy: {}", finding.remedy);
    }
    if report.findings.is_empty() {
        text += "  none\n";
    }
    let _ = writeln!(
        text,
        "\n{} in {:.1} s, by reading /proc; nothing was stopped or changed.",
        count(report.looks.len(), "look"),
        report.seconds
    );
    for note in &report.notes {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

fn processes(look: &Look) -> String {
    let headings = ["process", "pid", "threads", "descriptors", "sets", "CPU s", "waits in"];
    let mut rows = vec![headings.map(str::to_string).to_vec()];
    for process in look.processes.iter().take(SHOWN) {
        let sets = process.descriptors.values().filter(|it| it.kind == Kind::Set).count();
        rows.push(vec![
            process.name.clone(),
            process.pid.to_string(),
            process.threads.len().to_string(),
            process.descriptors.len().to_string(),
            sets.to_string(),
            format!("{:.2}", process.busy),
            process.threads.first().map_or("", |thread| name(&thread.wait)).to_string(),
        ]);
    }
    let mut text = format::table(rows);
    more(&mut text, look.processes.len(), "processes");
    text
}

/// What a thread sleeps in, in a word.
pub fn name(wait: &Wait) -> &'static str {
    match wait {
        Wait::Running => "runs",
        Wait::Epoll(_) => "epoll_wait",
        Wait::Poll(_) => "poll or select",
        Wait::Accept(_) => "accept",
        Wait::Elsewhere => "another call",
        Wait::Unknown => "not known",
    }
}

fn listener(listener: &Listener) -> String {
    let socket = &listener.socket;
    let mut text = format!("  {}", socket.describe());
    if let (Some(now), Some(most)) = (socket.unread, socket.backlog) {
        let _ = write!(text, ", {now} of at most {most} connections wait");
    }
    text += "\n";
    for (exclusive, how) in [(true, "with EPOLLEXCLUSIVE"), (false, "without EPOLLEXCLUSIVE")] {
        let sets: Vec<_> =
            listener.watchers.iter().filter(|it| it.exclusive == exclusive).collect();
        if !sets.is_empty() {
            let pids = sets.iter().flat_map(|set| &set.holders).map(|holder| holder.pid);
            let _ = writeln!(text, "    {} {how}: {}", count(sets.len(), "set"), list(pids));
        }
    }
    for (threads, call) in [(&listener.pollers, "poll or select"), (&listener.accepters, "accept")]
    {
        if !threads.is_empty() {
            let pids = threads.iter().map(|thread| thread.0);
            let _ =
                writeln!(text, "    {} in {call}: {}", count(threads.len(), "thread"), list(pids));
        }
    }
    text
}

fn set(look: &Look, set: &Set) -> String {
    let mut text = format!("  {}: ", place(look, set));
    let _ = match set.waiters.len() {
        0 => writeln!(text, "no thread waited at the last look"),
        waiters => writeln!(text, "{} waiting", count(waiters, "thread")),
    };
    for (watch, target) in set.watches.iter().take(SHOWN) {
        let what = describe(look, watch, target);
        let _ = writeln!(text, "    {:>5}  {:<16}  {what}", watch.number, watch.flags());
    }
    more(&mut text, set.watches.len(), "watches");
    text
}

fn more(text: &mut String, count: usize, what: &str) {
    if count > SHOWN {
        let _ = writeln!(text, "    (and {} more {what})", count - SHOWN);
    }
}
