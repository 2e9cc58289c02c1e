//! What becomes of outcomes: one word for many programs, a table of what was covered, or text.

use crate::interpret::{Report, Sink};
use crate::model::Order;
use crate::program::{BATCH, Command, Op};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Folds all outcomes into one word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest {
    /// The word.
    pub word: u64,
    /// How many outcomes are in it.
    pub operations: u64,
    /// Calls not made.
    pub skipped: u64,
}

impl Digest {
    #[inline]
    fn fold(&mut self, value: u64) {
        let mixed = (self.word ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.word = mixed ^ mixed >> 29;
    }
}

impl Sink for Digest {
    #[inline]
    fn outcome(&mut self, _: &Op, result: isize, beside: u64) {
        self.operations += 1;
        self.fold(result as u64);
        if beside != 0 {
            self.fold(beside);
        }
    }

    #[inline]
    fn events(&mut self, _: Order, events: &[(Report, bool)]) {
        for ((data, bits), _) in events {
            self.fold(*data);
            self.fold(u64::from(*bits));
        }
    }

    fn skipped(&mut self, _: &Op) {
        self.skipped += 1;
        self.fold(0x5417);
    }
}

const ERRNOS: usize = 134;
const KINDS: usize = 27;

/// What was done how often: a digest that also counts.
#[derive(Clone, Debug)]
pub struct Census {
    /// The outcomes.
    pub digest: Digest,
    outcomes: Box<[[u64; ERRNOS]; KINDS]>,
    bits: [u64; 32],
    asked: [u64; 32],
    orders: [u64; 3],
    rooms: [u64; 4],
}

impl Default for Census {
    fn default() -> Self {
        Self {
            digest: Digest::default(),
            outcomes: Box::new([[0; ERRNOS]; KINDS]),
            bits: [0; 32],
            asked: [0; 32],
            orders: [0; 3],
            rooms: [0; 4],
        }
    }
}

impl Op {
    /// Its place and name in a census.
    fn kind(&self) -> (usize, &'static str) {
        match self {
            Op::Counter { .. } => (0, "eventfd"),
            Op::Set { .. } => (1, "epoll_create1"),
            Op::Pipe { .. } => (2, "pipe2"),
            Op::Sockets { .. } => (3, "socketpair"),
            Op::Directory { .. } => (4, "open"),
            Op::Close { .. } | Op::CloseAll => (5, "close"),
            Op::Duplicate { .. } => (6, "dup…, SCM_RIGHTS"),
            Op::Write { .. } => (7, "write"),
            Op::Read { .. } => (8, "read"),
            Op::WriteVector { .. } => (9, "writev"),
            Op::ReadVector { .. } => (10, "readv"),
            Op::ReadAt { .. } => (11, "pread"),
            Op::Ctl { op: libc::EPOLL_CTL_ADD, .. } => (12, "epoll_ctl ADD"),
            Op::Ctl { op: libc::EPOLL_CTL_MOD, .. } => (13, "epoll_ctl MOD"),
            Op::Ctl { op: libc::EPOLL_CTL_DEL, .. } => (14, "epoll_ctl DEL"),
            Op::Ctl { .. } => (15, "epoll_ctl, other"),
            Op::Wait { .. } => (16, "epoll_wait"),
            Op::Nonblocking { .. } => (17, "O_NONBLOCK"),
            Op::Poll { .. } => (18, "poll"),
            Op::Select { .. } => (19, "select"),
            Op::Splice { .. } => (20, "splice"),
            Op::Shutdown { .. } => (21, "shutdown"),
            Op::Fork | Op::Route { .. } => (22, "fork"),
            Op::Batch { .. } => (23, "a batch of epoll_ctl"),
            Op::Timer { .. } => (24, "timerfd_create"),
            Op::SetTimer { .. } => (25, "timerfd_settime"),
            Op::Ring { .. } => (26, "an event ring"),
        }
    }
}

fn count_bits(counts: &mut [u64; 32], mut bits: u32) {
    while bits != 0 {
        counts[bits.trailing_zeros() as usize] += 1;
        bits &= bits - 1;
    }
}

impl Sink for Census {
    fn outcome(&mut self, op: &Op, result: isize, beside: u64) {
        self.digest.outcome(op, result, beside);
        let errno = if result < 0 { (-result as usize).min(ERRNOS - 1) } else { 0 };
        let (kind, _) = op.kind();
        self.outcomes[kind][errno] += 1;
        if let Op::Ctl { events, .. } = op
            && result == 0
            && kind < 14
        {
            count_bits(&mut self.asked, *events);
        }
        if kind == 16 && result >= 0 {
            self.rooms[match result {
                0 => 0,
                1 => 1,
                2..=4 => 2,
                _ => 3,
            }] += 1;
        }
    }

    fn events(&mut self, order: Order, events: &[(Report, bool)]) {
        self.digest.events(order, events);
        self.orders[order as usize] += 1;
        for ((_, bits), _) in events {
            count_bits(&mut self.bits, *bits);
        }
    }

    fn skipped(&mut self, op: &Op) {
        self.digest.skipped(op);
    }
}

/// Counts by name, so that those of several workers can be added up.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Coverage {
    /// Call, outcome, how often.
    pub outcomes: BTreeMap<String, BTreeMap<String, u64>>,
    /// Bits asked for in an ADD or MOD that succeeded.
    pub asked: BTreeMap<String, u64>,
    /// Bits reported.
    pub reported: BTreeMap<String, u64>,
    /// How many events a wait gave.
    pub waits: BTreeMap<String, u64>,
    /// How much of the order of events was compared.
    pub orders: BTreeMap<String, u64>,
}

const BITS: [(u32, &str); 17] = [
    (0, "IN"),
    (1, "PRI"),
    (2, "OUT"),
    (3, "ERR"),
    (4, "HUP"),
    (5, "NVAL"),
    (6, "RDNORM"),
    (7, "RDBAND"),
    (8, "WRNORM"),
    (9, "WRBAND"),
    (10, "MSG"),
    (13, "RDHUP"),
    (27, "(bit 27)"),
    (28, "EXCLUSIVE"),
    (29, "WAKEUP"),
    (30, "ONESHOT"),
    (31, "ET"),
];

/// The bits of an event mask by name.
pub fn bit_names(bits: u32) -> String {
    let mut known = 0;
    let mut names: Vec<String> = Vec::new();
    for (bit, name) in BITS {
        if bit != 27 && bits & 1 << bit != 0 {
            known |= 1 << bit;
            names.push(name.to_string());
        }
    }
    if bits & !known != 0 {
        names.push(format!("{:#x}", bits & !known));
    }
    if names.is_empty() { "0".to_string() } else { names.join(" | ") }
}

/// An errno by name.
pub fn errno_name(errno: i32) -> String {
    let name = match errno {
        libc::EAGAIN => "EAGAIN",
        libc::EBADF => "EBADF",
        libc::EEXIST => "EEXIST",
        libc::EFAULT => "EFAULT",
        libc::EINTR => "EINTR",
        libc::EINVAL => "EINVAL",
        libc::EISDIR => "EISDIR",
        libc::ELOOP => "ELOOP",
        libc::EMFILE => "EMFILE",
        libc::ENOENT => "ENOENT",
        libc::ENOTCONN => "ENOTCONN",
        libc::ENOTSOCK => "ENOTSOCK",
        libc::EPERM => "EPERM",
        libc::EPIPE => "EPIPE",
        libc::ECANCELED => "ECANCELED",
        libc::ESPIPE => "ESPIPE",
        libc::ECONNRESET => "ECONNRESET",
        libc::ENOTTY => "ENOTTY",
        other => return format!("errno {other}"),
    };
    name.to_string()
}

impl Census {
    /// The counts by name.
    pub fn coverage(&self) -> Coverage {
        let mut coverage = Coverage::default();
        let slot = Op::Fork;
        let names: BTreeMap<usize, &str> = all_kinds().chain([slot]).map(|op| op.kind()).collect();
        for (kind, outcomes) in self.outcomes.iter().enumerate() {
            for (errno, n) in outcomes.iter().enumerate().filter(|(_, n)| **n > 0) {
                let name = if errno == 0 { "ok".to_string() } else { errno_name(errno as i32) };
                let call = names.get(&kind).copied().unwrap_or("?");
                *coverage.outcomes.entry(call.to_string()).or_default().entry(name).or_default() += n;
            }
        }
        for (bit, name) in BITS {
            coverage.asked.insert(name.to_string(), self.asked[bit as usize]);
            coverage.reported.insert(name.to_string(), self.bits[bit as usize]);
        }
        for (name, n) in ["none", "1", "2 to 4", "5 and more"].iter().zip(self.rooms) {
            coverage.waits.insert(name.to_string(), n);
        }
        for (name, n) in ["whole", "within each half", "none"].iter().zip(self.orders) {
            coverage.orders.insert(name.to_string(), n);
        }
        coverage
    }
}

/// One operation of each kind.
fn all_kinds() -> impl Iterator<Item = Op> {
    let at = crate::program::At::Good;
    let ctl = move |op| Op::Ctl { set: 0, op, target: 0, events: 0, data: 0, at };
    let command = Command { op: 0, target: 0, events: 0, data: 0 };
    let call = crate::program::WaitCall::Wait;
    let how = crate::program::Duplication::Lowest;
    [
        Op::Counter { slot: 0, initial: 0, flags: 0 },
        Op::Set { slot: 0, flags: 0 },
        Op::Pipe { slot: 0, other: 0 },
        Op::Sockets { slot: 0, other: 0 },
        Op::Directory { slot: 0 },
        Op::CloseAll,
        Op::Duplicate { slot: 0, to: 0, how },
        Op::Write { slot: 0, value: 0, len: 0, at },
        Op::Read { slot: 0, len: 0, at },
        Op::WriteVector { slot: 0, value: 0 },
        Op::ReadVector { slot: 0 },
        Op::ReadAt { slot: 0 },
        ctl(libc::EPOLL_CTL_ADD),
        ctl(libc::EPOLL_CTL_MOD),
        ctl(libc::EPOLL_CTL_DEL),
        ctl(0),
        Op::Wait { set: 0, room: 0, patience: crate::program::Patience::None, call, at },
        Op::Nonblocking { slot: 0, on: false, ioctl: false },
        Op::Poll { slots: [0; 2], events: 0 },
        Op::Select { slot: 0 },
        Op::Splice { from: 0, to: 0 },
        Op::Shutdown { slot: 0, how: 0 },
        Op::Fork,
        Op::Batch { set: 0, stop: false, commands: [command; BATCH] },
        Op::Timer { slot: 0, flags: 0 },
        Op::SetTimer { slot: 0, time: crate::program::Time::Past, at },
        Op::Ring { set: 0, entries: 0, polls: false },
    ]
    .into_iter()
}

impl Coverage {
    /// Adds another's counts.
    pub fn add(&mut self, other: Coverage) {
        for (call, outcomes) in other.outcomes {
            add_to(self.outcomes.entry(call).or_default(), outcomes);
        }
        add_to(&mut self.asked, other.asked);
        add_to(&mut self.reported, other.reported);
        add_to(&mut self.waits, other.waits);
        add_to(&mut self.orders, other.orders);
    }

    /// As tables.
    pub fn print(&self) {
        let total: u64 = self.outcomes.values().flat_map(BTreeMap::values).sum();
        println!("operations by outcome:");
        let mut calls: Vec<_> =
            self.outcomes.iter().map(|(call, counts)| (counts.values().sum::<u64>(), call, counts)).collect();
        calls.sort_by_key(|(n, ..)| std::cmp::Reverse(*n));
        for (n, call, outcomes) in calls {
            println!("  {call:17} {n:>12} {:5.1} %  {}", 100.0 * n as f64 / total.max(1) as f64, list(outcomes));
        }
        println!("bits asked for:    {}", list(&self.asked));
        println!("bits reported:     {}", list(&self.reported));
        println!("events of a wait:  {}", list(&self.waits));
        println!("order compared:    {}", list(&self.orders));
    }
}

fn add_to(counts: &mut BTreeMap<String, u64>, more: BTreeMap<String, u64>) {
    for (name, n) in more {
        *counts.entry(name).or_default() += n;
    }
}

/// The counts, largest first.
fn list(counts: &BTreeMap<String, u64>) -> String {
    let mut sorted: Vec<_> = counts.iter().filter(|(_, n)| **n > 0).collect();
    sorted.sort_by(|a, b| b.1.cmp(a.1));
    sorted.iter().map(|(name, n)| format!("{name} {n}")).collect::<Vec<_>>().join(", ")
}

/// Everything about one operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The operation.
    pub op: Op,
    /// What its slots stood for.
    pub numbers: Vec<i32>,
    /// What each of its calls gave: the result and what came beside it. Nothing if it was skipped.
    pub outcomes: Vec<(isize, u64)>,
    /// The order in which the events are, for a wait.
    pub order: Option<u8>,
    /// The events, for a wait.
    pub events: Vec<Report>,
}

/// Everything about one program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    /// One for each operation.
    pub steps: Vec<Step>,
    /// Numbers that were closed beside, at the end or within an operation, and the results.
    pub closed: Vec<(u64, isize)>,
}

impl Sink for Trace {
    fn about_to(&mut self, op: &Op, number: &dyn Fn(u8) -> i32) {
        let numbers = op.slots().iter().map(|slot| number(*slot)).collect();
        self.steps.push(Step { op: *op, numbers, outcomes: Vec::new(), order: None, events: Vec::new() });
    }

    fn outcome(&mut self, op: &Op, result: isize, beside: u64) {
        if matches!(op, Op::CloseAll) {
            return self.closed.push((beside, result));
        }
        if let Some(step) = self.steps.last_mut() {
            step.outcomes.push((result, beside));
        }
    }

    fn events(&mut self, order: Order, events: &[(Report, bool)]) {
        if let Some(step) = self.steps.last_mut() {
            step.order = Some(order as u8);
            step.events = events.iter().map(|(report, _)| *report).collect();
        }
    }
}

impl Op {
    /// The slots it names, those that it only reads.
    pub fn slots(&self) -> Vec<u8> {
        match *self {
            Op::Close { slot }
            | Op::Duplicate { slot, .. }
            | Op::Write { slot, .. }
            | Op::Read { slot, .. }
            | Op::WriteVector { slot, .. }
            | Op::ReadVector { slot }
            | Op::ReadAt { slot }
            | Op::Nonblocking { slot, .. }
            | Op::Select { slot }
            | Op::Shutdown { slot, .. } => vec![slot],
            Op::Ctl { set, target, .. } => vec![set, target],
            Op::Batch { set, commands, .. } => {
                commands.iter().map(|command| command.target).chain([set]).rev().collect()
            }
            Op::Wait { set, .. } | Op::Ring { set, .. } => vec![set],
            Op::Poll { slots, .. } => slots.to_vec(),
            Op::Splice { from, to } => vec![from, to],
            _ => Vec::new(),
        }
    }
}
