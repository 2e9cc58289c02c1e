//! Doorbells of threads that sleep in poll(2).

use crate::sys;
use crate::sys::signal_guard::SignalGuard;
use crate::table::lifecycle::{self, Participant, Rank};
use crate::table::{self, gate, process};
use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

/// Threads that can have a doorbell of their own at a time.
const MOST_LENT: usize = 512;
/// The doorbells that threads have, plus one. Set with the migrations lock held.
static LENT: [AtomicI32; MOST_LENT] = [const { AtomicI32::new(0) }; MOST_LENT];
/// In a forked child no thread has one.
static LENDER: Participant = Participant {
    rank: Rank::Doorbells,
    begin_anew: || LENT.iter().for_each(|lent| lent.store(0, Ordering::SeqCst)),
    renumber: None,
    before_close: None,
};
/// Ask all threads that have one to give it back: a `fn()` each, 0 for none.
static RECALL: AtomicUsize = AtomicUsize::new(0);
static RECALL_POLLERS: AtomicUsize = AtomicUsize::new(0);

/// A doorbell of a thread that sleeps in poll(2) on descriptors of the program's and is to be woken
/// by us. Its number stays the same until this is dropped; by then no waker may be about to ring
/// it.
#[derive(Debug)]
pub struct Lent {
    entry: &'static AtomicI32,
    fd: c_int,
}

impl Lent {
    /// The eventfd.
    pub fn fd(&self) -> c_int {
        self.fd
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        table::spare_doorbell(self.fd);
        // From here on it may get another number.
        self.entry.store(0, Ordering::SeqCst);
    }
}

/// Installs how threads that have a doorbell are asked to give it back soon.
pub fn set_recall(recall: fn()) {
    RECALL.store(recall as *const () as usize, Ordering::Release);
}

/// The same for those of threads that are in poll(2) or select(2). `recall` is called with the
/// migrations lock held, again and again.
pub(crate) fn set_poller_recall(recall: fn()) {
    RECALL_POLLERS.store(recall as *const () as usize, Ordering::Release);
}

/// Why a thread gets no doorbell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unlent {
    /// Objects migrate at this moment; soon there may be one.
    Busy,
    /// There is none to be had, or a fork is under way.
    NoneLeft,
}

/// A doorbell for this thread. It may be ringing already.
///
/// # Errors
/// See [`Unlent`].
pub fn lend() -> Result<Lent, Unlent> {
    if !process::may_make_objects_beside_fork() {
        return Err(Unlent::NoneLeft);
    }
    let _guard = SignalGuard::enter();
    let _migrating = gate::try_hold_migrations().ok_or(Unlent::Busy)?;
    lifecycle::sign_up(&LENDER);
    let free = LENT.iter().find(|lent| lent.load(Ordering::SeqCst) == 0);
    let entry = free.ok_or(Unlent::NoneLeft)?;
    let fd = table::take_spare_doorbell().or_else(super::make).ok_or(Unlent::NoneLeft)?;
    entry.store(fd + 1, Ordering::SeqCst);
    Ok(Lent { entry, fd })
}

/// Waits until no thread has this doorbell; none gets one meanwhile, because the caller holds the
/// migrations lock.
pub(super) fn wait_until_returned(fd: c_int) {
    while LENT.iter().any(|lent| lent.load(Ordering::SeqCst) == fd + 1) {
        for recall in [&RECALL, &RECALL_POLLERS] {
            let recall = recall.load(Ordering::Acquire);
            if recall != 0 {
                // SAFETY: only the functions above store here, and they store a `fn()`.
                unsafe { core::mem::transmute::<*const (), fn()>(recall as *const ())() };
            }
        }
        sys::sched_yield();
    }
}
