//! What is known of each number: whether it is a listening socket, and where its counts are.
//!
//! What a number stands for is asked once, with getsockopt(2), and remembered until a hooked call
//! gives the number away. Calls that are not hooked may do so too. A listener that is taken for
//! something else is left to the kernel. Something else that is taken for a listener is found out
//! when it is to be watched as one ([`confirm`]).

use super::alone;
use crate::stats::{ADDRESS_BYTES, ListenerStat, count};
use crate::sys;
use crate::sys::reserved::{self, NUMBERS, Reserved};
use core::ffi::c_int;
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use wakeset::probe;

/// What each number is: one of the three constants, or a listener with an index in the page of
/// counts.
static KINDS: Reserved<AtomicU8, NUMBERS> = Reserved::new();
/// What a number is that has no entry.
const UNKNOWN: u8 = 0;
const OTHER: u8 = 1;
const LISTENER: u8 = 2;
/// From here on: a listener, and its index.
const COUNTED: u8 = 3;
/// One above the highest number of which something is known.
static END: AtomicU32 = AtomicU32::new(0);

/// Counts up when a number may no longer be the listener that it was.
static GENERATION: AtomicU32 = AtomicU32::new(0);

#[inline]
fn kind(fd: c_int) -> Option<&'static AtomicU8> {
    KINDS.get(fd as u32 as usize)
}

fn remember(fd: c_int, now: u8) {
    if let Some(kind) = KINDS.place(fd as u32 as usize) {
        reserved::raise(&END, fd as u32 + 1);
        kind.store(now, Ordering::Relaxed);
    }
}

/// Returns whether a number is a listening socket, as far as is known.
pub fn is_listener(fd: c_int) -> bool {
    let known = || kind(fd).map_or(UNKNOWN, |kind| kind.load(Ordering::Relaxed));
    match known() {
        UNKNOWN => {}
        now => return now >= LISTENER,
    }
    match sys::socket_option(fd, libc::SO_ACCEPTCONN) {
        Ok(0) => remember(fd, OTHER),
        Ok(_) => remember(fd, LISTENER),
        Err(sys::Errno::ENOTSOCK) => remember(fd, OTHER),
        // Closed: what will come under this number is not known. Or a filter refuses the call.
        Err(_) => return false,
    }
    // What cannot be remembered is left to the kernel.
    known() >= LISTENER
}

/// Returns whether a number is known not to be a listening socket, without asking the kernel.
#[inline(always)]
pub fn is_known_other(fd: c_int) -> bool {
    is_other(kinds(), fd as u32)
}

/// What numbers are, for [`is_other`].
#[inline(always)]
pub(crate) fn kinds() -> &'static [AtomicU8] {
    KINDS.all()
}

/// [`is_known_other`] by what numbers are.
#[inline(always)]
pub(crate) fn is_other(kinds: &[AtomicU8], fd: u32) -> bool {
    kinds.get(fd as usize).is_some_and(|kind| kind.load(Ordering::Relaxed) == OTHER)
}

/// Returns whether a number is a stream socket, which may be a listener one day.
pub fn is_stream(fd: c_int) -> bool {
    sys::socket_option(fd, libc::SO_TYPE) == Ok(libc::SOCK_STREAM)
}

/// Returns whether a number is known to be a listening socket, without asking the kernel.
#[inline]
pub fn is_known_listener(fd: c_int) -> bool {
    kind(fd).is_some_and(|kind| kind.load(Ordering::Relaxed) >= LISTENER)
}

/// Returns whether a number is a listening socket now, and not only was when that was remembered.
pub(crate) fn confirm(fd: c_int) -> bool {
    is_listener(fd) && {
        forget(fd);
        is_listener(fd)
    }
}

/// Forgets what is known of a number, which is, or is about to be, something else.
#[inline]
pub fn forget(fd: c_int) {
    alone::end_alone(fd);
    forget_kind(fd);
}

/// Forgets what a number is: a socket begins to listen, or ends it.
#[inline]
pub fn forget_kind(fd: c_int) {
    if let Some(kind) = kind(fd)
        && kind.load(Ordering::Relaxed) != UNKNOWN
        && kind.swap(UNKNOWN, Ordering::Relaxed) >= LISTENER
    {
        GENERATION.fetch_add(1, Ordering::Relaxed);
    }
}

/// Forgets that a number is a listener: it is about to be connected, and will be none.
#[inline]
pub fn forget_listener(fd: c_int) {
    if is_known_listener(fd) {
        forget(fd);
    }
}

/// The numbers that are known to be listening sockets.
pub(super) fn listeners() -> impl Iterator<Item = c_int> {
    (0..END.load(Ordering::Relaxed)).map(|fd| fd as c_int).filter(|fd| is_known_listener(*fd))
}

/// [`forget`] for all numbers from `first` to `last`.
pub fn forget_range(first: u32, last: u32) {
    alone::end_range(first, last);
    for fd in first..last.saturating_add(1).min(END.load(Ordering::Relaxed)) {
        forget_kind(fd as c_int);
    }
}

/// A number that changes whenever a number may no longer be the listener that it was.
pub fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Remembers that a number has come from accept(2): a connection does not listen.
pub fn note_connection(fd: c_int) {
    remember(fd, OTHER);
}

/// Counts for a listener, if the process counts. Other numbers are ignored.
#[inline]
pub fn count(fd: c_int, stat: ListenerStat) {
    probe!(turn, i32 fd, u32 stat);
    if count::is_on() {
        count_for(fd, stat);
    }
}

#[cold]
fn count_for(fd: c_int, stat: ListenerStat) {
    if !is_listener(fd) {
        return;
    }
    let Some(kind) = kind(fd) else { return };
    forget_indices_of_older_pages();
    let known = kind.load(Ordering::Relaxed).checked_sub(COUNTED).map(usize::from);
    let index = count::count_listener(stat, |page| {
        known.or_else(|| {
            let mut address = [0_u8; ADDRESS_BYTES];
            let mut len = address.len() as libc::socklen_t;
            sys::raw!(getsockname, fd, address.as_mut_ptr(), &raw mut len).ok()?;
            page.index_of_listener(address.get(..len as usize)?)
        })
    });
    if let (None, Some(index)) = (known, index) {
        kind.store(COUNTED + index as u8, Ordering::Relaxed);
    }
}

/// The page that the known indices are of.
static INDEXED_PAGE: AtomicU32 = AtomicU32::new(0);

fn forget_indices_of_older_pages() {
    let page = count::page_generation();
    if INDEXED_PAGE.load(Ordering::Relaxed) == page {
        return;
    }
    for kind in (0..END.load(Ordering::Relaxed)).filter_map(|fd| kind(fd as c_int)) {
        let now = kind.load(Ordering::Relaxed);
        if now >= COUNTED {
            // Unless the number has become something else meanwhile.
            let _ = kind.compare_exchange(now, LISTENER, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
    INDEXED_PAGE.store(page, Ordering::Relaxed);
}
