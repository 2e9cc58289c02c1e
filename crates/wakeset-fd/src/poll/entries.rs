//! What a call asks for, as an array of pollfd of our own, and one look at all of it.
//!
//! An entry whose number stands for an object here has that number inverted while the kernel has
//! the array, because the kernel passes over what is negative.

use crate::migrate;
use crate::set::FdSet;
use crate::stats::Stat;
use crate::sys::signal_guard::SignalGuard;
use crate::sys::steps::step;
use crate::sys::{self, Errno, user};
use crate::table::away::Begun;
use crate::table::{self, Bytes, Entry, Held, SlotHead};
use core::cell::Cell;
use core::ffi::c_int;
use core::sync::atomic::Ordering;
use core::time::Duration;
use libc::{POLLERR, POLLHUP, POLLNVAL, pollfd};
use wakeset::Source;

/// A program's call: where its entries come from, and where they go.
pub(super) trait Asked {
    /// How many entries there are.
    fn len(&self) -> usize;

    /// Fills in the entries; `false` if the program's memory is not there.
    fn load(&self, entries: &[Cell<pollfd>]) -> bool;

    /// How many the call counts as ready. `None`: only the kernel can say what the call returns.
    fn count(&self, entries: &[Cell<pollfd>]) -> Option<usize>;

    /// Tells the program; `false` if its memory is not there.
    fn store(&self, entries: &[Cell<pollfd>]) -> bool;

    /// Before the call fails with EINTR, when its entries are gone; `false` as above.
    fn store_interrupted(&self) -> bool;
}

/// An entry that asks for nothing.
pub(super) const NONE: pollfd = pollfd { fd: NO_NUMBER, events: 0, revents: 0 };
/// Stands for any negative number: its inverse is no descriptor's either, because Linux has none
/// so high.
pub(super) const NO_NUMBER: c_int = c_int::MIN;

/// The number of an entry; `None` for a negative one.
pub(super) fn number(entry: pollfd) -> Option<c_int> {
    match entry.fd {
        NO_NUMBER => None,
        fd if fd < 0 => Some(!fd),
        fd => Some(fd),
    }
}

/// The bits that an entry is told of. What only flags of an event are called in epoll(7) lies
/// beyond these 16.
pub(super) fn mask_of(entry: pollfd) -> u32 {
    u32::from((entry.events | POLLERR | POLLHUP) as u16)
}

/// poll(2)'s array.
pub(super) struct Polled {
    fds: *mut pollfd,
    n: usize,
}

impl Polled {
    pub(super) fn new(fds: *mut pollfd, n: usize) -> Self {
        Self { fds, n }
    }
}

impl Asked for Polled {
    fn len(&self) -> usize {
        self.n
    }

    fn load(&self, entries: &[Cell<pollfd>]) -> bool {
        (0..self.n).zip(entries).all(|(i, entry)| {
            // SAFETY: any bits are a pollfd.
            let asked = unsafe { user::load(self.fds.cast_const().wrapping_add(i)) };
            asked.is_some_and(|asked: pollfd| {
                let fd = if asked.fd < 0 { NO_NUMBER } else { asked.fd };
                entry.set(pollfd { fd, revents: 0, ..asked });
                true
            })
        })
    }

    fn count(&self, entries: &[Cell<pollfd>]) -> Option<usize> {
        Some(entries.iter().filter(|entry| entry.get().revents != 0).count())
    }

    fn store(&self, entries: &[Cell<pollfd>]) -> bool {
        (0..self.n).zip(entries).all(|(i, entry)| self.store_one(i, entry.get().revents))
    }

    /// Linux has looked at every entry by then, and found nothing.
    fn store_interrupted(&self) -> bool {
        (0..self.n).all(|i| self.store_one(i, 0))
    }
}

impl Polled {
    fn store_one(&self, i: usize, revents: i16) -> bool {
        let place = self.fds.wrapping_byte_add(i * size_of::<pollfd>() + REVENTS);
        // SAFETY: the caller of poll(2) gives the memory.
        unsafe { user::store_u16(place.cast(), revents as u16) }
    }
}

const REVENTS: usize = core::mem::offset_of!(pollfd, revents);

/// What a look has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Looked {
    /// The kernel has to be asked as well before a sleep, or the objects here alone.
    At { kernel: bool },
    /// Nothing that is named is in process, or may come home.
    NothingHere,
    /// The kernel says that the call fails.
    Failed(Errno),
}

/// Why a look has to be repeated.
pub(super) enum Unready {
    /// This set has a kernel half, of which only its number tells, and that not of the other half.
    Set(c_int),
    /// Sets in one of the sets were on their way to the kernel, or a number stood for something
    /// that was on its way to its end.
    Migrating,
}

impl Unready {
    /// Does what it takes. The caller has no doorbell.
    pub(super) fn settle(self) {
        match self {
            Self::Set(fd) => drop(migrate::fd(fd, Stat::MigratedPoll)),
            Self::Migrating => migrate::wait_for_migrations(),
        }
    }
}

/// Which entries a look is at.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    All,
    /// Those that the kernel has to be asked about are told as not ready.
    Here,
}

/// Looks at all entries, and says in each what holds now. What may come home it gives to `away`,
/// which keeps it in the kernel, or counts the call in it, so that it does not come home before the
/// call is over. The caller has a signal guard.
#[inline(always)]
pub(super) fn look(
    entries: &[Cell<pollfd>],
    of: Of,
    away: impl Fn(c_int) -> Begun,
) -> Result<Looked, Unready> {
    let (mut here, mut kernel) = (false, false);
    let (mut before, mut has_sets) = (0, false);
    let mut lives_here = Span::new();
    for (at, entry) in entries.iter().enumerate() {
        let mut now = entry.get();
        let Some(fd) = number(now) else { continue };
        (now.fd, now.revents) = (!fd, 0);
        if table::is_vacant(fd) {
            kernel = true;
            entry.set(pollfd { fd, ..now });
            continue;
        }
        // Before the set is looked at.
        if let Some(of_set) = unsettled_at(fd) {
            has_sets = true;
            before = add_unsettled(before, of_set);
        }
        match look_up(fd, &mut now, &away)? {
            Lives::Here => here = true,
            Lives::Hidden => {}
            Lives::InKernel => kernel = true,
            Lives::Counted => (here, kernel) = (true, true),
        }
        if now.fd < 0 {
            lives_here.add(at);
        }
        entry.set(now);
    }
    if !here {
        return Ok(Looked::NothingHere);
    }
    if kernel && of == Of::All {
        if let Err(errno) = look_in_kernel(entries) {
            return Ok(Looked::Failed(errno));
        }
        if !look_here(lives_here.of(entries)) {
            // Neither half has been asked about what moved in between.
            return Err(Unready::Migrating);
        }
    }
    // Without sets, one may have come under a number that has been looked at here.
    let again = if has_sets { entries } else { lives_here.of(entries) };
    let after = unsettled(again.iter().filter(|entry| has_sets || entry.get().fd < 0));
    let is_settled = before % 2 == 0 && before == after;
    if is_settled { Ok(Looked::At { kernel }) } else { Err(Unready::Migrating) }
}

/// Where what a number stands for lives.
enum Lives {
    Here,
    /// Nowhere, to the program.
    Hidden,
    InKernel,
    /// There, and it does not come home before the call is over.
    Counted,
}

/// Looks at one entry, for [`look`].
#[inline(always)]
fn look_up(fd: c_int, now: &mut pollfd, away: &impl Fn(c_int) -> Begun) -> Result<Lives, Unready> {
    let (found, _held) = find(fd);
    let lives = match found {
        Found::Object(head) => {
            now.revents = events_of(head, *now).ok_or(Unready::Migrating)?;
            return Ok(Lives::Here);
        }
        Found::Hidden => {
            now.revents = POLLNVAL;
            return Ok(Lives::Hidden);
        }
        Found::SetWithBoth => return Err(Unready::Set(fd)),
        Found::Away => match away(fd) {
            Begun::Again => return Err(Unready::Migrating),
            Begun::Counted => Lives::Counted,
            Begun::Left => Lives::InKernel,
        },
        Found::Kernel => Lives::InKernel,
    };
    now.fd = fd;
    Ok(lives)
}

/// The entries from the first that lives here to the last. Mostly there are few among many.
#[derive(Clone, Copy)]
pub(super) struct Span {
    first: usize,
    end: usize,
}

impl Span {
    #[inline(always)]
    pub(super) fn new() -> Self {
        Self { first: usize::MAX, end: 0 }
    }

    #[inline(always)]
    pub(super) fn add(&mut self, at: usize) {
        self.first = self.first.min(at);
        self.end = at + 1;
    }

    #[inline(always)]
    pub(super) fn is_empty(self) -> bool {
        self.end == 0
    }

    #[inline(always)]
    pub(super) fn of(self, entries: &[Cell<pollfd>]) -> &[Cell<pollfd>] {
        entries.get(self.first..self.end).unwrap_or_default()
    }
}

/// Looks at the objects that the entries named when the kernel got them. Returns whether all of
/// them are still here: one that has left meanwhile, or ended, is told as not ready, which another
/// look has to find out.
#[must_use]
pub(super) fn look_here(entries: &[Cell<pollfd>]) -> bool {
    let mut are_here = true;
    for entry in entries.iter().filter(|entry| entry.get().fd < 0) {
        let now = entry.get();
        let Some(fd) = number(now) else { continue };
        let (found, _held) = find(fd);
        let revents = match found {
            Found::Object(head) => events_of(head, now),
            Found::Hidden => Some(POLLNVAL),
            // It has just left: the next look asks the kernel.
            Found::Kernel | Found::Away | Found::SetWithBoth => None,
        };
        are_here &= revents.is_some();
        entry.set(pollfd { revents: revents.unwrap_or(0), ..now });
    }
    are_here
}

/// Whether all numbers still stand for what they did at the last look, and none for a set, whose
/// halves are looked at one after the other.
pub(super) fn are_plain(entries: &[Cell<pollfd>]) -> bool {
    entries.iter().map(Cell::get).all(|entry| match number(entry) {
        None => true,
        Some(fd) if entry.fd < 0 => unsettled_at(fd).is_none(),
        Some(fd) => table::is_vacant(fd),
    })
}

/// Whether one of the objects here has something to tell, or is no longer here.
pub(super) fn may_have_news(entries: &[Cell<pollfd>]) -> bool {
    let _guard = SignalGuard::enter();
    entries.iter().map(Cell::get).filter(|entry| entry.fd < 0).any(|entry| {
        let Some(fd) = number(entry) else { return false };
        let (found, _held) = find(fd);
        match found {
            Found::Object(head) => events_of(head, entry) != Some(0),
            Found::Hidden | Found::Kernel | Found::Away | Found::SetWithBoth => true,
        }
    })
}

/// Asks the kernel about its entries; the others get 0.
///
/// # Errors
/// As ppoll(2), but for EINTR: the kernel has found nothing then.
#[inline(always)]
pub(super) fn look_in_kernel(entries: &[Cell<pollfd>]) -> Result<usize, Errno> {
    let place = entries.as_ptr().cast_mut().cast::<pollfd>();
    match sys::poll_entries(place, entries.len(), Duration::ZERO) {
        Err(Errno::EINTR) => Ok(0),
        result => result,
    }
}

/// What a number stands for, to a poll.
pub(super) enum Found {
    Object(&'static SlotHead),
    /// A set with watches in both halves.
    SetWithBoth,
    Hidden,
    /// What may come home.
    Away,
    Kernel,
}

/// Looks a number up. What it stands for does not end while the use is held: of an object with
/// several numbers, this one may be closed meanwhile.
#[inline]
pub(super) fn find(fd: c_int) -> (Found, Held) {
    // A poll shows nobody the object, as a read does not.
    let (found, held) = table::get_held_for_poll(fd);
    let found = match found {
        Bytes::Entry(Entry::Object(head)) if head.kind() == table::SET => find_set(head),
        Bytes::Entry(Entry::Object(head)) => Found::Object(head),
        Bytes::Entry(Entry::Doorbell) => Found::Hidden,
        Bytes::Entry(Entry::Kernel) => Found::Kernel,
        Bytes::Away => Found::Away,
    };
    (found, held)
}

fn find_set(head: &'static SlotHead) -> Found {
    match head.downcast::<FdSet>() {
        Some(set) if set.state.is_watched_as_number() => Found::Kernel,
        Some(set) if !set.state.is_pure() => Found::SetWithBoth,
        _ => Found::Object(head),
    }
}

/// What an entry is told of an object that has been found under its number. `None`: the object has
/// ended since, so that the number is to be looked up again. In Linux the call would have held the
/// file. No more is needed where the number stands for another object by now, and this one goes on:
/// it was found before that, and what holds of it is what Linux would say.
#[inline]
fn events_of(head: &'static SlotHead, entry: pollfd) -> Option<i16> {
    step!(poll_found);
    head.object().poll_found().map(|events| (events.bits() & mask_of(entry)) as i16)
}

/// Changes when a set in one of the sets begins to migrate, and when that is over; odd meanwhile.
fn unsettled<'a>(entries: impl Iterator<Item = &'a Cell<pollfd>>) -> u32 {
    let of = |entry: &Cell<pollfd>| number(entry.get()).and_then(unsettled_at);
    entries.filter_map(of).fold(0, add_unsettled)
}

/// The number's part in that; `None` if it is not a set's.
fn unsettled_at(fd: c_int) -> Option<u32> {
    match table::peek(fd) {
        Entry::Object(head) if head.kind() == table::SET => {
            Some(head.downcast::<FdSet>().map_or(0, |set| set.unsettled.load(Ordering::SeqCst)))
        }
        _ => None,
    }
}

fn add_unsettled(all: u32, one: u32) -> u32 {
    all.wrapping_add(one & !1) | one & 1
}

/// The object as a source.
pub(super) fn source_of(head: &'static SlotHead) -> &'static dyn Source {
    head.object()
}

#[cfg(all(test, not(loom)))]
mod tests;
