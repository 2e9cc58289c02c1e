//! What a thread was told of and has not accepted: a worker that declines passes the wake on.
//!
//! A wait that reports a listener makes an entry. The thread declines if it has accepted nothing
//! from that listener when it waits again, for whatever, and the connection is still there; or when
//! it stops watching the listener, closes it, or ends. Then another waiter is woken ([`baton`]). At
//! the end of the whole process no entry is looked at, because other threads have some as well
//! ([`ending`]).
//!
//! | entry | means | goes |
//! |---|---|---|
//! | told | the thread has been told of a connection | with an accept; with the connection; is passed on otherwise |
//! | passed | it has declined | with an accept; when a look has found no connection |
//!
//! A level tells a thread that has passed of the same connection again. That makes no new entry: it
//! would decline again, and wake another, in a loop. So its waits look without time before they
//! sleep. What that finds is the same as before; once it finds nothing, what comes after it, while
//! the thread sleeps, is new. An edge always is.

use super::ending;
use super::thread::WAITER;
use core::cell::Cell;
use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering};
use libc::{EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLIN, epoll_event};
use wakeset::mutated;
use wakeset_fd::fork;
use wakeset_fd::listeners::{self, End, Telling, baton};
use wakeset_fd::{set, user};

/// Listeners that a thread can be told of at a time; of any more, it passes nothing on.
const MOST: usize = 8;

#[derive(Clone, Copy)]
struct Entry {
    fd: c_int,
    has_passed: bool,
}

struct Entries {
    len: Cell<usize>,
    /// The listener that the last wait has reported, if by level: what is left there is reported
    /// again. -1 for none.
    by_level: Cell<c_int>,
    /// Whether the thread has accepted one from that listener since.
    has_taken: Cell<bool>,
    /// Whether the thread is among [`UNSETTLED`].
    is_counted: Cell<bool>,
    entries: [Cell<Entry>; MOST],
}

/// How many threads have something to look at before they wait. A thread that has finds itself
/// counted, because it has counted itself. It may be too many: after a handler that has come in
/// between, and after a thread that has not [heard of its end](ending).
static UNSETTLED: AtomicU32 = AtomicU32::new(0);

thread_local! {
    // No destructor and no lazy part, as in `thread`.
    static TOLD: Entries = const { Entries {
        len: Cell::new(0),
        by_level: Cell::new(-1),
        has_taken: Cell::new(false),
        is_counted: Cell::new(false),
        entries: [const { Cell::new(Entry { fd: -1, has_passed: false }) }; MOST],
    } };
}

impl Entries {
    fn known(&self) -> impl Iterator<Item = &Cell<Entry>> {
        self.entries.iter().take(self.len.get())
    }

    fn find(&self, fd: c_int) -> Option<&Cell<Entry>> {
        self.known().find(|entry| entry.get().fd == fd)
    }

    /// Whether the thread's next wait has nothing to look at.
    fn is_settled(&self) -> bool {
        self.len.get() == 0 && self.by_level.get() < 0
    }

    /// There is something now, or will be in a moment.
    fn count(&self) {
        if !self.is_counted.replace(true) {
            UNSETTLED.fetch_add(1, Ordering::Relaxed);
            ending::hear_of_it();
        }
    }

    /// Counts the thread out, if there is nothing. A handler may put something in at any time: what
    /// it has put in before the thread is counted out is seen after that.
    fn count_out(&self) {
        if self.is_settled() && self.is_counted.replace(false) {
            UNSETTLED.fetch_sub(1, Ordering::Relaxed);
            if !self.is_settled() {
                self.count();
            }
        }
    }

    fn put(&self, fd: c_int, has_passed: bool) {
        self.count();
        let entry = Entry { fd, has_passed };
        if let Some(known) = self.find(fd) {
            known.set(entry);
        } else if let Some(free) = self.entries.get(self.len.get()) {
            free.set(entry);
            self.len.set(self.len.get() + 1);
        }
    }

    fn remove(&self, fd: c_int) {
        let len = self.len.get();
        let last = len.checked_sub(1).and_then(|last| self.entries.get(last));
        if let (Some(last), Some(known)) = (last, self.find(fd)) {
            known.set(last.get());
            self.len.set(len - 1);
        }
    }

    /// Goes through the entries, passes on what is declined, and keeps what was passed on.
    #[cold]
    fn review(&self) {
        // The notes of a vfork(2) child are its parent's.
        if fork::is_foreign() {
            return;
        }
        self.by_level.set(-1);
        let len = self.len.replace(0);
        for entry in self.entries.iter().take(len).map(Cell::get) {
            if entry.has_passed {
                self.put(entry.fd, true);
                continue;
            }
            // What becomes of a listener that is closed is passed on by then.
            if listeners::is_listener(entry.fd) && listeners::is_ready(entry.fd) {
                decline(entry.fd);
                if !mutated!("declined_again") {
                    self.put(entry.fd, true);
                }
            }
        }
    }
}

/// Wakes another waiter for a connection that this thread leaves.
fn decline(fd: c_int) {
    baton::decline(baton::note_of(listeners::inode(fd)));
}

/// The program is about to be told of a connection on this listener. Each edge is a new one.
pub(super) fn note(fd: c_int, is_edge: bool) {
    TOLD.with(|told| {
        let has_passed = || told.find(fd).is_some_and(|entry| entry.get().has_passed);
        if is_edge || !has_passed() {
            told.put(fd, false);
        }
        told.count();
        told.by_level.set(if is_edge { -1 } else { fd });
        told.has_taken.set(false);
    });
}

/// This thread was woken for a connection on this listener, and will not be told of it.
pub(super) fn note_unseen(fd: c_int) {
    TOLD.with(|told| told.put(fd, false));
}

/// This thread has taken a connection from this listener.
#[inline]
pub(super) fn note_accept(fd: c_int) {
    TOLD.with(|told| {
        told.remove(fd);
        if told.by_level.get() == fd {
            told.has_taken.set(true);
        }
    });
}

/// Whether this thread was told of this listener by level and has accepted one connection since: it
/// is told again of what it leaves there.
#[inline]
pub(super) fn has_taken_one(fd: c_int) -> bool {
    TOLD.with(|told| told.has_taken.get() && told.by_level.get() == fd)
}

/// Whether this thread has declined something, so that its waits look before they sleep.
pub(super) fn has_passed() -> bool {
    TOLD.with(|told| told.known().any(|entry| entry.get().has_passed))
}

/// A wait that watches this listener has looked without time, and found no connection.
pub(super) fn saw_none(fd: c_int) {
    TOLD.with(|told| told.remove(fd));
}

/// The same for what sets tell it of.
pub(super) static TELLING: Telling =
    Telling { tell: note_set, wake, hold_as, looks_first: has_passed, saw_none };

fn wake(fd: c_int) {
    WAITER.with(|waiter| waiter.woken.set(fd));
}

/// [`note`] of what a set tells: the thread has waited, and is not back for one more.
fn note_set(fd: c_int, is_edge: bool) {
    WAITER.with(|waiter| waiter.accepted.set(-1));
    note(fd, is_edge);
}

/// What this thread accepts from now on is a set's.
fn hold_as(holder: u8) {
    WAITER.with(|waiter| waiter.holder.set(holder));
}

#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = at_end;

/// At the end of the process, by exit(3).
extern "C" fn at_end() {
    ending::before_end(End::Exit);
}

/// Before this thread waits again, for whatever, or ends: passes on what it was told of and has not
/// accepted.
#[inline]
pub(crate) fn before_wait() {
    if has_told() {
        review();
    }
}

/// Before this thread ends: the same, and nothing is left of it.
pub(super) fn at_thread_end() {
    before_wait();
    TOLD.with(|told| {
        if mutated!("ended_thread_stays_told") {
            return;
        }
        told.len.set(0);
        told.by_level.set(-1);
        told.count_out();
    });
}

/// In a forked child: of its parent's threads it has the one that has forked, and of that one's
/// wakes none.
pub(crate) fn begin_in_child() {
    WAITER.with(|waiter| waiter.woken.set(-1));
    if has_told() && !mutated!("child_keeps_told_threads") {
        UNSETTLED.store(TOLD.with(|told| u32::from(told.is_counted.get())), Ordering::Relaxed);
    }
}

/// Whether a thread of the process may have something to look at before it waits.
#[inline(always)]
pub(crate) fn has_told() -> bool {
    UNSETTLED.load(Ordering::Relaxed) != 0
}

#[cold]
fn review() {
    TOLD.with(|told| {
        if !told.is_settled() {
            told.review();
        }
        told.count_out();
    });
}

/// Whether this number is a listener with a connection that others could be told of. Inlined is
/// what a process without listeners comes to see: that it has no baton.
#[inline(always)]
pub(crate) fn has_left(fd: c_int) -> bool {
    #[cold]
    fn look(fd: c_int) -> bool {
        listeners::is_known_listener(fd) && listeners::is_ready(fd)
    }
    baton::number() >= 0 && look(fd)
}

/// After epoll_ctl(2): a set that watches a listener no longer may have used up the wake for a
/// connection without having reported it.
///
/// # Safety
/// As epoll_ctl(2), which the kernel has just answered.
#[inline(always)]
pub(crate) unsafe fn after_change(epfd: c_int, op: c_int, fd: c_int, event: *const epoll_event) {
    if baton::number() >= 0 {
        // SAFETY: as the caller's.
        unsafe { after_change_among_others(epfd, op, fd, event) };
    }
}

/// # Safety
/// As [`after_change`].
#[cold]
unsafe fn after_change_among_others(epfd: c_int, op: c_int, fd: c_int, event: *const epoll_event) {
    let has_gone = match op {
        EPOLL_CTL_DEL => true,
        // SAFETY: any bits are an event.
        EPOLL_CTL_MOD => unsafe { user::load(event) }
            .is_some_and(|epoll_event { events, .. }| events & EPOLLIN as u32 == 0),
        _ => false,
    };
    if has_gone && listeners::is_known_listener(fd) && may_have_left(epfd, fd) && has_left(fd) {
        leave(fd);
    }
}

/// Whether this thread was told of a connection and has not accepted, another thread may be about
/// to, or the set may have used up a wake of which it has told nobody.
fn may_have_left(epfd: c_int, fd: c_int) -> bool {
    let may_be_told = TOLD.with(|told| {
        let others = UNSETTLED.load(Ordering::Relaxed) > u32::from(told.is_counted.get());
        others && !mutated!("removed_by_another")
            || told.len.get() == MOST
            || told.find(fd).is_some()
    });
    may_be_told || set::may_have_left(epfd, fd)
}

/// Passes on the wake for a connection on a listener that this thread no longer watches.
fn leave(fd: c_int) {
    TOLD.with(|told| {
        if !told.find(fd).is_some_and(|known| known.get().has_passed) {
            decline(fd);
            told.put(fd, true);
        }
    });
}

/// Closes a number with `call`.
#[inline]
pub(crate) fn around_close<T>(fd: c_int, call: impl FnOnce() -> T) -> T {
    let left = has_left(fd).then(|| baton::note_of(listeners::inode(fd)));
    let result = call();
    if let Some(note) = left {
        baton::decline(note);
    }
    result
}
