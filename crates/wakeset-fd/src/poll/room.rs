//! Where the entries of a call are, and how many there may be.

use super::entries::NONE;
use crate::sys::signal_guard::SignalGuard;
use crate::sys::{self, Errno, is_refusal};
use core::cell::Cell;
use libc::pollfd;

extern crate alloc;
use alloc::vec::Vec;

/// So many entries fit on the stack of the thread, which may be small.
const INLINE: usize = 24;

/// Where the entries of a call are.
pub(super) struct Room {
    inline: [Cell<pollfd>; INLINE + 1],
    more: Vec<Cell<pollfd>>,
}

impl Room {
    #[inline(always)]
    pub(super) const fn new() -> Self {
        Self { inline: [const { Cell::new(NONE) }; INLINE + 1], more: Vec::new() }
    }

    /// So many entries, and one for a doorbell. `None`: there is no memory, or there may not be so
    /// many.
    #[inline(always)]
    pub(super) fn get(&mut self, n: usize) -> Option<&[Cell<pollfd>]> {
        match self.inline.get(..=n) {
            Some(all) => Some(all),
            None => has_room(&mut self.more, n).then_some(self.more.as_slice()),
        }
    }
}

/// Makes room for so many entries and one more. A handler that leaves the call by siglongjmp(3)
/// leaves it behind.
#[cold]
fn has_room(entries: &mut Vec<Cell<pollfd>>, n: usize) -> bool {
    /// For so many the memory is had sooner than the limit.
    const MADE_FIRST: usize = 1024;
    if n > MADE_FIRST && is_too_long(n) {
        return false;
    }
    let n = n.saturating_add(1);
    let _guard = SignalGuard::enter();
    let has_room = entries.try_reserve_exact(n).is_ok();
    if has_room {
        entries.resize(n, Cell::new(NONE));
    }
    has_room
}

/// Whether so many entries may be more than the process may have (RLIMIT_NOFILE), beyond which the
/// kernel says EINVAL; an array that reaches the limit leaves no room for a doorbell. Asked only
/// of what would take much memory, and where the kernel has not had the array, because it would
/// have said so.
pub(super) fn is_too_long(n: usize) -> bool {
    /// So many are within the limit of any process that has objects here.
    const SURELY_ALLOWED: usize = 64;
    n > SURELY_ALLOWED && n >= sys::number_limit()
}

/// Whether the program's own call may end otherwise than ours with this error: a filter may know
/// it alone, and an array of ours may be longer than the process may have (RLIMIT_NOFILE) where the
/// program's is not.
pub(super) fn is_left_to_kernel(errno: Errno) -> bool {
    is_refusal(errno) || errno == Errno::EINVAL
}
