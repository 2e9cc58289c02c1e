//! One batch of objects that migrate together. The [module above](super) has the order of the
//! steps.

use crate::migrate::stale;
use crate::stats::count::{count, count_migration};
use crate::stats::{Migration, NAMES, Stat, area};
use crate::sys::signal_guard::Masked;
use crate::sys::steps::{step, step_lock, step_waited};
use crate::sys::{self, complaint};
use crate::table::gate;
use crate::table::lifecycle::{self, Participant, Rank};
use crate::table::migrating::Migrating;
use crate::table::object::{Host, Object};
use crate::table::slot::end_use_guarded;
use crate::table::{self, Entry, Slot, SlotHead, away, duplicates, left};
use core::ffi::c_int;
use core::sync::atomic::{AtomicUsize, Ordering};
use wakeset::{WaitQueue, mutated, probe};

/// The kinds of sources, in the order in which they migrate. Timers are last: one that has migrated
/// may have an edge to report at any time, and none is taken out from then on.
const KINDS: [usize; 3] = [table::COUNTER, table::PIPE, table::TIMER];

/// Migrates the objects that these numbers stand for, and what has to migrate with them. The caller
/// holds the migrations lock.
pub(super) fn migrate(numbers: &mut dyn Iterator<Item = c_int>, reason: Stat) {
    run(&mut numbers.filter_map(object_of), reason, None);
}

/// [`migrate`] of an object, by whatever number.
pub(super) fn migrate_object(head: &'static SlotHead, reason: Stat) {
    run(&mut core::iter::once(head), reason, None);
}

/// The object that a number stands for.
fn object_of(fd: c_int) -> Option<&'static SlotHead> {
    match table::get(fd) {
        Entry::Object(head) => Some(head),
        Entry::Kernel | Entry::Doorbell => None,
    }
}

/// Migrates the object that a number stands for which is about to be closed, or to become another
/// file's. Those that sleep in the object go on with its file.
pub(super) fn migrate_closing(fd: c_int, reason: Stat) {
    run(&mut object_of(fd).into_iter(), reason, Some(fd));
}

/// [`migrate_closing`] of an end of a pair of which no set has ever watched an end: what a batch of
/// the two does, without its lists, and without calls by address. Most pairs are closed like this.
/// Whether it was done.
pub(super) fn close_unwatched<S: Slot>(fd: c_int, end: &'static S, reason: Stat) -> bool {
    if !table::stands_for(fd, end.head()) {
        return false;
    }
    let Some(other) = end.companion().and_then(SlotHead::downcast::<S>) else { return false };
    if !table::stands_for(other.head().fd(), other.head()) {
        return false;
    }
    // Those that a set watches are refused further ones too early, and migrate now.
    let ends = [end, other];
    if ends.map(|end| end.wait_queue().refuse_watches()) != [false; 2] {
        return false;
    }
    let _masked = Masked::begin();
    ends.iter().for_each(|end| end.head().links.begin());
    let carries = end.seal();
    step!(move_sealed);
    if carries {
        carry(end, true);
        step!(move_watches_handed);
        end.settle();
        note(end.head(), reason);
    }
    ends.into_iter().for_each(leave_table);
    true
}

fn run(objects: &mut dyn Iterator<Item = &'static SlotHead>, reason: Stat, closing: Option<c_int>) {
    let _masked = Masked::begin();
    let mut batch = Batch {
        reason,
        closing,
        sources: [const { Migrating::none() }; KINDS.len()],
        sets: Migrating::none(),
        fixed: Migrating::none(),
        touched: Touched::none(),
    };
    for head in objects {
        batch.begin_object(head);
    }
    step!(move_begun);
    loop {
        batch.begin_watched();
        batch.migrate_sources();
        batch.detach_emptied_sets();
        batch.export_fixed_sets();
        batch.begin_around();
        if batch.has_sources() {
            continue;
        }
        if batch.is_over() {
            break;
        }
        // A close under way has taken its watches from the table's sight, and not yet from the
        // set's.
        step_lock!(Waiting, &table::CLOSES);
        sys::sched_yield();
    }
    step_waited!();
    step!(move_counters_gone);
    batch.arrive();
    settle_sets();
}

/// What migrates together.
struct Batch {
    reason: Stat,
    /// The number that is about to be closed.
    closing: Option<c_int>,
    /// By [`KINDS`].
    sources: [Migrating; KINDS.len()],
    sets: Migrating,
    /// The sets among them that stay.
    fixed: Migrating,
    /// The sets whose kernel half has been changed since this was last looked at.
    touched: Touched,
}

/// The set in a slot of one of the lists of sets.
fn host(head: &'static SlotHead) -> Option<&'static dyn Host> {
    head.object().as_host()
}

impl Batch {
    /// Begins the migration of an object, once.
    fn begin_object(&mut self, head: &'static SlotHead) {
        let object = head.object();
        if let Some(set) = object.as_host() {
            self.begin_set(head, set);
            return;
        }
        let kind = KINDS.iter().position(|kind| *kind == head.kind());
        let Some(list) = kind.and_then(|kind| self.sources.get_mut(kind)) else { return };
        // Both ends of a pair, or neither.
        if list.begin(head)
            && let Some(other) = object.companion()
        {
            list.begin(other);
        }
    }

    /// Marks a set as going into the kernel, once; one that stays goes onto a list of its own.
    fn begin_set(&mut self, head: &'static SlotHead, set: &'static dyn Host) {
        if set.is_fixed() {
            self.fixed.begin(head);
        } else if !set.is_in_kernel() && self.sets.begin(head) {
            stale::mark_if_lost(head, set.file_type());
            // Additions to this set wait for us from here on.
            set.begin_migration();
        }
    }

    /// What the sets watch migrates too; it may be watched by several.
    fn begin_watched(&mut self) {
        let mut next = self.sets.first();
        while let Some(head) = next {
            if let Some(set) = host(head) {
                set.each_watched(&mut |source| self.begin_object(source));
            }
            next = Migrating::after(head);
        }
    }

    fn has_sources(&self) -> bool {
        self.sources.iter().any(|list| list.first().is_some())
    }

    /// Migrates the sources that have been begun.
    fn migrate_sources(&mut self) {
        for list in &mut self.sources {
            let sources = core::mem::replace(list, Migrating::none());
            if sources.first().is_some() {
                migrate_sources(&sources, self.reason, self.closing, &mut self.touched);
            }
        }
    }

    /// Inner sets before the sets around them: begun in the other order.
    fn detach_emptied_sets(&mut self) {
        for head in self.sets.rev() {
            let Some(set) = host(head).filter(|set| set.is_empty()) else { continue };
            head.links.set_watched(head.links.watched() || set.wait_queue().has_watches());
            if head.is_lost() {
                set.wait_queue().close();
            } else {
                set.wait_queue()
                    .detach_watches(|watch| self.touched.take_over(&watch, head, false));
            }
        }
    }

    /// A set that stays is watched from the kernel from now on, by its number, for which nobody
    /// minds the time: timers do not stay.
    fn export_fixed_sets(&mut self) {
        let reason = self.reason;
        let exports = self.fixed.iter().filter_map(host).any(|set| is_to_be_exported(set, reason));
        if exports && gate::leave_timers_to_kernel() {
            let is_timer = |head: &&SlotHead| head.kind() == table::TIMER;
            let timers = table::numbers().filter_map(object_of).filter(is_timer);
            timers.for_each(|head| self.begin_object(head));
        }
        for head in self.fixed.iter() {
            if let Some(set) = host(head).filter(|set| is_to_be_exported(*set, reason)) {
                export(head, set, &mut self.touched);
            }
        }
    }

    /// A set that has got a kernel half while another watches it migrates as well.
    fn begin_around(&mut self) {
        while let Some(head) = self.touched.pop() {
            if let Some(set) = host(head) {
                set.note_taken_over();
                if set.wait_queue().has_watches() {
                    self.begin_set(head, set);
                }
            }
        }
    }

    /// Whether nothing is left here. An addition that had begun before its set was marked may have
    /// come in between; and a closing thread may be at work.
    fn is_over(&self) -> bool {
        let unwatched = |set: &dyn Host| !set.wait_queue().has_watches();
        let gone = self.sets.iter().filter_map(host).all(|set| set.is_empty() && unwatched(set));
        gone && self.fixed.iter().filter_map(host).all(unwatched)
    }

    /// The sets are kernel epolls from now on.
    fn arrive(&self) {
        for head in self.sets.iter() {
            if let Some(set) = host(head) {
                set.arrive();
                note(head, self.reason);
                leave_table(head.object());
                step!(set_gone);
            }
        }
    }
}

/// Migrates sources of one kind: the steps of [`Object`], each for all of them before the next.
fn migrate_sources(
    sources: &Migrating,
    reason: Stat,
    closing: Option<c_int>,
    touched: &mut Touched,
) {
    let mut watched = false;
    for head in sources.iter() {
        head.links.set_watched(head.object().wait_queue().refuse_watches());
    }
    for head in sources.iter() {
        let object = head.object();
        head.links.set_carries(object.seal());
        // There come no more.
        if head.links.watched() && object.wait_queue().has_watches() {
            stale::mark_if_lost(head, object.file_type());
            watched |= !is_gone(object);
        }
    }
    step!(move_sealed);
    // Before any thread is woken: one that sleeps now is not between a source and its watches.
    let quiet = watched && sys::others_sleep();
    for head in sources.iter().filter(|head| head.links.carries()) {
        carry(head.object(), closing == Some(head.fd()));
    }
    for round in ROUNDS {
        for head in sources.iter().filter(|head| head.links.watched()) {
            round.detach_watches(head, quiet, touched);
        }
    }
    step!(move_watches_handed);
    for head in sources.iter() {
        if head.links.carries() {
            head.object().settle();
            note(head, reason);
        }
        note_numbers(head, reason);
        leave_table(head.object());
    }
}

/// Has writes to the numbers of a source counted as the kernel's from now on; of a pair to those of
/// the end that carries nothing, too.
fn note_numbers(head: &SlotHead, reason: Stat) {
    let is_written = matches!(head.kind(), table::COUNTER | table::PIPE);
    if is_written && !head.is_lost() && Stat::MOVED.contains(&(reason as usize)) {
        duplicates::names(head).for_each(left::note);
    }
}

/// Counts an object that is in the kernel now, or was closed on its way, and tells tracers.
fn note(head: &SlotHead, reason: Stat) {
    let name = NAMES.get(reason as usize).copied().unwrap_or_default();
    let fd = duplicates::number_of(head);
    probe!(migrate, i32 fd, u64 name.as_ptr().addr(), u64 name.len());
    if !Stat::MOVED.contains(&(reason as usize)) {
        return count(reason, 1);
    }
    let kind = match head.kind() {
        table::COUNTER => 0,
        table::TIMER => 1,
        table::SET => 2,
        _ => 3,
    };
    count_migration(|| {
        Migration::new(area::now(), fd as u32, kind, reason, super::call_under_way())
    });
}

/// Gives the state of a sealed object to the kernel. Where its number is about to be closed, those
/// that it wakes go on with the file.
fn carry<O: Object + ?Sized>(object: &'static O, closing: bool) {
    let head = object.head();
    // A sleeper that is not counted yet finds the words sealed, and does not sleep.
    let kept = object.kept().filter(|_| closing && head.has_sleepers());
    if let Some(kept) = kept
        && !mutated!("sleepers_lose_the_file")
    {
        kept.keep(head.fd());
    }
    let woken = object.carry();
    // Those counted have left by a jump out of a handler.
    if let Some(kept) = kept
        && woken == 0
    {
        kept.let_go();
    }
}

/// Whose watches are detached: of sources with an edge that has not been reported (or without one),
/// or of any.
#[derive(Clone, Copy)]
struct Round(Option<bool>);

/// Sources whose edges are all reported go first: the kernel's report of such an edge can be taken
/// out again only while no other edge is there. The last round is for a watch that became pending
/// between the first two.
const ROUNDS: [Round; 3] = [Round(Some(false)), Round(Some(true)), Round(None)];

/// Whether the number has been closed, or is about to be.
fn is_gone(object: &dyn Object) -> bool {
    object.is_closing() || object.head().is_lost()
}

impl Round {
    fn detach_watches(self, head: &'static SlotHead, quiet: bool, touched: &mut Touched) {
        let object = head.object();
        let queue: &WaitQueue = object.wait_queue();
        if is_gone(object) {
            // Its watches go with it.
            queue.close();
        } else if self.0.is_none_or(|pending| pending == queue.has_pending_edge()) {
            queue.detach_watches(|mut watch| {
                watch.pending = object.may_report(&watch);
                touched.take_over(&watch, head, quiet);
            });
        }
    }
}

/// From now on the number stands for the kernel object.
fn leave_table<O: Object + ?Sized>(object: &'static O) {
    let head = object.head();
    if head.has_several() {
        for _ in 0..duplicates::leave_all(head) {
            end_use_guarded(object);
        }
    } else if away::leave(head) || table::vacate(head.fd(), head) {
        end_use_guarded(object);
    }
}

/// For a set that cannot migrate: what watches it does so by its number from now on. A fork needs
/// nothing else; a program that migrates it by name wants to poll it.
fn export(head: &'static SlotHead, set: &'static dyn Host, touched: &mut Touched) {
    let exported = set.export();
    if set.wait_queue().has_watches() {
        if let Err(error) = exported {
            // Those around it hear of its kernel half only.
            complaint::of_watch(head.fd(), head.fd(), error);
        }
        set.wait_queue().detach_watches(|watch| touched.take_over(&watch, head, false));
    }
}

fn is_to_be_exported(set: &dyn Host, reason: Stat) -> bool {
    (set.wait_queue().has_watches() || reason != Stat::MigratedFork) && !set.is_closed()
}

/// The end of a list of sets: no address.
const END: usize = 1;

/// The sets that are unsettled, linked through themselves. The migrations lock guards it.
static UNSETTLED: AtomicUsize = AtomicUsize::new(END);

/// In a forked child the migration that made the list is its parent's.
static LISTS: Participant = Participant {
    rank: Rank::Sets,
    begin_anew: || UNSETTLED.store(END, Ordering::Relaxed),
    renumber: None,
    before_close: None,
};

/// The set that owns a watch, by the engine's owner word: the address of its slot.
fn owner(address: usize) -> &'static SlotHead {
    // SAFETY: only sets of the table own watches, and slots are never freed.
    unsafe { SlotHead::at(address) }
}

/// Marks the sets around this one, and around those.
fn unsettle_around(set: &dyn Host) {
    lifecycle::sign_up(&LISTS);
    let before = UNSETTLED.load(Ordering::Relaxed);
    set.wait_queue().each_owner(|address| {
        let Some(outer) = host(owner(address)) else { return };
        let link = &outer.lists().unsettled;
        if link.load(Ordering::Relaxed) == 0 {
            link.store(UNSETTLED.load(Ordering::Relaxed), Ordering::Relaxed);
            UNSETTLED.store(address, Ordering::Relaxed);
            outer.toggle_unsettled();
        }
    });
    // Those just marked: no queue's lock is held any more.
    let mut next = UNSETTLED.load(Ordering::Relaxed);
    while next != before && !mutated!("sets_around_are_one") {
        let Some(outer) = host(owner(next)) else { return };
        unsettle_around(outer);
        next = outer.lists().unsettled.load(Ordering::Relaxed);
    }
}

/// All that migrated is in the kernel, and so is what is around it.
fn settle_sets() {
    if UNSETTLED.load(Ordering::Relaxed) == END {
        // Not written to, so that its page is not copied at each fork.
        return;
    }
    let mut next = UNSETTLED.swap(END, Ordering::Relaxed);
    while next != END {
        let Some(set) = host(owner(next)) else { return };
        next = set.lists().unsettled.swap(0, Ordering::Relaxed);
        set.toggle_unsettled();
    }
}

/// The sets whose kernel half a migration has changed, each once, linked through themselves.
/// The thread that has this holds the migrations lock.
struct Touched(usize);

impl Touched {
    const fn none() -> Self {
        Self(END)
    }

    /// Puts a watch that leaves user space into the kernel half of its set.
    fn take_over(
        &mut self,
        watch: &wakeset::DetachedWatch,
        source: &'static SlotHead,
        quiet: bool,
    ) {
        let head = owner(watch.owner);
        let Some(set) = host(head) else { return };
        if set.is_closed() || head.is_lost() {
            // A thread still waits in it, and will not hear of this source again.
            return;
        }
        // Before it is in the kernel half, of which those around do not know.
        unsettle_around(set);
        set.take_over(watch, source, quiet);
        self.push(head, set);
    }

    fn push(&mut self, head: &'static SlotHead, set: &dyn Host) {
        let link = &set.lists().touched;
        if link.load(Ordering::Relaxed) == 0 {
            link.store(self.0, Ordering::Relaxed);
            self.0 = head.address();
        }
    }

    fn pop(&mut self) -> Option<&'static SlotHead> {
        let head = (self.0 != END).then(|| owner(self.0))?;
        self.0 = host(head)?.lists().touched.swap(0, Ordering::Relaxed);
        Some(head)
    }
}
