//! Migrating objects into the kernel, when something is about to reach them that does not come
//! through us.
//!
//! Objects migrate in batches (one object, all that a set watches, or everything), in this order,
//! under the migrations lock:
//!
//! 1. each object is marked as migrating: a close of its number waits until it is done, so the
//!    number stays what it is;
//! 2. each counter's wait queue refuses new watches (an add that comes now waits, and then goes to
//!    the kernel), and its value is taken out and the word sealed, in one step: operations wait for
//!    step 5;
//! 3. the values are written to the kernel eventfds;
//! 4. each watch migrates, under the scan lock of its set, to that set's kernel half: added there,
//!    removed here. The add polls, so what is ready is reported; no moment exists in which neither
//!    half has the watch, and none in which a harvest sees both. A harvest that polls a counter on
//!    its way sees the value it carries. A thread may check the kernel half before the addition and
//!    the other half after the removal, so it repeats both if a watch has migrated meanwhile;
//! 5. the counters are in the kernel: operations go there from now on, and their numbers stand for
//!    kernel objects.
//!
//! A set migrates by migrating everything it watches. A set that gets a kernel half in this way
//! while another set watches it migrates too, because the watch on it knows its in-process half
//! only. Until that is done the sets around it, and around those, would not hear of what happens in
//! the kernel: they are marked as unsettled before the first such watch migrates, and a wait that
//! finds nothing in one of them waits for the migration, and checks again.
//!
//! The kernel takes an edge-triggered watch that is added while its counter is not drained for one
//! with an edge to report, also if we have reported it. That report is taken out again where
//! nothing else can go with it: while all other threads sleep (one that runs might just have added
//! to the counter and not reached the watch yet) and the kernel half holds no other edges.
//! Elsewhere the program sees one edge twice, as after `EPOLL_CTL_MOD`. Nothing is lost and no
//! count is doubled.
//!
//! Locks, in the order taken: migrations, then one scan lock at a time.

mod batch;
mod stale;

use crate::stats::Stat;
use crate::sys;
use crate::sys::signal_guard::SignalGuard;
use crate::sys::steps::step;
use crate::sys::vforked::{self, Wish};
use crate::table::gate::{self, Gate};
pub(crate) use crate::table::gate::{hold_migrations, wait_for_migrations};
use crate::table::object::Host;
use crate::table::{self, Entry, Slot, SlotHead, away, late};
use core::ffi::{CStr, c_char, c_int};
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};
pub use stale::number_is_new;
pub(crate) use stale::{is_number_of, mark_if_lost};
use wakeset::mutated;

/// For an object that was put into the table because the gate was open `before`: migrates it if the
/// gate has been closed since, because then no other thread may. Also if it is open again: a child
/// has the descriptor. Also if a request of an io_uring is to look the number up.
pub(crate) fn recheck_gate(fd: c_int, before: Gate) {
    if before.has_been_closed() && !mutated!("made_past_the_gate") {
        self::fd(fd, Stat::MigratedFork);
    }
    if late::is_noted(fd) {
        self::fd(fd, Stat::MigratedIoRing);
    }
}

/// Closes the gate and migrates everything, before a fork. The caller calls [`open_gate`]
/// afterwards.
pub fn everything(reason: Stat) {
    gate::close();
    step!(gate_closed);
    everything_behind_gate(reason);
}

/// [`everything`] once the gate is closed.
pub(crate) fn everything_behind_gate(reason: Stat) {
    if vforked::ask(Wish::Everything) {
        return;
    }
    let _guard = SignalGuard::enter();
    let _migrating = hold_migrations();
    batch::migrate(&mut table::numbers(), reason);
}

/// Opens the gate again.
pub fn open_gate() {
    gate::open();
}

/// Leaves everything to the kernel for good: it has been given a way to descriptors that we do not
/// see.
pub fn everything_for_good(reason: Stat) {
    if vforked::ask(Wish::EverythingForGood) {
        return;
    }
    gate::close_for_good();
    let _guard = SignalGuard::enter();
    let _migrating = hold_migrations();
    batch::migrate(&mut table::numbers(), reason);
}

/// Whether everything is left to the kernel for good, so that new objects begin there.
#[inline]
pub fn is_for_good() -> bool {
    !gate::may_open()
}

/// Migrates the object `fd` stands for into the kernel, if it is one of ours. Returns whether it
/// was.
pub fn fd(fd: c_int, reason: Stat) -> bool {
    if !table::get(fd).is_object() {
        return false;
    }
    let _guard = SignalGuard::enter();
    let _migrating = hold_migrations();
    fd_held(fd, reason);
    true
}

/// The name of the call for which objects migrate now, null if it is not told. The migrations lock
/// guards it.
static CALL: AtomicPtr<c_char> = AtomicPtr::new(ptr::null_mut());

/// [`fd`] for a call whose name the statistics are to say.
pub fn fd_for(fd: c_int, reason: Stat, call: &'static CStr) -> bool {
    if !table::get(fd).is_object() {
        return false;
    }
    let _guard = SignalGuard::enter();
    let _migrating = hold_migrations();
    CALL.store(call.as_ptr().cast_mut(), Ordering::Relaxed);
    fd_held(fd, reason);
    CALL.store(ptr::null_mut(), Ordering::Relaxed);
    true
}

/// That name, empty if there is none. The caller holds the migrations lock.
fn call_under_way() -> &'static [u8] {
    let call = CALL.load(Ordering::Relaxed);
    // SAFETY: `fd_for` stores C strings that are never freed.
    if call.is_null() { b"" } else { unsafe { CStr::from_ptr(call) }.to_bytes() }
}

/// As [`fd`], for a number that is about to be closed, or to become another file's: calls that
/// sleep in the object go on with its file.
pub(crate) fn closing(fd: c_int, reason: Stat) {
    if table::get(fd).is_object() {
        let _guard = SignalGuard::enter();
        let _migrating = hold_migrations();
        batch::migrate_closing(fd, reason);
    }
}

/// [`closing`] of a number that stands for `end`, an end of a pair. The caller has a signal guard
/// and holds the migrations lock.
pub(crate) fn closing_end_held<S: Slot>(fd: c_int, end: &'static S, reason: Stat) {
    if !batch::close_unwatched(fd, end, reason) {
        batch::migrate_closing(fd, reason);
    }
}

/// Leaves the object `fd` stands for to the kernel, as its user wishes. What is not ours is the
/// kernel's already.
///
/// # Errors
/// EBADF. EBUSY: a set that cannot migrate, because it has a custom source.
pub fn release(fd: c_int) -> Result<(), sys::Errno> {
    match table::get(fd) {
        Entry::Doorbell => Err(sys::Errno::EBADF),
        Entry::Object(object) if object.object().as_host().is_some_and(Host::is_fixed) => {
            Err(sys::Errno::EBUSY)
        }
        Entry::Object(_) => {
            self::fd(fd, Stat::MigratedUnmodelled);
            Ok(())
        }
        Entry::Kernel => sys::fcntl(fd, libc::F_GETFD, 0).map(drop),
    }
}

/// Migrates all pipes and socket pairs, and has those that are away stay in the kernel.
pub fn pipes(reason: Stat) {
    for number in table::numbers() {
        let is_pipe =
            away::kind(number) == Some(table::PIPE) && !mutated!("away_pipe_is_opened_unseen");
        // For anything else a look-up would be a doubt without need.
        if away::is(number) && !is_pipe {
            continue;
        }
        if matches!(table::get(number), Entry::Object(object) if object.kind() == table::PIPE) {
            fd(number, reason);
        }
    }
}

/// [`fd`] for an object, by whatever number.
pub(crate) fn object(head: &'static SlotHead, reason: Stat) {
    let _guard = SignalGuard::enter();
    let _migrating = hold_migrations();
    object_held(head, reason);
}

/// [`object`] for a caller that holds the migrations lock.
pub(crate) fn object_held(head: &'static SlotHead, reason: Stat) {
    batch::migrate_object(head, reason);
}

/// [`fd`] for a caller that holds the migrations lock.
pub(crate) fn fd_held(fd: c_int, reason: Stat) {
    batch::migrate(&mut core::iter::once(fd), reason);
}

/// [`fd_held`] of several numbers at a time.
pub(crate) fn several_held(numbers: &mut dyn Iterator<Item = c_int>, reason: Stat) {
    batch::migrate(numbers, reason);
}

/// Leaves all timers to the kernel from now on: a thread that does not know when
/// its timers expire polls the set's descriptor. The caller holds the migrations lock.
pub(crate) fn leave_timers_held() {
    if !gate::leave_timers_to_kernel() {
        return;
    }
    for number in table::numbers() {
        if matches!(table::peek(number), Entry::Object(object) if object.kind() == table::TIMER) {
            fd_held(number, Stat::MigratedPoll);
        }
    }
}
