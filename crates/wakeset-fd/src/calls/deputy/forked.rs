//! What a fork leaves in process, and the children for which it does: each has a connection, by
//! which it asks for what it names. One thread answers them all ([`serve`]), the deputy of their
//! parent ([`sys::forked`](crate::sys::forked) has what the two say to each other).
//!
//! What is known of a child is in a slot, which lives on until the deputy is done with the child
//! and the thread that forked has said which it is. All but that thread's word is changed with the
//! migrations lock held.

mod alone;
mod serve;

use super::{REFUSED, thread};
use crate::migrate;
use crate::stats::Stat;
use crate::sys;
use crate::sys::births::Birth;
use crate::sys::forked::{self, ChildsEnd};
use crate::sys::process::is_foreign;
use crate::sys::signal_guard::{self, SignalGuard};
use crate::table::hidden::Kept;
use crate::table::lifecycle::{self, Participant, Rank};
use crate::table::object::Host;
use crate::table::{self, Entry, away, gate, hidden, inherited};
use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use wakeset::mutated;

/// So many children at a time.
const SLOTS: usize = 32;
/// So many numbers are left to the program.
const LEFT: usize = 8;

/// Whether a fork may wait for another thread.
static MAY_WAIT: AtomicBool = AtomicBool::new(false);

/// From now on everything migrates before a fork: the program has a userfaultfd, of which a thread
/// may have to read that the process forks (`UFFD_EVENT_FORK`) before fork(2) goes on. It could
/// wait for the migrations lock, which is held across a fork, if there was still something to
/// migrate.
pub fn refuse_forks() {
    MAY_WAIT.store(true, Ordering::Relaxed);
}

/// Whether a fork may wait for another thread.
pub(in super::super) fn are_refused() -> bool {
    MAY_WAIT.load(Ordering::Relaxed)
}

/// What is known of a child.
#[derive(Debug)]
struct Slot {
    /// The deputy and the thread that forked: 0 if the slot is free.
    users: AtomicU32,
    /// The parent's end of the connection; -1 for none.
    end: AtomicI32,
    /// The child; 0 until it is known, -1 if there is none.
    child: AtomicI32,
    /// What the child's end is known by.
    socket: AtomicU64,
    /// When the deputy began to serve it; 0 while it does not, [`ALONE`](alone::ALONE) where the
    /// thread that forked does.
    begun: AtomicU64,
    /// It has reached the deadline, and everything that it may have has migrated. It is heard for
    /// the sake of what may come home.
    outlived: AtomicBool,
}

// The parent writes to them after each fork.
#[cfg_attr(not(loom), unsafe(link_section = "wakeset_fork"))]
static CONNECTIONS: [Slot; SLOTS] = [const {
    Slot {
        users: AtomicU32::new(0),
        end: AtomicI32::new(-1),
        child: AtomicI32::new(0),
        socket: AtomicU64::new(0),
        begun: AtomicU64::new(0),
        outlived: AtomicBool::new(false),
    }
}; SLOTS];

/// What children are known by in [`away`]: a bit for each that has a connection.
fn connected() -> u32 {
    let has_end = |slot: &&Slot| slot.end.load(Ordering::SeqCst) >= 0;
    CONNECTIONS.iter().filter(has_end).fold(0, |all, slot| all | slot.bit())
}

impl Slot {
    /// Whether the child, which this is, has nothing of its parent's any more.
    fn is_gone(&self, child: c_int) -> bool {
        child == -1 || forked::is_child_gone(child, self.socket.load(Ordering::SeqCst))
    }

    fn claim(&self) -> bool {
        self.users.compare_exchange(0, 2, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    fn bit(&self) -> u32 {
        let index = CONNECTIONS.iter().position(|other| ptr::eq(other, self));
        index.map_or(0, |index| 1 << index)
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
    server: Server,
}

/// Which thread answers a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// One of its own, which libc does not know.
    Deputy,
    /// The one that forks, before fork(2) returns.
    Forking,
}

/// A child for which objects have stayed in process, of which the deputy does not yet know which it
/// is.
#[derive(Clone, Copy, Debug)]
pub struct Child(&'static Slot, Server);

impl Child {
    /// After the fork, in the parent: answers the child, if no deputy does. The caller has a signal
    /// guard, and does not hold the migrations lock.
    pub(in super::super) fn serve(self) {
        if self.1 == Server::Forking {
            alone::serve(self.0);
        }
    }

    /// Says which it is, -1 for none: what fork(2) has returned. Once.
    pub fn is(self, pid: c_int) {
        self.0.child.store(pid, Ordering::SeqCst);
        if self.1 == Server::Forking {
            alone::conclude(self.0);
        }
        self.0.leave();
    }
}

/// Before a fork: prepares to leave objects in process, if there are any and they may stay. The
/// caller has a signal guard, holds the migrations lock and has closed the gate.
pub(in super::super) fn begin(server: Server) -> Option<Keeping> {
    let has_server = match server {
        Server::Deputy => thread::is_possible(),
        Server::Forking => alone::is_of_use(),
    };
    if !has_server || !may_all_stay() {
        return None;
    }
    let slot = CONNECTIONS.iter().find(|slot| slot.claim())?;
    let keeping = connect(slot, server);
    if keeping.is_none() {
        slot.users.store(0, Ordering::SeqCst);
    }
    keeping
}

/// Whether there are objects, or some that may come home, and all of them may stay.
fn may_all_stay() -> bool {
    if REFUSED.load(Ordering::Relaxed) || are_refused() || serve::is_futile() {
        return false;
    }
    // Waiters of related processes wait in turn. A parent's sets that stay are as the kernel's to
    // its children, but nobody has looked at that yet.
    if hidden::inherited(Kept::Baton) >= 0 || table::numbers().end > forked::MOST {
        return false;
    }
    let mut any = away::any();
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

fn connect(slot: &'static Slot, server: Server) -> Option<Keeping> {
    lifecycle::sign_up(&DEPUTIES);
    inherited::prepare();
    let birth = Birth::begin();
    let ends = forked::connection()?;
    if ends.into_iter().any(is_among_last) {
        ends.into_iter().for_each(|end| _ = sys::close(end));
        return None;
    }
    let [ours, childs] = ends.map(hidden::hide);
    drop(birth);
    let Some(childs) = ChildsEnd::new(childs) else {
        [ours, childs].into_iter().for_each(|end| _ = hidden::close(end));
        return None;
    };
    slot.child.store(0, Ordering::SeqCst);
    slot.socket.store(childs.socket, Ordering::SeqCst);
    slot.outlived.store(false, Ordering::SeqCst);
    slot.end.store(ours, Ordering::SeqCst);
    away::lend_to(slot.bit());
    forked::note_child(table::numbers().filter(|fd| table::peek(*fd).is_object()));
    Some(Keeping { slot, childs, server })
}

/// Whether a number is one of the last that the process may have, which are the program's.
fn is_among_last(number: c_int) -> bool {
    usize::try_from(number).is_ok_and(|number| number + LEFT >= sys::number_limit())
}

impl Keeping {
    /// After the fork, in the child: what it asks by.
    pub(in super::super) fn childs_end(&self) -> ChildsEnd {
        self.childs
    }

    /// After the fork, in the parent: there is a deputy for the child from now on. The caller holds
    /// the migrations lock.
    pub(in super::super) fn in_parent(self) -> Child {
        hidden::close(self.childs.number);
        let is_served = match self.server {
            // It waits for the lock, and changes nothing before.
            Server::Deputy => serve::begin(self.slot),
            Server::Forking => {
                alone::begin(self.slot);
                true
            }
        };
        if !is_served {
            migrate_noted();
            finish(self.slot, false);
        }
        Child(self.slot, self.server)
    }
}

/// Migrates what children may have. The caller holds the migrations lock.
fn migrate_noted() {
    // What is away already would be taken for named.
    let is_noted = |fd: &c_int| forked::is_noted(*fd) && table::peek(*fd).is_object();
    migrate::several_held(&mut table::numbers().filter(is_noted), Stat::MigratedFork);
}

/// A child has nothing any more that lives here. `is_gone`: it has ended, or executed another
/// program, so that it has nothing at all. The caller holds the migrations lock.
fn finish(slot: &Slot, is_gone: bool) {
    if is_gone || mutated!("lost_child_counts_as_gone") {
        away::given_back_by(slot.bit());
    } else {
        away::kept_by(slot.bit());
    }
    let end = slot.end.swap(-1, Ordering::SeqCst);
    if end >= 0 {
        serve::unwatch(end);
        // Another child may have a copy of this end, so that its close would not be heard.
        forked::send_over(end);
        hidden::close(end);
    }
    slot.begun.store(0, Ordering::SeqCst);
    if !slot.outlived.swap(false, Ordering::SeqCst) {
        forked::forget_child();
    }
    slot.leave();
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
    if forked::has_had_deputy() {
        end_deputy();
    }
}

/// Before a thread ends by a system call of its own. The end of a process says what its last thread
/// has said, so that must not be a deputy.
#[inline]
pub fn before_thread_end() {
    // The first thread counts until the last one has ended.
    if forked::has_had_deputy() && count_threads().is_none_or(|count| count <= 2) {
        end_deputy();
    }
}

/// Whether the calling thread is the program's only one, whatever libc still says.
pub fn is_only_thread() -> bool {
    count_threads() == Some(1)
}

/// How many threads the process has, but for deputies. `None` where that cannot be found out.
fn count_threads() -> Option<usize> {
    if REFUSED.load(Ordering::Relaxed) {
        return None;
    }
    // In this order: a deputy that is just ending may count as a thread of the program's.
    let count = sys::count_threads()?;
    count.checked_sub(forked::count_deputies())
}

#[cold]
fn end_deputy() {
    if is_foreign() || signal_guard::is_inside() {
        return;
    }
    let _guard = SignalGuard::enter();
    let migrating = gate::hold_migrations();
    migrate_noted();
    serve::tell_to_end();
    drop(migrating);
    serve::wait_for_end();
}

static DEPUTIES: Participant = Participant {
    rank: Rank::Deputies,
    begin_anew: || {
        // Its children need not be workers, whatever it is itself.
        MAY_WAIT.store(false, Ordering::Relaxed);
        forked::forget_deputies();
        serve::begin_anew();
        alone::begin_anew();
        // Their ends are hidden numbers, and closed by now.
        for slot in CONNECTIONS.iter().filter(|slot| slot.users.load(Ordering::SeqCst) != 0) {
            slot.end.store(-1, Ordering::SeqCst);
            slot.begun.store(0, Ordering::SeqCst);
            slot.users.store(0, Ordering::SeqCst);
        }
    },
    renumber: Some(renumber),
    before_close: None,
};

/// A parent's end has another number, or none from now on: then its child cannot ask.
fn renumber(old: c_int, new: c_int) {
    let with_end = |slot: &&Slot| slot.end.load(Ordering::SeqCst) == old;
    for slot in CONNECTIONS.iter().filter(with_end) {
        if new < 0 || !serve::renumber_end(slot, old, new) {
            migrate_noted();
            away::kept_by(slot.bit());
            forked::send_over(old);
            slot.end.store(-1, Ordering::SeqCst);
            if new >= 0 {
                hidden::close(new);
            }
        } else {
            slot.end.store(new, Ordering::SeqCst);
        }
    }
    serve::renumber(old, new);
}
