//! What tells an eventfd or timer that is away, or an end of a pair, from the next file of its
//! number, if no set watches it: a kernel epoll of ours does, for no events. The kernel knows a
//! watch by its file and its number, so it can be changed for as long as the number stands for that
//! file.
//!
//! To ask `/proc/self/fdinfo` instead would take a number of the program's for a moment, in which a
//! dup2(2) onto that number would give it to another file.

use crate::sys::refusable::refusable;
use crate::sys::{self, Errno};
use crate::table::hidden;
use crate::table::lifecycle::{self, Participant, Rank};
use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, Ordering};
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, epoll_event};

/// The epoll, a hidden number; -1 for none. Changed with the migrations lock held.
static EPOLL: AtomicI32 = AtomicI32::new(-1);

static KNOWN: Participant = Participant {
    rank: Rank::Away,
    // The number is closed by now.
    begin_anew: || EPOLL.store(-1, Ordering::SeqCst),
    renumber: Some(|old, new| {
        let _ = EPOLL.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst);
    }),
    before_close: None,
};

fn epoll() -> Option<c_int> {
    let known = EPOLL.load(Ordering::SeqCst);
    if known >= 0 {
        return Some(known);
    }
    lifecycle::sign_up(&KNOWN);
    let make = || refusable!(epoll_create1, libc::EPOLL_CLOEXEC).ok().map(|made| made as c_int);
    let made = hidden::make(make)?;
    EPOLL.store(made, Ordering::SeqCst);
    Some(made)
}

fn change(op: c_int, fd: c_int) -> Result<(), Errno> {
    let event = epoll_event { events: 0, u64: 0 };
    sys::epoll_ctl(epoll().ok_or(Errno::EBADF)?, op, fd, &raw const event)
}

/// Takes note of what the number stands for; whether that could be done. The caller holds the
/// migrations lock.
pub(super) fn note(fd: c_int) -> bool {
    matches!(change(EPOLL_CTL_ADD, fd), Ok(()) | Err(Errno::EEXIST))
}

/// Whether it stands for the same. The caller holds the migrations lock.
pub(super) fn is_same(fd: c_int) -> bool {
    change(EPOLL_CTL_MOD, fd).is_ok()
}

/// The same is of no more interest. Of no effect if it was not noted.
pub(super) fn forget(fd: c_int) {
    if EPOLL.load(Ordering::SeqCst) >= 0 {
        let _ = change(EPOLL_CTL_DEL, fd);
    }
}
