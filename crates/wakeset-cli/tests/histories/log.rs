//! What one thread did, when, and what came of it.

use crate::backend::Errno;
use crate::clock::{self, Time};
use libc::c_int;
use procfs::process::Process;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

/// The calls of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// An object was made; `value` is the description.
    Open,
    /// The descriptor of a description, `value`, was closed.
    Close,
    /// A second descriptor, made and closed again; of all of them by a fork, with the number -1.
    Dup,
    Write,
    Read,
    /// EPOLL_CTL_ADD of `target` with `flags`; `value` is the data.
    Add,
    /// EPOLL_CTL_MOD.
    Modify,
    /// EPOLL_CTL_DEL.
    Remove,
    /// epoll_wait with `limit` and a maxevents of `value`.
    Wait,
}

/// One call.
#[derive(Clone, Debug)]
pub struct Call {
    pub start: Time,
    pub end: Time,
    pub thread: u32,
    pub what: What,
    /// The number it was made with.
    pub fd: c_int,
    /// The second number.
    pub target: c_int,
    pub flags: u32,
    pub limit: c_int,
    pub value: u64,
    /// What it returned; for read and write the units taken or added.
    pub result: Result<u64, Errno>,
    /// What a wait reported, in the history's list.
    pub reports: Range<usize>,
}

/// What a report says: data and event bits.
pub type Report = (u64, u32);

/// The calls of one thread, or of all.
#[derive(Debug, Default)]
pub struct Log {
    pub calls: Vec<Call>,
    pub reports: Vec<Report>,
}

impl Log {
    /// Takes in what another thread did.
    pub fn append(&mut self, other: Log) {
        let offset = self.reports.len();
        self.reports.extend(other.reports);
        self.calls.extend(other.calls.into_iter().map(|mut call| {
            call.reports = call.reports.start + offset..call.reports.end + offset;
            call
        }));
    }
}

/// What other threads may see of a thread while it runs. Written by that thread alone, with plain
/// stores.
#[derive(Debug)]
pub struct Progress {
    pub name: String,
    pub tid: AtomicI32,
    /// The call it is in: its kind plus one, the number; 0 for none.
    at: AtomicU64,
    pub calls: AtomicU64,
    /// Units it has added to (or, below 0, taken from) each target.
    pub balance: Vec<AtomicU64>,
    pub done: AtomicBool,
}

const KINDS: [What; 9] = [
    What::Open,
    What::Close,
    What::Dup,
    What::Write,
    What::Read,
    What::Add,
    What::Modify,
    What::Remove,
    What::Wait,
];

impl Progress {
    pub fn new(name: String, targets: usize) -> Arc<Self> {
        Arc::new(Self {
            name,
            tid: AtomicI32::new(0),
            at: AtomicU64::new(0),
            calls: AtomicU64::new(0),
            balance: (0..targets).map(|_| AtomicU64::new(0)).collect(),
            done: AtomicBool::new(false),
        })
    }

    /// The call it is in, with its number.
    pub fn at(&self) -> Option<(What, c_int)> {
        let at = self.at.load(Ordering::Relaxed);
        (at != 0).then(|| (KINDS[(at >> 32) as usize - 1], at as u32 as c_int))
    }

    /// The scheduler's letter for its state: `S` for asleep.
    pub fn state(&self) -> Option<char> {
        let tid = self.tid.load(Ordering::Relaxed);
        let task = Process::myself().ok()?.task_from_tid(tid).ok()?;
        Some(task.stat().ok()?.state)
    }
}

/// Writes down the calls of one thread.
pub struct Writer {
    pub log: Log,
    pub progress: Arc<Progress>,
    thread: u32,
}

/// What a call is made with, apart from its kind.
#[derive(Clone, Copy, Default)]
pub struct With {
    pub fd: c_int,
    pub target: c_int,
    pub flags: u32,
    pub limit: c_int,
    pub value: u64,
}

impl Writer {
    pub fn new(thread: u32, progress: Arc<Progress>) -> Self {
        // SAFETY: takes nothing, cannot fail.
        progress.tid.store(unsafe { libc::gettid() }, Ordering::Relaxed);
        Self {
            log: Log { calls: Vec::with_capacity(1024), reports: Vec::with_capacity(1024) },
            progress,
            thread,
        }
    }

    /// Makes a call and writes it down.
    #[inline]
    pub fn call(
        &mut self,
        what: What,
        with: With,
        make: impl FnOnce(&mut Vec<Report>) -> Result<u64, Errno>,
    ) -> Result<u64, Errno> {
        let With { fd, target, flags, limit, value } = with;
        let from = self.log.reports.len();
        self.progress.at.store((what as u64 + 1) << 32 | u64::from(fd as u32), Ordering::Relaxed);
        let start = clock::before();
        let result = make(&mut self.log.reports);
        let end = clock::after();
        self.progress.at.store(0, Ordering::Relaxed);
        self.progress
            .calls
            .store(self.progress.calls.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        let reports = from..self.log.reports.len();
        let thread = self.thread;
        self.log.calls.push(Call {
            start,
            end,
            thread,
            what,
            fd,
            target,
            flags,
            limit,
            value,
            result,
            reports,
        });
        result
    }

    /// Notes that units were added to a target, or taken from it.
    pub fn balance(&self, target: usize, change: u64) {
        let balance = &self.progress.balance[target];
        balance.store(balance.load(Ordering::Relaxed).wrapping_add(change), Ordering::Relaxed);
    }
}
