//! The deputy of forked children's parent: one thread that migrates what they ask for, for as long
//! as there may be something to ask for.
//!
//! | the deputy finds | it |
//! |---|---|
//! | a number from a child | migrates what is there, and sends the number back |
//! | a connection closed, the child gone: executed, or ended | is done with it: what stays is the parent's alone |
//! | a connection closed, the child there, or not known | migrates all that it has, and is done with it |
//! | that [`DEADLINE`] has passed, beside other threads of the program's | hears it further: what it does not name stays |
//! | the same, where the program has one thread, or few numbers for so many workers | migrates all that it has, and says so to the child; or hears it further, if something of it may come home, and not too many are heard so |
//! | that a child has been heard for as long as [`PATIENCE`] | is done with it; what it has stays in the kernel |
//! | no child for as long as [`LINGER`] | ends |
//!
//! A child that reaches the deadline is a process of its own, a worker. Beside it, what it does not
//! name stays where it is for as long as it lives. But a program of one thread is to have no second
//! one for so long: there all that the worker may have migrates, and so will the next one be a
//! worker: from then on everything migrates before a fork, for a second after the first such child,
//! and twice as long after each further one.
//!
//! It hears of all connections by one epoll of the kernel's, to which a fork adds the child's: so
//! the deputy need not be woken for it, and a process that forks again finds it there. By its
//! number that epoll is its own only while no number changes, so the deputy sleeps in poll(2),
//! which takes nothing from a file that it is not meant for, and looks with the migrations lock
//! held.

use super::super::thread;
use super::alone::ALONE;
use super::{CONNECTIONS, SLOTS, Slot, connected, finish, migrate_noted};
use crate::migrate;
use crate::stats::Stat;
use crate::stats::area::now;
use crate::sys::forked;
use crate::sys::refusable::refusable;
use crate::sys::signal_guard::SignalGuard;
use crate::sys::vforked::grant;
use crate::sys::{self, Errno, poll_within};
use crate::table::{self, away, gate, hidden};
use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLLIN, epoll_event};
use wakeset::mutated;

/// So long is a child taken for one that is gone soon. Beside it a program of one thread has two.
const DEADLINE: Duration = Duration::from_secs(1);
/// And so long for the next child.
const LINGER: Duration = DEADLINE;
/// So long is a child heard of which something may come home.
const PATIENCE: Duration = Duration::from_secs(300);
/// So many are.
const MOST_OUTLIVED: usize = 8;
/// There is a worker that is heard for as long as it lives for so many numbers that the process may
/// have.
const NUMBERS_EACH: usize = 32;
/// The deputy looks so often whether its epoll has another number by now.
const A_WHILE: Duration = Duration::from_millis(100);
/// The same, while no child that may ask for what lives here is younger than [`DEADLINE`]. No
/// longer than that: a child that is forked while it sleeps so long must not reach it unseen.
const A_LONG_WHILE: Duration = DEADLINE;
const _: () = assert!(A_LONG_WHILE.as_nanos() <= DEADLINE.as_nanos());
/// And so often which child it is, once a connection is closed.
const A_MOMENT: Duration = Duration::from_millis(1);

/// How often a thread that waits for the end of a deputy looks, and how much of that is left once
/// the kernel has taken its number back: then it is as good as over, and the number may be another
/// thread's.
const LOOKS: u32 = 1000;
const LAST_LOOKS: u32 = 20;

/// So many connections are looked at in one go.
const AT_ONCE: usize = 8;

/// By which the deputy hears of its children; -1 without a deputy.
static EPOLL: AtomicI32 = AtomicI32::new(-1);
/// Whether it is to end, whoever may still ask.
static IS_TO_END: AtomicBool = AtomicBool::new(false);
/// What wakes it for that, -1 for nothing.
static DOORBELL: AtomicI32 = AtomicI32::new(-1);

/// How many children have reached the deadline.
static OUTLIVED: AtomicU32 = AtomicU32::new(0);
/// Until then everything migrates before a fork.
static FUTILE_UNTIL: AtomicU64 = AtomicU64::new(0);

/// Whether the next child will most likely be a worker.
pub(super) fn is_futile() -> bool {
    let until = FUTILE_UNTIL.load(Ordering::Relaxed);
    until != 0 && now() < until
}

fn note_worker(now: u64) {
    let before = OUTLIVED.fetch_add(1, Ordering::Relaxed);
    // Up to half a year.
    let wait = nanoseconds(DEADLINE) << before.min(24);
    FUTILE_UNTIL.store(now.saturating_add(wait), Ordering::Relaxed);
}

/// On the clock of [`now`], which does not stand still while the machine sleeps, and is not set.
const fn nanoseconds(time: Duration) -> u64 {
    time.as_nanos() as u64
}

/// What a connection is known by in the epoll.
fn index_of(slot: &'static Slot) -> u64 {
    CONNECTIONS.iter().position(|other| ptr::eq(other, slot)).unwrap_or(CONNECTIONS.len()) as u64
}

fn watch(slot: &'static Slot, end: c_int) -> bool {
    let event = epoll_event { events: EPOLLIN as u32, u64: index_of(slot) };
    sys::epoll_ctl(EPOLL.load(Ordering::SeqCst), EPOLL_CTL_ADD, end, &raw const event).is_ok()
}

/// A child is served from now on; whether there is a deputy for it. The caller holds the migrations
/// lock.
pub(super) fn begin(slot: &'static Slot) -> bool {
    let end = slot.end.load(Ordering::SeqCst);
    if IS_TO_END.load(Ordering::SeqCst) || EPOLL.load(Ordering::SeqCst) < 0 && !start() {
        return false;
    }
    let begun = watch(slot, end);
    if begun {
        slot.begun.store(now(), Ordering::SeqCst);
    }
    begun
}

/// Makes a deputy.
fn start() -> bool {
    let Some(word) = forked::deputy_word() else { return false };
    let make = || refusable!(epoll_create1, libc::EPOLL_CLOEXEC).ok().map(|made| made as c_int);
    let Some(epoll) = hidden::make(make) else { return false };
    EPOLL.store(epoll, Ordering::SeqCst);
    let deputy = |memory| Deputy { memory };
    match thread::start(deputy, serve, Some(word)) {
        Some((tid, _)) => {
            forked::note_deputy(word, tid);
            true
        }
        None => {
            forget();
            false
        }
    }
}

/// Has the deputy end, once everything that children may have has migrated. The caller holds the
/// migrations lock.
pub(super) fn tell_to_end() {
    let epoll = EPOLL.load(Ordering::SeqCst);
    if epoll < 0 || IS_TO_END.swap(true, Ordering::SeqCst) {
        return;
    }
    // Where there is none, it looks by itself in a while.
    let make = || refusable!(eventfd2, 1, libc::EFD_CLOEXEC).ok().map(|made| made as c_int);
    if let Some(doorbell) = hidden::make(make) {
        DOORBELL.store(doorbell, Ordering::SeqCst);
        let event = epoll_event { events: EPOLLIN as u32, u64: u64::MAX };
        let _ = sys::epoll_ctl(epoll, EPOLL_CTL_ADD, doorbell, &raw const event);
    }
}

/// Nothing of a deputy is known any more. The caller holds the migrations lock.
fn forget() {
    for word in [&EPOLL, &DOORBELL] {
        hidden::close_in(word, -1);
    }
    IS_TO_END.store(false, Ordering::SeqCst);
}

/// In a forked child, which has no deputy, and whose copies of the hidden numbers are closed.
pub(super) fn begin_anew() {
    EPOLL.store(-1, Ordering::SeqCst);
    DOORBELL.store(-1, Ordering::SeqCst);
    IS_TO_END.store(false, Ordering::SeqCst);
    OUTLIVED.store(0, Ordering::Relaxed);
    FUTILE_UNTIL.store(0, Ordering::Relaxed);
}

/// A hidden number is another from now on, or -1. The caller holds the migrations lock.
pub(super) fn renumber(old: c_int, new: c_int) {
    let _ = DOORBELL.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst);
    let is_ours = EPOLL.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst).is_ok();
    if is_ours && new < 0 {
        // It cannot hear any more.
        migrate_noted();
        IS_TO_END.store(true, Ordering::SeqCst);
    }
}

/// The parent's end of a connection is about to have another number; whether the deputy hears of it
/// by that. The caller holds the migrations lock.
pub(super) fn renumber_end(slot: &'static Slot, old: c_int, new: c_int) -> bool {
    let is_heard = !matches!(slot.begun.load(Ordering::SeqCst), 0 | ALONE);
    let watched = !is_heard || watch(slot, new);
    unwatch(old);
    watched
}

/// The deputy no longer hears of a connection. The epoll would go on to tell of it, if a child had
/// a copy of its end.
pub(super) fn unwatch(end: c_int) {
    let epoll = EPOLL.load(Ordering::SeqCst);
    if epoll >= 0 {
        let _ = sys::epoll_ctl(epoll, EPOLL_CTL_DEL, end, ptr::null());
    }
}

/// Waits until every deputy has ended that was told to, or is about to.
pub(super) fn wait_for_end() {
    for (tid, is_kept) in forked::last_deputies() {
        let mut looks = 0;
        while looks < LOOKS && sys::is_thread(tid) {
            looks += if is_kept() { 1 } else { LOOKS / LAST_LOOKS };
            // Not a yield: a real-time thread would keep the deputy from the processor.
            let _ = sys::poll_entries(ptr::null_mut(), 0, A_MOMENT);
        }
    }
}

/// What the thread needs.
#[derive(Debug)]
struct Deputy {
    memory: usize,
}

/// The thread.
extern "C" fn serve(deputy: &'static Deputy) -> ! {
    thread::leave_out_of_forks(deputy.memory);
    let mut idle_since = now();
    loop {
        // First of all: the parent still holds the lock that a look takes.
        let epoll = EPOLL.load(Ordering::SeqCst);
        let limit = if has_young(now()) { A_WHILE } else { A_LONG_WHILE };
        let _ = poll_within(epoll, libc::POLLIN, limit);
        let closed = grant(look);
        let is_closed = |(index, _): &(usize, &Slot)| closed >> index & 1 != 0;
        for (_, slot) in CONNECTIONS.iter().enumerate().filter(is_closed) {
            finish_closed(slot);
        }
        if grant(|| is_over(&mut idle_since)) {
            thread::end(deputy.memory);
        }
    }
}

impl Slot {
    /// For how long the deputy has served the child, in nanoseconds; `None` while it does not.
    fn age(&self, now: u64) -> Option<u64> {
        let begun = self.begun.load(Ordering::SeqCst);
        (begun != 0 && begun != ALONE).then(|| now.saturating_sub(begun))
    }

    /// Whether it has reached the deadline, and what it may have has not migrated.
    fn is_worker(&self, now: u64) -> bool {
        let is_old = self.age(now).is_some_and(|age| age >= nanoseconds(DEADLINE));
        is_old && !self.outlived.load(Ordering::SeqCst)
    }
}

/// Whether any child may still be one that is gone soon.
fn has_young(now: u64) -> bool {
    let is_young = |slot: &Slot| slot.age(now).is_some_and(|age| age < nanoseconds(DEADLINE));
    CONNECTIONS.iter().any(is_young)
}

/// Whether so many workers are heard for as long as they live: beside other threads of the
/// program's, and while their connections take few of its numbers.
fn hears(workers: usize) -> bool {
    let has_threads = || super::count_threads().is_some_and(|count| count > 1);
    workers <= sys::number_limit() / NUMBERS_EACH && has_threads()
}

/// Takes the next messages and does what they say. Returns whose connections are closed, a bit for
/// each.
fn look() -> u32 {
    const { assert!(SLOTS <= 32) };
    let _guard = SignalGuard::enter();
    let _migrating = gate::hold_migrations();
    let mut events = [epoll_event { events: 0, u64: 0 }; AT_ONCE];
    let epoll = EPOLL.load(Ordering::SeqCst);
    let found = sys::epoll_pwait(epoll, events.as_mut_ptr(), AT_ONCE as c_int, 0, ptr::null(), 0);
    let found = found.ok().and_then(|found| usize::try_from(found).ok()).unwrap_or(0);
    let mut closed = 0;
    for event in events.iter().take(found) {
        let index = event.u64 as usize;
        if let Some(slot) = CONNECTIONS.get(index)
            && is_closed(slot)
        {
            closed |= 1 << index;
        }
    }
    closed
}

/// Takes the next message of a child, and does what it says; whether the connection is closed. The
/// caller holds the migrations lock.
pub(super) fn is_closed(slot: &'static Slot) -> bool {
    let end = slot.end.load(Ordering::SeqCst);
    if end < 0 {
        return false;
    }
    match forked::receive(end) {
        Ok(Some(message)) => {
            answer(message);
            let _ = forked::send(end, message);
            false
        }
        Err(Errno::EAGAIN | Errno::EINTR) => false,
        Ok(None) | Err(_) => true,
    }
}

/// Does what a child asks for. The caller holds the migrations lock.
fn answer(message: c_int) {
    match forked::asked(message) {
        // What is away does not come home any more.
        (fd, true) => migrate::fd_held(fd, Stat::MigratedFork),
        (fd, false) if table::peek(fd).is_object() => {
            away::lending(connected(), || migrate::fd_held(fd, Stat::MigratedFork));
        }
        // It has migrated.
        (_, false) => {}
    }
}

/// A connection has been closed by its child, or the child has ended or executed a program.
fn finish_closed(slot: &'static Slot) {
    let stays = match slot.child.load(Ordering::SeqCst) {
        // The thread that has forked is on its way.
        0 => {
            let _ = sys::poll_entries(ptr::null_mut(), 0, A_MOMENT);
            return;
        }
        child => slot.is_gone(child),
    };
    grant(|| finish_guarded(slot, stays));
}

fn finish_guarded(slot: &'static Slot, stays: bool) {
    let _guard = SignalGuard::enter();
    let _migrating = gate::hold_migrations();
    end_service(slot, stays);
}

/// Is done with a child; whether it is gone, so that what it had and did not ask for may stay. The
/// caller holds the migrations lock.
pub(super) fn end_service(slot: &'static Slot, is_gone: bool) {
    let outlived = slot.outlived.load(Ordering::SeqCst);
    if !is_gone && !outlived && !mutated!("outlived_child_keeps_objects") {
        migrate_noted();
    }
    finish(slot, is_gone);
}

/// A child that is not to be heard for long has reached the deadline: what it may have migrates,
/// and it is heard further where some of that may come home, unless too many are. The caller holds
/// the migrations lock.
fn outlive(slot: &'static Slot, now: u64) {
    note_worker(now);
    let outlived = CONNECTIONS.iter().filter(|slot| slot.outlived.load(Ordering::SeqCst)).count();
    if outlived < MOST_OUTLIVED && !mutated!("outlived_child_keeps_objects") {
        away::lending(connected(), migrate_noted);
    }
    let is_one_too_many = outlived >= MOST_OUTLIVED && !mutated!("ninth_child_keeps_objects");
    if is_one_too_many || !away::is_held_by(slot.bit()) {
        // Which migrates what has not migrated yet.
        return end_service(slot, false);
    }
    slot.outlived.store(true, Ordering::SeqCst);
    forked::forget_child();
}

/// Is done with the children that have reached the deadline, or can ask no more. Whether the deputy
/// is to end: nothing of it is known any more then.
fn is_over(idle_since: &mut u64) -> bool {
    let _guard = SignalGuard::enter();
    let _migrating = gate::hold_migrations();
    let is_to_end = IS_TO_END.load(Ordering::SeqCst);
    let now = now();
    let workers = CONNECTIONS.iter().filter(|slot| slot.is_worker(now)).count();
    let must_leave = workers > 0 && !hears(workers);
    let mut is_idle = true;
    for slot in &CONNECTIONS {
        let Some(age) = slot.age(now) else { continue };
        let tires = age >= nanoseconds(PATIENCE) && slot.outlived.load(Ordering::SeqCst);
        if is_to_end || slot.end.load(Ordering::SeqCst) < 0 || tires {
            // Everything has migrated.
            finish(slot, false);
            continue;
        }
        is_idle = false;
        if must_leave && slot.is_worker(now) {
            outlive(slot, now);
        }
    }
    if !is_idle {
        *idle_since = now;
    }
    let ends = is_to_end || is_idle && now.saturating_sub(*idle_since) >= nanoseconds(LINGER);
    if ends {
        forget();
    }
    ends
}

#[cfg(test)]
mod tests;
