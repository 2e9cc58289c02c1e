//! The set (Linux's eventpoll): interest list, ready list, waiters, one scan lock.
//!
//! Which lock guards what:
//!
//! 1. `Shared::nesting`, only while a set is added to a set.
//! 2. `SetCore::scan`, an outer set's before an inner one's: interest list, pending queue, the guarded half of each watch.
//! 3. a wait queue's own lock: which slots are in use.
//!
//! A batch of changes holds the second for all that need no more than it (`Changing`, `batch.rs`).
//!
//! Wakers take none of them. They mark a watch `QUEUED` and push it onto `incoming`; the holder of the scan lock moves what
//! is there to `pending`, in the order it was pushed, and delivers from there.

use crate::engine::Shared;
use crate::error::Error;
use crate::events::{Event, Events};
use crate::hand::{HandCore, Hands};
use crate::lock::{ScanGuard, ScanLock};
use crate::nesting::Seen;
use crate::pool::{Pool, Pooled};
use crate::ready_list::{Incoming, Policy};
use crate::sleepers::Sleepers;
use crate::source::Source;
use crate::state::State;
use crate::steps::step;
use crate::sync::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence_after_rmw};
use crate::timer::{NEVER, SOON};
use crate::wait_queue::{Handle, WaitQueue};
use crate::watch::{Guarded, Watch};
use core::ptr;
use hashbrown::HashTable;

mod planning;
pub(crate) mod ring;
pub(crate) use planning::Minding;
use planning::Plans;
use ring::RingCore;

/// A set, in type-stable memory. Public in name only: [`Source::as_set`] mentions it.
#[doc(hidden)]
#[derive(Debug)]
#[repr(align(64))]
pub struct SetCore {
    // Read by every waker, written rarely.
    /// A [`Policy`].
    policy: AtomicU32,
    /// Not 0 when a wake of a queued watch is not simply over: a locked policy, or a set around this one.
    slow_wakes: AtomicU32,
    /// The watches that other sets have on this one.
    pub(crate) queue: WaitQueue,
    link: AtomicPtr<SetCore>,
    /// The engine whose pool this memory is part of.
    home: AtomicPtr<Shared>,
    /// What a descriptor table knows the set by; opaque here.
    owner: AtomicUsize,
    /// The loop and path checks' notes.
    pub(crate) seen: Seen,

    // Written by wakers.
    pub(crate) incoming: Line<Incoming>,
    pub(crate) sleepers: Line<Sleepers>,

    // Written by harvesters and changers.
    pub(crate) scan: Line<ScanLock<Scan>>,
    /// How many watches are pending, as of the last time the scan lock was free; at least 1 while a harvest has
    /// them in its hands, so that nobody takes "in somebody's hands" for "nothing ready".
    pending_hint: AtomicUsize,
    /// Watches on the interest list.
    len: AtomicUsize,
    /// When the first of the plans is due, as of the last time the scan lock was free; `NEVER` for none.
    deadline: AtomicU64,
    /// Until when the waiter sleeps that minds the deadline; `NEVER` for none. See [`planning`].
    led_until: AtomicU64,
    /// Not 0: the timer of a watch on the ready list has been set, and the watch not planned since.
    set_again: AtomicU32,
    /// Not 0: there are, or were, watches that time can make ready.
    timed: AtomicU32,
    /// The event ring, null for none. Set and taken away under the scan lock.
    ring: AtomicPtr<RingCore>,
}

/// Its own cache line, against false sharing.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Line<T>(T);

impl<T> core::ops::Deref for Line<T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// What the scan lock guards.
#[derive(Debug)]
pub(crate) struct Scan {
    /// The interest list, by (descriptor, description).
    interest: HashTable<*mut Watch>,
    pending: Pending,
    /// What time makes ready.
    plans: Plans,
    /// Free watches kept for the next add.
    free: *mut Watch,
    /// The set takes no more watches.
    closed: bool,
    /// The hands in which events may be.
    pub(crate) hands: Hands,
    /// Somebody has harvested without a hand.
    pub(crate) strangers: bool,
}

// SAFETY: the raw pointers lead to type-stable memory that the scan lock guards.
unsafe impl Send for Scan {}

/// The pending queue: a doubly linked list through the watches, in the order of delivery.
#[derive(Debug)]
struct Pending {
    head: *mut Watch,
    tail: *mut Watch,
    len: usize,
}

/// The guarded half of a watch.
///
/// # Safety
/// The caller holds the scan lock of the watch's set and no other reference to it.
#[inline]
unsafe fn guarded<'a>(watch: *mut Watch) -> &'a mut Guarded {
    // SAFETY: by the caller.
    unsafe { &mut *(*watch).guarded.get() }
}

/// The shared half of a watch.
///
/// # Safety
/// The pointer leads to type-stable memory.
#[inline]
unsafe fn shared<'a>(watch: *mut Watch) -> &'a Watch {
    // SAFETY: by the caller.
    unsafe { &*watch }
}

/// # Safety (of all methods)
/// The caller holds the scan lock that guards the queue, and the watches belong to that set.
impl Pending {
    const EMPTY: Self = Self { head: ptr::null_mut(), tail: ptr::null_mut(), len: 0 };

    unsafe fn push_back(&mut self, watch: *mut Watch) {
        // SAFETY: by the caller, here and below.
        unsafe {
            shared(watch).next.store(ptr::null_mut(), Ordering::Relaxed);
            guarded(watch).prev = if self.tail.is_null() { watch } else { self.tail };
            match self.tail.is_null() {
                true => self.head = watch,
                false => shared(self.tail).next.store(watch, Ordering::Relaxed),
            }
        }
        self.tail = watch;
        self.len += 1;
    }

    unsafe fn push_front(&mut self, watch: *mut Watch) {
        // SAFETY: by the caller, here and below.
        unsafe {
            shared(watch).next.store(self.head, Ordering::Relaxed);
            guarded(watch).prev = watch;
            match self.head.is_null() {
                true => self.tail = watch,
                false => guarded(self.head).prev = watch,
            }
        }
        self.head = watch;
        self.len += 1;
    }

    unsafe fn unlink(&mut self, watch: *mut Watch) {
        // SAFETY: by the caller, here and below.
        unsafe {
            let next = shared(watch).next.load(Ordering::Relaxed);
            let prev = core::mem::replace(&mut guarded(watch).prev, ptr::null_mut());
            if prev == watch {
                self.head = next;
            } else {
                shared(prev).next.store(next, Ordering::Relaxed);
            }
            if next.is_null() {
                self.tail = if prev == watch { ptr::null_mut() } else { prev };
            } else {
                guarded(next).prev = if prev == watch { next } else { prev };
            }
        }
        self.len -= 1;
    }

    unsafe fn contains(&self, watch: *mut Watch) -> bool {
        // SAFETY: by the caller.
        unsafe { !guarded(watch).prev.is_null() }
    }
}

/// Whether a change made a watch ready that was not on the ready list: its waiters have to be told.
type NewlyReady = bool;

impl Pooled for SetCore {
    fn vacant() -> Self {
        Self {
            policy: AtomicU32::new(0),
            slow_wakes: AtomicU32::new(0),
            queue: WaitQueue::new(),
            link: AtomicPtr::new(ptr::null_mut()),
            home: AtomicPtr::new(ptr::null_mut()),
            owner: AtomicUsize::new(0),
            seen: Seen::new(),
            incoming: Line(Incoming::new()),
            sleepers: Line(Sleepers::new()),
            scan: Line(ScanLock::new(Scan {
                interest: HashTable::new(),
                pending: Pending::EMPTY,
                plans: Plans::new(),
                free: ptr::null_mut(),
                closed: true,
                hands: Hands::new(),
                strangers: false,
            })),
            pending_hint: AtomicUsize::new(0),
            len: AtomicUsize::new(0),
            deadline: AtomicU64::new(NEVER),
            led_until: AtomicU64::new(NEVER),
            set_again: AtomicU32::new(0),
            timed: AtomicU32::new(0),
            ring: AtomicPtr::new(ptr::null_mut()),
        }
    }

    fn link(&self) -> &AtomicPtr<Self> {
        &self.link
    }
}

fn hash(fd: i32, source: *const ()) -> u64 {
    let key = (source.addr() as u64).rotate_left(29) ^ u64::from(fd as u32);
    let mixed = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 32)
}

/// The event bits of a request as Linux stores them: `ERR` and `HUP` are always asked for.
fn asked(events: Events) -> Events {
    events | Events::ALWAYS
}

impl SetCore {
    fn home(&self) -> &Shared {
        // SAFETY: stored by `open` before anybody else saw this set; the engine outlives what is in its pools.
        unsafe { &*self.home.load(Ordering::Relaxed) }
    }

    #[inline(always)]
    pub(crate) fn wakes_are_plain(&self) -> bool {
        self.slow_wakes.load(Ordering::SeqCst) == 0
    }

    pub(crate) fn policy(&self) -> Policy {
        match self.policy.load(Ordering::Relaxed) {
            1 => Policy::SpinLock,
            2 => Policy::RwLock,
            _ => Policy::LockFree,
        }
    }

    /// Begins a life of this memory as an open set of `home`, whose pool it comes from.
    pub(crate) fn open(&self, home: &Shared, policy: Policy) {
        self.home.store(ptr::from_ref(home).cast_mut(), Ordering::Relaxed);
        self.policy.store(policy as u32, Ordering::Relaxed);
        self.slow_wakes.store(u32::from(policy != Policy::LockFree), Ordering::SeqCst);
        self.led_until.store(NEVER, Ordering::SeqCst);
        self.set_again.store(0, Ordering::SeqCst);
        self.timed.store(0, Ordering::SeqCst);
        self.queue.reopen();
        let mut scan = self.scan.lock();
        scan.closed = false;
        scan.strangers = false;
    }

    /// From now on a set watches this one: wakes go further out even if a watch is queued already.
    pub(crate) fn note_outer(&self) {
        self.slow_wakes.swap(1, Ordering::SeqCst);
    }

    /// The timer of a watch that is on the list has been set.
    pub(crate) fn note_set_again(&self) {
        self.set_again.swap(1, Ordering::SeqCst);
    }

    /// Tells the sets around this one that it may be ready.
    #[inline]
    pub(crate) fn wake_outer(&self) {
        if self.queue.may_have_watches() {
            if self.timed.load(Ordering::SeqCst) != 0 {
                // It may also be that it has to be looked at earlier than planned.
                self.queue.wake_at(SOON);
            } else {
                self.queue.wake_published(Events::IN);
            }
        }
    }

    /// Whether a harvest could find something. Never false while a ready watch is queued or in a harvester's hands.
    #[inline]
    pub(crate) fn may_be_ready(&self) -> bool {
        if mutant!("hint_before_list") {
            return self.pending_hint.load(Ordering::SeqCst) != 0 || !self.incoming.is_empty() || self.is_due();
        }
        // The list first: it is raised to a hint before it is taken (`collect`), so who sees it taken sees the hint.
        !self.incoming.is_empty() || self.pending_hint.load(Ordering::SeqCst) != 0 || self.is_due()
    }

    pub(crate) fn owner(&self) -> usize {
        self.owner.load(Ordering::Acquire)
    }

    pub(crate) fn set_owner(&self, owner: usize) {
        self.owner.store(owner, Ordering::Release);
    }

    /// How many watches the interest list has.
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::SeqCst)
    }

    /// Starts work on the ready list: locks, and moves what wakers pushed and what time has made due to the pending queue. Also whether
    /// attention was called.
    fn begin_scan(&self) -> (ScanGuard<'_, Scan>, bool) {
        let mut scan = self.scan.lock();
        if let Some(ring) = self.ring() {
            ring.recall(&mut scan);
        }
        let mut attention = self.collect(&mut scan);
        if attention {
            self.plan_in_hand(&mut scan);
        }
        attention |= self.queue_due(&mut scan);
        (scan, attention)
    }

    fn collect(&self, scan: &mut Scan) -> bool {
        if self.incoming.is_empty() {
            return false;
        }
        step!(hint_before);
        // First the hint, then the take; `may_be_ready` looks in the other order and finds one of them.
        self.pending_hint.fetch_add(1, Ordering::SeqCst);
        if let Some(ring) = self.ring() {
            ring.behind.store(1, Ordering::SeqCst);
        }
        step!(hinted);
        let (mut newest, attention) = self.incoming.locked_by_harvester(self.policy(), || self.incoming.take());
        // Reverse: last pushed is first on the stack.
        let mut oldest: *mut Watch = ptr::null_mut();
        while !newest.is_null() {
            // SAFETY: what is on the list is type-stable and its links are the taker's.
            let next = unsafe { shared(newest) }.next.load(Ordering::Relaxed);
            // SAFETY: as above.
            unsafe { shared(newest) }.next.store(oldest, Ordering::Relaxed);
            oldest = newest;
            newest = next;
        }
        step!(chain_reversed);
        while !oldest.is_null() {
            let watch = oldest;
            // SAFETY: as above. A dead one may have belonged to an earlier life of this set's memory; it is nobody's now.
            unsafe {
                oldest = shared(watch).next.load(Ordering::Relaxed);
                let state = State(shared(watch).state.load(Ordering::Acquire));
                if state.is_dead() && !mutant!("dead_is_pending") {
                    step!(bury_before);
                    shared(watch).state.store(state.buried().0, Ordering::Release);
                    step!(buried);
                    self.home().watches.give(watch, watch);
                } else {
                    scan.pending.push_back(watch);
                    self.plan_by(scan, watch, SetCore::earliest);
                }
            }
        }
        attention
    }

    /// Ends work on the ready list: unlocks, and passes on to the next waiter what is left. `again` calls for attention.
    fn end_scan(&self, scan: ScanGuard<'_, Scan>, again: bool) {
        self.end_scan_before(scan, again, 0);
    }

    /// The same for a caller who takes up to `room` events out of the ring next.
    fn end_scan_before(&self, scan: ScanGuard<'_, Scan>, again: bool, room: usize) {
        if again {
            self.incoming.call_attention();
        }
        step!(end_before_hint);
        let (in_ring, for_others) = self.ring().map_or((0, false), |ring| (ring.in_use(), ring.filled() > room as u64));
        let pending = scan.pending.len;
        if let Some(ring) = self.ring() {
            ring.behind.store(pending, Ordering::Relaxed);
        }
        let left = if mutant!("ring_is_no_hint") { pending } else { pending + in_ring };
        if left != 0 || self.pending_hint.load(Ordering::Relaxed) != 0 {
            // A read-modify-write, for the check of the sleepers below.
            self.pending_hint.swap(left, Ordering::SeqCst);
            step!(end_hinted);
        }
        let earlier = self.publish_deadline(&scan);
        drop(scan);
        step!(end_unlocked);
        if (pending != 0 || for_others || again) && !mutant!("leftovers_kick_nobody") {
            self.sleepers.kick();
            step!(end_kicked);
        } else if earlier && !mutant!("earlier_is_unheard") {
            self.mind_deadline();
        }
    }

    /// The watches that a waker has marked and not put on the list: it was stopped in between, and somebody who relied on
    /// the mark has called for attention. O(interest list), and only then.
    fn in_hand(scan: &Scan) -> impl Iterator<Item = *mut Watch> {
        scan.interest.iter().copied().filter(|watch| {
            // SAFETY: on the interest list of the set whose lock the caller holds.
            let (state, pending) =
                unsafe { (State(shared(*watch).state.load(Ordering::SeqCst)), scan.pending.contains(*watch)) };
            // Listed or not: its waker may have finished since the list was taken, and the call for attention is spent.
            state.is_queued() && !pending && !(mutant!("listed_is_not_in_hand") && state.is_listed())
        })
    }

    /// Plans what is in hand: its timer may have been set again by somebody who relied on the mark.
    #[cold]
    fn plan_in_hand(&self, scan: &mut Scan) {
        let interest = core::mem::take(&mut scan.interest);
        for &watch in &interest {
            // SAFETY: a watch of this set, whose lock we hold.
            let (state, pending) =
                unsafe { (State(shared(watch).state.load(Ordering::SeqCst)), scan.pending.contains(watch)) };
            if state.is_queued() && !pending {
                self.plan_by(scan, watch, SetCore::earliest);
            }
        }
        scan.interest = interest;
    }

    /// Delivers what [`in_hand`](Self::in_hand) finds ready, without taking it from the waker; whether some may be left.
    fn sweep(
        scan: &Scan,
        room: usize,
        reported: &mut usize,
        report: &mut impl FnMut(Event, *mut Watch) -> bool,
    ) -> bool {
        let mut left = false;
        for watch in Self::in_hand(scan) {
            // SAFETY: as in `harvest`.
            let (Guarded { source, data, .. }, word) = unsafe { (guarded(watch), &shared(watch).state) };
            let state = State(word.load(Ordering::SeqCst));
            step!(sweep_before_poll);
            // SAFETY: a source removes its watches, under this lock, before it goes.
            let ready = unsafe { &**source }.poll() & Events::from_bits_retain(state.mask());
            if ready.is_empty() {
                continue;
            }
            if *reported == room || !report(Event::new(ready, *data), watch) {
                return true;
            }
            *reported += 1;
            if state.flags().contains(Events::ONESHOT) && !mutant!("sweep_keeps_oneshot") {
                change_state(word, State::disarmed);
            }
            // Level-triggered: not on the list, so this is how the next wait finds it.
            left |= !state.flags().intersects(Events::ET | Events::ONESHOT);
        }
        left
    }

    /// Delivers up to `room` ready events to `report`, in order; how many it took. It says `false` to one that it cannot take: that
    /// one stays first in the queue, and the harvest ends.
    ///
    /// Each pending watch is looked at once: polled again, reported if it holds, and then put back at the end
    /// (level-triggered), taken off (edge-triggered) or disarmed (ONESHOT).
    pub(crate) fn harvest(&self, room: usize, mut report: impl FnMut(Event) -> bool) -> usize {
        self.harvest_known(room, true, |event, _| report(event))
    }

    /// [`harvest`](Self::harvest) that also says which watch each event is of, for a hand. `strange`: by somebody who has none.
    pub(crate) fn harvest_known(
        &self,
        room: usize,
        strange: bool,
        mut report: impl FnMut(Event, *mut Watch) -> bool,
    ) -> usize {
        if room == 0 || !self.may_be_ready() {
            return 0;
        }
        let (mut scan, attention) = self.begin_scan();
        let mut reported = 0;
        // Whether somebody else's mark stands where ours should: its owner may be stopped.
        let mut again = false;
        if attention {
            // First, while what is in hand and what is pending are different watches: no wait reports one twice.
            again = Self::sweep(&scan, room, &mut reported, &mut report);
        }
        for _ in 0..scan.pending.len {
            if reported == room {
                break;
            }
            let watch = scan.pending.head;
            // SAFETY: we hold the scan lock and the watch is pending in this set; the same for all below.
            let Guarded { source, data, .. } = *unsafe { guarded(watch) };
            // SAFETY: a source removes its watches, under this lock, before it goes.
            let poll = || unsafe { &*source }.poll();
            // SAFETY: as above.
            let word = &unsafe { shared(watch) }.state;
            let mut state = State(word.load(Ordering::Acquire));
            let level = !state.flags().intersects(Events::ET | Events::ONESHOT);
            // Whether QUEUED is on and ours, so that the watch has to be on the list when we are done with it.
            let mut ours = level;
            let mut ready = Events::empty();
            if level {
                ready = poll() & Events::from_bits_retain(state.mask());
            }
            // SAFETY: as above.
            unsafe { scan.pending.unlink(watch) };
            if ready.is_empty() {
                // Off the list first, then the poll: a change from here on queues the watch again.
                let early = mutant!("unqueue_after_poll").then(poll);
                step!(unqueue_before);
                state = State(word.fetch_and(State(!0).unqueued().0, Ordering::SeqCst)).unqueued();
                step!(unqueued);
                fence_after_rmw();
                ready = early.unwrap_or_else(poll) & Events::from_bits_retain(state.mask());
                if ready.is_empty() {
                    self.plan(&mut scan, watch);
                    continue;
                }
                // Unless a waker was faster: then it is on the incoming list and will be pending again.
                if level {
                    let mark = mark_queued(word);
                    ours = mark == Mark::Ours;
                    again |= mark == Mark::InHand;
                }
            }
            step!(report_before);
            if !report(Event::new(ready, data), watch) {
                let mark = if ours { Mark::Ours } else { mark_queued(word) };
                again |= mark == Mark::InHand;
                if mark == Mark::Ours {
                    // SAFETY: as above; QUEUED is on, and ours.
                    unsafe { scan.pending.push_front(watch) };
                }
                break;
            }
            step!(reported);
            reported += 1;
            if ours {
                // SAFETY: as above.
                unsafe { scan.pending.push_back(watch) };
            } else {
                if state.flags().contains(Events::ONESHOT) && !mutant!("harvest_keeps_oneshot") {
                    change_state(word, State::disarmed);
                }
                // SAFETY: as above.
                if unsafe { &*source }.as_set().is_some() {
                    // Ready as it is, it may have another edge to come.
                    self.plan(&mut scan, watch);
                }
            }
        }
        scan.strangers |= strange && reported != 0;
        self.end_scan(scan, again);
        reported
    }

    /// [`harvest`](Self::harvest) into a hand.
    pub(crate) fn harvest_into(&self, hand: &HandCore, room: usize, mut report: impl FnMut(Event) -> bool) -> usize {
        self.harvest_known(room, false, |event, watch| {
            // SAFETY: a harvest reports with the scan lock held.
            let may = unsafe { hand.has_room() };
            // SAFETY: as above.
            may && report(event) && unsafe { hand.take(Known::of(watch)) }
        })
    }

    /// Whether an event could be delivered now; drops what is queued but does not hold. What polling a set means.
    pub(crate) fn poll(&self) -> Events {
        if !self.may_be_ready() {
            return Events::empty();
        }
        let (mut scan, attention) = self.begin_scan();
        self.plan_queued(&mut scan);
        let mut again = attention;
        let mut found = Events::empty();
        while !scan.pending.head.is_null() {
            let watch = scan.pending.head;
            // SAFETY: we hold the scan lock and the watch is pending in this set.
            let (word, source) = unsafe { (&shared(watch).state, guarded(watch).source) };
            let holds = || {
                let mask = State(word.load(Ordering::Acquire)).mask();
                // SAFETY: a source removes its watches, under this lock, before it goes.
                !(unsafe { &*source }.poll() & Events::from_bits_retain(mask)).is_empty()
            };
            if holds() {
                found = Events::IN | Events::RDNORM;
                break;
            }
            // SAFETY: as above.
            unsafe { scan.pending.unlink(watch) };
            step!(poll_unqueue_before);
            word.fetch_and(State(!0).unqueued().0, Ordering::SeqCst);
            step!(poll_unqueued);
            fence_after_rmw();
            if holds() {
                match mark_queued(word) {
                    // SAFETY: as above; QUEUED is on, and ours.
                    Mark::Ours => unsafe { scan.pending.push_back(watch) },
                    Mark::InHand => again = true,
                    Mark::Listed => {}
                }
                found = Events::IN | Events::RDNORM;
                break;
            }
            self.plan(&mut scan, watch);
        }
        if attention && found.is_empty() {
            let holds = |watch: *mut Watch| {
                // SAFETY: on the interest list, whose lock we hold; a source removes its watches before it goes.
                let (state, source) =
                    unsafe { (State(shared(watch).state.load(Ordering::SeqCst)), guarded(watch).source) };
                // SAFETY: as above.
                unsafe { &*source }.poll().intersects(Events::from_bits_retain(state.mask()))
            };
            if Self::in_hand(&scan).any(holds) {
                found = Events::IN | Events::RDNORM;
            } else {
                again = false;
            }
        }
        self.end_scan(scan, again);
        found
    }

    /// Takes the scan lock for changes of the interest list.
    pub(crate) fn begin_changes(&self) -> Changing<'_> {
        Changing { set: self, scan: self.scan.lock(), quiet: Quiet(None), newly_ready: false, in_ring: false }
    }

    /// Adds a watch. `attached` runs once the watch is in the source's queue and may refuse it.
    ///
    /// # Safety
    /// `source` stays valid until its queue is closed, and only sets of this engine watch it.
    pub(crate) unsafe fn add(
        &self,
        fd: i32,
        source: *const dyn Source,
        event: Event,
        attached: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut changing = self.begin_changes();
        // SAFETY: the caller's contract, passed on.
        unsafe { changing.add(fd, source, event, attached) }?;
        changing.end();
        Ok(())
    }

    #[allow(clippy::too_many_arguments, reason = "the middle part of `add`, split off for its error path")]
    unsafe fn add_counted(
        &self,
        scan: &mut Scan,
        key: u64,
        fd: i32,
        source: *const dyn Source,
        event: Event,
        attached: impl FnOnce() -> Result<(), Error>,
    ) -> Result<NewlyReady, Error> {
        // SAFETY: the interest list holds watches of this set, whose lock we hold.
        let rehash = |watch: &*mut Watch| unsafe { hash(guarded(*watch).fd, guarded(*watch).source.cast()) };
        scan.interest.try_reserve(1, rehash).map_err(|_| Error::NoMemory)?;
        let watch = scan.take_free(&self.home().watches)?;
        // SAFETY: a free watch is ours alone but for late wakers, who touch only its state.
        let word = unsafe {
            let fields = guarded(watch);
            fields.source = source;
            fields.data = event.data;
            fields.fd = fd;
            shared(watch).set.store(ptr::from_ref(self).cast_mut(), Ordering::Relaxed);
            &shared(watch).state
        };
        let state = State(word.load(Ordering::Relaxed)).with_interest(asked(event.events));
        step!(add_before_state);
        // Release: a waker that finds the handle in the queue sees the watch as it is here.
        word.store(state.0, Ordering::SeqCst);
        step!(add_state_stored);
        // SAFETY: the source is valid by the caller's contract.
        let target = unsafe { &*source };
        if target.as_timer().is_some() || target.as_set().is_some() {
            // Before the watch is in the queue of the source, from where the sets around this one hear of it.
            self.timed.swap(1, Ordering::SeqCst);
            if let Err(error) = scan.plans.insert(watch) {
                self.retire(scan, watch);
                return Err(error);
            }
        }
        if mutant!("poll_before_attach") {
            self.queue_if_ready(scan, watch);
        }
        let exclusive = event.events.contains(Events::EXCLUSIVE);
        let queue = target.wait_queue();
        let slot = match queue.attach(Handle::new(watch, state, exclusive)) {
            Ok(slot) => slot,
            Err(error) => {
                self.retire(scan, watch);
                return Err(error);
            }
        };
        // SAFETY: as above.
        unsafe { guarded(watch) }.slot = slot;
        if let Some(timer) = target.as_timer() {
            timer.note_watch(slot);
        }
        if let Err(error) = attached() {
            queue.detach(slot);
            self.retire(scan, watch);
            return Err(error);
        }
        step!(add_before_interest);
        scan.interest.insert_unique(key, watch, rehash);
        self.len.store(scan.interest.len(), Ordering::SeqCst);
        Ok(!mutant!("poll_before_attach") && self.queue_if_ready(scan, watch))
    }

    /// Changes what a watch asks for, and reports it at once if that holds already.
    pub(crate) fn modify(&self, fd: i32, source: *const (), event: Event) -> Result<(), Error> {
        let mut changing = self.begin_changes();
        changing.modify(fd, source, event)?;
        changing.end();
        Ok(())
    }

    /// Removes a watch; when it returns no harvest reports it any more.
    pub(crate) fn remove(&self, fd: i32, source: *const ()) -> Result<(), Error> {
        self.begin_changes().remove(fd, source)
    }

    /// Unlocks after removals.
    fn end_removal(&self, scan: ScanGuard<'_, Scan>) {
        let quiet = Quiet(self.ring());
        drop(scan);
        drop(quiet);
    }

    /// Closes the set: no new watches, and all it has are gone.
    pub(crate) fn close(&self) {
        step!(close_before_queue);
        self.queue.close();
        step!(closed_queue);
        let mut scan = self.scan.lock();
        step!(close_before_forget);
        scan.closed = true;
        if let Some(ring) = self.ring() {
            ring.recall(&mut scan);
        }
        self.collect(&mut scan);
        for watch in core::mem::take(&mut scan.interest) {
            self.forget(&mut scan, watch);
        }
        // What a late waker still pushes is dead, and freed by the next life of this memory.
        self.pending_hint.store(0, Ordering::SeqCst);
        scan.plans = Plans::new();
        self.publish_deadline(&scan);
        step!(closed);
        if let Some((first, last)) = scan.free_chain() {
            // SAFETY: the set's own free watches, linked from first to last.
            unsafe { self.home().watches.give(first, last) };
            scan.free = ptr::null_mut();
        }
        self.end_removal(scan);
    }

    pub(crate) fn between_scans<T>(&self, f: impl FnOnce() -> T) -> T {
        let _scan = self.scan.lock();
        f()
    }

    /// Calls `f(descriptor, source, interest, data)` for each watch.
    pub(crate) fn for_each(&self, mut f: impl FnMut(i32, *const dyn Source, Events, u64)) {
        let scan = self.scan.lock();
        for &watch in &scan.interest {
            // SAFETY: on the interest list of this set, whose lock we hold.
            let (fields, state) = unsafe { (guarded(watch), State(shared(watch).state.load(Ordering::Relaxed))) };
            f(fields.fd, fields.source, state.interest(), fields.data);
        }
    }

    /// Takes a watch off the interest list and out of its source's queue.
    fn forget(&self, scan: &mut Scan, watch: *mut Watch) {
        // SAFETY: on the interest list of this set, whose lock we hold.
        let (fd, source, slot) = unsafe { (guarded(watch).fd, guarded(watch).source, guarded(watch).slot) };
        if let Ok(entry) = scan.interest.find_entry(hash(fd, source.cast()), |&other| other == watch) {
            entry.remove();
        }
        self.len.store(scan.interest.len(), Ordering::SeqCst);
        // SAFETY: a source removes its watches before it goes, and this is one that it still has.
        unsafe { &*source }.wait_queue().detach(slot);
        self.retire(scan, watch);
        self.home().count_out();
    }

    /// Ends the life of a watch that is in no wait queue: free it, or leave it to the waker that has it.
    fn retire(&self, scan: &mut Scan, watch: *mut Watch) {
        // SAFETY: the watch is this set's and we hold the scan lock; the same for all below.
        let word = &unsafe { shared(watch) }.state;
        scan.plans.remove(watch);
        self.leave_ring(watch);
        if State(word.load(Ordering::SeqCst)).is_queued() {
            if let Some(ring) = self.ring() {
                // What was taken before what has become ready since.
                ring.reclaim(scan, None);
            }
            if self.collect(scan) && !mutant!("removal_takes_attention") {
                self.incoming.call_attention();
            }
        }
        // SAFETY: as above.
        if unsafe { scan.pending.contains(watch) } {
            if !mutant!("removed_stays_pending") {
                // SAFETY: as above.
                unsafe { scan.pending.unlink(watch) };
            }
            word.fetch_and(State(!0).unqueued().0, Ordering::AcqRel);
        }
        step!(retire_before);
        // From here on QUEUED can only mean that a waker has marked it and not pushed it yet.
        if change_state(word, State::ended).is_dead() && !mutant!("free_while_queued") {
            return;
        }
        step!(retired);
        // SAFETY: ended and not queued: nobody but late wakers knows it, and they see the new generation.
        unsafe { shared(watch).next.store(scan.free, Ordering::Relaxed) };
        scan.free = watch;
    }

    /// After a change of the interest: puts the watch on the pending queue if it holds and is not there.
    fn queue_if_ready(&self, scan: &mut Scan, watch: *mut Watch) -> NewlyReady {
        // SAFETY: a watch of this set, whose lock we hold; its source is open.
        let (word, source) = unsafe { (&shared(watch).state, &*guarded(watch).source) };
        step!(change_before_poll);
        if !mutant!("change_without_fence") {
            fence_after_rmw();
        }
        self.plan_by(scan, watch, SetCore::earliest);
        let mask = State(word.load(Ordering::SeqCst)).mask();
        if (source.poll() & Events::from_bits_retain(mask)).is_empty() {
            return false;
        }
        step!(change_polled);
        // Before the mark: a waker that meets it leaves, and its thread must find the set ready. If nothing comes of it, the
        // next harvest puts it right.
        if self.pending_hint.load(Ordering::Relaxed) == 0 && !mutant!("hint_after_mark") {
            self.pending_hint.swap(1, Ordering::SeqCst);
        }
        step!(change_hinted);
        match mark_queued(word) {
            Mark::Ours => {}
            Mark::Listed => return false,
            Mark::InHand => {
                self.incoming.call_attention();
                return true;
            }
        }
        step!(change_marked);
        // What became ready before comes before it.
        if let Some(ring) = self.ring() {
            ring.reclaim(scan, None);
            ring.behind.store(1, Ordering::Relaxed);
        }
        if self.collect(scan) {
            self.incoming.call_attention();
        }
        // SAFETY: as above; we turned QUEUED on.
        unsafe { scan.pending.push_back(watch) };
        if mutant!("hint_after_mark") {
            self.pending_hint.swap(scan.pending.len, Ordering::SeqCst);
        }
        true
    }
}

/// What tells a watch from all others, also from later ones in the same memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known(Handle);

impl Known {
    /// For the holder of the scan lock.
    #[inline]
    fn of(watch: *mut Watch) -> Self {
        // SAFETY: type-stable.
        let state = State(unsafe { shared(watch) }.state.load(Ordering::Relaxed));
        Self(Handle::new(watch, state, false))
    }
}

/// Where an event of a watch is when the watch is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// Nowhere.
    Nowhere,
    /// In a hand.
    InHand(Known),
    /// It was a one-shot one, with somebody who has no hand.
    Disarmed,
    /// Somebody without a hand may have it.
    Unknown,
}

/// Waits, at its end, until nobody takes from the ring who may be about to poll the source of a watch that has been removed.
#[derive(Debug)]
struct Quiet<'a>(Option<&'a RingCore>);

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        if let Some(ring) = self.0 {
            ring.quiesce();
        }
    }
}

/// Changes of a set's interest list under one hold of its scan lock.
#[derive(Debug)]
pub(crate) struct Changing<'a> {
    set: &'a SetCore,
    scan: ScanGuard<'a, Scan>,
    /// Behind the lock: dropped when it is free.
    quiet: Quiet<'a>,
    /// Whether one of the changes made a watch ready that was not on the ready list.
    newly_ready: NewlyReady,
    /// Whether one of them was of a watch in the ring.
    in_ring: bool,
}

impl Changing<'_> {
    /// As [`SetCore::add`].
    ///
    /// # Safety
    /// As there.
    pub(crate) unsafe fn add(
        &mut self,
        fd: i32,
        source: *const dyn Source,
        event: Event,
        attached: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (set, scan) = (self.set, &mut *self.scan);
        if scan.closed {
            return Err(Error::Closed);
        }
        let key = hash(fd, source.cast());
        if scan.find(key, fd, source.cast()).is_some() {
            return Err(Error::AlreadyWatched);
        }
        if !set.home().count_in() {
            return Err(Error::WatchLimit);
        }
        // SAFETY: the caller's contract, passed on.
        let added = unsafe { set.add_counted(scan, key, fd, source, event, attached) };
        let newly_ready = added.inspect_err(|_| set.home().count_out())?;
        self.newly_ready |= newly_ready;
        Ok(())
    }

    /// As [`SetCore::modify`].
    pub(crate) fn modify(&mut self, fd: i32, source: *const (), event: Event) -> Result<(), Error> {
        let watch = self.scan.find(hash(fd, source), fd, source).ok_or(Error::NotWatched)?;
        // SAFETY: on the interest list of this set, whose lock we hold.
        let word = &unsafe { shared(watch) }.state;
        if State(word.load(Ordering::Relaxed)).flags().contains(Events::EXCLUSIVE) {
            return Err(Error::Invalid);
        }
        step!(modify_before_state);
        let in_ring = self.set.change_interest(watch, asked(event.events), event.data);
        step!(modified);
        // In the ring it is marked as it is on the list, so the sets around this one hear nothing of it. But a taker may have gone past it
        // meanwhile, so somebody has to look.
        if in_ring {
            self.set.plan_by(&mut self.scan, watch, SetCore::earliest);
        }
        self.in_ring |= in_ring;
        self.newly_ready |= !in_ring && self.set.queue_if_ready(&mut self.scan, watch);
        Ok(())
    }

    /// [`modify`](Self::modify) by a hand, which gives back the event it has of the watch.
    pub(crate) fn modify_from(
        &mut self,
        hand: &HandCore,
        fd: i32,
        source: *const (),
        event: Event,
    ) -> Result<(), Error> {
        let watch = self.scan.find(hash(fd, source), fd, source).ok_or(Error::NotWatched)?;
        self.modify(fd, source, event)?;
        // SAFETY: we hold the scan lock.
        unsafe { hand.give_back(Known::of(watch)) };
        Ok(())
    }

    /// Removes a watch and says in whose hands an event of it is, `but` not asked.
    pub(crate) fn remove_telling(&mut self, fd: i32, source: *const (), but: Option<&HandCore>) -> Result<Kept, Error> {
        let watch = self.scan.find(hash(fd, source), fd, source).ok_or(Error::NotWatched)?;
        // SAFETY: on the interest list of this set, whose lock we hold.
        let state = State(unsafe { shared(watch) }.state.load(Ordering::SeqCst));
        let known = Known::of(watch);
        let kept = if self.scan.hands.holder(known, but).is_some() {
            Kept::InHand(known)
        } else if !self.scan.strangers {
            Kept::Nowhere
        } else if state.has_been_unbounded() && !mutant!("tell_without_history") {
            Kept::Unknown
        } else if state.is_disarmed() {
            Kept::Disarmed
        } else {
            Kept::Nowhere
        };
        self.set.forget(&mut self.scan, watch);
        self.quiet.0 = self.set.ring();
        Ok(kept)
    }

    /// As [`SetCore::remove`].
    pub(crate) fn remove(&mut self, fd: i32, source: *const ()) -> Result<(), Error> {
        let watch = self.scan.find(hash(fd, source), fd, source).ok_or(Error::NotWatched)?;
        self.set.forget(&mut self.scan, watch);
        self.quiet.0 = self.set.ring();
        Ok(())
    }

    /// Unlocks, and tells a waiter and the outer sets if something was made ready.
    pub(crate) fn end(self) {
        let Self { set, scan, quiet, newly_ready, in_ring } = self;
        let earlier = set.publish_deadline(&scan);
        drop(scan);
        drop(quiet);
        step!(change_unlocked);
        if earlier && !newly_ready {
            set.mind_deadline();
            set.wake_outer();
        }
        if (newly_ready || in_ring) && !mutant!("changes_kick_nobody") {
            // One for all: a waiter that leaves something over wakes the next.
            set.sleepers.kick();
            step!(change_kicked);
            if newly_ready {
                set.wake_outer();
            }
        }
    }
}

impl Scan {
    fn find(&self, key: u64, fd: i32, source: *const ()) -> Option<*mut Watch> {
        let is_it = |watch: &*mut Watch| {
            // SAFETY: on the interest list of the set whose lock the caller holds.
            let fields = unsafe { guarded(*watch) };
            fields.fd == fd && ptr::addr_eq(fields.source, source)
        };
        self.interest.find(key, is_it).copied()
    }

    fn take_free(&mut self, pool: &Pool<Watch>) -> Result<*mut Watch, Error> {
        if self.free.is_null() {
            // A small set should not hold memory it does not use, a large one should not come back often.
            self.free = pool.take(self.interest.len().clamp(1, 64))?;
        }
        let watch = self.free;
        // SAFETY: free watches are the set's own.
        self.free = unsafe { shared(watch) }.next.load(Ordering::Relaxed);
        Ok(watch)
    }

    /// The first and last of the free watches.
    fn free_chain(&self) -> Option<(*mut Watch, *mut Watch)> {
        let first = self.free;
        if first.is_null() {
            return None;
        }
        let mut last = first;
        loop {
            // SAFETY: free watches are the set's own.
            let next = unsafe { shared(last) }.next.load(Ordering::Relaxed);
            if next.is_null() {
                return Some((first, last));
            }
            last = next;
        }
    }
}

/// What became of an attempt to turn `QUEUED` on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    /// It is on, and the watch is ours to put on the pending queue.
    Ours,
    /// It was on, and the watch is on the list.
    Listed,
    /// It was on; the waker that did it has not finished, and may never.
    InHand,
}

/// Turns `QUEUED` on, for the holder of the scan lock.
fn mark_queued(word: &crate::sync::AtomicU64) -> Mark {
    let mut state = State(word.load(Ordering::Relaxed));
    while !state.is_queued() {
        // Listed from the start: it will be when the lock is free.
        step!(remark_before);
        match word.compare_exchange(state.0, state.queued().listed().0, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => return Mark::Ours,
            Err(now) => state = State(now),
        }
    }
    if state.is_listed() || mutant!("in_hand_is_listed") { Mark::Listed } else { Mark::InHand }
}

/// Applies `change` to a state word whose `QUEUED` bit wakers may turn on meanwhile; the new state.
fn change_state(word: &crate::sync::AtomicU64, change: impl Fn(State) -> State) -> State {
    let mut state = State(word.load(Ordering::Relaxed));
    loop {
        let changed = change(state);
        match word.compare_exchange(state.0, changed.0, Ordering::SeqCst, Ordering::Relaxed) {
            Ok(_) => return changed,
            Err(now) => state = State(now),
        }
    }
}

/// A watch on its way out of its set.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Leaving {
    /// The owner of the set.
    pub owner: usize,
    /// The descriptor half of the key.
    pub fd: i32,
    /// What it asks for; no readiness bit when it is disarmed.
    pub interest: Events,
    /// The caller's 64 bits.
    pub data: u64,
    /// It is on the ready list: an edge has not been reported yet.
    pub pending: bool,
}

/// Removes the watch a wait queue's handle leads to, if it is still that watch: the close of a source. `last_look` sees it
/// before, with the scan lock of its set held.
///
/// # Safety
/// The handle comes from a wait queue, so its watch is type-stable memory of an engine that is alive.
pub(crate) unsafe fn remove_watch(handle: Handle, mut last_look: impl FnMut(Leaving)) {
    // SAFETY: by the caller.
    let watch = unsafe { shared(handle.watch()) };
    let set = watch.set.load(Ordering::Acquire);
    if set.is_null() {
        return;
    }
    // SAFETY: sets are type-stable as well.
    let set = unsafe { &*set };
    let mut scan = set.scan.lock();
    // What time has made ready is on its way to be told: an edge that would be lost with the watch.
    set.queue_due(&mut scan);
    let state = State(watch.state.load(Ordering::SeqCst));
    // Checked under the lock: another life, another set, or removed already.
    let same_life = state.generation() == handle.generation() && !state.is_dead();
    if (same_life || mutant!("close_without_look")) && ptr::eq(watch.set.load(Ordering::Relaxed), set) {
        // SAFETY: it is this set's watch and we hold the lock.
        let (fd, source, data) = unsafe {
            let fields = guarded(handle.watch());
            (fields.fd, fields.source, fields.data)
        };
        let there = scan.find(hash(fd, source.cast()), fd, source.cast()) == Some(handle.watch());
        if there || mutant!("close_without_look") {
            last_look(Leaving {
                owner: set.owner.load(Ordering::Acquire),
                fd,
                interest: state.interest(),
                data,
                pending: state.is_queued(),
            });
            set.forget(&mut scan, handle.watch());
            set.end_removal(scan);
        }
    }
}
