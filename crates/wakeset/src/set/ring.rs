//! The event ring: the front of a set's ready list, from which any number of threads take events at once without the scan lock.
//!
//! Whoever finds the ring empty takes the scan lock and moves pending watches into it ([`SetCore::refill`]). A slot holds a *mark*:
//! the watch, its state word as it was (generation and round tell this mark from every other), its data and its source. The watch stays
//! `QUEUED` and `LISTED`, so wakes find it on the list; what is delivered is decided when it is taken:
//!
//! | kind | whose event it is | then |
//! |---|---|---|
//! | level | who moves `head` past the slot | poll, report; it stays `QUEUED`: the next refill finds it in the slot and puts it back in line |
//! | edge | who turns `QUEUED` off, while the state still has this mark | poll, report: a change from here on queues it again |
//! | ONESHOT | who turns `QUEUED` off and disarms it in one step | reports what it polled just before |
//!
//! The last two are taken under the scan lock if time can make the watch ready: whoever finds nothing there plans it (see `planning`).
//!
//! `head` is moved past a slot of the last two kinds by whoever gets there. So a thread stopped anywhere in here keeps nothing from the others:
//! it has at most one event in its hands, and a level it has taken is seen again by the next refill.
//!
//! | part of the ring | who may write its slots |
//! |---|---|
//! | `reclaimed..head`: taken; levels among them are to go back in line | the holder of the scan lock |
//! | `head..tail`: to be taken | the holder of the scan lock, data and state of a slot whose mark it has just made void (MOD) |
//! | the rest: free | the holder of the scan lock |
//!
//! A reader of a slot looks at `head` again behind it: a slot is only written when `head` has been seen past it.
//!
//! A DEL ends the mark with the watch's life. A source may go when its watches are removed, and it is polled here without the scan lock: so
//! taking happens inside a *section*, and a removal, having ended the watch and released the scan lock, waits for the sections that it finds.

use super::{Mark, Scan, SetCore, change_state, guarded, mark_queued, shared};
use crate::error::Error;
use crate::events::{Event, Events};
use crate::lock::{RawLock, ScanGuard};
use crate::pool::Pooled;
use crate::source::Source;
use crate::state::State;
use crate::steps::step;
use crate::sync::{AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence_after_rmw};
use crate::thread_id;
use crate::watch::Watch;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ptr;

/// Threads that take at the same time without the scan lock; one more takes with it.
const SECTIONS: usize = if cfg!(any(loom, shuttle)) { 1 } else { 16 };
/// Slots of the largest ring.
pub(crate) const MOST_ENTRIES: usize = 1 << 20;

/// One watch in the ring. A line of the cache, so that takers of neighbours do not meet.
#[derive(Debug)]
#[repr(align(64))]
struct Slot {
    /// With [`PLANNED`].
    watch: AtomicPtr<Watch>,
    /// The state word with which it was put here, or changed here.
    state: AtomicU64,
    data: AtomicU64,
    /// The two halves of a `*const dyn Source`.
    source: [AtomicPtr<()>; 2],
}

/// What a slot says.
#[derive(Clone, Copy)]
struct Entry {
    watch: *mut Watch,
    /// Time can make it ready.
    planned: bool,
    state: State,
    data: u64,
    source: *const dyn Source,
}

const _: () = assert!(size_of::<*const dyn Source>() == size_of::<[*mut (); 2]>());

fn halves(source: *const dyn Source) -> [*mut (); 2] {
    // SAFETY: of one size, and two pointers are what a pointer to a trait object is made of.
    unsafe { core::mem::transmute(source) }
}

fn whole(halves: [*mut (); 2]) -> *const dyn Source {
    // SAFETY: each half comes from `halves`. Of two different pointers they make one that is not used (see `RingCore::read`).
    unsafe { core::mem::transmute(halves) }
}

impl Slot {
    fn new() -> Self {
        Self {
            watch: AtomicPtr::new(ptr::null_mut()),
            state: AtomicU64::new(0),
            data: AtomicU64::new(0),
            source: halves(crate::watch::NO_SOURCE).map(AtomicPtr::new),
        }
    }
}

/// The ring of one set. In type-stable memory, because a removal looks at the sections without a lock.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct RingCore {
    link: AtomicPtr<RingCore>,
    /// Its slots, a power of two of them; made and freed by the owner of the set.
    slots: AtomicPtr<Slot>,
    capacity: AtomicUsize,
    /// Guarded by the scan lock. Up to here, what was taken has gone back in line if it had to.
    reclaimed: AtomicU64,
    /// Up to here slots are filled. Written under the scan lock.
    tail: AtomicU64,
    /// How many watches were pending when the scan lock was last free. A hint.
    pub(super) behind: AtomicUsize,
    /// Behind the last level that was taken, or looked at in vain. A hint.
    last_level: AtomicU64,
    /// From here on levels that were taken stay where they are: whoever took them is not through with them. Written by one taker.
    kept: AtomicU64,
    /// Up to here slots have been taken. Written by takers.
    head: super::Line<AtomicU64>,
    sections: [super::Line<RawLock>; SECTIONS],
}

impl Pooled for RingCore {
    fn vacant() -> Self {
        Self {
            link: AtomicPtr::new(ptr::null_mut()),
            slots: AtomicPtr::new(ptr::null_mut()),
            capacity: AtomicUsize::new(0),
            reclaimed: AtomicU64::new(0),
            tail: AtomicU64::new(0),
            behind: AtomicUsize::new(0),
            last_level: AtomicU64::new(0),
            kept: AtomicU64::new(u64::MAX),
            head: super::Line(AtomicU64::new(0)),
            sections: core::array::from_fn(|_| super::Line(RawLock::new())),
        }
    }

    fn link(&self) -> &AtomicPtr<Self> {
        &self.link
    }
}

/// Leaves a section.
struct InSection<'a>(&'a RawLock);

impl Drop for InSection<'_> {
    fn drop(&mut self) {
        self.0.unlock();
    }
}

/// What keeps the sources in place while events are taken.
enum Kept<'a> {
    Section(#[allow(dead_code, reason = "for its drop")] InSection<'a>),
    Scan(#[allow(dead_code, reason = "for its drop")] ScanGuard<'a, Scan>),
}

/// What became of one attempt to take an event.
enum Taken {
    Event(Event, u64),
    /// The slot held nothing that is ready, or another thread was faster.
    Nothing,
    /// The slot's event is to be taken under the scan lock.
    Planned,
    Empty,
}

impl RingCore {
    /// Gives a ring from the pool its slots.
    fn begin(&self, entries: usize) -> Result<(), Error> {
        let mut slots = Vec::new();
        slots.try_reserve_exact(entries).map_err(|_| Error::NoMemory)?;
        slots.resize_with(entries, Slot::new);
        let slots: *mut [Slot] = Box::into_raw(slots.into_boxed_slice());
        self.slots.store(slots.cast(), Ordering::Release);
        self.capacity.store(entries, Ordering::Release);
        for index in [&self.reclaimed, &self.tail, &self.head, &self.last_level] {
            index.store(0, Ordering::Release);
        }
        self.kept.store(u64::MAX, Ordering::Release);
        Ok(())
    }

    /// Frees the slots.
    ///
    /// # Safety
    /// Nobody takes from the ring, and no set has it.
    unsafe fn end(&self) {
        let slots = self.slots.swap(ptr::null_mut(), Ordering::AcqRel);
        let slots = ptr::slice_from_raw_parts_mut(slots, self.capacity());
        // SAFETY: `begin` made them so.
        drop(unsafe { Box::from_raw(slots) });
    }

    /// Where the locks of the sections are.
    #[cfg(wakeset_steps)]
    pub(crate) fn sections(&self) -> core::ops::Range<usize> {
        let first = self.sections.as_ptr().addr();
        first..first + size_of_val(&self.sections)
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity.load(Ordering::Relaxed)
    }

    fn slot(&self, at: u64) -> &Slot {
        let index = at as usize & (self.capacity() - 1);
        // SAFETY: within the slots, which stay while somebody may take or holds the scan lock of the set.
        unsafe { &*self.slots.load(Ordering::Relaxed).add(index) }
    }

    /// What the slot says; void if `head` has moved past it meanwhile.
    fn read(&self, at: u64) -> Entry {
        let slot = self.slot(at);
        // The state first: a change in place stores it last, when the mark it found has been made void.
        let state = State(slot.state.load(Ordering::Acquire));
        let data = slot.data.load(Ordering::Acquire);
        let source = [slot.source[0].load(Ordering::Acquire), slot.source[1].load(Ordering::Acquire)];
        let watch = slot.watch.load(Ordering::Acquire);
        let planned = watch.addr() & PLANNED != 0;
        Entry { watch: watch.map_addr(|address| address & !PLANNED), planned, state, data, source: whole(source) }
    }

    /// By the holder of the scan lock. Release: who reads any of it also sees `head` where we saw it, past this slot's last use.
    fn write(&self, at: u64, entry: Entry) {
        let slot = self.slot(at);
        let source = halves(entry.source);
        slot.watch.store(entry.watch.map_addr(|address| address | usize::from(entry.planned)), Ordering::Release);
        slot.source[0].store(source[0], Ordering::Release);
        slot.source[1].store(source[1], Ordering::Release);
        slot.data.store(entry.data, Ordering::Release);
        slot.state.store(entry.state.0, Ordering::Release);
    }

    /// Behind the last slot that is filled.
    fn tail(&self) -> u64 {
        self.tail.load(Ordering::Acquire)
    }

    /// How many slots are filled and not taken.
    #[inline]
    pub(super) fn filled(&self) -> u64 {
        let head = self.head.load(Ordering::Acquire);
        self.tail.load(Ordering::Acquire).saturating_sub(head)
    }

    /// Whether all slots are in use, so that a refill has to wait until levels are kept no longer. A hint.
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) fn is_blocked(&self) -> bool {
        self.in_use() >= self.capacity()
    }

    /// From now on all that was taken goes back in line.
    pub(crate) fn keep_nothing(&self) {
        self.kept.store(u64::MAX, Ordering::Release);
    }

    /// How many slots there are in use, for the holder of the scan lock.
    pub(super) fn in_use(&self) -> usize {
        self.tail.load(Ordering::Relaxed).saturating_sub(self.reclaimed.load(Ordering::Relaxed)) as usize
    }

    /// Waits until nobody polls a source that was found before the call.
    #[cold]
    pub(crate) fn quiesce(&self) {
        if mutant!("removal_waits_for_nobody") {
            return;
        }
        // The end of a watch's life comes before, and a read-modify-write. Who enters a section from here on sees it.
        if !mutant!("removal_without_fence") {
            fence_after_rmw();
        }
        for section in &self.sections {
            if !section.is_free() {
                section.lock();
                section.unlock();
            }
        }
    }
}

impl SetCore {
    /// The set's ring, if it has one.
    #[inline]
    pub(crate) fn ring(&self) -> Option<&RingCore> {
        // SAFETY: in type-stable memory; the engine outlives what is in its pools.
        unsafe { self.ring.load(Ordering::Acquire).as_ref() }
    }

    /// Gives the set a ring of `entries` slots, a power of two, unless it has one; that one.
    pub(crate) fn make_ring(&self, entries: usize) -> Result<&RingCore, Error> {
        let scan = self.scan.lock();
        if let Some(ring) = self.ring() {
            return Ok(ring);
        }
        let taken = self.home().rings.take(1)?;
        // SAFETY: just taken from the pool, which stays.
        let ring = unsafe { &*taken };
        if let Err(error) = ring.begin(entries) {
            // SAFETY: ours alone.
            unsafe { self.home().rings.give(taken, taken) };
            return Err(error);
        }
        ring.behind.store(scan.pending.len, Ordering::SeqCst);
        self.ring.store(taken, Ordering::Release);
        Ok(ring)
    }

    /// Takes the ring away, with what is in it.
    ///
    /// # Safety
    /// Nobody takes from it, now or later.
    pub(crate) unsafe fn end_ring(&self) {
        let (scan, attention) = self.begin_scan();
        let taken = self.ring.swap(ptr::null_mut(), Ordering::AcqRel);
        self.end_scan(scan, attention);
        if !taken.is_null() {
            // SAFETY: no set has it any more, and nobody takes from it by the caller's contract.
            unsafe {
                (*taken).end();
                self.home().rings.give(taken, taken);
            }
        }
    }

    /// Hands up to `room` ready events to `report`, and no more than the ring has slots; how many. 0 only if at some moment during the call
    /// nothing was ready but what others took. `report` is told the place in the ring as well, and must not call into a set.
    pub(crate) fn take(&self, ring: &RingCore, room: usize, report: &mut impl FnMut(Event, u64)) -> usize {
        if room == 0 {
            return 0;
        }
        let mut told = false;
        // Levels that were taken before are to be looked at again.
        let levels = ring.last_level.load(Ordering::Relaxed) > ring.reclaimed.load(Ordering::Relaxed);
        let more = || levels || !self.incoming.is_empty() || ring.behind.load(Ordering::Relaxed) > 0 || self.is_due();
        if (1..room as u64).contains(&ring.filled()) && more() {
            // Before anything is taken, so that nothing is taken twice in one call.
            let (swept, _, end) = self.refill(ring, room, report, None);
            if swept > 0 {
                return swept + self.take_filled(ring, room - swept, end, report);
            }
            told = true;
        }
        loop {
            let filled = ring.filled();
            if filled > 0 {
                if filled > room as u64 && !told {
                    // First: we may be stopped with ours in our hands.
                    self.sleepers.kick();
                }
                let taken = self.take_filled(ring, room, ring.tail(), report);
                if taken > 0 {
                    return taken;
                }
            }
            if !self.may_be_ready() {
                return 0;
            }
            let (swept, refilled, end) = self.refill(ring, room, report, None);
            if swept > 0 {
                return swept + self.take_filled(ring, room - swept, end, report);
            }
            if !refilled {
                return 0;
            }
            told = true;
        }
    }

    /// Takes from what is in the ring in front of `end`: what others put there meanwhile may be what the caller has just taken.
    fn take_filled(&self, ring: &RingCore, room: usize, end: u64, report: &mut impl FnMut(Event, u64)) -> usize {
        let (mut taken, mut levels) = (0, false);
        let mut kept = Some(self.keep_sources(ring));
        while taken < room {
            let one = match ring.take_one(end, &mut levels) {
                Taken::Planned => {
                    kept = None;
                    self.take_planned(ring, end)
                }
                one => one,
            };
            match one {
                Taken::Event(event, at) => {
                    report(event, at);
                    taken += 1;
                }
                Taken::Nothing | Taken::Planned => {}
                Taken::Empty => break,
            }
            if kept.is_none() {
                kept = Some(self.keep_sources(ring));
            }
        }
        drop(kept);
        if levels && !mutant!("ring_levels_kick_nobody") {
            // As behind a harvest that has put a level back in line.
            self.sleepers.kick();
        }
        taken
    }

    /// Takes the first event in front of `end`, if it is one that has to be taken under the scan lock; for who does not hold it, and is in no section.
    #[cold]
    fn take_planned(&self, ring: &RingCore, end: u64) -> Taken {
        let mut scan = self.scan.lock();
        let at = ring.head.load(Ordering::SeqCst);
        if at >= end {
            return Taken::Empty;
        }
        let entry = ring.read(at);
        // Slots are written by the holder of this lock.
        if !entry.is_for_lock() || !State(entry.word().load(Ordering::SeqCst)).is_marked_like(entry.state) {
            if entry.is_for_lock() {
                ring.go_past(at);
            }
            return Taken::Nothing;
        }
        // SAFETY: we hold the scan lock.
        let event = unsafe { entry.claim() };
        ring.go_past(at);
        // SAFETY: the mark was on, so it is a watch of this set; a source removes its watches, under this lock, before it goes.
        if event.is_none() || unsafe { &*entry.source }.as_set().is_some() {
            // As behind a harvest: what is not ready, and a set, which may have another edge to come.
            self.plan(&mut scan, entry.watch);
        }
        let earlier = self.publish_deadline(&scan);
        drop(scan);
        if earlier {
            self.mind_deadline();
        }
        event.map_or(Taken::Nothing, |event| Taken::Event(event, at))
    }

    /// [`take`](Self::take) for the only one who takes, and who hands on what he gets: levels from `kept` on, and those of this call, are not
    /// looked at again before the next call.
    pub(crate) fn take_keeping(
        &self,
        ring: &RingCore,
        room: usize,
        kept: u64,
        report: &mut impl FnMut(Event, u64),
    ) -> usize {
        let first = ring.head.load(Ordering::SeqCst);
        // Whether levels may go back in line that have been taken in front of there.
        let keep_from = |at: u64| {
            let kept = kept.min(at);
            ring.kept.store(kept, Ordering::Release);
            let reclaimed = ring.reclaimed.load(Ordering::Relaxed);
            reclaimed < kept && ring.last_level.load(Ordering::Relaxed) > reclaimed
        };
        let mut levels = keep_from(first);
        let mut taken = 0;
        while taken < room {
            taken += self.take_filled(ring, room - taken, ring.tail(), report);
            if taken == 0 {
                // What did not hold is in nobody's hands; and no wake queues it, for it is marked.
                levels |= keep_from(ring.head.load(Ordering::SeqCst));
            }
            if taken == room || !(levels || self.has_news(ring)) {
                break;
            }
            levels = false;
            let (swept, refilled, _) = self.refill(ring, room - taken, report, (taken > 0).then_some(first));
            taken += swept;
            if swept > 0 || !refilled {
                break;
            }
        }
        taken
    }

    /// Whether such a take may find more than levels that are kept.
    pub(crate) fn has_news(&self, ring: &RingCore) -> bool {
        // In this order: what is taken off the list is in the pending queue when the lock is free again, and who leaves something there wakes.
        !self.incoming.is_empty() || ring.behind.load(Ordering::SeqCst) > 0 || ring.filled() > 0 || self.is_due()
    }

    fn keep_sources<'a>(&'a self, ring: &'a RingCore) -> Kept<'a> {
        let begin = if SECTIONS == 1 { 0 } else { thread_id::current() as usize };
        for i in 0..SECTIONS {
            let section = &ring.sections[(begin + i) % SECTIONS];
            if section.try_lock() {
                step!(section_entered);
                // Before the state of a watch is looked at: see `quiesce`.
                fence_after_rmw();
                return Kept::Section(InSection(section));
            }
        }
        Kept::Scan(self.scan.lock())
    }

    /// Fills the ring from the ready list. What is in other hands (see `sweep`) goes straight to `report`, up to `room`. How many did, and whether
    /// anything was put into the ring or is there. `since`: from there on the caller has taken events in this call, which are not to come again
    /// in it. The third is the end of what was put: in front of it is nothing that went straight to `report`.
    fn refill(
        &self,
        ring: &RingCore,
        room: usize,
        report: &mut impl FnMut(Event, u64),
        since: Option<u64>,
    ) -> (usize, bool, u64) {
        let mut scan = match self.scan.try_lock() {
            Some(scan) => scan,
            // Somebody else is filling it, and may be stopped at that: what is there can be taken.
            None if ring.filled() > 0 => return (0, true, ring.tail()),
            None => self.scan.lock(),
        };
        step!(refill_begun);
        // Who takes has no hand.
        scan.strangers = true;
        // What was taken before what has become ready since.
        let mut head = ring.reclaim(&mut scan, since);
        let mut attention = self.collect(&mut scan);
        if attention {
            self.plan_in_hand(&mut scan);
        }
        attention |= self.queue_due(&mut scan);
        let (mut taken, mut again) = (0, attention && since.is_some());
        if attention && since.is_none() {
            // What is in the ring is marked and not pending, as what is in hand is: apart they are not told.
            ring.recall(&mut scan);
            head = ring.head.load(Ordering::SeqCst);
            again = Self::sweep(&scan, room, &mut taken, &mut |event, _| {
                report(event, ring.head.load(Ordering::Relaxed));
                true
            });
        }
        let mut put = false;
        for _ in 0..scan.pending.len {
            if ring.in_use() == ring.capacity() {
                break;
            }
            let watch = scan.pending.head;
            // SAFETY: we hold the scan lock and the watch is pending in this set; the same for all below.
            let (word, source) = unsafe { (&shared(watch).state, guarded(watch).source) };
            // SAFETY: a source removes its watches, under this lock, before it goes.
            let poll = |state: State| unsafe { &*source }.poll() & Events::from_bits_retain(state.mask());
            // SAFETY: as above.
            unsafe { scan.pending.unlink(watch) };
            let state = State(word.load(Ordering::Acquire));
            if is_level(state) && poll(state).is_empty() {
                // A level that has gone, dropped as in `harvest`.
                let state = State(word.fetch_and(State(!0).unqueued().0, Ordering::SeqCst)).unqueued();
                step!(refill_unqueued);
                fence_after_rmw();
                if poll(state).is_empty() {
                    self.plan(&mut scan, watch);
                    continue;
                }
                let mark = mark_queued(word);
                again |= mark == Mark::InHand;
                if mark != Mark::Ours {
                    continue;
                }
            }
            // SAFETY: off the pending queue, and marked.
            unsafe { ring.put(watch, scan.plans.has(watch)) };
            put = true;
        }
        let end = ring.tail();
        // Also if others have taken all there was since we looked: a level among that is still to be seen. In this order: what is gone has moved `head`.
        let filled = ring.filled() > 0;
        let moved = ring.head.load(Ordering::SeqCst) != head && !mutant!("refill_misses_what_is_taken");
        put |= filled || since.is_none() && moved;
        self.end_scan_before(scan, again, if taken == 0 { room } else { 0 });
        (taken, put, end)
    }

    /// Where in the ring the watch is whose state is `state`, for the holder of the scan lock.
    fn place_in_ring(&self, watch: *mut Watch, state: State) -> Option<(&RingCore, u64)> {
        let ring = self.ring()?;
        // SAFETY: a watch of this set, by the caller.
        let link = unsafe { shared(watch) }.next.load(Ordering::Relaxed).addr();
        // Stale unless the slot says the same.
        let at = (link & IN_RING != 0).then_some((link >> 1) as u64)?;
        let is_there = (ring.reclaimed.load(Ordering::Relaxed)..ring.tail.load(Ordering::Relaxed)).contains(&at);
        let entry = is_there.then(|| ring.read(at))?;
        (entry.watch == watch && state.is_marked_like(entry.state)).then_some((ring, at))
    }

    /// Takes a watch that is to be removed out of the ring, if it is there. For the holder of the scan lock.
    pub(super) fn leave_ring(&self, watch: *mut Watch) {
        // SAFETY: a watch of this set, by the caller.
        let word = &unsafe { shared(watch) }.state;
        loop {
            let state = State(word.load(Ordering::SeqCst));
            if self.place_in_ring(watch, state).is_none()
                || mutant!("removal_misses_the_ring")
                // Not whatever the state is by now: it may have been taken, and be in a waker's hands.
                || word.compare_exchange(state.0, state.unqueued().0, Ordering::SeqCst, Ordering::SeqCst).is_ok()
            {
                return;
            }
        }
    }

    /// Gives a watch another interest and data, also where it is in the ring; whether it is there. For the holder of the scan lock.
    pub(super) fn change_interest(&self, watch: *mut Watch, interest: Events, data: u64) -> bool {
        // SAFETY: a watch of this set, by the caller.
        let word = &unsafe { shared(watch) }.state;
        // SAFETY: as above, and no other reference to it.
        unsafe { guarded(watch) }.data = data;
        loop {
            let state = State(word.load(Ordering::SeqCst));
            let changed = state.with_interest(interest);
            // What a taker knows of the old interest is void. (A mark that is not listed yet is its waker's, and in no taker's hands.)
            let is_in_hand = state.is_queued() && !state.is_listed();
            let changed = if is_in_hand || mutant!("change_keeps_round") { changed } else { changed.in_next_round() };
            let place = self.place_in_ring(watch, state).filter(|_| !mutant!("change_misses_the_ring"));
            if word.compare_exchange(state.0, changed.0, Ordering::SeqCst, Ordering::SeqCst).is_err() {
                continue;
            }
            let Some((ring, at)) = place else { return false };
            step!(change_in_ring);
            let slot = ring.slot(at);
            slot.data.store(data, Ordering::Release);
            slot.state.store(changed.0, Ordering::Release);
            return true;
        }
    }
}

/// Marks a slot's watch as one that time can make ready.
const PLANNED: usize = 1;

/// Marks a watch's link as its place in the ring. Watches are 64-byte aligned.
const IN_RING: usize = 1;

fn is_level(state: State) -> bool {
    !state.flags().intersects(Events::ET | Events::ONESHOT)
}

impl RingCore {
    /// Puts a watch behind the last one. There is room.
    ///
    /// # Safety
    /// The caller holds the scan lock of its set and has just taken it off the pending queue; it is `QUEUED`.
    unsafe fn put(&self, watch: *mut Watch, planned: bool) {
        let at = self.tail.load(Ordering::Relaxed);
        // SAFETY: by the caller.
        let (word, fields) = unsafe { (&shared(watch).state, guarded(watch)) };
        // Its waker may not have said so yet. It has pushed; and whoever needs to be told of what is in the ring is told by those who take.
        let state = change_state(word, State::listed);
        let place = ptr::without_provenance_mut((at as usize) << 1 | IN_RING);
        // SAFETY: by the caller.
        unsafe { shared(watch) }.next.store(place, Ordering::Relaxed);
        self.write(at, Entry { watch, planned, state, data: fields.data, source: fields.source });
        step!(slot_written);
        self.tail.store(at + 1, ordering!(Release, "tail_relaxed"));
        step!(slot_published);
    }

    /// Puts what has been taken and is still marked back in line: levels, and what nobody took though `head` has moved past it. For the holder of
    /// the scan lock. Not beyond the first level from `since` on, or from where they are kept. Up to where all had been taken.
    pub(super) fn reclaim(&self, scan: &mut Scan, since: Option<u64>) -> u64 {
        let (from, head) = (self.reclaimed.load(Ordering::Relaxed), self.head.load(Ordering::SeqCst));
        let since = since.unwrap_or(u64::MAX).min(self.kept.load(Ordering::Acquire));
        let is_kept = |at: &u64| *at >= since && is_level(self.read(*at).state);
        let to = (from..head).find(is_kept).unwrap_or(head);
        for at in from..to {
            let watch = self.read(at).watch;
            if self.take_back(at) && !mutant!("ring_forgets_levels") {
                // SAFETY: it is of this life, so of this set; marked, ours and not pending.
                unsafe { scan.pending.push_back(watch) };
            }
        }
        self.reclaimed.store(to, Ordering::Relaxed);
        head
    }

    /// Puts everything back in line: what has not been taken to the front. For the holder of the scan lock.
    pub(super) fn recall(&self, scan: &mut Scan) {
        let tail = self.tail.load(Ordering::Relaxed);
        let taken = self.head.swap(tail, Ordering::SeqCst);
        step!(recall_begun);
        for at in self.reclaimed.load(Ordering::Relaxed)..taken {
            let watch = self.read(at).watch;
            if self.take_back(at) {
                // SAFETY: as in `reclaim`.
                unsafe { scan.pending.push_back(watch) };
            }
        }
        for at in (taken..tail).rev() {
            let watch = self.read(at).watch;
            if self.take_back(at) {
                // SAFETY: as in `reclaim`.
                unsafe { scan.pending.push_front(watch) };
            }
        }
        self.reclaimed.store(tail, Ordering::Relaxed);
    }

    /// Whether the mark in a slot behind `head` is still on; if so it is the caller's.
    fn take_back(&self, at: u64) -> bool {
        let Entry { watch, state: expected, .. } = self.read(at);
        // SAFETY: watches are type-stable.
        let word = &unsafe { shared(watch) }.state;
        loop {
            let state = State(word.load(Ordering::SeqCst));
            if !state.is_marked_like(expected) {
                return false;
            }
            // Nobody takes a level by its state. Of the others a taker may have read the slot and be about to: its mark is made void.
            if is_level(expected) || mutant!("take_back_keeps_round") {
                return true;
            }
            if word.compare_exchange(state.0, state.in_next_round().0, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
                return true;
            }
        }
    }

    /// Moves `head` past a slot; whether it was this call that did.
    fn go_past(&self, at: u64) -> bool {
        self.head.compare_exchange(at, at + 1, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Takes one event in front of `end`, which has been the tail, inside a section. Notes in `levels` if it may be taken by others as well.
    fn take_one(&self, end: u64, levels: &mut bool) -> Taken {
        let at = self.head.load(Ordering::SeqCst);
        if at >= end {
            return Taken::Empty;
        }
        let entry = self.read(at);
        step!(slot_read);
        // If not, somebody was faster, and what we read may be of two minds.
        if self.head.load(Ordering::SeqCst) != at {
            return Taken::Nothing;
        }
        let level = is_level(entry.state);
        if entry.is_for_lock() {
            return Taken::Planned;
        }
        if level && !self.go_past(at) {
            return Taken::Nothing;
        }
        step!(slot_taken);
        // SAFETY: this is a section, and the slot was whole.
        let event = unsafe { if level { entry.look() } else { entry.claim() } };
        if !level {
            self.go_past(at);
        }
        step!(head_moved);
        if level {
            self.last_level.store(at + 1, Ordering::Relaxed);
        }
        match event {
            Some(event) => {
                *levels |= level;
                Taken::Event(event, at)
            }
            None => Taken::Nothing,
        }
    }
}

/// # Safety (of all methods)
/// The entry was whole, and the caller is in a section or holds the scan lock, since before it looks at the state.
impl Entry {
    fn is_for_lock(&self) -> bool {
        self.planned && !is_level(self.state)
    }

    fn word(&self) -> &AtomicU64 {
        // SAFETY: watches are type-stable.
        &unsafe { &*self.watch }.state
    }

    /// What holds now of what `state` asks for.
    unsafe fn poll(&self, state: State) -> Events {
        // SAFETY: the mark was on inside the section; who ends the watch's life after that waits for the section before the source goes.
        unsafe { &*self.source }.poll() & Events::from_bits_retain(state.mask())
    }

    /// A level's event, if the mark is still on and it holds.
    unsafe fn look(&self) -> Option<Event> {
        let state = State(self.word().load(Ordering::SeqCst));
        if !state.is_marked_like(self.state) && !mutant!("level_is_not_looked_at") {
            return None;
        }
        // SAFETY: the caller's contract.
        let ready = unsafe { self.poll(state) };
        (!ready.is_empty()).then(|| Event::new(ready, self.data))
    }

    /// The event of an edge or a shot: takes the mark off, if it is still on. One taker wins.
    unsafe fn claim(&self) -> Option<Event> {
        let word = self.word();
        let oneshot = self.state.flags().contains(Events::ONESHOT);
        let change =
            |from: State, to: State| word.compare_exchange(from.0, to.0, Ordering::SeqCst, Ordering::SeqCst).is_ok();
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
                    let spent =
                        if mutant!("ring_keeps_oneshot") { state.unqueued() } else { state.unqueued().disarmed() };
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
                return (change(state, state.unqueued()) && !ready.is_empty()).then(|| Event::new(ready, self.data));
            }
            if change(state, state.unqueued()) {
                break state.unqueued();
            }
        };
        step!(ring_unqueued);
        fence_after_rmw();
        // SAFETY: the caller's contract.
        let ready = unsafe { self.poll(state) };
        if ready.is_empty() {
            return None;
        }
        // A shot that is on the list again, or armed anew, is another's.
        let spent = !oneshot || change(state, state.disarmed());
        spent.then(|| Event::new(ready, self.data))
    }
}
