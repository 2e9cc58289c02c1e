//! Moving objects into the kernel, when something is about to reach them that does not come through us.
//!
//! A counter moves in this order, under the moves lock:
//!
//! 1. its wait queue refuses new watches (an add that comes now waits, and then goes to the kernel);
//! 2. its value is taken out and the word sealed, in one step: operations from now on wait for step 3;
//! 3. the value is written to the kernel eventfd: operations go there from now on;
//! 4. each watch moves, under the scan lock of its set, to that set's kernel half: added there, removed here. The add polls, so
//!    what is ready is reported; no moment exists in which neither half has the watch, and none in which a harvest sees both.
//!
//! The kernel takes an edge-triggered watch that is added while its counter is not drained for one with an edge to report, also if
//! we have reported it. That report is taken out again, unless the kernel half may hold other edges that would go with it; then
//! the program sees one edge twice, as after `EPOLL_CTL_MOD`. Nothing is lost and no count is doubled.
//!
//! A set moves by moving everything it watches. Locks, in the order taken: moves, then one scan lock at a time.

extern crate alloc;
use crate::bell;
use crate::count::count;
use crate::counter::{FdCounter, whereabouts};
use crate::section::Section;
use crate::set::FdSet;
use crate::stats::Stat;
use crate::sys;
use crate::table::{self, Entry};
use alloc::vec::Vec;
use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};
use libc::{EPOLL_CTL_ADD, epoll_event};
use wakeset::{Events, Leaving, ScanGuard, ScanLock, Source};

/// Serializes moves, and what must not happen during one.
static MOVES: Lazy = Lazy::new();

/// Not 0: new objects are the kernel's from the start. Counts forks under way; the top bit stays once set.
static GATE: AtomicU32 = AtomicU32::new(0);
const FOR_GOOD: u32 = 1 << 31;

/// Takes the lock under which objects move.
pub(crate) fn hold_moves() -> ScanGuard<'static, ()> {
    MOVES.get().lock()
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

/// For an object that was put into the table while the gate was open: moves it if the gate was closed
/// since, because then nobody else may.
pub(crate) fn recheck_gate(fd: c_int) {
    if !gate_is_open() {
        self::fd(fd, Stat::MovedFork);
    }
}

/// Closes the gate and moves everything: before a fork. Whoever calls it calls [`open_gate`] afterwards.
pub fn everything(reason: Stat) {
    GATE.fetch_add(1, Ordering::SeqCst);
    let _section = Section::enter();
    let _moving = hold_moves();
    everything_held(reason);
}

pub(crate) fn everything_held(reason: Stat) {
    // Counters whose edges are all reported go first: see `take_reported_edge`.
    for fd in table::numbers() {
        if matches!(table::get(fd), Entry::Counter(slot) if !slot.counter_queue().has_pending_edge()) {
            fd_held(fd, reason);
        }
    }
    for fd in table::numbers() {
        fd_held(fd, reason);
    }
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
    if !matches!(table::get(fd), Entry::Counter(_) | Entry::Set(_)) {
        return false;
    }
    let _section = Section::enter();
    let _moving = hold_moves();
    fd_held(fd, reason);
    true
}

fn fd_held(fd: c_int, reason: Stat) {
    match table::get(fd) {
        Entry::Counter(slot) => move_counter(slot, reason),
        Entry::Set(slot) => move_set(slot, reason),
        Entry::Kernel | Entry::Bell => {}
    }
}

fn move_counter(slot: &'static FdCounter, reason: Stat) {
    let fd = slot.fd();
    // Keeps a close by another thread from ending the object halfway; it waits for nothing.
    let Some(slot) = table::Using::begin(fd, slot) else { return };
    slot.counter_queue().refuse_watches();
    slot.place.store(whereabouts::MOVING, Ordering::SeqCst);
    let Some(value) = slot.counter.seal() else {
        slot.place.store(whereabouts::HERE, Ordering::SeqCst);
        return;
    };
    if value > 0 {
        // The kernel eventfd is at 0, so there is room for any value and the write does not block.
        let _ = sys::write(fd, (&raw const value).cast(), 8);
    }
    slot.place.store(whereabouts::IN_KERNEL, Ordering::SeqCst);
    slot.counter_queue().hand_over(to_kernel_half);
    count(reason, 1);
    if table::vacate(fd, ptr::from_ref(&*slot).addr()) {
        table::end_use(slot.slot());
    }
}

fn move_set(slot: &'static FdSet, reason: Stat) {
    let fd = slot.fd();
    let Some(set) = table::Using::begin(fd, slot) else { return };
    // Adds to this set wait for us from here on.
    set.in_kernel.store(true, Ordering::SeqCst);
    while !set.set.is_empty() {
        let mut watched = Vec::new();
        set.set.for_each(|fd, _, _, _| watched.push(fd));
        // As in `everything_held`.
        watched.sort_by_key(
            |fd| matches!(table::get(*fd), Entry::Counter(slot) if slot.counter_queue().has_pending_edge()),
        );
        for fd in watched {
            match table::get(fd) {
                Entry::Counter(slot) => move_counter(slot, Stat::MovedNestedKernel),
                Entry::Set(slot) => move_set(slot, Stat::MovedNestedKernel),
                Entry::Kernel | Entry::Bell => {}
            }
        }
        // What is left is being closed by another thread, which needs no more than its set's lock.
        if !set.set.is_empty() {
            sys::sched_yield();
        }
    }
    set.has_kernel.store(true, Ordering::SeqCst);
    set.set.wait_queue().hand_over(to_kernel_half);
    bell::remove_held(&set);
    set.set.kick_all();
    count(reason, 1);
    if table::vacate(fd, ptr::from_ref(&*set).addr()) {
        table::end_use(set.slot());
    }
}

/// Puts a watch that leaves user space into the kernel half of its set.
fn to_kernel_half(watch: Leaving) {
    let set = FdSet::of_owner(watch.owner);
    let mut events = watch.interest.bits();
    if watch.interest.intersection(Events::FLAGS) == watch.interest {
        // Disarmed by a ONESHOT report. The kernel reports ERR and HUP of what it takes for armed, and an eventfd has
        // neither; the program's next EPOLL_CTL_MOD finds it.
        events = watch.interest.intersection(Events::ONESHOT | Events::WAKEUP).bits();
    }
    let event = epoll_event { events, u64: watch.data };
    match sys::epoll_ctl(set.fd(), EPOLL_CTL_ADD, watch.fd, &raw const event) {
        Err(error) => complain(set.fd(), watch.fd, error),
        Ok(()) if watch.interest.contains(Events::ET) && !watch.pending => take_reported_edge(set),
        Ok(()) => {
            if watch.interest.intersects(Events::ET | Events::ONESHOT) && watch.pending {
                set.kernel_edges.store(true, Ordering::SeqCst);
            }
        }
    }
    set.note_kernel_watch();
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
fn complain(epfd: c_int, fd: c_int, error: sys::Errno) {
    use core::fmt::Write;
    struct Stderr;
    impl Write for Stderr {
        fn write_str(&mut self, text: &str) -> core::fmt::Result {
            let _ = sys::write(2, text.as_ptr(), text.len());
            Ok(())
        }
    }
    let errno = error.into_raw();
    let _ = writeln!(
        Stderr,
        "wakeset: epoll set {epfd} lost its watch on eventfd {fd}: the kernel refused it (errno {errno})"
    );
}

/// A lock that a `static` can hold and a forked child can replace.
struct Lazy(core::sync::atomic::AtomicPtr<ScanLock<()>>);

impl Lazy {
    const fn new() -> Self {
        Self(core::sync::atomic::AtomicPtr::new(ptr::null_mut()))
    }

    fn get(&self) -> &'static ScanLock<()> {
        let lock = self.0.load(Ordering::Acquire);
        if !lock.is_null() {
            // SAFETY: locks here are leaked.
            return unsafe { &*lock };
        }
        let fresh = ptr::from_ref(alloc::boxed::Box::leak(alloc::boxed::Box::new(ScanLock::new(())))).cast_mut();
        match self.0.compare_exchange(ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: leaked just now.
            Ok(_) => unsafe { &*fresh },
            // SAFETY: leaked by whoever was first; our own is lost, once.
            Err(first) => unsafe { &*first },
        }
    }

    fn replace(&self) {
        self.0.store(ptr::null_mut(), Ordering::Release);
    }
}

/// In a forked child: the lock may be held by a thread that does not exist.
pub(crate) fn replace_lock() {
    MOVES.replace();
}
