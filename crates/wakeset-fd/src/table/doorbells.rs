//! The entries of hidden numbers, and the doorbells that no set uses.

use super::hidden::claims::{CLAIMED, DOORBELL, SPARE_DOORBELL, TAG, VACANT};
use super::{END, closing, has_room, put, retag, vacant_slot, word_of};
use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicUsize, Ordering};

/// How many entries are `SPARE_DOORBELL`, at least at rest.
static SPARE_DOORBELLS: AtomicU32 = AtomicU32::new(0);
/// Where one was found last.
static LAST_DOORBELL: AtomicI32 = AtomicI32::new(0);

/// Hides a number.
pub(crate) fn put_doorbell(fd: c_int) {
    // The kernel has given the number out before the table has forgotten what it was.
    closing::wait(fd);
    put(fd, vacant_slot(fd) | DOORBELL);
}

/// Hides a number that is the calling thread's alone, as one that it has
/// [claimed](super::hidden::claims). `None`: there is no room for it, or what the table has there
/// was closed by a call that was not seen.
pub(super) fn put_claimed(fd: c_int) -> Option<&'static AtomicUsize> {
    closing::wait(fd);
    let _ = vacant_slot(fd);
    if !has_room(fd) {
        return None;
    }
    END.fetch_max(fd + 1, Ordering::SeqCst);
    let entry = word_of(fd)?;
    let claim = |word: usize| matches!(word & TAG, 0 | VACANT).then_some(word & !TAG | CLAIMED);
    let claimed = entry.fetch_update(Ordering::SeqCst, Ordering::SeqCst, claim);
    claimed.is_ok().then_some(entry)
}

/// There is one more that no set uses.
pub(super) fn count_spare_in() {
    SPARE_DOORBELLS.fetch_add(1, Ordering::SeqCst);
}

/// There is one less; whether there was any.
pub(super) fn count_spare_out() -> bool {
    let less = |spare: u32| spare.checked_sub(1);
    SPARE_DOORBELLS.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok()
}

/// No set uses a doorbell, which nobody but the caller knows.
pub(crate) fn spare_doorbell(fd: c_int) {
    if retag(fd, &[DOORBELL], SPARE_DOORBELL).is_some() {
        count_spare_in();
    }
}

/// A doorbell that no set uses, for one that will. Looks through the table, and only if there is
/// one. The caller holds the migrations lock.
pub(crate) fn take_spare_doorbell() -> Option<c_int> {
    if !count_spare_out() {
        return None;
    }
    // The latest one taken lay among the others, most likely.
    let (begin, end) = (LAST_DOORBELL.load(Ordering::Relaxed), END.load(Ordering::SeqCst));
    let found = (begin..end)
        .chain(0..begin.min(end))
        .find(|fd| retag(*fd, &[SPARE_DOORBELL], DOORBELL).is_some());
    if let Some(fd) = found {
        LAST_DOORBELL.store(fd, Ordering::Relaxed);
    }
    found
}

/// In a forked child.
pub(super) fn begin_anew() {
    SPARE_DOORBELLS.store(0, Ordering::SeqCst);
    LAST_DOORBELL.store(0, Ordering::SeqCst);
}
