//! Threads of real-time priority (sched(7)).

use std::io;

use crate::bench::measure::joined::joined;
use crate::bench::sides::kernel::check;

/// No thread of this benchmark should run for longer than this without sleeping (microseconds): a
/// real-time thread that does not give up its processor hangs everything else that is to run
/// there. The kernel ends the process after this time.
const LONGEST_RUN: libc::rlim_t = 3_000_000;

/// Puts a thread, 0 for the calling one, under SCHED_FIFO with this priority, or under SCHED_OTHER
/// for 0.
pub fn set_priority(thread: libc::pid_t, priority: i32) -> io::Result<()> {
    let policy = if priority == 0 { libc::SCHED_OTHER } else { libc::SCHED_FIFO };
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: initialised parameters.
    check(unsafe { libc::sched_setscheduler(thread, policy, &parameters) }).map(drop)
}

/// The calling thread's number.
pub fn thread_number() -> libc::pid_t {
    // SAFETY: no arguments, no memory.
    unsafe { libc::gettid() }
}

/// Whether a thread of this process may have this priority; the error says that it may not. Also
/// sets the limit on how long one may keep its processor.
pub fn prepare(priority: i32) -> io::Result<()> {
    let limit = libc::rlimit { rlim_cur: LONGEST_RUN, rlim_max: LONGEST_RUN };
    // SAFETY: an initialised value.
    check(unsafe { libc::setrlimit(libc::RLIMIT_RTTIME, &limit) })?;
    std::thread::scope(|scope| joined(scope.spawn(|| set_priority(0, priority))))
}
