//! Plans: which watches have to be looked at when, because time makes them ready. Those of timers, and of sets in which there are
//! timers.
//!
//! | who | does |
//! |---|---|
//! | a change of a timer, to earlier than planned | pushes the watch, as any wake; kicks a waiter if that is earlier than the set's deadline |
//! | the holder of the scan lock, where a watch comes from the incoming list, is added or changed, or is dropped | plans it: reads the timer, and puts the watch into the heap |
//! | the same, first of all | takes the plans whose time has come out of the heap, and queues those watches |
//! | the same, at the end | publishes the earliest plan as the set's deadline |
//! | a waiter | sleeps until then, unless another does: one *leads* |
//!
//! **The leader.** `led_until` says how long some waiter sleeps. Who is about to sleep and finds a deadline earlier than that takes over: it
//! writes its own. Who wakes takes its own value out again; who leaves the set, or publishes an earlier deadline, kicks
//! another waiter if nobody leads until then. Waiters count themselves in before they look at both words, and all others write before
//! they look at the count, so one sees the other.

use super::{Mark, Scan, SetCore, guarded, mark_queued, shared};
use crate::error::Error;
use crate::events::Events;
use crate::state::State;
use crate::sync::{Ordering, Slept};
use crate::time::Deadline;
use crate::timer::NEVER;
use crate::watch::Watch;
use alloc::vec::Vec;
use core::cell::Cell;
use hashbrown::HashTable;

/// In place of a heap position: not planned.
const NOWHERE: u32 = u32::MAX;
/// Children of a heap entry: fewer levels than two, and what is compared lies side by side.
const ARITY: usize = 4;

/// The plans of one set: a heap by time, and where in it each watch is. Memory for a watch is taken when it is added.
#[derive(Debug)]
pub(super) struct Plans {
    heap: Vec<Plan>,
    nodes: Vec<Node>,
    /// Nodes by watch.
    index: HashTable<u32>,
    /// The first free node, `NOWHERE` for none; the next is in its `place`.
    free: u32,
}

#[derive(Clone, Copy, Debug)]
struct Plan {
    at: u64,
    node: u32,
}

#[derive(Debug)]
struct Node {
    watch: *mut Watch,
    /// Its index in the heap.
    place: u32,
}

fn hash(watch: *mut Watch) -> u64 {
    let mixed = (watch.addr() as u64 >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 32)
}

impl Plans {
    pub(super) const fn new() -> Self {
        Self { heap: Vec::new(), nodes: Vec::new(), index: HashTable::new(), free: NOWHERE }
    }

    /// Makes room for a watch.
    pub(super) fn insert(&mut self, watch: *mut Watch) -> Result<(), Error> {
        let rehash = |node: &u32| hash(self.nodes[*node as usize].watch);
        self.index.try_reserve(1, rehash).map_err(|_| Error::NoMemory)?;
        let all = self.index.len() + 1;
        self.heap.try_reserve(all - self.heap.len()).map_err(|_| Error::NoMemory)?;
        let node = match self.free {
            NOWHERE => {
                self.nodes.try_reserve(1).map_err(|_| Error::NoMemory)?;
                self.nodes.push(Node { watch, place: NOWHERE });
                (self.nodes.len() - 1) as u32
            }
            node => {
                let place = &mut self.nodes[node as usize];
                self.free = core::mem::replace(place, Node { watch, place: NOWHERE }).place;
                node
            }
        };
        self.index.insert_unique(hash(watch), node, |node| hash(self.nodes[*node as usize].watch));
        Ok(())
    }

    /// Forgets a watch.
    pub(super) fn remove(&mut self, watch: *mut Watch) {
        if self.index.is_empty() {
            return;
        }
        let nodes = &self.nodes;
        let Ok(entry) = self.index.find_entry(hash(watch), |node| nodes[*node as usize].watch == watch) else { return };
        let (node, _) = entry.remove();
        self.set(node, NEVER);
        self.nodes[node as usize] = Node { watch: core::ptr::null_mut(), place: self.free };
        self.free = node;
    }

    fn find(&self, watch: *mut Watch) -> Option<u32> {
        if self.index.is_empty() {
            return None;
        }
        self.index.find(hash(watch), |node| self.nodes[*node as usize].watch == watch).copied()
    }

    /// Whether there is room for it.
    pub(super) fn has(&self, watch: *mut Watch) -> bool {
        self.find(watch).is_some()
    }

    /// The earliest plan.
    pub(super) fn first(&self) -> u64 {
        self.heap.first().map_or(NEVER, |plan| plan.at)
    }

    /// Takes out a watch whose time has come.
    fn take_due(&mut self, now: u64) -> Option<*mut Watch> {
        let Plan { at, node } = *self.heap.first()?;
        if at > now {
            return None;
        }
        self.set(node, NEVER);
        Some(self.nodes[node as usize].watch)
    }

    /// Plans a node for `at`, `NEVER` for not at all.
    fn set(&mut self, node: u32, at: u64) {
        let plan = Plan { at, node };
        let place = match self.nodes[node as usize].place {
            NOWHERE if at == NEVER => return,
            NOWHERE => {
                // Room for every node has been made.
                self.heap.push(plan);
                self.heap.len() - 1
            }
            place if at == NEVER => {
                self.nodes[node as usize].place = NOWHERE;
                let Some(last) = self.heap.pop().filter(|last| last.node != node) else { return };
                self.heap[place as usize] = last;
                place as usize
            }
            place => {
                self.heap[place as usize] = plan;
                place as usize
            }
        };
        let place = self.up(place);
        self.down(place);
    }

    /// Moves an entry towards the root while it is earlier than its parent; where it comes to lie.
    fn up(&mut self, mut place: usize) -> usize {
        let plan = self.heap[place];
        while let Some(parent) = place.checked_sub(1).map(|below| below / ARITY) {
            if self.heap[parent].at <= plan.at {
                break;
            }
            self.put(place, self.heap[parent]);
            place = parent;
        }
        self.put(place, plan);
        place
    }

    fn down(&mut self, mut place: usize) {
        let plan = self.heap[place];
        loop {
            let first = place * ARITY + 1;
            let children = first..(first + ARITY).min(self.heap.len());
            let Some(child) = children.min_by_key(|child| self.heap[*child].at) else { break };
            if self.heap[child].at >= plan.at {
                break;
            }
            self.put(place, self.heap[child]);
            place = child;
        }
        self.put(place, plan);
    }

    fn put(&mut self, place: usize, plan: Plan) {
        self.heap[place] = plan;
        self.nodes[plan.node as usize].place = place as u32;
    }
}

impl SetCore {
    /// Whether the time of a plan has come.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        let at = self.deadline.load(Ordering::SeqCst);
        at != NEVER && at <= Deadline::now().as_nanos()
    }

    /// The earliest plan there was when the scan lock was last free.
    #[inline]
    pub(crate) fn deadline(&self) -> u64 {
        self.deadline.load(Ordering::SeqCst)
    }

    /// Plans a watch anew, by what its source says.
    pub(super) fn plan(&self, scan: &mut Scan, watch: *mut Watch) {
        self.plan_by(scan, watch, SetCore::deadline);
    }

    /// [`plan`](Self::plan), where a set has to be asked `of_set`.
    pub(super) fn plan_by(&self, scan: &mut Scan, watch: *mut Watch, of_set: impl FnOnce(&SetCore) -> u64) {
        let Some(node) = scan.plans.find(watch) else { return };
        // SAFETY: on the interest list of this set, whose lock we hold; a source removes its watches before it goes.
        let (source, state) = unsafe { (&*guarded(watch).source, State(shared(watch).state.load(Ordering::SeqCst))) };
        let asked = Events::from_bits_retain(state.mask());
        let at = match (source.as_timer(), source.as_set()) {
            (Some(timer), _) if asked.contains(Events::IN) => {
                let at = timer.plan();
                // SAFETY: as above.
                let pending = at != NEVER && unsafe { scan.pending.contains(watch) };
                if pending && at <= Deadline::now().as_nanos() {
                    // It is on its way already. Planned too, it would be one more edge for a set around this one.
                    timer.drop_plan();
                    NEVER
                } else {
                    at
                }
            }
            (Some(timer), _) => {
                // Nothing that time could make ready. A change of the interest plans again.
                timer.drop_plan();
                NEVER
            }
            (_, Some(set)) if asked.intersects(Events::IN | Events::RDNORM) => of_set(set),
            _ => NEVER,
        };
        scan.plans.set(node, at);
    }

    /// Queues the watches whose time has come; whether a waker has one of them in its hands.
    pub(super) fn queue_due(&self, scan: &mut Scan) -> bool {
        if scan.plans.first() == NEVER {
            return false;
        }
        let now = Deadline::now().as_nanos();
        if scan.plans.first() > now {
            return false;
        }
        let mut in_hand = false;
        // Before the marks, as in `queue_if_ready`.
        self.pending_hint.fetch_add(1, Ordering::SeqCst);
        while let Some(watch) = scan.plans.take_due(now) {
            // SAFETY: as above.
            let (source, word) = unsafe { (&*guarded(watch).source, &shared(watch).state) };
            match (source.as_timer(), source.as_set()) {
                (Some(timer), _) => timer.drop_plan(),
                // There may be more to come in it, however long it stays ready. Later than `now`: what is due in there it takes out.
                (_, Some(_)) => self.plan_by(scan, watch, SetCore::earliest),
                _ => {}
            }
            if State(word.load(Ordering::SeqCst)).mask() == 0 {
                continue;
            }
            match mark_queued(word) {
                // SAFETY: as above; QUEUED is on, and ours.
                Mark::Ours => unsafe { scan.pending.push_back(watch) },
                Mark::Listed => {}
                Mark::InHand => in_hand = true,
            }
        }
        in_hand
    }

    /// Plans every watch that is queued and whose timer was set meanwhile: the harvest that will get to it may be far away, and a set
    /// around this one wants to know. O(queue), and only where sets are nested.
    pub(super) fn plan_queued(&self, scan: &mut Scan) {
        if self.set_again.load(Ordering::SeqCst) == 0 || self.set_again.swap(0, Ordering::SeqCst) == 0 {
            return;
        }
        let mut watch = scan.pending.head;
        while !watch.is_null() {
            self.plan_by(scan, watch, SetCore::earliest);
            // SAFETY: pending in this set, whose lock we hold.
            watch = unsafe { shared(watch) }.next.load(Ordering::Relaxed);
        }
    }

    /// The earliest plan there is, for a set around this one.
    pub(super) fn earliest(&self) -> u64 {
        if self.timed.load(Ordering::SeqCst) == 0 {
            return NEVER;
        }
        let (mut scan, attention) = self.begin_scan();
        self.plan_queued(&mut scan);
        let at = scan.plans.first();
        self.end_scan(scan, attention);
        at
    }

    /// Says until when the waiters may sleep, before the scan lock is free; whether that is earlier than it was.
    pub(super) fn publish_deadline(&self, scan: &Scan) -> bool {
        let (at, before) = (scan.plans.first(), self.deadline.load(Ordering::Relaxed));
        if at != before {
            // A read-modify-write, for the check of the sleepers behind it.
            self.deadline.swap(at, Ordering::SeqCst);
        }
        at < before
    }

    /// Wakes a waiter to sleep until the deadline, if none does.
    pub(crate) fn mind_deadline(&self) {
        if mutant!("nobody_takes_over") {
            return;
        }
        if self.deadline.load(Ordering::SeqCst) < self.led_until.load(Ordering::SeqCst) {
            self.sleepers.kick();
        }
    }

    /// For a waiter that is counted in and about to sleep: until when it leads, if nobody else does.
    pub(crate) fn lead(&self) -> Option<u64> {
        let at = self.deadline.load(Ordering::SeqCst);
        if at == NEVER {
            return None;
        }
        let mut until = self.led_until.load(Ordering::SeqCst);
        // A leader whose time is over has been stopped before it could say so.
        while at < until && !(mutant!("first_leads") && until != NEVER) || until <= Deadline::now().as_nanos() {
            match self.led_until.compare_exchange(until, at, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return Some(at),
                Err(now) => until = now,
            }
        }
        None
    }

    /// It no longer sleeps.
    pub(crate) fn stop_leading(&self, led: Option<u64>) {
        if let Some(at) = led {
            // Unless another has taken over meanwhile.
            let _ = self.led_until.compare_exchange(at, NEVER, Ordering::SeqCst, Ordering::SeqCst);
        }
    }

    /// Sleeps until kicked, at most until `deadline`, unless `ready()`; and no longer than the set's own deadline if nobody else minds that.
    pub(crate) fn sleep_unless(&self, ready: impl FnOnce() -> bool, deadline: Option<Deadline>) -> Slept {
        self.sleep_with(deadline, |until| self.sleepers.sleep_unless(ready, until))
    }

    /// The same with a sleep of the caller's, until what it is given says when it is about to begin.
    pub(crate) fn sleep_with(
        &self,
        deadline: Option<Deadline>,
        sleep: impl FnOnce(&dyn Fn() -> Option<Deadline>) -> Slept,
    ) -> Slept {
        let led = Cell::new(None);
        let slept = sleep(&|| {
            led.set(self.lead());
            match (deadline, led.get().map(Deadline::from_nanos)) {
                (Some(deadline), Some(own)) => Some(deadline.min(own)),
                (deadline, own) => deadline.or(own),
            }
        });
        self.stop_leading(led.get());
        match slept {
            // The set's time, not the caller's.
            Slept::TimedOut if deadline.is_none_or(|deadline| Deadline::now() < deadline) => Slept::Woken,
            slept => slept,
        }
    }
}

/// A waiter that is about to leave: another one minds the deadline then.
pub(crate) struct Minding<'a>(pub(crate) &'a SetCore);

impl Drop for Minding<'_> {
    fn drop(&mut self) {
        self.0.mind_deadline();
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use core::ptr;

    /// Against a list that is searched: random plans, changes of plans, removals.
    #[test]
    fn the_heap_gives_what_is_due_in_order() {
        let mut plans = Plans::new();
        let mut expected: Vec<(usize, u64)> = Vec::new();
        let watch = |n: usize| ptr::without_provenance_mut::<Watch>((n + 1) * 64);
        let mut random = 1_u64;
        let mut next = |most: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % most
        };
        for round in 0..20_000 {
            let n = next(100) as usize;
            let there = expected.iter().position(|(other, _)| *other == n);
            match (there, next(4)) {
                (None, _) => {
                    plans.insert(watch(n)).unwrap();
                    expected.push((n, NEVER));
                }
                (Some(i), 0) => {
                    plans.remove(watch(n));
                    expected.swap_remove(i);
                }
                (Some(i), _) => {
                    let at = if next(8) == 0 { NEVER } else { round + next(50) };
                    let node = plans.find(watch(n)).unwrap();
                    plans.set(node, at);
                    expected[i].1 = at;
                }
            }
            let first = expected.iter().map(|(_, at)| *at).min().unwrap_or(NEVER);
            assert_eq!(plans.first(), first);
            if first < round {
                let due = plans.take_due(round).unwrap();
                let i = expected.iter().position(|(n, at)| watch(*n) == due && *at == first).unwrap();
                expected[i].1 = NEVER;
            } else {
                assert!(first == round || plans.take_due(round).is_none());
            }
            let planned = expected.iter().filter(|(_, at)| *at != NEVER).count();
            assert_eq!((plans.heap.len(), plans.index.len()), (planned, expected.len()));
        }
    }
}
