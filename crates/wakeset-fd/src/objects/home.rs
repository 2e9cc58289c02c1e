//! The way home: a call that finds its object away brings it home, or is made on the kernel object
//! and counted there. `docs/design/home.md` has why that is exact.

use crate::objects::{counter, pipe};
use crate::sys::cancel;
use crate::sys::process::is_owner;
use crate::sys::refusable::refusable;
use crate::sys::signal_guard::{self, SignalGuard};
use crate::sys::verdict::Verdict;
use crate::sys::{self, Errno};
use crate::table::away::{self, Begun, Return, Watched};
use crate::table::migrating::Migrating;
use crate::table::object::Host;
use crate::table::{self, Entry, SlotHead, gate};
use core::ffi::c_int;
use core::ptr;
use libc::iovec;
use wakeset::{Event, Events, mutated};

/// A write of an object that is away. `None`: it has come home, or is just coming; look the number
/// up again.
pub(crate) fn write(
    fd: c_int,
    call: impl FnOnce() -> Result<usize, Errno>,
) -> Option<Verdict<usize>> {
    if (!comes_empty(fd) || mutated!("edge_is_tried_unread")) && comes(fd) {
        return None;
    }
    counted(fd, call)
}

/// A read of one, as [`write`].
pub(crate) fn read(
    fd: c_int,
    call: impl FnOnce() -> Result<usize, Errno>,
) -> Option<Verdict<usize>> {
    if !comes_empty(fd) {
        return if comes(fd) { None } else { counted(fd, call) };
    }
    let verdict = counted(fd, call)?;
    // Now it is empty, unless somebody has just written.
    if matches!(verdict, Verdict::Done(Ok(_) | Err(Errno::EAGAIN))) {
        let _ = comes(fd);
    }
    Some(verdict)
}

/// Whether what is away comes home only while it is empty: it is a pair, or edges of it are
/// reported.
fn comes_empty(fd: c_int) -> bool {
    let has_edges = |asked: Event| asked.events.contains(Events::ET);
    away::kind(fd) == Some(table::PIPE)
        || matches!(away::watched(fd), Watched::By { asked, .. } if has_edges(asked))
}

/// Brings an eventfd or a pair home, if that is due.
fn comes(fd: c_int) -> bool {
    let kind = away::kind(fd);
    // Timers come home by calls of their own, and sets have none of these.
    if !matches!(kind, Some(table::COUNTER | table::PIPE)) || !away::is_due(fd) {
        return false;
    }
    if kind == Some(table::PIPE) {
        return pair_is_due(fd);
    }
    is_set_here(fd)
        && come([fd], |is_semaphore| {
            with_watch(fd, |watcher| counter::come_home(fd, is_semaphore, watcher).into())
        })
}

/// Brings an object with one number home by `make`, with its watch, as [`come`].
pub(crate) fn come_watched(fd: c_int, make: impl FnOnce(Option<Watcher>) -> Return) -> bool {
    is_set_here(fd) && come([fd], |_| with_watch(fd, make))
}

/// Brings a pair home, of which one end is found away.
#[cold]
fn pair_is_due(fd: c_int) -> bool {
    let numbers = pipe::numbers_away(fd).or_else(|| {
        // The other end may just be leaving.
        gate::wait_for_migrations();
        pipe::numbers_away(fd)
    });
    let Some(numbers) = numbers else {
        let _ = away::doubt(fd);
        return false;
    };
    let other = if numbers[0] == fd { numbers[1] } else { numbers[0] };
    is_set_here(fd)
        && is_set_here(other)
        && away::may_return(other)
        && come([fd, other], |_| pair_comes(fd, numbers))
}

/// A call on the kernel object of a number that is away, where nothing has come home. `None`: look
/// the number up again.
pub(crate) fn counted<T>(fd: c_int, call: impl FnOnce() -> Result<T, Errno>) -> Option<Verdict<T>> {
    // As any call on a kernel object.
    counted_whole(fd, || cancel::point(call))
}

/// The same of a call in which no thread is cancelled.
pub(crate) fn counted_whole<T>(
    fd: c_int,
    call: impl FnOnce() -> Result<T, Errno>,
) -> Option<Verdict<T>> {
    // First: a handler may fork at any moment.
    let forks = away::forks();
    match away::begin_call(fd) {
        Begun::Again => None,
        Begun::Left => Some(Verdict::Kernel),
        Begun::Counted => {
            let result = call();
            away::end_call(fd, forks);
            Some(Verdict::Done(result))
        }
    }
}

/// Brings an object home by `make`, as [`away::bring_home`], if nothing is in the way.
#[cold]
pub(crate) fn come<const N: usize>(numbers: [c_int; N], make: impl FnOnce(bool) -> Return) -> bool {
    if signal_guard::is_inside() || !is_owner() {
        return false;
    }
    let _guard = SignalGuard::enter();
    let _migrating = gate::hold_migrations();
    // A fork or a vfork(2) waits for us, or its child has the number already.
    gate::is_open() && away::bring_home(numbers, make)
}

/// Whether what is under a number does not block, which fcntl(2) may have changed since it left;
/// `None` if that cannot be told.
pub(crate) fn is_nonblocking(fd: c_int) -> Option<bool> {
    let flags = sys::fcntl(fd, libc::F_GETFL, 0).ok()?;
    Some(flags & libc::O_NONBLOCK != 0)
}

/// Reads 8 bytes from what is under a number, without ever waiting.
///
/// # Errors
/// EAGAIN, or what a kernel says that cannot do so.
pub(crate) fn read_now(fd: c_int) -> Result<u64, Errno> {
    let mut value = 0_u64;
    let buffer = iovec { iov_base: (&raw mut value).cast(), iov_len: 8 };
    let (vectors, offset) = (&raw const buffer, usize::MAX);
    match refusable!(preadv2, fd, vectors, 1, offset, offset, libc::RWF_NOWAIT)? {
        8 => Ok(value),
        _ => Err(Errno::EINVAL),
    }
}

/// A set that watches what comes home, in its kernel half so far.
#[derive(Clone, Copy)]
pub(crate) struct Watcher {
    set: &'static dyn Host,
    pub(crate) asked: Event,
}

impl Watcher {
    /// Takes the watch out of the kernel half. `false`: it is not there, because the number stands
    /// for another file by now.
    pub(crate) fn give_up(&self, fd: c_int) -> bool {
        let was_there = self.set.give_up_watch(fd, self.asked) || mutated!("next_file_is_watched");
        if !was_there {
            away::lose_watch(fd);
        }
        was_there
    }

    /// Watches the object here.
    pub(crate) fn take_back(&self, fd: c_int, source: &'static SlotHead) -> bool {
        self.set.take_back(fd, source, self.asked)
    }

    /// Watches it in the kernel half again.
    pub(crate) fn leave(&self, fd: c_int) {
        self.set.leave_watch(fd, self.asked);
    }
}

fn set_at(fd: c_int) -> Option<&'static SlotHead> {
    match table::peek(fd) {
        Entry::Object(head) if head.kind() == table::SET => Some(head),
        _ => None,
    }
}

/// Whether the set that watches an object is here, if there is one. If it is the kernel's for good,
/// so is the object.
fn is_set_here(fd: c_int) -> bool {
    match away::watched(fd) {
        Watched::No => true,
        // In this order: it may come home in between.
        Watched::By { set, .. } if away::is(set) => false,
        Watched::By { set, .. } if set_at(set).is_some() => true,
        Watched::By { .. } | Watched::Unclear => {
            let _ = away::doubt(fd);
            false
        }
    }
}

/// Sets that watch what comes home. Until they go their numbers stay what they are, and a wait that
/// finds nothing in one of them looks again.
struct Sets {
    marked: Migrating,
    begun: [Option<&'static dyn Host>; 2],
}

impl Sets {
    const fn none() -> Self {
        Self { marked: Migrating::none(), begun: [None; 2] }
    }

    /// The set under a number, which is to watch here what it watches in its kernel half, under
    /// `fd`. `None`: not now, or it does not. In that case the next call keeps the object there.
    fn begin(&mut self, fd: c_int, set: c_int, asked: Event) -> Option<&'static dyn Host> {
        let head = set_at(set)?;
        let set = head.object().as_host()?;
        if self.marked.iter().any(|marked| ptr::eq(marked, head)) {
            // It watches both ends of a pair.
            return Some(set);
        }
        let place = self.begun.iter_mut().find(|place| place.is_none())?;
        if !self.marked.begin(head) {
            return None;
        }
        if set.begin_return(asked) {
            *place = Some(set);
        } else {
            away::lose_watch(fd);
        }
        *place
    }
}

impl Drop for Sets {
    fn drop(&mut self) {
        self.begun.into_iter().flatten().for_each(Host::toggle_unsettled);
    }
}

/// An object with one number comes home by `make`, with its watch. The caller holds the migrations
/// lock.
fn with_watch(fd: c_int, make: impl FnOnce(Option<Watcher>) -> Return) -> Return {
    let Watched::By { set, asked } = away::watched(fd) else { return make(None) };
    let mut sets = Sets::none();
    let Some(set) = sets.begin(fd, set, asked) else { return Return::Later };
    make(Some(Watcher { set, asked }))
}

/// A pair comes home, with the watches of its ends. The caller holds the migrations lock.
fn pair_comes(fd: c_int, numbers: [c_int; 2]) -> Return {
    // Both have set out, so this does not change any more.
    if pipe::numbers_away(fd) != Some(numbers) {
        return Return::Never;
    }
    let watched = numbers.map(away::watched);
    // One set may watch both ends, so it is asked for both.
    let edges = watched.map(|watched| match watched {
        Watched::By { asked, .. } => asked.events & Events::ET,
        Watched::No | Watched::Unclear => Events::empty(),
    });
    let edges = Event::new(edges[0] | edges[1], 0);
    let mut sets = Sets::none();
    let mut watchers = [None; 2];
    for ((number, watched), watcher) in numbers.into_iter().zip(watched).zip(&mut watchers) {
        let Watched::By { set, asked } = watched else { continue };
        let Some(set) = sets.begin(number, set, edges) else { return Return::Later };
        *watcher = Some(Watcher { set, asked });
    }
    pipe::come_home(numbers, watchers)
}
