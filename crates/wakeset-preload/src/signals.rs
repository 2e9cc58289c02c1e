//! Signal handlers, kept out of critical sections.
//!
//! The kernel calls our handler for every signal that the program handles, and ours calls the
//! program's. When a signal comes while its thread is in a
//! [`SignalGuard`](wakeset_fd::signal_guard::SignalGuard), ours notes it, has the kernel block all
//! further ones on return, and lets the section finish. At its end the thread sends itself the
//! signal again, and the kernel delivers it as it would have at first. The program sees the signal
//! a microsecond later, as if it had been sent then. Faults of the running instruction are never
//! deferred.
//!
//! SIGSEGV and SIGBUS are always ours: a fault in one of our accesses to the program's memory
//! becomes EFAULT ([`wakeset_fd::user`]); every other one is the program's, or the kernel's
//! default.
//!
//! What sigaction(2) and signal(2) report is what the program set.
//!
//! | file | concept |
//! |---|---|
//! | `dispositions` | what the program has set for each signal |
//! | `counts` | how many signals a thread has handled |
//! | `sleep` | a sleep that does not begin once a signal has been handled |
//! | `deferred` | signals kept until the end of a critical section |
//! | `handler` | our handler |
//! | `register` | sigaction(2) and its kin |
//! | `chain` | another library that replaces sigaction(2) |
//! | `sigsys` | SIGSYS, where system calls by instruction are caught |
//! | `masks` | sigprocmask(2) and its kin, where SIGSYS cannot be blocked |

mod chain;
mod counts;
mod deferred;
mod dispositions;
mod handler;
mod masks;
mod register;
mod sigsys;
pub(crate) mod sleep;

pub(crate) use counts::{Uncounted, handled, not_restarting};
pub(crate) use deferred::drop_deferred;
pub(crate) use dispositions::{hold, release};
pub(crate) use handler::may_have_foreign_handlers;
pub(crate) use masks::{PassedMask, change_mask, passes_unchanged, suspend};
pub(crate) use register::{arm, unblock_sigsys_in_handlers};
pub(crate) use sigsys::{
    exchange_sigsys, is_sigsys_blocked, on_other_sigsys, relax_sigsys, take_sigsys, unblock_sigsys,
};
