//! Counts what was done how often, beside the digest.

use super::names::{BITS, errno_name};
use super::{Coverage, Digest};
use crate::interpret::{Report, Sink};
use crate::model::Order;
use crate::program::Op;

/// The calls that are counted apart, by the place that [`kind`] gives them.
const CALLS: [&str; 35] = [
    "eventfd",
    "epoll_create1",
    "pipe2",
    "socketpair",
    "open",
    "close",
    "dup…, SCM_RIGHTS",
    "write",
    "read",
    "writev",
    "readv",
    "pread",
    "epoll_ctl ADD",
    "epoll_ctl MOD",
    "epoll_ctl DEL",
    "epoll_ctl, other",
    "epoll_wait",
    "O_NONBLOCK",
    "poll",
    "select",
    "splice",
    "shutdown",
    "fork",
    "a batch of epoll_ctl",
    "timerfd_create",
    "timerfd_settime",
    "an event ring",
    "an expiry",
    "a number again",
    "writev of several",
    "sendmsg",
    "readv into several",
    "recvmsg",
    "writes that wait",
    "timerfd_gettime",
];

/// The place of a call in [`CALLS`].
fn kind(op: &Op) -> usize {
    match op {
        Op::Counter { .. } => 0,
        Op::Set { .. } => 1,
        Op::Pipe { .. } => 2,
        Op::Sockets { .. } => 3,
        Op::Directory { .. } | Op::File { .. } => 4,
        Op::Close { .. } | Op::CloseAll => 5,
        Op::Duplicate { .. } => 6,
        Op::Write { .. } => 7,
        Op::Read { .. } => 8,
        Op::WriteVector { .. } => 9,
        Op::ReadVector { .. } => 10,
        Op::ReadAt { .. } => 11,
        Op::Ctl { op: libc::EPOLL_CTL_ADD, .. } => 12,
        Op::Ctl { op: libc::EPOLL_CTL_MOD, .. } => 13,
        Op::Ctl { op: libc::EPOLL_CTL_DEL, .. } => 14,
        Op::Ctl { .. } => 15,
        Op::Wait { .. } => 16,
        Op::Nonblocking { .. } => 17,
        Op::Poll { .. } => 18,
        Op::Select { .. } => 19,
        Op::Splice { .. } => 20,
        Op::Shutdown { .. } => 21,
        Op::Fork | Op::Child { .. } | Op::End { .. } => 22,
        Op::Route { .. } | Op::Take { .. } | Op::NameSpace => 22,
        Op::Turn { .. } | Op::Thread | Op::Pause { .. } => 22,
        Op::Batch { .. } => 23,
        Op::Timer { .. } => 24,
        Op::SetTimer { .. } => 25,
        Op::Ring { .. } => 26,
        Op::Expiry { .. } => 27,
        Op::Reuse { .. } => 28,
        Op::WritePieces { message, .. } => 29 + usize::from(*message),
        Op::ReadPieces { message, .. } => 31 + usize::from(*message),
        Op::WriteWaiting { .. } => 33,
        Op::TimeLeft { .. } => 34,
    }
}

/// Errnos that are counted apart: those below this one.
const ERRNOS: usize = 134;

/// A digest that also counts.
#[derive(Clone, Debug)]
pub struct Census {
    /// The outcomes.
    pub digest: Digest,
    outcomes: Box<[[u64; ERRNOS]; CALLS.len()]>,
    reported: [u64; 32],
    asked: [u64; 32],
    orders: [u64; 3],
    waits: [u64; 4],
}

impl Default for Census {
    fn default() -> Self {
        Self {
            digest: Digest::default(),
            outcomes: Box::new([[0; ERRNOS]; CALLS.len()]),
            reported: [0; 32],
            asked: [0; 32],
            orders: [0; 3],
            waits: [0; 4],
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
        self.outcomes[kind(op)][errno] += 1;
        match op {
            Op::Ctl { op: libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD, events, .. }
                if result == 0 =>
            {
                count_bits(&mut self.asked, *events);
            }
            Op::Wait { .. } | Op::Expiry { .. } if result >= 0 => {
                self.waits[match result {
                    0 => 0,
                    1 => 1,
                    2..=4 => 2,
                    _ => 3,
                }] += 1;
            }
            _ => {}
        }
    }

    fn events(&mut self, order: Order, events: &[(Report, bool)]) {
        self.digest.events(order, events);
        self.orders[order as usize] += 1;
        for ((_, bits), _) in events {
            count_bits(&mut self.reported, *bits);
        }
    }

    fn skipped(&mut self, op: &Op) {
        self.digest.skipped(op);
    }
}

impl Census {
    /// The counts by name.
    pub fn coverage(&self) -> Coverage {
        let mut coverage = Coverage::default();
        for (call, outcomes) in CALLS.iter().zip(&*self.outcomes) {
            for (errno, n) in outcomes.iter().enumerate().filter(|(_, n)| **n > 0) {
                let name = if errno == 0 { "ok".to_string() } else { errno_name(errno as i32) };
                let counts = coverage.outcomes.entry(call.to_string()).or_default();
                *counts.entry(name).or_default() += n;
            }
        }
        for (bit, name) in BITS {
            coverage.asked.insert(name.to_string(), self.asked[bit as usize]);
            coverage.reported.insert(name.to_string(), self.reported[bit as usize]);
        }
        for (name, n) in ["none", "1", "2 to 4", "5 and more"].iter().zip(self.waits) {
            coverage.waits.insert(name.to_string(), n);
        }
        for (name, n) in ["whole", "within each half", "none"].iter().zip(self.orders) {
            coverage.orders.insert(name.to_string(), n);
        }
        coverage
    }
}
