//! Calls by instruction where Wakeset catches them.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use syscalls::{Sysno, syscall};

/// So many calls are made in a window: where 1,024 are caught within a second, Wakeset leaves
/// everything to the kernel for good. So many span one whole window at least, and the loader's
/// calls are caught too.
const MOST: u32 = 480;
const WINDOW: Duration = Duration::from_millis(1050);

/// When the window began, and how many calls were made in it.
static PACE: Mutex<Option<(Instant, u32)>> = Mutex::new(None);

/// Waits until a call may be made.
pub(super) fn keep_pace() {
    let mut pace = PACE.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut began, mut made) = pace.unwrap_or_else(|| (Instant::now(), 0));
    if made == MOST {
        std::thread::sleep(WINDOW.saturating_sub(began.elapsed()));
        (began, made) = (Instant::now(), 0);
    }
    *pace = Some((began, made + 1));
}

/// fork(2) of a child that ends at once, and the wait for it.
pub(super) fn fork_and_reap() {
    // SAFETY: the child makes no other call; no memory is passed.
    unsafe {
        let child = syscall!(Sysno::fork);
        if child == Ok(0) {
            let _ = syscall!(Sysno::exit_group, 0);
        }
        if let Ok(child) = child {
            let _ = syscall!(Sysno::wait4, child, 0, 0, 0);
        }
    }
}

/// Whether what the process makes through libc still begins in the process: the kernel does not
/// know then what an eventfd holds.
pub(super) fn is_in_process() -> bool {
    // SAFETY: no memory is involved.
    let counter = unsafe { libc::eventfd(7, 0) };
    let held = std::fs::read_to_string(format!("/proc/self/fdinfo/{counter}"));
    // SAFETY: the descriptor of a moment ago.
    unsafe { libc::close(counter) };
    held.is_ok_and(|text| {
        text.lines().any(|line| line.trim_end() == "eventfd-count:                0")
    })
}
