//! How long a worker may take: one that does not end is killed.

use std::process::Child;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// How long the kernel's side may take for a block. A worker ends itself before that
/// (`worker::BLOCK_SECONDS`), unless the signal does not reach it.
pub(super) const BLOCK: Duration = Duration::from_secs(40);
/// The same for programs that are traced (`worker::PROGRAM_SECONDS`), on any side.
pub(super) const TRACE: Duration = Duration::from_secs(8);

/// How much longer than the kernel's side another one may take, by which the machine's other load
/// is allowed for.
const TIMES: u32 = 20;

/// The limit for a side, where the kernel's took `kernel` for the same: so much longer, and `slack`
/// for what only this side does.
pub(super) fn beside(kernel: Duration, slack: Duration) -> Duration {
    kernel * TIMES + slack
}

/// Does `work`, which reads from a worker, and kills that and its children if it takes longer.
/// Returns whether it did. The worker leads a process group.
pub(super) fn within<R>(limit: Duration, child: &Child, work: impl FnOnce() -> R) -> (R, bool) {
    thread::scope(|scope| {
        let (done, over) = mpsc::channel::<()>();
        let killer = scope.spawn(move || {
            let is_late = over.recv_timeout(limit) == Err(RecvTimeoutError::Timeout);
            if is_late {
                end(child);
            }
            is_late
        });
        let result = work();
        drop(done);
        (result, killer.join().unwrap_or(false))
    })
}

/// Kills a worker, which has not been waited for, and its children.
pub(super) fn end(child: &Child) {
    // SAFETY: no memory is involved, and the number is still the worker's.
    unsafe { libc::kill(-(child.id() as libc::pid_t), libc::SIGKILL) };
}
