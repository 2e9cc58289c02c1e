//! A program that runs for a limited time, with all that it starts.
//!
//! It is the leader of a process group of its own. This process adopts what loses its parent there
//! ("subreaper", prctl(2)), so it knows by number every process that is left, also one that has
//! gone into a session of its own. The number of a child stays its own until it has been waited
//! for, which is done at the very end for the program itself: so no signal meets a stranger.

use std::collections::BTreeSet;
use std::fs;
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

use super::command::Command;
use super::supervise::{Signals, os_failure, spawn};
use crate::failure::Failure;

/// How a program came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// By itself: its exit status, 128+N for signal N.
    ByItself(i32),
    /// SIGTERM was enough.
    Terminated,
    /// It, or something that it had started, went on after that and got SIGKILL.
    Killed,
}

/// How long a program may take to end after SIGTERM, and then to be gone after SIGKILL.
const GRACE: Duration = Duration::from_secs(5);
/// From one look to the next at what is still there, if no signal says that a child has ended.
const PAUSE: Duration = Duration::from_millis(100);

/// Runs the program for at most `limit`, and ends it and everything that it has started. `started`
/// is called when it runs, and `at_limit` with its process id while it still runs when the time is
/// up, or a signal asks this process to end. Returns how it ended, and how long it ran before that.
pub fn run_limited(
    command: &Command,
    limit: Duration,
    started: impl FnOnce(),
    at_limit: impl FnOnce(u32),
) -> Result<(End, Duration), Failure> {
    let signals = Signals::block()?;
    // SAFETY: no memory is involved. Without it, orphans go to another process, and stay.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
    let child = spawn(command, &signals, stand_apart)?;
    started();
    let begun = Instant::now();
    let deadline = begun + limit;
    let status = loop {
        if let Some(status) = status(child)? {
            break Some(status);
        }
        adopted(child);
        match signals.wait_until(deadline) {
            Some(libc::SIGCHLD) => {}
            // Of no meaning for whoever waits.
            Some(libc::SIGCONT | libc::SIGWINCH | libc::SIGURG) => {}
            Some(_) | None => break None,
        }
    };
    let lasted = begun.elapsed();
    if status.is_none() {
        at_limit(child as u32);
    }
    let end = end_all(child, &signals)?;
    // SAFETY: its status is known; nothing of it is left.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), libc::WNOHANG) };
    Ok((status.map_or(end, End::ByItself), lasted))
}

/// In the child: the leader of a group of its own, with nothing to read, and with its output where
/// this process says what is not its result.
fn stand_apart() {
    // SAFETY: our own numbers, and a C string; without `/dev/null` the input stays as it is.
    unsafe {
        libc::setpgid(0, 0);
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDONLY);
        if null > 0 {
            libc::dup2(null, 0);
            libc::close(null);
        }
        libc::dup2(2, 1);
    }
}

/// Sends SIGTERM to everything that is left, and SIGKILL to what goes on.
fn end_all(child: libc::pid_t, signals: &Signals) -> Result<End, Failure> {
    let mut told = BTreeSet::new();
    for (signal, end) in [(libc::SIGTERM, End::Terminated), (libc::SIGKILL, End::Killed)] {
        // SAFETY: no memory is involved; the leader has not been waited for, so the group is its.
        unsafe {
            libc::kill(-child, signal);
            // What is stopped would not end.
            libc::kill(-child, libc::SIGCONT);
        }
        let deadline = Instant::now() + GRACE;
        while Instant::now() < deadline {
            let others = adopted(child);
            if others.is_empty() && status(child)?.is_some() {
                return Ok(end);
            }
            for other in others.into_iter().filter(|&other| told.insert((other, signal))) {
                // SAFETY: as above; it is our child and has not been waited for.
                unsafe { libc::kill(other, signal) };
            }
            signals.wait_until(deadline.min(Instant::now() + PAUSE));
        }
    }
    Ok(End::Killed)
}

/// The children that this process has got from the program and that still run. What has ended is
/// waited for.
fn adopted(child: libc::pid_t) -> Vec<libc::pid_t> {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = threads.filter_map(|it| fs::read_to_string(it.path().join("children")).ok());
    let words: Vec<_> = lists.flat_map(|it| numbers(&it)).filter(|&pid| pid != child).collect();
    // SAFETY: no status is asked for.
    let runs = |pid: &libc::pid_t| unsafe {
        libc::waitpid(*pid, std::ptr::null_mut(), libc::WNOHANG) == 0
    };
    words.into_iter().filter(runs).collect()
}

fn numbers(text: &str) -> Vec<libc::pid_t> {
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// The child's status if it has ended. It can still be waited for.
fn status(child: libc::pid_t) -> Result<Option<i32>, Failure> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let how = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: room for the answer, of which an all-zero one is valid and says that it runs.
    let (code, pid, status) = unsafe {
        if libc::waitid(libc::P_PID, child as libc::id_t, info.as_mut_ptr(), how) != 0 {
            return Err(os_failure("cannot wait for the program"));
        }
        let info = info.assume_init();
        (info.si_code, info.si_pid(), info.si_status())
    };
    Ok(match code {
        _ if pid == 0 => None,
        libc::CLD_EXITED => Some(status),
        _ => Some(128 + status),
    })
}
