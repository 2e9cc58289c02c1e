//! Kernel descriptors watched by multishot polls of an io_uring instead of the set's kernel epoll, for sets that ask for it.
//!
//! What makes a socket ready puts the poll into the io_uring's work list; one call runs all that is there and leaves a completion for each
//! in mapped memory. A completion says that a watch may have something to report, as an entry of the kernel's ready list does, and no more: its bits are those of
//! one wake-up. What a wait reports is what poll(2) says of the number at that moment, asked for as many as it has room for in one call.
//! So a drained socket is not reported, levels are reported as long as they hold, and several changes are one event.
//!
//! **Hints.** A program that reads until there is nothing may do without that question: with `RING_HINTS` an edge that data or room has made is reported as the
//! completions tell it. Whatever else they say (an end, an error), and what has no completion (an add, a change), is asked about as ever.
//!
//! | in mapped memory | means | a wait |
//! |---|---|---|
//! | completions | watches to look at | takes them, without a call |
//! | `IORING_SQ_TASKRUN` | the work list is not empty; set before the call that made the socket ready returns | runs it |
//! | neither | nothing is ready | makes no call |
//!
//! **One thread.** The work of such an io_uring (`IORING_SETUP_DEFER_TASKRUN`) is run by the thread that made it and by no other. Without that flag
//! the kernel hands it to the thread that armed the poll, by a signal of its own: that one's calls would fail with EINTR for no reason, and all others would hear of
//! an event when that one has been scheduled. So the io_uring serves the thread that asked for it. Whatever another does with the set (a wait, a change, a close of a
//! watched number, a fork) gives the polls up first, for good: [`give_up`] puts the watches into the kernel epoll. Adding one there polls it, so nothing that has not been
//! reported is lost; an edge may be reported once more, as in every move.
//!
//! **Files.** An armed poll holds its file open. [`before_close`] therefore ends it before the number is closed; a close(2) that does not come by here
//! ends neither the watch nor the connection.
//!
//! **Sleeping.** A wait sleeps in the kernel epoll as ever. The io_uring rings the set's bell when its work list gets its first entry, and a
//! wait looks at both tables above after it has counted itself as a sleeper and before it sleeps. The list is always run to its end: what
//! comes later is a first entry again.
//!
//! **Forks.** All is given up before; the io_uring is hidden like a bell, and its memory is not in the child. A child that nobody told us of
//! finds the word of life wiped.
//!
//! What is watched in one io_uring is in `watches`; this file is about whose it is, and for how long.
//!
//! **Models.** Both files and [`wait`](crate::wait) run under loom as they are, between a kernel and a set that are played (`models.rs`).
//!
//! The lock is the set's own. Order: moves, then this one, then the set's scan lock, that of the listeners' notes
//! ([`turns`](crate::turns)) and the kernel's.

use crate::bell;
use crate::escape;
use crate::section::{self, Section, SectionLock};
use crate::set::FdSet;
use crate::sync::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering, mutant};
use crate::sys::{self, Errno};
use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::ptr;
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, epoll_event};
use wakeset::{Event, Events, Source, mutated};

#[cfg(not(loom))]
mod uring;
#[cfg(loom)]
use crate::models::uring;
use uring::{Uring, is_plain_socket};

mod watches;
use watches::{Inner, can_ask_for};

#[cfg(all(test, loom))]
mod models;

/// Sets that can have polls at a time. Further ones are served by their kernel epoll.
const MOST_SETS: usize = if cfg!(loom) { 1 } else { 64 };
/// Io_urings that can wait for their thread's next set. A further one is closed.
const MOST_PARKED: usize = if cfg!(loom) { 1 } else { 16 };
/// Watches that a set can have in its io_uring: no fewer, no more.
const LIMITS: (usize, usize) = (64, 4096);

/// Beside a number of watches: completions are to be believed.
const HINTS: usize = 1;

/// Sets with polls, so that a program without them pays for one load.
#[cfg(not(loom))]
static SETS: [AtomicPtr<FdSet>; MOST_SETS] = [const { AtomicPtr::new(ptr::null_mut()) }; MOST_SETS];
#[cfg(not(loom))]
static ACTIVE: AtomicUsize = AtomicUsize::new(0);
/// The last thread that was given a name here. Unlike a thread's number none is used twice.
#[cfg(not(loom))]
static LAST_OWNER: AtomicU32 = AtomicU32::new(0);
#[cfg(not(loom))]
static PARKED: Parked = Parked { lock: SectionLock::new(), rings: UnsafeCell::new([None; MOST_PARKED]) };

#[cfg(loom)]
loom::lazy_static! {
    static ref SETS: [AtomicPtr<FdSet>; MOST_SETS] = [AtomicPtr::new(ptr::null_mut())];
    static ref ACTIVE: AtomicUsize = AtomicUsize::new(0);
    static ref LAST_OWNER: AtomicU32 = AtomicU32::new(0);
    static ref PARKED: Parked = Parked { lock: SectionLock::new(), rings: UnsafeCell::new([None; MOST_PARKED]) };
}

/// The part of a set that is in an io_uring.
#[derive(Debug)]
pub(crate) struct Polls {
    /// Whether there is one. Changed with the lock held.
    active: AtomicBool,
    /// For how many watches there is to be one as soon as there is a watch for it, and [`HINTS`]; 0 for none.
    wanted: AtomicUsize,
    /// The thread that it serves.
    owner: AtomicU32,
    lock: SectionLock,
    inner: UnsafeCell<Inner>,
}

// SAFETY: `inner` is only touched with the lock held, in `with`.
unsafe impl Sync for Polls {}
// SAFETY: its pointers lead to memory of its own.
unsafe impl Send for Polls {}

/// Io_urings without polls, kept for the next set of their thread. Closing one would end a sleep of that thread, some time later, with EINTR: the kernel
/// takes the thread's leave of it.
struct Parked {
    lock: SectionLock,
    rings: UnsafeCell<[Option<Uring>; MOST_PARKED]>,
}

// SAFETY: the rings are only touched with the lock held.
unsafe impl Sync for Parked {}

impl Parked {
    fn with<T>(&self, f: impl FnOnce(&mut [Option<Uring>; MOST_PARKED]) -> T) -> T {
        self.lock.lock();
        // SAFETY: the lock is ours.
        let result = f(unsafe { &mut *self.rings.get() });
        self.lock.unlock();
        result
    }

    /// One of this thread's, for up to `limit` watches. Those of threads that are no more are closed.
    fn take(&self, owner: u32, limit: usize) -> Option<Uring> {
        self.with(|rings| {
            for parked in rings.iter_mut() {
                if let Some(ring) = parked.as_mut().filter(|ring| ring.owner != owner && !sys::is_thread(ring.tid)) {
                    ring.close();
                    ring.wait_until_gone();
                    *parked = None;
                }
            }
            let fits = |ring: &Uring| ring.owner == owner && ring.limit == limit;
            rings.iter_mut().find(|parked| parked.as_ref().is_some_and(fits))?.take()
        })
    }

    fn put(&self, ring: Uring) {
        let full = self.with(|rings| match rings.iter_mut().find(|parked| parked.is_none()) {
            Some(parked) => {
                *parked = Some(ring);
                None
            }
            None => Some(ring),
        });
        if let Some(mut ring) = full {
            ring.close();
            ring.wait_until_gone();
        }
    }
}

/// The name of this thread, unless it has none yet.
fn me() -> u32 {
    section::owner()
}

/// The name of this thread, given now if need be.
pub(crate) fn name_me() -> u32 {
    if me() == 0 {
        section::set_owner(LAST_OWNER.fetch_add(1, Ordering::Relaxed) + 1);
    }
    me()
}

impl Polls {
    pub(crate) fn new() -> Self {
        Self {
            active: AtomicBool::new(false),
            wanted: AtomicUsize::new(0),
            owner: AtomicU32::new(0),
            lock: SectionLock::new(),
            inner: UnsafeCell::new(Inner::new()),
        }
    }

    fn with<T>(&self, f: impl FnOnce(&mut Inner) -> T) -> T {
        self.lock.lock();
        // SAFETY: the lock is ours.
        let result = f(unsafe { &mut *self.inner.get() });
        self.lock.unlock();
        result
    }

    /// Whether the set has watches here, or may have.
    #[inline]
    pub(crate) fn are_active(&self) -> bool {
        self.active.load(Ordering::SeqCst)
    }

    fn are_mine(&self) -> bool {
        self.owner.load(Ordering::SeqCst) == me() && me() != 0
    }
}

/// From now on the set is to have polls for this thread, if it can.
pub(crate) fn ask_for(set: &FdSet, entries: usize, hints: bool) {
    if !set.polls.are_active() {
        set.polls.owner.store(name_me(), Ordering::SeqCst);
        let limit = entries.next_power_of_two().clamp(LIMITS.0, LIMITS.1);
        set.polls.wanted.store(limit | if hints { HINTS } else { 0 }, Ordering::SeqCst);
    }
}

/// For a new set.
pub(crate) fn begin_without(set: &FdSet) {
    set.polls.wanted.store(0, Ordering::SeqCst);
}

/// Gives the set polls, if it is to have them and can.
fn begin(set: &FdSet) {
    let polls = &set.polls;
    // Once.
    let wanted = polls.wanted.swap(0, Ordering::SeqCst);
    let limit = wanted & !HINTS;
    let _moving = escape::hold_moves();
    let unfit = set.in_kernel.load(Ordering::SeqCst)
        || set.closed.load(Ordering::SeqCst)
        || set.is_fixed()
        || set.handed_out.load(Ordering::SeqCst)
        || set.set.wait_queue().has_watches();
    if limit == 0 || unfit || polls.are_active() || bell::install_held(set) != Ok(true) {
        return;
    }
    let bell = set.bell.load(Ordering::SeqCst);
    if bell < 0 {
        return;
    }
    let owner = me();
    let Some(place) = SETS.iter().find(|place| place.load(Ordering::SeqCst).is_null()) else { return };
    polls.with(|inner| {
        if !inner.has_memory() {
            return;
        }
        let Some(mut ring) = PARKED.take(owner, limit).or_else(|| Uring::open(owner, limit)) else { return };
        if !mutant!("polls_bell_is_silent") && !ring.set_bell(Some(bell)) {
            ring.close();
            ring.wait_until_gone();
            return;
        }
        inner.ring = Some(ring);
        inner.broken = false;
        inner.hints = wanted & HINTS != 0;
        inner.set_alive(true);
        polls.active.store(true, Ordering::SeqCst);
        place.store(ptr::from_ref(set).cast_mut(), Ordering::SeqCst);
        ACTIVE.fetch_add(1, Ordering::SeqCst);
    });
    if polls.are_active() && !set.has_kernel.load(Ordering::SeqCst) {
        set.note_kernel_watch();
        set.only_polls.store(true, Ordering::SeqCst);
    }
}

/// Puts what is watched here into the kernel epoll, for good.
pub(crate) fn give_up(set: &FdSet) {
    if set.polls.are_active() {
        let _section = Section::enter();
        let _moving = escape::hold_moves();
        give_up_held(set);
    }
}

/// [`give_up`] for a caller that holds the moves lock.
pub(crate) fn give_up_held(set: &FdSet) {
    if set.polls.are_active() {
        end(set, true);
    }
}

/// Ends the polls of a set whose number is about to be closed.
pub(crate) fn forget(set: &FdSet) {
    if set.polls.are_active() {
        end(set, false);
    }
}

fn end(set: &FdSet, goes_on: bool) {
    let polls = &set.polls;
    polls.with(|inner| {
        if !polls.are_active() {
            return;
        }
        if !inner.is_alive() {
            // A child that nobody told us of: all this is its parent's.
            polls.active.store(false, Ordering::SeqCst);
            return;
        }
        if goes_on {
            set.kernel_edges.store(true, Ordering::SeqCst);
            set.only_polls.store(false, Ordering::SeqCst);
            if mutant!("polls_inactive_before_moved") {
                polls.active.store(false, Ordering::SeqCst);
            }
            inner.for_each_watch(|fd, watch| {
                let in_line_only = mutated!("polls_given_up_in_line_only") && !watch.is_in_line();
                if in_line_only || mutant!("polls_given_up_are_lost") {
                    return;
                }
                let event = epoll_event { events: watch.events, u64: watch.data };
                if let Err(error) = sys::epoll_ctl(set.fd(), EPOLL_CTL_ADD, fd, &raw const event) {
                    // EBADF: its number was closed, and not by us.
                    if error != Errno::EBADF {
                        escape::complain(set.fd(), fd, error);
                    }
                }
            });
        }
        let mine = polls.are_mine();
        let cancelled = mine && !inner.broken && inner.cancel_all();
        if let Some(mut ring) = inner.ring.take() {
            if cancelled && ring.set_bell(None) {
                PARKED.put(ring);
            } else {
                ring.close();
                if !mutant!("polls_end_unawaited") {
                    ring.wait_until_gone();
                }
            }
        }
        inner.forget_all();
        for place in SETS.iter() {
            if place
                .compare_exchange(ptr::from_ref(set).cast_mut(), ptr::null_mut(), Ordering::SeqCst, Ordering::SeqCst)
                .is_ok()
            {
                ACTIVE.fetch_sub(1, Ordering::SeqCst);
            }
        }
        polls.active.store(false, Ordering::SeqCst);
    });
}

/// Whether there are any in the process.
#[inline]
pub(crate) fn any() -> bool {
    ACTIVE.load(Ordering::Relaxed) != 0
}

/// Whether the polls of a set serve this thread.
pub(crate) fn are_for_me(set: &FdSet) -> bool {
    set.polls.are_mine()
}

/// One above the highest number that may be watched.
pub(crate) fn numbers_end() -> c_int {
    let ends = SETS.iter().map(|place| {
        // SAFETY: slots are never freed.
        unsafe { place.load(Ordering::SeqCst).as_ref() }.map_or(0, |set| set.polls.with(|inner| inner.end))
    });
    if any() { ends.max().unwrap_or(0) } else { 0 }
}

/// Before a number is closed, or becomes another file's: ends the polls that hold its file.
#[inline]
pub(crate) fn before_close(fd: c_int) {
    if ACTIVE.load(Ordering::Relaxed) != 0 && !mutated!("polls_hold_closed_files") {
        end_watches_of(fd);
    }
}

#[cold]
fn end_watches_of(fd: c_int) {
    let _section = Section::enter();
    for place in SETS.iter() {
        // SAFETY: slots are never freed.
        let Some(set) = (unsafe { place.load(Ordering::SeqCst).as_ref() }) else { continue };
        let polls = &set.polls;
        let ended = polls.with(|inner| {
            if !polls.are_active() || !inner.is_alive() || inner.is_watched(fd) != Some(true) {
                return true;
            }
            polls.are_mine() && inner.remove(fd)
        });
        if !ended {
            give_up(set);
            // It is the kernel's to forget it.
        }
    }
}

/// A hidden number of ours has become another, or -1.
pub(crate) fn renumber(fd: c_int, new: c_int) {
    let change = |ring: &mut Uring| {
        for number in [&mut ring.fd, &mut ring.gone] {
            if *number == fd {
                *number = new;
            }
        }
    };
    PARKED.with(|rings| rings.iter_mut().flatten().for_each(change));
    for place in SETS.iter() {
        // SAFETY: slots are never freed.
        if let Some(set) = unsafe { place.load(Ordering::SeqCst).as_ref() } {
            set.polls.with(|inner| {
                if let Some(ring) = inner.ring.as_mut() {
                    change(ring);
                    inner.broken |= ring.fd < 0;
                }
            });
        }
    }
}

/// In a forked child, which has none of it: its numbers are closed with the bells.
pub(crate) fn forget_in_child() {
    SETS.iter().for_each(|place| place.store(ptr::null_mut(), Ordering::SeqCst));
    ACTIVE.store(0, Ordering::SeqCst);
    // SAFETY: a forked child has one thread, which is not in here. Another of its parent's may have been.
    unsafe {
        PARKED.lock.free_in_child();
        *PARKED.rings.get() = [None; MOST_PARKED];
    }
}

/// epoll_ctl(2) on a descriptor of the kernel's; `None` if the kernel epoll has to do it.
pub(crate) fn epoll_ctl(set: &FdSet, op: c_int, fd: c_int, asked: Event) -> Option<Result<(), Errno>> {
    let polls = &set.polls;
    let wants = polls.wanted.load(Ordering::SeqCst) != 0;
    if !(polls.are_active() || wants && op == EPOLL_CTL_ADD) {
        return None;
    }
    if !polls.are_mine() {
        give_up(set);
        return None;
    }
    let suits = op == EPOLL_CTL_ADD && can_ask_for(asked.events) && is_plain_socket(fd);
    if wants && suits {
        begin(set);
    }
    let result = polls.with(|inner| {
        if !polls.are_active() || !inner.is_alive() {
            return None;
        }
        let watched = inner.is_watched(fd)?;
        match op {
            EPOLL_CTL_ADD if watched => {
                // In this order, as epoll_ctl(2).
                let exclusive = asked.events.contains(Events::EXCLUSIVE);
                let invalid = exclusive && !Events::EXCLUSIVE_OK.contains(asked.events);
                Some(Err(if invalid { Errno::EINVAL } else { Errno::EEXIST }))
            }
            EPOLL_CTL_ADD if suits => inner.add(set, fd, asked),
            EPOLL_CTL_MOD if watched => inner.modify(set, fd, asked),
            EPOLL_CTL_DEL if watched => {
                inner.remove(fd);
                Some(Ok(()))
            }
            _ => None,
        }
    });
    if polls.with(|inner| inner.broken) {
        give_up(set);
    }
    result
}

/// Whether a wait of this thread would find something to look at.
pub(crate) fn have_news(set: &FdSet) -> bool {
    let polls = &set.polls;
    polls.are_active() && polls.with(|inner| inner.has_news())
}

/// Takes up to `room` events to `place` and behind it; how many. `fault` is told when there is no memory for one.
pub(crate) fn take(set: &FdSet, place: *mut epoll_event, room: usize, fault: impl FnOnce()) -> usize {
    let polls = &set.polls;
    if !polls.are_active() || room == 0 {
        return 0;
    }
    if !polls.are_mine() {
        if !mutant!("polls_stranger_gives_nothing_up") {
            give_up(set);
        }
        return 0;
    }
    let (n, goes_on) = polls.with(|inner| {
        if !polls.are_active() || !inner.is_alive() {
            return (0, true);
        }
        let (n, sees) = inner.take(place, room, fault);
        (n, sees && !inner.broken)
    });
    if !goes_on {
        give_up(set);
    }
    n
}

/// [`take`] and a look at the kernel epoll, which puts what it has behind so many events; each goes first in every second wait.
///
/// Under the lock, so that nothing is given up in between: a level would be reported twice, or not at all.
pub(crate) fn take_both(
    set: &FdSet,
    place: *mut epoll_event,
    room: usize,
    fault: impl FnOnce(),
    look_at_kernel: impl Fn(usize) -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    let polls = &set.polls;
    if !polls.are_mine() {
        give_up(set);
        return look_at_kernel(0);
    }
    if mutant!("polls_looked_at_apart") {
        let n = take(set, place, room, fault);
        return look_at_kernel(n).map(|found| n + found);
    }
    let (found, goes_on) = polls.with(|inner| {
        if !polls.are_active() || !inner.is_alive() {
            return (look_at_kernel(0), true);
        }
        inner.turn = inner.turn.wrapping_add(1);
        if inner.turn % 2 == 0 {
            let (n, sees) = inner.take(place, room, fault);
            let behind = if n < room { look_at_kernel(n) } else { Ok(0) };
            let found = if n > 0 { Ok(n + behind.unwrap_or(0)) } else { behind };
            return (found, sees && !inner.broken);
        }
        match look_at_kernel(0) {
            Ok(n) if n < room => {
                let (taken, sees) = inner.take(place.wrapping_add(n), room - n, fault);
                (Ok(n + taken), sees && !inner.broken)
            }
            found => (found, true),
        }
    });
    if !goes_on {
        give_up(set);
        if found == Ok(0) {
            return look_at_kernel(0);
        }
    }
    found
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::fork;
    use std::sync::Barrier;
    extern crate std;

    /// A child in which the lock was still another thread's hung at its first set with polls.
    #[test]
    fn a_fork_while_another_thread_parks_leaves_the_child_a_free_lock() {
        let (held, forked) = (Barrier::new(2), Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                PARKED.with(|_| {
                    held.wait();
                    forked.wait();
                });
            });
            held.wait();
            let forking = fork::prepare();
            // SAFETY: the child makes system calls, and looks at a lock.
            let child = unsafe { libc::fork() };
            if child == 0 {
                forking.in_child();
                let free = PARKED.lock.try_lock();
                // SAFETY: ends this process.
                unsafe { libc::_exit(c_int::from(!free)) };
            }
            forking.in_parent();
            forked.wait();
            assert!(child > 0);
            let mut status = -1;
            // SAFETY: a place for the status.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0, "the lock is taken");
        });
    }
}
