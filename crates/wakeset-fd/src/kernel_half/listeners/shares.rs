//! Which waiter of a listener leaves a connection to another, over all processes that share the
//! hints: one that holds more than another that sleeps *steps back*.
//!
//! A waiter is a thread with a private set, or a set of the program's. Each says in a slot of the
//! shared memory for which listeners it sleeps, since when, and how many connections it holds
//! ([`slots`]). A waiter that is woken for a connection looks for a slot that should have it: of
//! one that sleeps, or that was told of a connection less than [`TOLD`] ago. If there is one, it
//! stops watching the listener, passes the baton ([`baton`](super::baton)) and sleeps on. It looks
//! again after 0.1 ms, and then each time after twice as long, up to [`STEP_LOOK`]:
//!
//! | it comes back when | because |
//! |---|---|
//! | the listener is empty | the connection was taken |
//! | any waiter has accepted | accept(2) gives out the oldest first |
//! | no slot should have the connection any more | there is none to leave it to |
//! | it was back for [`STEP_BACK`] | the one that should have it hangs or is dead: from then on it leaves nothing to those that have not gone to sleep since |
//!
//! Nor does it step back more than [`MOST_STEPS`] times in a row before it has been told of a
//! connection or has seen the listener empty, because the figures of what others took may be wrong
//! too, and the check that each waiter makes once a second takes what it finds. One that has
//! stepped back is still free: another may step back for it. Listeners are named by their notes
//! ([`note_of`](baton::note_of)); where there are very many, some have the same second bit, which
//! costs evenness.
//!
//! In the automatic order a waiter steps back as often as its [`Credit`] allows, and not at all
//! while it holds few and others keep the processors busy ([`rule`]).
//!
//! Event loops wake for timers, and look without a sleep in between. So one that was told of
//! something else is expected back for [`AWAKE`]; one that only looks leaves what belongs to
//! another alone, for [`STEP_BACK`] at most, and does not answer for it, because the kernel has
//! woken one that sleeps, and one that is awake comes back to it; and a wait whose time is up just
//! after it stepped back goes on for [`OUTSTAY`].
//!
//! So no wake is lost, whatever the page says: the waiter that was woken answers for the connection
//! itself. If its wait ends for something else, it declines the connection, and what was declined
//! is for the first that is asked, whatever it holds. What it reads there is compared and nothing
//! else. A slot is worth something for [`FRESH`] after its waiter went to sleep; one that waits
//! tells so once in a rescue period. A process that is killed is forgotten after that, and its slot
//! is another's after [`LEFT`].
//!
//! Nothing here orders memory: a figure that is late costs evenness.

mod credit;
mod rule;
mod slots;

use super::baton::{self, Notes};
use super::held::{self, PROCESS};
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};
use core::time::Duration;
use credit::Credit;
pub(super) use rule::{Least, count_processors, is_few, set_rule};
pub use rule::{counts_held, may_step_back_in_accept};
use rule::{is_better, is_least_first, is_on_credit, minds};
use slots::{SLOT_OF, Slot, taken};
pub(super) use slots::{Slots, note_taken, publish};
use wakeset::{Deadline, mutated, process_id};

/// How long a waiter that has stepped back leaves a connection to those that hold less.
pub const STEP_BACK: Duration = Duration::from_millis(20);
/// How long it leaves one to a waiter that has been told of it, and is about to accept it.
const TOLD: Duration = Duration::from_millis(8);
/// How long it leaves one to a waiter that has been told of something else, and is expected back.
const AWAKE: Duration = Duration::from_millis(2);
/// How long after a step back a wait goes on at most although its time is up.
const OUTSTAY: Duration = Duration::from_millis(1);
/// How often it steps back, at most, before it has been told of a connection or has seen none,
/// whatever others take.
const MOST_STEPS: u32 = 16;
/// How long it sleeps at most in the meantime, before it looks whether the connection is there.
const STEP_LOOK: Duration = Duration::from_millis(2);
/// The first of these sleeps.
const FIRST_LOOK: Duration = Duration::from_micros(100);
/// How long a slot is worth something after its waiter went to sleep.
const FRESH: Duration = Duration::from_millis(1500);
/// When a slot is taken for one that a process has left behind, and its waiter for one that waits
/// for no listener any more.
const LEFT: Duration = Duration::from_secs(10);
/// How often a waiter that spins, and so does not go to sleep, says that it is there.
const SAYS: Duration = Duration::from_secs(1);

/// The process, and how many waiters it has had.
static WAITERS: AtomicU64 = AtomicU64::new(0);

pub(super) fn now() -> u64 {
    Deadline::now().as_nanos()
}

/// Whether a time is not long ago. What others write now may be later than when this one looked at
/// the clock.
fn is_within(time: u64, now: u64, limit: Duration) -> bool {
    u128::from(now.abs_diff(time)) < limit.as_nanos()
}

/// Whether another waiter, which sleeps for the listener with this note or was just woken for it,
/// holds less than `holder`. For a waiter that has accepted one and is about to accept a second.
pub fn another_holds_less(holder: u8, note: Notes) -> bool {
    if note == 0 || !is_least_first() || baton::is_urgent(note) {
        return false;
    }
    let is_alone = WAITERS.load(Relaxed) as u32 <= 1;
    let (mine, now) = (held::count_of(if is_alone { PROCESS } else { holder }), now());
    let may_step = minds(mine, || slots::holding(now));
    let is_better = |slot: &Slot| is_better(slot.held.load(Relaxed), mine, may_step);
    // It does not sleep itself, because it has accepted.
    slots::used().iter().any(|slot| slot.may_take(note, now, mine) && is_better(slot))
}

impl Slot {
    /// Whether its waiter sleeps for one of the listeners with these notes, was told of a
    /// connection a moment ago, or was told of something else and is expected back by one that
    /// holds so much that it waits for it.
    fn may_take(&self, notes: Notes, now: u64, mine: u32) -> bool {
        let is_busy = is_few(mine) || mutated!("awake_are_busy");
        let awake = if is_busy { Duration::ZERO } else { AWAKE };
        let is_recent = |time: &AtomicU64, limit| {
            let time = time.load(Relaxed);
            time == 0 || is_within(time, now, limit)
        };
        self.owner.load(Relaxed) != 0
            && self.sleeps_for_one_of(notes)
            && is_within(self.since.load(Relaxed), now, FRESH)
            && is_recent(&self.told, TOLD)
            && is_recent(&self.awake, awake)
    }
}

/// When a wait ends while its waiter leaves connections on listeners with these notes to others:
/// begins a round of the baton for them. Whether the caller has to pass the baton.
pub fn give_up(notes: Notes) -> bool {
    let gives_up = notes != 0 && !mutated!("left_without_a_word");
    if gives_up {
        baton::begin_round(notes);
    }
    gives_up
}

/// One more waiter in this process; its number, from 1.
fn new_waiter() -> u32 {
    let process = u64::from(process_id()) << 32;
    let next =
        |waiters: u64| Some(if waiters >> 32 << 32 == process { waiters + 1 } else { process + 1 });
    let before = WAITERS.fetch_update(Relaxed, Relaxed, next).unwrap_or_else(|waiters| waiters);
    next(before).unwrap_or(process) as u32
}

/// One waiter's part.
#[derive(Debug)]
pub struct Share {
    /// Its process and its number there; 0 before it has one.
    id: AtomicU64,
    /// The index of its slot.
    slot: AtomicU16,
    /// As who it holds what it accepts, where its process has other waiters.
    holder: AtomicU8,
    /// When it stepped back, and what others had taken by then.
    stepped: AtomicU64,
    taken: AtomicU32,
    /// How often it has stepped back since it was told of a connection or saw none; from
    /// [`MOST_STEPS`] on it takes the next.
    steps: AtomicU32,
    /// When it first left a connection that it saw without a sleep, since it last slept or took
    /// one; 0 if it has not.
    left: AtomicU64,
    /// When it last stepped back in vain.
    distrusts: AtomicU64,
    /// What it may still step back for in the automatic order.
    credit: Credit,
}

impl Share {
    /// Of a waiter that has not waited yet.
    pub const fn new() -> Self {
        Self {
            id: AtomicU64::new(0),
            slot: AtomicU16::new(u16::MAX),
            holder: AtomicU8::new(PROCESS),
            stepped: AtomicU64::new(0),
            taken: AtomicU32::new(0),
            steps: AtomicU32::new(0),
            left: AtomicU64::new(0),
            distrusts: AtomicU64::new(0),
            credit: Credit::new(),
        }
    }

    /// As who this waiter holds what it accepts.
    pub fn holder(&self) -> u8 {
        if self.holder.load(Relaxed) == PROCESS {
            self.holder.store(held::new_holder(), Relaxed);
        }
        self.holder.load(Relaxed)
    }

    fn id(&self) -> u64 {
        let id = self.id.load(Relaxed);
        if id >> 32 == u64::from(process_id()) {
            return id;
        }
        let id = u64::from(process_id()) << 32 | u64::from(new_waiter());
        self.id.store(id, Relaxed);
        id
    }

    /// Whose connections count for it: the only waiter of a process answers for what any of its
    /// threads has accepted.
    pub fn counted_as(&self) -> u8 {
        self.id();
        match WAITERS.load(Relaxed) as u32 {
            0 | 1 => PROCESS,
            _ => self.holder(),
        }
    }

    /// The slot that it used last, if that is still its own.
    fn known_slot(&self) -> Option<&'static Slot> {
        let slot = slots::all().get(usize::from(self.slot.load(Relaxed)))?;
        (slot.owner.load(Relaxed) == self.id.load(Relaxed)).then_some(slot)
    }

    /// Its slot, which is another's if it has not been used for long.
    fn own_slot(&self) -> Option<(u16, &'static Slot)> {
        let id = self.id();
        match self.known_slot() {
            Some(slot) => Some((self.slot.load(Relaxed), slot)),
            None => self.claim_slot(id),
        }
    }

    #[cold]
    fn claim_slot(&self, id: u64) -> Option<(u16, &'static Slot)> {
        let (slots, now) = (slots::all(), now());
        let found = slots.iter().position(|slot| {
            let owner = slot.owner.load(Relaxed);
            (owner == 0 || !is_within(slot.since.load(Relaxed), now, LEFT)) && {
                // First, so that no other takes it for one that was left.
                slot.since.store(now, Relaxed);
                slot.owner.compare_exchange(owner, id, Relaxed, Relaxed).is_ok()
            }
        })?;
        self.slot.store(found as u16, Relaxed);
        Some((found as u16, slots.get(found)?))
    }

    /// It is about to sleep for the listeners with these notes.
    pub fn note_sleep(&self, notes: Notes) {
        if !counts_held() {
            return;
        }
        self.left.store(0, Relaxed);
        let holder = self.counted_as();
        let Some((index, slot)) = self.own_slot() else { return };
        slots::note_used(index);
        if let Some(slot_of) = SLOT_OF.get(usize::from(holder)) {
            slot_of.store(index + 1, Relaxed);
        }
        if let (true, [whole, ..]) = (holder != PROCESS, &SLOT_OF)
            && whole.load(Relaxed) == index + 1
        {
            // It is not the only waiter any more.
            let _ = whole.compare_exchange(index + 1, 0, Relaxed, Relaxed);
        }
        slot.held.store(held::count_of(holder), Relaxed);
        // By the exact time: one that left a connection in vain believes those that slept later.
        slot.since.store(now(), Relaxed);
        slot.told.store(0, Relaxed);
        slot.awake.store(0, Relaxed);
        slot.note_sleep(notes);
    }

    /// It sleeps no more, and was told of a connection or not.
    pub fn note_awake(&self, is_told: bool) {
        if !counts_held() {
            return;
        }
        if is_told {
            self.steps.store(0, Relaxed);
            self.left.store(0, Relaxed);
        }
        if let Some(slot) = self.known_slot() {
            if is_told {
                slot.told.store(now(), Relaxed);
            } else if slot.told.load(Relaxed) == 0 {
                slot.awake.store(now(), Relaxed);
            }
        }
    }

    /// Whether it holds so little that no other could hold less.
    #[inline]
    pub fn is_free(&self) -> bool {
        !counts_held() || held::count_of(self.counted_as()) == 0
    }

    /// For a waiter that is about to spin, or does: whether no other has waited for a listener in
    /// the last ten seconds, as far as slots say. It says in its own that it is there, so that of
    /// two that come to wait neither is alone.
    pub fn is_alone(&self) -> bool {
        if !counts_held() {
            return false;
        }
        let (own, now) = (self.id(), now());
        let is_recent = |slot: &Slot, limit| is_within(slot.since.load(Relaxed), now, limit);
        let is_said = self.known_slot().is_some_and(|slot| is_recent(slot, SAYS));
        if !is_said && !mutated!("spins_without_a_word") {
            self.note_sleep(0);
        }
        let is_another = |slot: &Slot| {
            let owner = slot.owner.load(Relaxed);
            owner != 0 && owner != own && is_recent(slot, LEFT)
        };
        self.known_slot().is_some()
            && (!slots::used().iter().any(is_another) || mutated!("spins_beside_another"))
    }

    /// Whether a connection on one of the listeners with these notes should be another's, which
    /// sleeps.
    pub fn leaves(&self, notes: Notes) -> bool {
        let held = || held::count_of(self.counted_as());
        self.would_leave(notes, !is_on_credit() || self.credit.is_enough(now(), held()))
    }

    /// Whether it leaves such a connection to others where it only looks, and does not answer for
    /// it: for `STEP_BACK` at most, until it sleeps again or takes one.
    pub fn leaves_for_now(&self, notes: Notes) -> bool {
        if !self.leaves(notes) {
            return false;
        }
        let (now, since) = (now(), self.left.load(Relaxed));
        if since == 0 {
            self.left.store(now, Relaxed);
        }
        if since == 0 || is_within(since, now, STEP_BACK) || mutated!("looks_leave_for_good") {
            return true;
        }
        self.left.store(0, Relaxed);
        self.distrusts.store(now, Relaxed);
        self.take_next();
        false
    }

    /// A look has found no connection on any listener.
    pub fn saw_none(&self) {
        if self.left.load(Relaxed) != 0 {
            self.left.store(0, Relaxed);
        }
    }

    fn would_leave(&self, notes: Notes, may_step: bool) -> bool {
        if notes == 0 || self.is_free() || baton::number() < 0 || baton::is_urgent(notes) {
            return false;
        }
        if self.steps.load(Relaxed) >= MOST_STEPS && !mutated!("stepped_back_for_good") {
            return false;
        }
        let (own, now, distrusts) = (self.id(), now(), self.distrusts.load(Relaxed));
        let is_anothers = |mine: u32| {
            let may_step = may_step && minds(mine, || slots::holding(now));
            mine > 0
                && slots::used().iter().any(|slot| {
                    slot.owner.load(Relaxed) != own
                        && slot.since.load(Relaxed) > distrusts
                        && slot.may_take(notes, now, mine)
                        && is_better(slot.held.load(Relaxed), mine, may_step)
                })
        };
        // A close that was not seen makes it too many, and never too few. To find that out takes a
        // system call.
        let holder = self.counted_as();
        is_anothers(held::count_of(holder)) && is_anothers(held::number_held(holder))
    }

    /// It steps back now.
    pub fn note_step(&self) {
        self.steps.fetch_add(1, Relaxed);
        self.stepped.store(now(), Relaxed);
        self.taken.store(taken(), Relaxed);
        self.pay();
    }

    /// It was asked by the baton, and has left the connection to another.
    pub fn pay(&self) {
        if is_on_credit() {
            self.credit.pay(now(), held::count_of(self.counted_as()));
        }
    }

    /// Whether that was less than `OUTSTAY` ago, and the time of a wait was up no earlier.
    pub fn has_just_stepped(&self, late: Duration) -> bool {
        late < OUTSTAY && is_within(self.stepped.load(Relaxed), now(), OUTSTAY)
    }

    /// How long it sleeps before it looks again.
    pub fn until_look(&self) -> Duration {
        let since = now().saturating_sub(self.stepped.load(Relaxed));
        Duration::from_nanos(since).clamp(FIRST_LOOK, STEP_LOOK)
    }

    /// It takes the next connection, whatever others say.
    pub fn take_next(&self) {
        self.steps.store(MOST_STEPS, Relaxed);
    }

    /// Whether it stays back from listeners with these notes; `is_there`: on which there is a
    /// connection.
    pub fn stays_back(&self, notes: Notes, is_there: bool) -> bool {
        if !is_there {
            self.steps.store(0, Relaxed);
        }
        let others_take = taken() != self.taken.load(Relaxed);
        // It has paid already.
        if !is_there || others_take || !self.would_leave(notes, true) {
            return false;
        }
        let (since, now) = (self.stepped.load(Relaxed), now());
        if is_within(since, now, STEP_BACK) || mutated!("stepped_back_for_good") {
            return true;
        }
        self.distrusts.store(now, Relaxed);
        self.take_next();
        false
    }
}

impl Default for Share {
    fn default() -> Self {
        Self::new()
    }
}

/// For tests: in this order, and as if no waiter had said a word yet.
#[cfg(test)]
pub(crate) fn begin_in_silence(choice: super::Choice, most: Option<u32>) {
    super::choose(choice, most);
    baton::make(-1);
    baton::forget_declined();
    slots::all().iter().for_each(|slot| slot.owner.store(0, Relaxed));
}

#[cfg(test)]
mod model;
#[cfg(test)]
pub(super) mod tests;
