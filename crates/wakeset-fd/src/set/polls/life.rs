//! How a set gets polls, and how it loses them.

use super::Polls;
use super::sets;
use crate::kernel_half::uring::poll_uring::PollUring;
use crate::kernel_half::uring::sizes::KEPT_POLL_URINGS;
use crate::kernel_half::uring::thread_rings::{ThreadRing, ThreadRings, take_name};
use crate::kernel_half::uring::watches::{Watch, Watches};
use crate::set::{FdSet, doorbell};
use crate::sys::signal_guard::SignalGuard;
use crate::sys::sync::{Ordering, mutant, statics};
use crate::sys::{self, Errno, complaint};
use crate::table::gate;
use core::ffi::c_int;
use libc::{EPOLL_CTL_ADD, epoll_event};
use wakeset::{Source, mutated};

/// The fewest and the most watches that a set can have in its io_uring.
const LIMITS: (usize, usize) = (64, 4096);

/// Added to a number of watches: completions are to be believed.
pub(super) const HINTS: usize = 1;

statics! {
    /// Io_urings without polls, for the next set of their thread.
    pub(crate) static KEPT: ThreadRings<PollUring, KEPT_POLL_URINGS> = ThreadRings::new();
}

/// An io_uring of the calling thread for up to `limit` watches, if one is kept for it.
fn take_kept(limit: usize) -> Option<PollUring> {
    KEPT.with_slot(|ring| ring.limit == limit, Option::take).flatten()
}

/// Keeps an io_uring without polls for the next set of its thread, the calling one. If there is no
/// free slot it is closed.
fn keep(ring: PollUring) {
    let mut ring = Some(ring);
    KEPT.with_slot(|_| false, |slot| *slot = ring.take());
    if let Some(ring) = ring {
        ring.let_go();
    }
}

/// The set is to have polls for the calling thread from now on, if it can.
pub(crate) fn ask_for(set: &FdSet, entries: usize, hints: bool) {
    if !set.polls.are_active() {
        set.polls.owner.store(take_name(), Ordering::SeqCst);
        let limit = entries.next_power_of_two().clamp(LIMITS.0, LIMITS.1);
        set.polls.wanted.store(limit | if hints { HINTS } else { 0 }, Ordering::SeqCst);
    }
}

/// For a new set, which has none.
pub(crate) fn begin_without(set: &FdSet) {
    set.polls.wanted.store(0, Ordering::Release);
}

/// Gives the set polls, if it is to have them and can.
pub(super) fn begin(set: &FdSet) {
    let polls = &set.polls;
    // Once.
    let wanted = polls.wanted.swap(0, Ordering::SeqCst);
    let _migrating = gate::hold_migrations();
    let unfit = set.state.is_in_kernel()
        || set.state.is_closed()
        || set.state.is_fixed()
        || set.state.is_exported()
        || set.has_several()
        || set.set.wait_queue().has_watches();
    if wanted & !HINTS == 0
        || unfit
        || polls.are_active()
        || doorbell::install_held(set) != Ok(true)
    {
        return;
    }
    let bell = set.doorbell.load(Ordering::SeqCst);
    if bell < 0 {
        return;
    }
    let Some(entry) = sets::free_entry() else { return };
    polls.with(|watches| {
        if begin_with(polls, watches, wanted, bell) {
            sets::add(set, entry);
        }
    });
    if polls.are_active() && !set.state.has_kernel() {
        set.note_kernel_watch();
        set.state.note_only_polls();
    }
}

/// Gets an io_uring for `wanted` that rings `bell`. Returns whether there is one.
fn begin_with(polls: &Polls, watches: &mut Watches, wanted: usize, bell: c_int) -> bool {
    let limit = wanted & !HINTS;
    if !watches.has_memory() {
        return false;
    }
    let Some(uring) = take_kept(limit).or_else(|| PollUring::open(limit)) else { return false };
    if !mutant!("polls_bell_is_silent") && !uring.set_doorbell(Some(bell)) {
        uring.let_go();
        return false;
    }
    watches.uring = Some(uring);
    watches.broken = false;
    watches.hints = wanted & HINTS != 0;
    watches.set_alive();
    polls.active.store(true, Ordering::SeqCst);
    true
}

/// Puts what is watched here into the kernel epoll, for good.
pub(crate) fn give_up(set: &FdSet) {
    if set.polls.are_active() {
        let _guard = SignalGuard::enter();
        let _migrating = gate::hold_migrations();
        give_up_held(set);
    }
}

/// [`give_up`] for a caller that holds the migrations lock.
pub(crate) fn give_up_held(set: &FdSet) {
    if set.polls.are_active() {
        set.polls.with(|watches| end(set, watches, true));
    }
}

/// Ends the polls of a set whose number is about to be closed.
pub(crate) fn forget(set: &FdSet) {
    if set.polls.are_active() {
        set.polls.with(|watches| end(set, watches, false));
    }
}

/// Ends the polls. If the set `goes_on`, its kernel epoll gets the watches.
fn end(set: &FdSet, watches: &mut Watches, goes_on: bool) {
    let polls = &set.polls;
    if !polls.are_active() {
        return;
    }
    if !watches.is_alive() {
        // A child of a fork that we did not hear of: all this is its parent's.
        polls.active.store(false, Ordering::SeqCst);
        return;
    }
    if goes_on {
        set.state.note_kernel_edges();
        set.state.note_not_only_polls();
        if mutant!("polls_inactive_before_moved") {
            polls.active.store(false, Ordering::SeqCst);
        }
        watches.for_each(|fd, watch| move_to_epoll(set, fd, watch));
    }
    let can_be_kept = polls.are_mine() && !watches.broken && watches.disarm_all();
    if let Some(mut uring) = watches.uring.take() {
        if can_be_kept && uring.set_doorbell(None) {
            keep(uring);
        } else {
            uring.close();
            if !mutant!("polls_end_unawaited") {
                uring.wait_until_gone();
            }
        }
    }
    watches.forget_all();
    sets::remove(set);
    polls.active.store(false, Ordering::SeqCst);
}

fn move_to_epoll(set: &FdSet, fd: c_int, watch: &Watch) {
    let in_line_only = mutated!("polls_given_up_in_line_only") && !watch.is_queued();
    if in_line_only || mutant!("polls_given_up_are_lost") {
        return;
    }
    let event = epoll_event { events: watch.events, u64: watch.data };
    if let Err(error) = sys::epoll_ctl(set.fd(), EPOLL_CTL_ADD, fd, &raw const event) {
        // EBADF: the number was closed, and not through this crate.
        if error != Errno::EBADF {
            complaint::of_watch(set.fd(), fd, error);
        }
    }
}
