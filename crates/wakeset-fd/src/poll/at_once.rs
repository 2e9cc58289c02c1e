//! A call that may not sleep, and has no mask: one look.

use super::Outcome;
use super::counted::Counted;
use super::entries::{Asked, Looked, Of, look};
use super::room::{Room, is_left_to_kernel, is_too_long};
use crate::stats::Stat;
use crate::stats::count::count;
use crate::sys::Errno;
use crate::sys::signal_guard::SignalGuard;

/// Answers the call. It is a part of its caller, because each function that returns after a system
/// call costs as much as some twenty instructions.
#[inline(always)]
pub(super) fn at_once<A: Asked>(asked: &A) -> Outcome {
    count(Stat::Waits, 1);
    let mut room = Room::new();
    let Some(all) = room.get(asked.len()) else { return Outcome::Unchanged };
    let Some((_, entries)) = all.split_last() else { return Outcome::Unchanged };
    if !asked.load(entries) {
        // EFAULT, which the kernel will say.
        return Outcome::Unchanged;
    }
    // It goes last: a handler that leaves the call by siglongjmp(3) leaves it counted in nothing.
    let _guard = SignalGuard::enter();
    // Until the call is over.
    let counted = Counted::new();
    let kernel = loop {
        match look(entries, Of::All, |fd| counted.begin(fd)) {
            Ok(Looked::At { kernel }) => break kernel,
            Ok(Looked::NothingHere) => return Outcome::Unchanged,
            Ok(Looked::Failed(errno)) if is_left_to_kernel(errno) => return Outcome::Unchanged,
            Ok(Looked::Failed(errno)) => return Outcome::Done(Err(errno)),
            Err(unready) => unready.settle(),
        }
    };
    let Some(found) = asked.count(entries) else { return Outcome::Unchanged };
    if !kernel {
        if is_too_long(entries.len()) {
            return Outcome::Unchanged;
        }
        count(Stat::WaitsInProcess, 1);
        count(Stat::SyscallsAvoided, 1);
    }
    Outcome::Done(if asked.store(entries) { Ok(found) } else { Err(Errno::EFAULT) })
}
