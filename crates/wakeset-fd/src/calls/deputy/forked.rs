//! The deputy of a forked child's parent: it migrates what the child asks for
//! ([`sys::forked`](crate::sys::forked) has what they say to each other), for as long as there may
//! be something to ask for.
//!
//! | the deputy finds | it |
//! |---|---|
//! | a number from the child | migrates what is there, and sends the number back |
//! | the connection closed, the child gone: executed, or ended | is done: what stays is the parent's alone |
//! | the connection closed, the child there, or not known | migrates all that it has, and is done |
//! | that [`DEADLINE`] has passed | the same, and says so to the child |
//!
//! A child that reaches the deadline is a process of its own, a worker, and so will the next one
//! be: from then on everything migrates before a fork.
//!
//! What the deputy knows of the connection is in a slot, which lives on until the deputy is done
//! and the thread that forked has said which child it is.

use super::{REFUSED, thread};
use crate::migrate;
use crate::stats::Stat;
use crate::sys::forked::{self, ChildsEnd};
use crate::sys::process::is_foreign;
use crate::sys::signal_guard::{self, SignalGuard};
use crate::sys::vforked::grant;
use crate::sys::{self, Errno, poll_within};
use crate::table::hidden::Kept;
use crate::table::lifecycle::{self, Participant, Rank};
use crate::table::object::Host;
use crate::table::{self, Entry, gate, hidden, inherited};
use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use core::time::Duration;
use wakeset::mutated;

/// So long is a child waited for.
const DEADLINE: Duration = Duration::from_secs(1);
/// The deputy looks so often whether its end has another number by now.
const A_WHILE: Duration = Duration::from_millis(100);
/// And so often which child it is, once the connection is closed.
const A_MOMENT: Duration = Duration::from_millis(1);

/// How often a thread that waits for the end of a deputy looks, once that is as good as over.
const LOOKS: u32 = 1000;

/// So many children at a time.
const SLOTS: usize = forked::DEPUTIES;

/// Whether a child has reached the deadline, or a fork may wait for another thread.
static FUTILE: AtomicBool = AtomicBool::new(false);

/// From now on everything migrates before a fork: the program has a userfaultfd, of which a thread
/// may have to read that the process forks (`UFFD_EVENT_FORK`) before fork(2) goes on. It could
/// wait for the migrations lock, which is held across a fork, if there was still something to
/// migrate.
pub fn refuse_forks() {
    FUTILE.store(true, Ordering::Relaxed);
}

/// What a deputy has, and the thread that forked.
#[derive(Debug)]
struct Slot {
    /// The deputy and the thread that forked: 0 if the slot is free.
    users: AtomicU32,
    /// The deputy's end of the connection; -1 for none.
    end: AtomicI32,
    /// The child; 0 until it is known, -1 if there is none.
    child: AtomicI32,
    /// The deputy's number; 0 without one.
    deputy: AtomicI32,
}

static CONNECTIONS: [Slot; SLOTS] = [const {
    Slot {
        users: AtomicU32::new(0),
        end: AtomicI32::new(-1),
        child: AtomicI32::new(0),
        deputy: AtomicI32::new(0),
    }
}; SLOTS];

impl Slot {
    fn claim(&self) -> bool {
        self.users.compare_exchange(0, 2, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    fn leave(&self) {
        // In a forked child it is nobody's: a handler may have forked where the parent said so.
        let leave = |users: u32| users.checked_sub(1);
        let _ = self.users.fetch_update(Ordering::SeqCst, Ordering::SeqCst, leave);
    }
}

/// A fork that leaves objects in process, before there is a child.
#[derive(Debug)]
pub(in super::super) struct Keeping {
    slot: &'static Slot,
    childs: ChildsEnd,
}

/// A child for which objects have stayed in process, of which the deputy does not yet know which it
/// is.
#[derive(Clone, Copy, Debug)]
pub struct Child(&'static Slot);

impl Child {
    /// Says which it is, -1 for none: what fork(2) has returned. Once.
    pub fn is(self, pid: c_int) {
        self.0.child.store(pid, Ordering::SeqCst);
        self.0.leave();
    }
}

/// Before a fork: prepares to leave objects in process, if there are any and they may stay. The
/// caller has a signal guard, holds the migrations lock and has closed the gate.
pub(in super::super) fn begin() -> Option<Keeping> {
    if !are_possible() {
        return None;
    }
    let slot = CONNECTIONS.iter().find(|slot| slot.claim())?;
    let keeping = connect(slot);
    if keeping.is_none() {
        slot.users.store(0, Ordering::SeqCst);
    }
    keeping
}

/// Whether there are objects, and all of them may stay.
fn are_possible() -> bool {
    if REFUSED.load(Ordering::Relaxed) || FUTILE.load(Ordering::Relaxed) || !thread::is_possible() {
        return false;
    }
    // Waiters of related processes wait in turn. A parent's sets that stay are as the kernel's to
    // its children, but nobody has looked at that yet.
    if hidden::inherited(Kept::Baton) >= 0 || table::numbers().end > forked::MOST {
        return false;
    }
    let mut any = false;
    for head in table::numbers().filter_map(object_at) {
        // It would be watched by its number from now on.
        if head.object().as_host().is_some_and(Host::is_fixed) {
            return false;
        }
        any = true;
    }
    any
}

fn object_at(fd: c_int) -> Option<&'static table::SlotHead> {
    match table::peek(fd) {
        Entry::Object(head) => Some(head),
        Entry::Kernel | Entry::Doorbell => None,
    }
}

fn connect(slot: &'static Slot) -> Option<Keeping> {
    lifecycle::sign_up(&DEPUTIES);
    inherited::prepare();
    let [ours, childs] = forked::connection()?.map(hidden::hide);
    let Some(childs) = ChildsEnd::new(childs) else {
        [ours, childs].into_iter().for_each(close);
        return None;
    };
    slot.child.store(0, Ordering::SeqCst);
    slot.end.store(ours, Ordering::SeqCst);
    forked::note_child(table::numbers().filter(|fd| table::peek(*fd).is_object()));
    Some(Keeping { slot, childs })
}

fn close(hidden: c_int) {
    hidden::disclose(hidden);
    let _ = sys::close(hidden);
}

impl Keeping {
    /// After the fork, in the child: what it asks by.
    pub(in super::super) fn childs_end(&self) -> ChildsEnd {
        self.childs
    }

    /// After the fork, in the parent: there is a deputy for the child from now on. The caller holds
    /// the migrations lock.
    pub(in super::super) fn in_parent(self) -> Child {
        close(self.childs.number);
        let deputy = |memory| Deputy { slot: self.slot, memory };
        let index = CONNECTIONS.iter().position(|slot| ptr::eq(slot, self.slot));
        match thread::start(deputy, serve, index.and_then(forked::deputy_word)) {
            // It waits for the lock, and changes nothing before.
            Some((deputy, _)) => self.slot.deputy.store(deputy, Ordering::SeqCst),
            None => {
                migrate_noted();
                finish(self.slot);
            }
        }
        Child(self.slot)
    }
}

/// Migrates what children may have. The caller holds the migrations lock.
fn migrate_noted() {
    let mut noted = table::numbers().filter(|fd| forked::is_noted(*fd));
    migrate::several_held(&mut noted, Stat::MigratedFork);
}

/// A child has nothing any more that lives here. The caller holds the migrations lock.
fn finish(slot: &Slot) {
    disconnect(slot);
    slot.deputy.store(0, Ordering::SeqCst);
    forked::forget_child();
    slot.leave();
}

/// Ends a connection once its child has nothing to ask for any more. The caller holds the
/// migrations lock.
fn disconnect(slot: &Slot) {
    let end = slot.end.swap(-1, Ordering::SeqCst);
    if end >= 0 {
        // Another child may have a copy of this end, so that its close would not be heard.
        forked::send_over(end);
        // The deputy hears of it while it sleeps.
        let _ = sys::raw!(shutdown, end, libc::SHUT_RD);
        close(end);
    }
}

/// Before this process ends or executes another program, with its deputies: migrates what its
/// children may have.
#[inline]
pub fn before_end() {
    if forked::any_may() {
        migrate_before_end();
    }
}

#[cold]
fn migrate_before_end() {
    // In a vfork(2) child nothing ends. A handler that came in the middle of a migration cannot
    // wait for that: as if a signal had ended the process.
    if is_foreign() || signal_guard::is_inside() || mutated!("parent_ends_before_its_child") {
        return;
    }
    let _guard = SignalGuard::enter();
    let _migrating = gate::hold_migrations();
    migrate_noted();
}

/// Before a call after which a thread that is left out would be seen, or be a way around it: one
/// that needs a process of one thread, or changes what the process may do. Migrates what children
/// may have. No deputy is there when this returns.
#[inline]
pub fn end_all() {
    if forked::any_may() {
        end_each();
    }
}

#[cold]
fn end_each() {
    if is_foreign() || signal_guard::is_inside() {
        return;
    }
    let _guard = SignalGuard::enter();
    for slot in &CONNECTIONS {
        let migrating = gate::hold_migrations();
        migrate_noted();
        let deputy = slot.deputy.load(Ordering::SeqCst);
        disconnect(slot);
        drop(migrating);
        // Once it is done its number may be another thread's.
        let mut looks = 0;
        while deputy != 0 && looks < LOOKS && sys::is_thread(deputy) {
            looks += u32::from(slot.deputy.load(Ordering::SeqCst) != deputy);
            // Not a yield: a real-time thread would keep the deputy from the processor.
            let _ = sys::poll_entries(ptr::null_mut(), 0, A_MOMENT);
        }
    }
}

/// What the thread needs.
#[derive(Debug)]
struct Deputy {
    slot: &'static Slot,
    memory: usize,
}

/// The thread.
extern "C" fn serve(deputy: &'static Deputy) -> ! {
    let slot = deputy.slot;
    let stays = serve_child(slot);
    grant(|| {
        let _guard = SignalGuard::enter();
        let _migrating = gate::hold_migrations();
        if !stays && !mutated!("outlived_child_keeps_objects") {
            migrate_noted();
        }
        finish(slot);
    });
    thread::end(deputy.memory)
}

/// What a look at the connection has found.
enum Found {
    Nothing,
    Granted,
    Closed,
    /// The connection was ended from here.
    Ended,
}

/// Serves the child; whether what it had and did not ask for may stay.
fn serve_child(slot: &'static Slot) -> bool {
    let begun = now();
    loop {
        let Some(left) = DEADLINE.checked_sub(now().saturating_sub(begun)) else {
            FUTILE.store(true, Ordering::Relaxed);
            return false;
        };
        // First of all: the parent still holds the lock that a look takes.
        let end = slot.end.load(Ordering::SeqCst);
        if end >= 0 {
            let _ = poll_within(end, libc::POLLIN, left.min(A_WHILE));
        }
        match grant(|| look(slot)) {
            Found::Granted | Found::Nothing => {}
            Found::Ended => return true,
            Found::Closed => match slot.child.load(Ordering::SeqCst) {
                // The thread that has forked is on its way.
                0 => _ = sys::poll_entries(ptr::null_mut(), 0, A_MOMENT),
                -1 => return true,
                child => return forked::is_child_gone(child),
            },
        }
    }
}

/// Takes the next message, and does what it says. By its number the end is its own only while no
/// number changes.
fn look(slot: &'static Slot) -> Found {
    let _guard = SignalGuard::enter();
    let _migrating = gate::hold_migrations();
    let end = slot.end.load(Ordering::SeqCst);
    if end < 0 {
        return Found::Ended;
    }
    match forked::receive(end) {
        Ok(Some(fd)) => {
            migrate::fd_held(fd, Stat::MigratedFork);
            let _ = forked::send(end, fd);
            Found::Granted
        }
        Err(Errno::EAGAIN | Errno::EINTR) => Found::Nothing,
        Ok(None) | Err(_) => Found::Closed,
    }
}

/// On a clock that does not stand still while the machine sleeps, and is not set.
fn now() -> Duration {
    Duration::from_nanos(crate::stats::area::now())
}

static DEPUTIES: Participant = Participant {
    rank: Rank::Deputies,
    begin_anew: || {
        // Its children need not be workers, whatever it is itself.
        FUTILE.store(false, Ordering::Relaxed);
        forked::forget_deputies();
        // Their ends are hidden numbers, and closed by now.
        for slot in &CONNECTIONS {
            slot.end.store(-1, Ordering::SeqCst);
            slot.deputy.store(0, Ordering::SeqCst);
            slot.users.store(0, Ordering::SeqCst);
        }
    },
    renumber: Some(renumber),
    before_close: None,
};

/// A deputy's end has another number, or none from now on: then its child cannot ask.
fn renumber(old: c_int, new: c_int) {
    let with_end = |slot: &&Slot| slot.end.load(Ordering::SeqCst) == old;
    for slot in CONNECTIONS.iter().filter(with_end) {
        if new < 0 {
            migrate_noted();
            forked::send_over(old);
            let _ = sys::raw!(shutdown, old, libc::SHUT_RD);
        }
        slot.end.store(new, Ordering::SeqCst);
    }
}
