//! Kernel descriptors that an io_uring polls for a set, in place of the set's kernel epoll, for
//! sets that ask for it ([`ring_setup_with`](super::ring::ring_setup_with)).
//!
//! Whatever makes a socket ready puts its multishot poll into the io_uring's work list. One call
//! runs all the work there is, and leaves a completion for each poll in mapped memory. A completion
//! says that a watch may have something to report, as an entry of the kernel's ready list does, and
//! no more: its bits are those of one wake-up. What a wait reports is what poll(2) says of the
//! number at that moment, asked in one call for as many numbers as the wait can return events. So a
//! drained socket is not reported, levels are reported as long as they hold, and several changes
//! are one event.
//!
//! **Hints.** A program that reads until there is nothing left may do without that question. With
//! `RING_HINTS` an edge that data or room for data has made is reported as the completions name it.
//! Poll(2) is still asked about whatever else completions say (an end, an error), and about what
//! has no completion (an add, a change).
//!
//! | in mapped memory | means | a wait |
//! |---|---|---|
//! | completions | watches to check | takes them, without a call |
//! | `IORING_SQ_TASKRUN` | the work list is not empty; set before the call that made the socket ready returns | runs the work |
//! | neither | nothing is ready | makes no call |
//!
//! **One thread.** The work of such an io_uring (`IORING_SETUP_DEFER_TASKRUN`) is run by the thread
//! that made it and by no other. Without that flag the kernel would hand the work to the thread
//! that armed the poll, by a signal of its own: calls of that thread would fail with EINTR for no
//! reason, and all other threads would hear of an event only when that thread has been scheduled.
//! So the io_uring serves the thread that asked for it. Whatever another thread does with the set
//! (a wait, a change, a close of a watched number, a fork) gives the polls up first, for good:
//! [`give_up`] puts the watches into the kernel epoll. Adding a watch there polls the file, so
//! nothing that has not been reported is lost; an edge may be reported once more, as in every
//! migration.
//!
//! **Files.** An armed poll holds its file open. Before a number is closed its poll is therefore
//! ended. A close(2) that does not come through this crate ends neither the watch nor the
//! connection.
//!
//! **Sleeping.** A wait sleeps in the kernel epoll as ever. The io_uring rings the set's doorbell
//! when its work list gets its first entry. A wait checks the first two rows of the table after it
//! has counted itself as a sleeper and before it sleeps. The work list is always run to its end, so
//! that what comes later is a first entry again.
//!
//! **Forks.** The polls are given up before a fork. The io_uring is hidden like a doorbell, and its
//! memory is not in the child. A child of a fork that this crate did not hear of finds the word
//! that says whose the watches are wiped, and forgets them.
//!
//! **Locks.** The lock is the set's own. The order is: the migrations lock, then this one, then the
//! set's scan lock, that of the listeners' rotation, that of the kept io_urings
//! ([`thread_rings`](crate::kernel_half::uring::thread_rings)) and the kernel's.
//!
//! | file | what |
//! |---|---|
//! | this one | the part of a set that is in an io_uring; the calls of a wait |
//! | `life` | how a set gets polls, and how it loses them |
//! | `sets` | the sets that have polls, for closes, renumberings and forks |
//! | `ctl` | epoll_ctl(2) |
//! | [`watches`](crate::kernel_half::uring::watches) | the watches of one io_uring |
//!
//! All of it, and the wait, run under loom as they are, between a kernel and a set that are played
//! (`testing/`).

mod ctl;
mod life;
mod sets;

pub(crate) use ctl::epoll_ctl;
pub(crate) use life::{ask_for, begin_without, forget, give_up, give_up_held};
#[cfg(test)]
pub(crate) use {life::KEPT, sets::POLLS};

use crate::kernel_half::uring::thread_rings::own_name;
use crate::kernel_half::uring::watches::{Report, Watches};
use crate::set::FdSet;
use crate::sys::Errno;
use crate::sys::signal_guard::SignalSafeLock;
use crate::sys::sync::{AtomicBool, AtomicU32, AtomicUsize, Ordering, mutant};
use core::cell::UnsafeCell;
use libc::epoll_event;

/// The part of a set that is in an io_uring.
#[derive(Debug)]
pub(crate) struct Polls {
    /// Whether there is one. Changed with the lock held.
    active: AtomicBool,
    /// The number of watches for which there is to be one as soon as there is a watch for it, and
    /// [`HINTS`](life::HINTS); 0 for none.
    wanted: AtomicUsize,
    /// The name of the thread that it serves.
    owner: AtomicU32,
    lock: SignalSafeLock,
    inner: UnsafeCell<Inner>,
}

#[derive(Debug)]
struct Inner {
    watches: Watches,
    /// Counts the waits for which both these watches and the kernel epoll had to be checked.
    mixed_waits: u32,
}

// SAFETY: `inner` is only touched with the lock held, in `with`.
unsafe impl Sync for Polls {}
// SAFETY: its pointers lead to memory of its own.
unsafe impl Send for Polls {}

impl Polls {
    pub(crate) fn new() -> Self {
        Self {
            active: AtomicBool::new(false),
            wanted: AtomicUsize::new(0),
            owner: AtomicU32::new(0),
            lock: SignalSafeLock::new(),
            inner: UnsafeCell::new(Inner { watches: Watches::new(), mixed_waits: 0 }),
        }
    }

    fn with_inner<T>(&self, f: impl FnOnce(&mut Inner) -> T) -> T {
        self.lock.lock();
        // SAFETY: this thread holds the lock.
        let result = f(unsafe { &mut *self.inner.get() });
        self.lock.unlock();
        result
    }

    fn with<T>(&self, f: impl FnOnce(&mut Watches) -> T) -> T {
        self.with_inner(|inner| f(&mut inner.watches))
    }

    /// Returns whether the set has watches here, or may have.
    #[inline]
    pub(crate) fn are_active(&self) -> bool {
        self.active.load(Ordering::SeqCst)
    }

    /// Returns whether there are watches here that are this process's. For the lock's holder.
    fn are_usable(&self, watches: &Watches) -> bool {
        self.are_active() && watches.is_alive()
    }

    /// Returns whether they serve the calling thread.
    fn are_mine(&self) -> bool {
        self.owner.load(Ordering::SeqCst) == own_name() && own_name() != 0
    }
}

/// Returns whether the polls of a set serve the calling thread.
pub(crate) fn are_for_me(set: &FdSet) -> bool {
    set.polls.are_mine()
}

/// Returns whether a wait of the calling thread would find something to check.
pub(crate) fn have_news(set: &FdSet) -> bool {
    let polls = &set.polls;
    polls.are_active() && polls.with(|watches| watches.have_news())
}

/// Writes up to `maxevents` events to `events` and returns how many. `fault` is called when the
/// memory for one is not mapped.
pub(crate) fn take(
    set: &FdSet,
    events: *mut epoll_event,
    maxevents: usize,
    fault: impl FnOnce(),
) -> usize {
    let polls = &set.polls;
    if !polls.are_active() || maxevents == 0 {
        return 0;
    }
    if !polls.are_mine() {
        if !mutant!("polls_stranger_gives_nothing_up") {
            give_up(set);
        }
        return 0;
    }
    let (n, goes_on) = polls.with(|watches| {
        if !polls.are_usable(watches) {
            return (0, true);
        }
        report(watches, events, maxevents, fault)
    });
    if !goes_on {
        give_up(set);
    }
    n
}

/// How many events the watches have, and whether the io_uring can go on.
fn report(
    watches: &mut Watches,
    events: *mut epoll_event,
    maxevents: usize,
    fault: impl FnOnce(),
) -> (usize, bool) {
    let Report { n, poll_answers } = watches.report(events, maxevents, fault);
    (n, poll_answers && !watches.broken)
}

/// [`take`], and a check of the kernel epoll by `check_epoll`, which writes its events after as
/// many as it is given. Each of the two goes first in every second wait.
///
/// Both under the lock, so that nothing is given up in between: a level would be reported twice, or
/// not at all.
pub(crate) fn take_both(
    set: &FdSet,
    events: *mut epoll_event,
    maxevents: usize,
    fault: impl FnOnce(),
    check_epoll: impl Fn(usize) -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    let polls = &set.polls;
    if !polls.are_mine() {
        give_up(set);
        return check_epoll(0);
    }
    if mutant!("polls_looked_at_apart") {
        let n = take(set, events, maxevents, fault);
        return check_epoll(n).map(|found| n + found);
    }
    let (found, goes_on) = polls.with_inner(|Inner { watches, mixed_waits }| {
        if !polls.are_usable(watches) {
            return (check_epoll(0), true);
        }
        *mixed_waits = mixed_waits.wrapping_add(1);
        if *mixed_waits % 2 == 0 {
            let (n, goes_on) = report(watches, events, maxevents, fault);
            let of_epoll = if n < maxevents { check_epoll(n) } else { Ok(0) };
            let found = if n > 0 { Ok(n + of_epoll.unwrap_or(0)) } else { of_epoll };
            return (found, goes_on);
        }
        match check_epoll(0) {
            Ok(n) if n < maxevents => {
                let (taken, goes_on) =
                    report(watches, events.wrapping_add(n), maxevents - n, fault);
                (Ok(n + taken), goes_on)
            }
            found => (found, true),
        }
    });
    if !goes_on {
        give_up(set);
        if found == Ok(0) {
            return check_epoll(0);
        }
    }
    found
}
