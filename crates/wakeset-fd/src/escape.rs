//! Moving objects into the kernel, when something is about to reach them that does not come through us.
//!
//! Objects move in batches (one object, all that a set watches, or everything), in this order, under the moves lock:
//!
//! 1. each object is marked as moving: a close of its number waits until it is done, so the number stays what it is;
//! 2. each counter's wait queue refuses new watches (an add that comes now waits, and then goes to the kernel), and its value is taken
//!    out and the word sealed, in one step: operations wait for step 5;
//! 3. the values are written to the kernel eventfds;
//! 4. each watch moves, under the scan lock of its set, to that set's kernel half: added there, removed here. The add polls, so
//!    what is ready is reported; no moment exists in which neither half has the watch, and none in which a harvest sees both. A
//!    harvest that polls a counter on its way sees the value it carries. A look at the kernel half and then at the other one may
//!    come between the two, so it is repeated if a watch has moved meanwhile;
//! 5. the counters are in the kernel: operations go there from now on, and their numbers stand for kernel objects.
//!
//! A set moves by moving everything it watches. A set that gets a kernel half in this way while another set watches it moves as
//! well, because the watch on it knows its in-process half only. Until that is done the sets around it, and around those, would not hear of what happens
//! in the kernel: they are marked as unsettled before the first such watch moves, and a wait that finds nothing in one of them waits for the move, and
//! looks again.
//!
//! The kernel takes an edge-triggered watch that is added while its counter is not drained for one with an edge to report, also if
//! we have reported it. That report is taken out again where nothing else can go with it: while all other threads sleep (one that
//! runs might just have added to the counter and not reached the watch yet) and the kernel half holds no other edges. Elsewhere
//! the program sees one edge twice, as after `EPOLL_CTL_MOD`. Nothing is lost and no count is doubled.
//!
//! Locks, in the order taken: moves, then one scan lock at a time.

use crate::bell;
use crate::count::count;
use crate::counter::{FdCounter, whereabouts};
use crate::moving::Moving;
use crate::pipe::FdPipe;
use crate::section::{Masked, Section};
use crate::set::{self, FdSet};
use crate::stats::Stat;
use crate::steps::{step, step_lock, step_waited};
use crate::sys;
use crate::table::{self, Entry, Slot};
use crate::timer::{self, FdTimer};
use crate::turns;
use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use libc::{EPOLL_CTL_ADD, epoll_event};
use wakeset::{Events, Leaving, ScanGuard, ScanLock, Source, WaitQueue, mutated};

/// Serializes moves, and what must not happen during one.
static MOVES: ScanLock<()> = ScanLock::new(());

/// Not 0: new objects are the kernel's from the start. Counts forks under way; the top bit stays once set.
static GATE: AtomicU32 = AtomicU32::new(0);
const FOR_GOOD: u32 = 1 << 31;
/// How often it has been closed for a fork.
static CLOSED: AtomicU32 = AtomicU32::new(0);

/// Takes the lock under which objects move.
pub(crate) fn hold_moves() -> ScanGuard<'static, ()> {
    MOVES.lock()
}

/// The same, if nobody holds it: a fork does for its length, which may be that of a userfaultfd's handler.
pub(crate) fn try_hold_moves() -> Option<ScanGuard<'static, ()>> {
    MOVES.try_lock()
}

/// Waits until the moves under way are over.
pub(crate) fn wait_for_moves() {
    let _section = Section::enter();
    drop(hold_moves());
}

/// Whether new objects may live in user space.
pub(crate) fn gate_is_open() -> bool {
    GATE.load(Ordering::SeqCst) == 0
}

/// Whether the gate is closed for a fork at most, and not for good.
pub(crate) fn gate_may_open() -> bool {
    GATE.load(Ordering::SeqCst) & FOR_GOOD == 0
}

/// The gate as it is before an object's descriptor is made.
#[derive(Clone, Copy)]
pub(crate) struct Gate {
    closed: u32,
    pub(crate) is_open: bool,
}

pub(crate) fn look_at_gate() -> Gate {
    Gate { closed: CLOSED.load(Ordering::SeqCst), is_open: gate_is_open() }
}

/// For an object that was put into the table because the gate was open `before`: moves it if the gate has been closed
/// since, because then nobody else may. Also if it is open again: a child has the descriptor.
pub(crate) fn recheck_gate(fd: c_int, before: Gate) {
    let closed_since = !gate_is_open() || CLOSED.load(Ordering::SeqCst) != before.closed;
    if closed_since && !mutated!("made_past_the_gate") {
        self::fd(fd, Stat::MovedFork);
    }
}

/// Closes the gate and moves everything: before a fork. Whoever calls it calls [`open_gate`] afterwards.
pub fn everything(reason: Stat) {
    GATE.fetch_add(1, Ordering::SeqCst);
    CLOSED.fetch_add(1, Ordering::SeqCst);
    step!(gate_closed);
    let _section = Section::enter();
    let _moving = hold_moves();
    everything_held(reason);
}

fn everything_held(reason: Stat) {
    move_batch(&mut table::numbers(), reason);
}

/// Opens the gate again.
pub fn open_gate() {
    GATE.fetch_sub(1, Ordering::SeqCst);
}

/// Leaves everything to the kernel for good: it has been given a way to descriptors that we do not see.
pub fn everything_for_good(reason: Stat) {
    GATE.fetch_or(FOR_GOOD, Ordering::SeqCst);
    let _section = Section::enter();
    let _moving = hold_moves();
    everything_held(reason);
}

/// In a forked child: no fork is under way.
pub(crate) fn reset_gate() {
    GATE.fetch_and(FOR_GOOD, Ordering::SeqCst);
}

/// Moves the object `fd` stands for into the kernel, if it is one of ours; whether it was.
pub fn fd(fd: c_int, reason: Stat) -> bool {
    if !table::get(fd).is_object() {
        return false;
    }
    let _section = Section::enter();
    let _moving = hold_moves();
    fd_held(fd, reason);
    true
}

/// Leaves the object `fd` stands for to the kernel, at the wish of who uses it. What is not ours is the kernel's already.
///
/// # Errors
/// EBADF. EBUSY: a set that cannot move ([`own`](crate::own)).
pub fn release(fd: c_int) -> Result<(), sys::Errno> {
    match table::get(fd) {
        Entry::Bell => Err(sys::Errno::EBADF),
        Entry::Set(set) if set.is_fixed() => Err(sys::Errno::EBUSY),
        Entry::Counter(_) | Entry::Timer(_) | Entry::Set(_) | Entry::Pipe(_) => {
            self::fd(fd, Stat::MovedUnmodelled);
            Ok(())
        }
        Entry::Kernel => sys::fcntl(fd, libc::F_GETFD, 0).map(drop),
    }
}

/// Moves all pipes and socket pairs.
pub fn pipes(reason: Stat) {
    for number in table::numbers() {
        if matches!(table::get(number), Entry::Pipe(_)) {
            fd(number, reason);
        }
    }
}

/// [`fd`] for a caller that holds the moves lock.
pub(crate) fn fd_held(fd: c_int, reason: Stat) {
    move_batch(&mut core::iter::once(fd), reason);
}

/// Moves the objects that these numbers stand for, and what has to move with them. The caller holds the moves lock.
fn move_batch(numbers: &mut dyn Iterator<Item = c_int>, reason: Stat) {
    let _masked = Masked::begin();
    let mut sets = Moving::none();
    let mut fixed = Moving::none();
    let (mut counters, mut timers, mut pipes) = (Moving::none(), Moving::none(), Moving::none());
    for fd in numbers {
        begin(fd, &mut counters, &mut timers, &mut pipes, &mut sets, &mut fixed);
    }
    step!(move_begun);
    loop {
        // What the sets watch moves too; it may be watched by several.
        let mut next = sets.first();
        while let Some(set) = next {
            set.set.for_each(|fd, _, _, _| begin(fd, &mut counters, &mut timers, &mut pipes, &mut sets, &mut fixed));
            next = Moving::after(set);
        }
        let mut touched = Touched::none();
        move_counters(core::mem::replace(&mut counters, Moving::none()), reason, &mut touched);
        move_pipes(core::mem::replace(&mut pipes, Moving::none()), reason, &mut touched);
        // After them: a timer that has moved may have an edge to report at any time, and none is taken out from then on.
        move_timers(core::mem::replace(&mut timers, Moving::none()), reason, &mut touched);
        // Inner sets before the sets around them: begun in the other order.
        for set in sets.rev() {
            if set.set.is_empty() {
                set.set.wait_queue().hand_over(|watch| to_kernel_half(watch, false, &mut touched));
            }
        }
        // A set that stays is watched from the kernel from now on, by its number.
        for set in fixed.iter() {
            if is_to_be_handed_out(set, reason) && timer::leave_to_kernel() {
                let all = table::numbers().filter(|fd| matches!(table::get(*fd), Entry::Timer(_)));
                all.for_each(|fd| begin(fd, &mut counters, &mut timers, &mut pipes, &mut sets, &mut fixed));
            }
        }
        for set in fixed.iter() {
            hand_out_fixed(set, reason, &mut touched);
        }
        while let Some(owner) = touched.pop() {
            // Edges come from the kernel from now on, and nobody knows which have been reported.
            if owner.moved_edges.swap(false, Ordering::SeqCst) {
                owner.kernel_edges.store(true, Ordering::SeqCst);
            }
            if owner.set.wait_queue().has_watches() {
                begin_set(owner.fd(), owner, &mut sets, &mut fixed);
            }
        }
        // An add that had begun before the set was marked may have come in between; and a closing thread may be at work.
        let gone = sets.iter().all(|set| set.set.is_empty() && !set.set.wait_queue().has_watches());
        if timers.first().is_some() {
            continue;
        }
        if gone && fixed.iter().all(|set| !set.set.wait_queue().has_watches()) {
            break;
        }
        // A close under way has taken its watches from the table's sight, and not yet from the set's.
        step_lock!(Waiting, &table::CLOSES);
        sys::sched_yield();
    }
    step_waited!();
    step!(move_counters_gone);
    for set in sets.iter() {
        set.has_kernel.store(true, Ordering::SeqCst);
        turns::make_plain(set);
        bell::remove(set);
        set.set.kick_all();
        count(reason, 1);
        leave_table(set.fd(), set);
        step!(set_gone);
    }
    settle_sets();
}

/// Begins the move of what a number stands for, once.
fn begin(
    fd: c_int,
    counters: &mut Moving<FdCounter>,
    timers: &mut Moving<FdTimer>,
    pipes: &mut Moving<FdPipe>,
    sets: &mut Moving<FdSet>,
    fixed: &mut Moving<FdSet>,
) {
    match table::get(fd) {
        Entry::Counter(slot) => drop(counters.begin(fd, slot)),
        Entry::Timer(slot) => drop(timers.begin(fd, slot)),
        Entry::Pipe(end) => {
            // Both ends, or neither.
            if pipes.begin(fd, end)
                && let Some(other) = end.other()
            {
                pipes.begin(other.fd(), other);
            }
        }
        Entry::Set(slot) => begin_set(fd, slot, sets, fixed),
        Entry::Kernel | Entry::Bell => {}
    }
}

/// Marks a set as going into the kernel, once; one that stays goes onto a list of its own.
fn begin_set(fd: c_int, slot: &'static FdSet, sets: &mut Moving<FdSet>, fixed: &mut Moving<FdSet>) {
    if slot.is_fixed() {
        fixed.begin(fd, slot);
    } else if !slot.in_kernel.load(Ordering::SeqCst) && sets.begin(fd, slot) {
        // Adds to this set wait for us from here on.
        slot.in_kernel.store(true, Ordering::SeqCst);
        crate::polls::give_up_held(slot);
    }
}

/// For a set that cannot move ([`own`](crate::own)): what watches it does so by its number from now on. A fork needs nothing else; whoever moves it by name wants
/// to poll it.
fn hand_out_fixed(set: &'static FdSet, reason: Stat, touched: &mut Touched) {
    if !is_to_be_handed_out(set, reason) {
        return;
    }
    let told = set::hand_out_held(set);
    if set.set.wait_queue().has_watches() {
        if let Err(error) = told {
            // Those around it hear of its kernel half only.
            complain(set.fd(), set.fd(), error);
        }
        set.set.wait_queue().hand_over(|watch| to_kernel_half(watch, false, touched));
    }
}

fn is_to_be_handed_out(set: &FdSet, reason: Stat) -> bool {
    (set.set.wait_queue().has_watches() || reason != Stat::MovedFork) && !set.closed.load(Ordering::SeqCst)
}

/// The sets that are unsettled, linked through themselves; [`Touched::END`] for none. The moves lock guards it.
static UNSETTLED: AtomicUsize = AtomicUsize::new(Touched::END);

/// Marks the sets around this one, and around those.
fn unsettle_around(set: &FdSet) {
    let before = UNSETTLED.load(Ordering::Relaxed);
    set.set.wait_queue().each_owner(|owner| {
        let outer = FdSet::of_owner(owner);
        if outer.next_unsettled.load(Ordering::Relaxed) == 0 {
            outer.next_unsettled.store(UNSETTLED.load(Ordering::Relaxed), Ordering::Relaxed);
            UNSETTLED.store(owner, Ordering::Relaxed);
            outer.unsettled.fetch_add(1, Ordering::SeqCst);
        }
    });
    // Those just marked: no queue's lock is held any more.
    let mut next = UNSETTLED.load(Ordering::Relaxed);
    while next != before && !mutated!("sets_around_are_one") {
        let outer = FdSet::of_owner(next);
        unsettle_around(outer);
        next = outer.next_unsettled.load(Ordering::Relaxed);
    }
}

/// All that moved is in the kernel, and so is what is around it.
fn settle_sets() {
    let mut next = UNSETTLED.swap(Touched::END, Ordering::Relaxed);
    while next != Touched::END {
        let set = FdSet::of_owner(next);
        next = set.next_unsettled.swap(0, Ordering::Relaxed);
        set.unsettled.fetch_add(1, Ordering::SeqCst);
    }
}

/// The sets whose kernel half a move has changed, each once, linked through themselves. Whoever has this holds the moves lock.
struct Touched(usize);

impl Touched {
    /// The end of the list: no address.
    const END: usize = 1;

    const fn none() -> Self {
        Self(Self::END)
    }

    fn push(&mut self, set: &'static FdSet) {
        if set.next_touched.load(Ordering::Relaxed) == 0 {
            set.next_touched.store(self.0, Ordering::Relaxed);
            self.0 = ptr::from_ref(set).addr();
        }
    }

    fn first(&self) -> Option<&'static FdSet> {
        (self.0 != Self::END).then(|| FdSet::of_owner(self.0))
    }

    fn pop(&mut self) -> Option<&'static FdSet> {
        let set = self.first()?;
        self.0 = set.next_touched.swap(0, Ordering::Relaxed);
        Some(set)
    }
}

fn move_counters(counters: Moving<FdCounter>, reason: Stat, touched: &mut Touched) {
    let mut watched = false;
    for slot in counters.iter() {
        slot.counter_queue().refuse_watches();
        slot.place.store(whereabouts::MOVING, Ordering::SeqCst);
        step_lock!(Locked, &slot.place);
        slot.counter.seal_with(|value| slot.carried.store(value, Ordering::SeqCst));
        watched |= slot.counter_queue().has_watches();
    }
    step!(move_sealed);
    // Before anybody is woken: who sleeps now is not between a counter and its watches.
    let quiet = watched && sys::others_sleep();
    for slot in counters.iter() {
        slot.counter.wake_sealed();
        let value = slot.carried.load(Ordering::SeqCst);
        if value > 0 {
            // The kernel eventfd is at 0, so there is room for any value and the write does not block.
            let _ = sys::write(slot.fd(), (&raw const value).cast(), 8);
        }
    }
    step!(move_values_written);
    for round in ROUNDS {
        counters.iter().for_each(|slot| round.hand_over(slot.counter_queue(), quiet, touched));
    }
    step!(move_watches_handed);
    counters.iter().for_each(|slot| arrive(slot, &slot.place, reason));
}

/// Whose watches are handed over: of sources with an edge that has not been reported (or without one), or of any.
#[derive(Clone, Copy)]
struct Round(Option<bool>);

/// Sources whose edges are all reported go first: see [`take_reported_edge`]. The last is for a watch that became pending between the first two.
const ROUNDS: [Round; 3] = [Round(Some(false)), Round(Some(true)), Round(None)];

impl Round {
    fn hand_over(self, queue: &WaitQueue, quiet: bool, touched: &mut Touched) {
        if self.0.is_none_or(|pending| pending == queue.has_pending_edge()) {
            queue.hand_over(|watch| to_kernel_half(watch, quiet, touched));
        }
    }
}

/// A counter or timer is in the kernel: its operations go on there.
fn arrive<S: Slot>(slot: &'static S, place: &AtomicU32, reason: Stat) {
    place.store(whereabouts::IN_KERNEL, Ordering::SeqCst);
    sys::futex_wake(place, u32::MAX >> 1);
    step_lock!(Unlocked, place);
    count(reason, 1);
    leave_table(slot.head().fd(), slot);
}

/// As counters move. A timer that has not expired goes on in the kernel while its watches are on their way there; what it has to
/// report then must not be taken out again.
fn move_timers(timers: Moving<FdTimer>, reason: Stat, touched: &mut Touched) {
    let mut watched = false;
    for slot in timers.iter() {
        slot.wait_queue().refuse_watches();
        slot.place.store(whereabouts::MOVING, Ordering::SeqCst);
        step_lock!(Locked, &slot.place);
        slot.seal();
        watched |= slot.wait_queue().has_watches();
    }
    let quiet = watched && sys::others_sleep();
    for slot in timers.iter() {
        slot.timer.wake_sealed();
        slot.set_kernel_timer();
        slot.wait_queue().hand_over(|watch| {
            let may_report = watch.pending || !slot.carries_expiration();
            to_kernel_half(Leaving { pending: may_report, ..watch }, quiet, touched);
        });
    }
    timers.iter().for_each(|slot| arrive(slot, &slot.place, reason));
}

/// Moves pairs in the steps of [`move_counters`]. No end of one is closed meanwhile: that is a move as well.
fn move_pipes(pipes: Moving<FdPipe>, reason: Stat, touched: &mut Touched) {
    let mut watched = false;
    for end in pipes.iter() {
        end.queue().refuse_watches();
    }
    for end in pipes.iter() {
        end.seal_and_carry();
        watched |= !end.is_closing() && end.queue().has_watches();
    }
    let quiet = watched && sys::others_sleep();
    pipes.iter().for_each(FdPipe::wake_sealed);
    for round in ROUNDS {
        for end in pipes.iter() {
            if end.is_closing() {
                // Its watches go with it.
                end.queue().close();
            } else {
                round.hand_over(end.queue(), quiet, touched);
            }
        }
    }
    for end in pipes.iter() {
        if end.settle_in_kernel() {
            count(reason, 1);
        }
        leave_table(end.fd(), end);
    }
}

/// From now on the number stands for the kernel object.
fn leave_table<S: Slot>(fd: c_int, slot: &'static S) {
    if table::vacate(fd, ptr::from_ref(slot).addr()) {
        table::end_use(slot);
    }
}

/// Puts a watch that leaves user space into the kernel half of its set. `quiet`: nobody is between a counter and its watches.
fn to_kernel_half(watch: Leaving, quiet: bool, touched: &mut Touched) {
    let set = FdSet::of_owner(watch.owner);
    if set.closed.load(Ordering::SeqCst) {
        // A thread still waits in it, and will not hear of this source again.
        return;
    }
    // Before it is in the kernel half, of which those around do not know.
    unsettle_around(set);
    let mut events = watch.interest.bits();
    if watch.interest.intersection(Events::FLAGS) == watch.interest {
        // Disarmed by a ONESHOT report. The kernel reports ERR and HUP of what it takes for armed, and an eventfd has
        // neither; the program's next EPOLL_CTL_MOD finds it.
        events = watch.interest.intersection(Events::ONESHOT | Events::WAKEUP).bits();
    }
    let event = epoll_event { events, u64: watch.data };
    match sys::epoll_ctl(set.fd(), EPOLL_CTL_ADD, watch.fd, &raw const event) {
        // A thread is closing the number and waits for us, and another has added it meanwhile, as a number of the kernel's.
        Err(sys::Errno::EEXIST) if !table::get(watch.fd).is_object() => {}
        Err(error) => complain(set.fd(), watch.fd, error),
        Ok(()) if watch.pending => {
            if watch.interest.intersects(Events::ET | Events::ONESHOT) {
                set.kernel_edges.store(true, Ordering::SeqCst);
            }
        }
        Ok(()) => {
            let reported = watch.interest.contains(Events::ET) && !watch.interest.contains(Events::ONESHOT);
            if reported && quiet {
                take_reported_edge(set);
            }
        }
    }
    if watch.interest.intersects(Events::ET | Events::ONESHOT) {
        set.moved_edges.store(true, Ordering::SeqCst);
    }
    set.note_kernel_watch();
    // Before it is removed here: who looks at both halves may have looked at the kernel's before.
    set.moved_watches.fetch_add(1, Ordering::SeqCst);
    touched.push(set);
}

/// The kernel half takes the watch just added for one with an edge to report, but that has been reported. Takes
/// the report out of its ready list, if nothing else is in there that would be lost with it: what is level-triggered
/// stays, by itself.
fn take_reported_edge(set: &FdSet) {
    if set.kernel_edges.load(Ordering::SeqCst) {
        return;
    }
    let mut taken = [epoll_event { events: 0, u64: 0 }; 32];
    // A full buffer may not have had room for it: again, while that is likely to help.
    for _ in 0..4 {
        let room = taken.len() as c_int;
        match sys::epoll_pwait(set.fd(), taken.as_mut_ptr(), room, 0, ptr::null(), sys::SIGSET_BYTES) {
            Ok(found) if found == room => {}
            _ => break,
        }
    }
    let bell = set.bell.load(Ordering::SeqCst);
    if bell >= 0 && set.set.someone_is_elsewhere() {
        // We may have taken a ring with it.
        bell::ring(bell as usize);
    }
}

/// The one thing that can go wrong in a move: the kernel has no memory, or no watches left, for what the program
/// was already granted. It must not go unnoticed.
#[cold]
pub(crate) fn complain(epfd: c_int, fd: c_int, error: sys::Errno) {
    let errno = error.into_raw();
    say(format_args!(
        "wakeset: epoll set {epfd} lost its watch on descriptor {fd}: the kernel refused it (errno {errno})"
    ));
}

/// The same for what was in a pipe.
#[cold]
pub(crate) fn complain_of_bytes(fd: c_int, error: Option<sys::Errno>) {
    let errno = error.map_or(0, sys::Errno::into_raw);
    say(format_args!("wakeset: descriptor {fd} lost bytes on their way into the kernel (errno {errno})"));
}

/// The same for a timer: the kernel's has not been set, and does not expire.
#[cold]
pub(crate) fn complain_of_timer(fd: c_int, error: sys::Errno) {
    let errno = error.into_raw();
    say(format_args!("wakeset: timer {fd} was not set on its way into the kernel (errno {errno})"));
}

fn say(what: core::fmt::Arguments<'_>) {
    use core::fmt::Write;
    struct Stderr;
    impl Write for Stderr {
        fn write_str(&mut self, text: &str) -> core::fmt::Result {
            let _ = sys::write(2, text.as_ptr(), text.len());
            Ok(())
        }
    }
    let _ = writeln!(Stderr, "{what}");
}

/// In a forked child: the lock may be held by a thread that does not exist.
pub(crate) fn replace_lock() {
    // SAFETY: a forked child has one thread, which comes from a fork it prepared with the lock held, or from one by hand, which
    // does not go on with anything it had begun.
    unsafe { MOVES.free_in_child() };
    UNSETTLED.store(Touched::END, Ordering::Relaxed);
}
