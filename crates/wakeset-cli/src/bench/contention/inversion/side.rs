//! What is compared: the lock that low-priority threads hold, and the implementations.

use std::fmt;

use crate::bench::sides::engine::List;

/// Whose latency is measured, by its name on the command line.
#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
pub enum Policy {
    /// The kernel's epoll and eventfd
    Kernel,
    /// Wakeset with its ready list behind a read-write lock
    Rwlock,
    /// Wakeset with its ready list behind a spinlock
    Spinlock,
    /// Wakeset
    LockFree,
    /// All of them
    All,
}

impl Policy {
    /// The ready list; `None` for the kernel's side.
    pub fn list(self) -> Option<List> {
        match self {
            Policy::Kernel => None,
            Policy::Rwlock => Some(List::Rwlock),
            Policy::Spinlock => Some(List::Spinlock),
            Policy::LockFree | Policy::All => Some(List::LockFree),
        }
    }
}

/// What the low-priority threads do, and so which lock they hold.
#[derive(Clone, Copy, PartialEq)]
pub enum Contended {
    ReadyList,
    ScanLock,
}

impl fmt::Display for Contended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Contended::ReadyList => "ready list",
            Contended::ScanLock => "scan lock",
        })
    }
}

/// One column.
#[derive(Clone, Copy)]
pub struct Side {
    pub name: &'static str,
    pub policy: Policy,
    /// Whether a thread that waits for a scan lock lends its priority to the holder. It always
    /// does so outside this comparison.
    pub inherit: bool,
}

pub const READY_LIST_SIDES: [Side; 4] = [
    Side { name: "kernel", policy: Policy::Kernel, inherit: true },
    Side { name: "rwlock", policy: Policy::Rwlock, inherit: true },
    Side { name: "spinlock", policy: Policy::Spinlock, inherit: true },
    Side { name: "lock-free", policy: Policy::LockFree, inherit: true },
];
pub const SCAN_LOCK_SIDES: [Side; 3] = [
    Side { name: "kernel", policy: Policy::Kernel, inherit: true },
    Side { name: "not lent", policy: Policy::LockFree, inherit: false },
    Side { name: "wakeset", policy: Policy::LockFree, inherit: true },
];
