//! The program's own io_urings: where the submission queue of each is, so that what it submits can
//! be looked at before the kernel does. `docs/design/program-rings.md` has the whole of it.
//!
//! | file | concept |
//! |---|---|
//! | this one | which io_urings there are, by their numbers |
//! | `queue` | the submission queue of one, in memory that it shares with the kernel |
//! | `entry` | an entry of it, and what that names |
//! | `late` | numbers that the kernel may look up only later |
//!
//! An io_uring is known from its setup until its number is closed. Its memory is mapped once more,
//! for us alone: what the program does with its own mapping does not matter then. As any mapping it
//! holds the io_uring open, so it goes before the number does. A forked child has no such mapping
//! and knows no io_uring.
//!
//! **Locks.** Each io_uring has one. It is the first of all: with it held, objects migrate and
//! watches change.

mod entry;
mod queue;

pub use crate::table::late;
pub use entry::{Entry, Named};
pub use queue::{Original, Queue, SetUp, setup_flags};

use crate::sys;
use crate::sys::signal_guard::SignalSafeLock;
use crate::table::lifecycle::{self, Closes, Participant, Rank};
use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::sync::atomic::Ordering::{AcqRel, Relaxed};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use queue::Layout;

/// So many are known at a time. A process that has more is left to the kernel.
const MOST: usize = 32;
/// In so many threads an io_uring may be registered under an index.
const MEMBERS: usize = 8;

/// No number: the entry is free.
const FREE: c_int = -1;
/// The number is closed, and a thread may still enter it by an index.
const BY_INDEX: c_int = -2;
/// A thread is about to give the entry a number.
const CLAIMED: c_int = -3;

/// An io_uring of the program's.
#[derive(Debug)]
pub struct Ring {
    number: AtomicI32,
    lock: SignalSafeLock,
    layout: UnsafeCell<Layout>,
    /// Thread and index (`IORING_REGISTER_RING_FDS`), as [`member`] puts them together; 0: none.
    members: [AtomicU64; MEMBERS],
}

// SAFETY: the layout is touched with the lock held.
unsafe impl Sync for Ring {}

static RINGS: [Ring; MOST] = [const {
    Ring {
        number: AtomicI32::new(FREE),
        lock: SignalSafeLock::new(),
        layout: UnsafeCell::new(Layout::NONE),
        members: [const { AtomicU64::new(0) }; MEMBERS],
    }
}; MOST];
/// How many entries have ever been used.
static USED: AtomicUsize = AtomicUsize::new(0);

/// Whether an io_uring has waited for a connection, or may have.
static WAITS: AtomicBool = AtomicBool::new(false);

static PARTICIPANT: Participant = Participant {
    rank: Rank::ProgramRings,
    begin_anew: forget_in_child,
    renumber: None,
    before_close: Some(Closes { before: before_close, numbers_end }),
};

fn rings() -> impl Iterator<Item = &'static Ring> {
    RINGS.iter().take(USED.load(Ordering::Acquire))
}

/// The io_uring of a number. `None`: it is not known.
pub fn find(number: c_int) -> Option<&'static Ring> {
    rings().find(|ring| number >= 0 && ring.number.load(Ordering::Acquire) == number)
}

fn member(index: c_int) -> u64 {
    ((sys::gettid() as u64) << 32) | (u64::from(index as u32) + 1)
}

/// The io_uring that the calling thread has registered under an index.
pub fn find_registered(index: c_int) -> Option<&'static Ring> {
    let member = member(index);
    let has = |ring: &Ring| ring.members.iter().any(|it| it.load(Ordering::Acquire) == member);
    rings().find(|ring| has(ring))
}

/// After io_uring_setup(2) has returned `number`: the io_uring is known from now on. `false`: it
/// cannot be followed.
pub fn note_setup(number: c_int, set_up: &SetUp) -> bool {
    lifecycle::sign_up(&PARTICIPANT);
    // One whose close was not seen.
    before_close(number);
    let Some(layout) = Layout::map(number, set_up) else { return false };
    let claims = |ring: &Ring| ring.number.compare_exchange(FREE, CLAIMED, AcqRel, Relaxed).is_ok();
    let Some((index, ring)) = RINGS.iter().enumerate().find(|(_, ring)| claims(ring)) else {
        layout.unmap();
        return false;
    };
    ring.lock.lock();
    // SAFETY: this thread holds the lock.
    unsafe { *ring.layout.get() = layout };
    ring.number.store(number, Ordering::Release);
    ring.lock.unlock();
    USED.fetch_max(index + 1, Ordering::AcqRel);
    true
}

/// After `IORING_REGISTER_RING_FDS`: the calling thread has an io_uring under an index. `false`: it
/// is not known.
pub fn note_registered(number: c_int, index: c_int) -> bool {
    let Some(ring) = find(number) else { return false };
    // One that a thread of the same number has left.
    note_unregistered(index);
    let member = member(index);
    ring.members.iter().any(|it| it.compare_exchange(0, member, AcqRel, Relaxed).is_ok())
}

/// After `IORING_UNREGISTER_RING_FDS`.
pub fn note_unregistered(index: c_int) {
    let Some(ring) = find_registered(index) else { return };
    let member = member(index);
    for it in &ring.members {
        let _ = it.compare_exchange(member, 0, AcqRel, Relaxed);
    }
    ring.end_if(BY_INDEX);
}

/// An io_uring is told what it may do (`IORING_REGISTER_RESTRICTIONS`): entries stay as they are.
pub fn note_restricted() {
    rings().for_each(|ring| {
        if let Some(mut queue) = ring.lock() {
            queue.forbid_answers();
        }
    });
}

/// An io_uring waits for connections, or for what may be a listener: listeners are the kernel's
/// from now on.
pub fn note_waiting() {
    WAITS.store(true, Ordering::Relaxed);
}

/// Whether one does, or may.
#[inline]
pub(crate) fn any_waiting() -> bool {
    WAITS.load(Ordering::Relaxed)
}

impl Ring {
    /// The submission queue, for as long as the result lives. `None`: the io_uring is closed.
    pub fn lock(&self) -> Option<Queue<'_>> {
        self.lock.lock();
        if matches!(self.number.load(Ordering::Relaxed), FREE | CLAIMED) {
            self.lock.unlock();
            return None;
        }
        // SAFETY: this thread holds the lock, which the queue releases.
        Some(unsafe { Queue::new(&mut *self.layout.get(), &self.lock) })
    }

    /// The number is closed, or was: forgets the io_uring if nothing else leads to it.
    fn end_if(&self, number: c_int) {
        self.lock.lock();
        if self.number.load(Ordering::Relaxed) == number {
            let is_member = self.members.iter().any(|it| it.load(Ordering::Acquire) != 0);
            let after = if is_member { BY_INDEX } else { FREE };
            self.number.store(after, Ordering::Release);
            if after == FREE {
                // SAFETY: this thread holds the lock.
                unsafe { core::mem::replace(&mut *self.layout.get(), Layout::NONE) }.unmap();
            }
        }
        self.lock.unlock();
    }
}

fn before_close(number: c_int) {
    if let Some(ring) = find(number) {
        ring.end_if(number);
    }
}

fn numbers_end() -> c_int {
    rings().map(|ring| ring.number.load(Ordering::Acquire).saturating_add(1)).max().unwrap_or(0)
}

/// A child has none of the mappings.
fn forget_in_child() {
    for ring in rings() {
        // SAFETY: a forked child has one thread, which is here.
        unsafe {
            ring.lock.free_in_child();
            *ring.layout.get() = Layout::NONE;
        }
        ring.number.store(FREE, Ordering::Release);
        ring.members.iter().for_each(|it| it.store(0, Ordering::Relaxed));
    }
    WAITS.store(false, Ordering::Relaxed);
}
