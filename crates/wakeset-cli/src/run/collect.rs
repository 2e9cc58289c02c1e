//! `wakeset run --stats`: takes the counts of processes that have ended, so that their memory is
//! used again.
//!
//! A thread of this process looks at the slots twenty times a second. It never waits for a process,
//! and no process for it. A slot is free to be taken when its process has ended, or has become
//! another program, which has a slot of its own then. What ends between two looks is what can be in
//! use beyond the processes alive.

use std::collections::HashMap;
use std::io;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use wakeset_fd::stats::area::{Area, Refusal};
use wakeset_fd::stats::{ListenerSummary, Migration, PAGE_BYTES, Summary};

use super::area::Memory;
use super::report::Report;

/// From one look at the slots to the next.
const INTERVAL: Duration = Duration::from_millis(50);

/// What collects while the program runs.
pub struct Collector {
    memory: Memory,
    report: Arc<Mutex<Report>>,
    thread: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Collector {
    pub fn new(memory: Memory) -> Self {
        Collector { memory, report: Arc::default(), thread: None }
    }

    /// Begins to collect. Where there can be no thread, [`end`](Self::end) collects everything.
    pub fn start(&mut self) {
        if !self.memory.agrees {
            return;
        }
        let (area, report) = (self.memory.area, Arc::clone(&self.report));
        let (sender, ended) = mpsc::channel();
        let thread = thread::Builder::new().spawn(move || {
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(INTERVAL) {
                collect_ended(&area, &mut lock(&report));
            }
        });
        self.thread = thread.ok().map(|thread| (sender, thread));
    }

    /// Takes all counts as they are; the processes that live on count no more.
    pub fn end(self) -> Report {
        if let Some((sender, thread)) = self.thread {
            drop(sender);
            let _ = thread.join();
        }
        let (area, mut report) = (self.memory.area, std::mem::take(&mut *lock(&self.report)));
        area.end();
        let mut slots: Vec<_> = area.held().map(|(slot, _, claim)| (claim, slot)).collect();
        slots.sort_unstable();
        for (_, slot) in slots {
            take(&area, slot, &mut report);
        }
        report.keep_the_busiest();
        for why in Refusal::ALL {
            report.refuse(why, area.not_counted(why));
        }
        report
    }
}

fn lock(report: &Mutex<Report>) -> MutexGuard<'_, Report> {
    report.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes the counts of the processes that have ended.
fn collect_ended(area: &Area<'_>, report: &mut Report) {
    let mut held: Vec<_> = area.held().filter(|(_, holder, _)| holder.known).collect();
    held.sort_unstable_by_key(|(_, _, claim)| *claim);
    // The latest image of each process. A claim without a number may be the latest.
    let latest: HashMap<u32, u64> =
        held.iter().map(|(_, holder, claim)| (holder.pid, *claim)).collect();
    let mut have_ended = Vec::new();
    for (slot, holder, claim) in held {
        let replaced = claim != 0 && latest.get(&holder.pid).is_some_and(|last| *last > claim);
        let ended = !replaced && has_ended(holder.pid);
        if replaced || ended {
            take(area, slot, report);
            area.recycle(slot);
        }
        if ended {
            have_ended.push(holder.pid);
        }
    }
    // Once all images of them are there.
    have_ended.into_iter().for_each(|pid| report.end_process(pid));
}

/// Whether there is no process of this number. One that its parent has not waited for yet is there.
fn has_ended(pid: u32) -> bool {
    let Ok(pid) = libc::pid_t::try_from(pid) else { return true };
    // SAFETY: signal 0 only asks; a process wrote the number, and only one above 0 is a process.
    pid <= 0
        || unsafe { libc::kill(pid, 0) } != 0
            && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
}

fn take(area: &Area<'_>, slot: usize, report: &mut Report) {
    let mut bytes = [0; PAGE_BYTES];
    area.copy(slot, &mut bytes);
    if let Some(summary) = Summary::parse(&bytes) {
        report.add(summary, &ListenerSummary::parse(&bytes).collect::<Vec<_>>());
        report.note_calls(Migration::parse(&bytes));
    }
}
