//! One slot of the event ring, and how the event in it is taken.

use crate::events::{Event, Events};
use crate::sync::{AtomicPtr, AtomicU64, Ordering, after_publishing};
use crate::testing::steps::step;
use crate::wake::source::Source;
use crate::wake::state::State;
use crate::wake::watch::Watch;
use core::ptr::{self};

/// Marks a slot's watch as one that time can make ready.
pub(in crate::set) const PLANNED: usize = 1;

/// Marks a watch's link as its index in the ring. Watches are 64-byte aligned.
pub(in crate::set) const IN_RING: usize = 1;

/// One watch in the ring. A line of the cache, so that takers of neighbours do not meet.
#[derive(Debug)]
#[repr(align(64))]
pub(in crate::set) struct Slot {
    /// With [`PLANNED`].
    pub(in crate::set) watch: AtomicPtr<Watch>,
    /// The state word with which it was put here, or changed here.
    pub(in crate::set) state: AtomicU64,
    pub(in crate::set) data: AtomicU64,
    /// The two halves of a `*const dyn Source`.
    pub(in crate::set) source: [AtomicPtr<()>; 2],
}

/// What a slot says.
#[derive(Clone, Copy)]
pub(in crate::set) struct Entry {
    pub(in crate::set) watch: *mut Watch,
    /// Time can make it ready.
    pub(in crate::set) planned: bool,
    pub(in crate::set) state: State,
    pub(in crate::set) data: u64,
    pub(in crate::set) source: *const dyn Source,
}

const _: () = assert!(size_of::<*const dyn Source>() == size_of::<[*mut (); 2]>());

pub(in crate::set) fn halves(source: *const dyn Source) -> [*mut (); 2] {
    // SAFETY: of one size, and two pointers are what a pointer to a trait object is made of.
    unsafe { core::mem::transmute(source) }
}

pub(in crate::set) fn whole(halves: [*mut (); 2]) -> *const dyn Source {
    // SAFETY: each half comes from `halves`. Of two different pointers they make one that is not
    // used (see `RingCore::read`).
    unsafe { core::mem::transmute(halves) }
}

impl Slot {
    pub(in crate::set) fn new() -> Self {
        Self {
            watch: AtomicPtr::new(ptr::null_mut()),
            state: AtomicU64::new(0),
            data: AtomicU64::new(0),
            source: halves(crate::wake::watch::NO_SOURCE).map(AtomicPtr::new),
        }
    }
}

/// # Safety (of all methods)
/// The entry was whole, and the caller has a pin or holds the scan lock, since before it
/// reads the state.
impl Entry {
    pub(in crate::set) fn is_for_lock(&self) -> bool {
        self.planned && !self.state.is_level()
    }

    pub(in crate::set) fn word(&self) -> &AtomicU64 {
        // SAFETY: watches are type-stable.
        &unsafe { &*self.watch }.state
    }

    /// What holds now of what `state` asks for.
    pub(in crate::set) unsafe fn poll(&self, state: State) -> Events {
        // SAFETY: the mark was on while the caller had its pin; a removal that ends the watch after
        // that waits for the pin before the source goes.
        unsafe { &*self.source }.poll() & Events::from_bits_retain(state.mask())
    }

    /// A level's event, if the mark is still on and it holds.
    pub(in crate::set) unsafe fn look(&self) -> Option<Event> {
        let state = State(self.word().load(Ordering::SeqCst));
        if !state.is_marked_like(self.state) && !mutant!("level_is_not_looked_at") {
            return None;
        }
        // SAFETY: the caller's contract.
        let ready = unsafe { self.poll(state) };
        (!ready.is_empty()).then(|| Event::new(ready, self.data))
    }

    /// The event of an edge or a shot: takes the mark off, if it is still on. One taker wins.
    pub(in crate::set) unsafe fn claim(&self) -> Option<Event> {
        let word = self.word();
        let oneshot = self.state.flags().contains(Events::ONESHOT);
        let change = |from: State, to: State| {
            word.compare_exchange(from.0, to.0, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        };
        let state = loop {
            let state = State(word.load(Ordering::SeqCst));
            if !state.is_marked_like(self.state) {
                return None;
            }
            if oneshot {
                // SAFETY: the caller's contract.
                let ready = unsafe { self.poll(state) };
                step!(shot_polled);
                if !ready.is_empty() {
                    let spent = if mutant!("ring_keeps_oneshot") {
                        state.unqueued()
                    } else {
                        state.unqueued().disarmed()
                    };
                    if change(state, spent) {
                        return Some(Event::new(ready, self.data));
                    }
                    continue;
                }
            }
            // Off first, then the poll: a change from here on queues the watch again.
            if mutant!("ring_unqueues_after_poll") {
                // SAFETY: the caller's contract.
                let ready = unsafe { self.poll(state) };
                return (change(state, state.unqueued()) && !ready.is_empty())
                    .then(|| Event::new(ready, self.data));
            }
            if change(state, state.unqueued()) {
                break state.unqueued();
            }
        };
        step!(ring_unqueued);
        after_publishing(mutant!("ring_unqueues_without_fence"));
        // SAFETY: the caller's contract.
        let ready = unsafe { self.poll(state) };
        if ready.is_empty() {
            return None;
        }
        // A shot that is on the list again, or armed anew, belongs to another taker.
        let spent = !oneshot || change(state, state.disarmed());
        spent.then(|| Event::new(ready, self.data))
    }
}
