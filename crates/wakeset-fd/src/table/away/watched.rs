//! Which set watches an object that is away, in its kernel half: noted when the watch goes there,
//! because nothing but a doubt changes it after that. The migrations lock guards the notes.

use crate::sys::reserved::{NUMBERS, Reserved};
use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering};
use wakeset::{DetachedWatch, Event, Events};

/// By number: the set's number plus one, and above it what the watch asks for.
static SETS: Reserved<AtomicU64, NUMBERS> = Reserved::new();
const INTEREST: u32 = 32;
const NONE: u32 = 0;
/// More than one set, or one that cannot be named.
const SEVERAL: u32 = u32::MAX;
/// By number: what the watch reports.
static DATA: Reserved<AtomicU64, NUMBERS> = Reserved::new();

/// What is noted of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watched {
    No,
    By { set: c_int, asked: Event },
    Unclear,
}

fn place(array: &'static Reserved<AtomicU64, NUMBERS>, fd: c_int) -> Option<&'static AtomicU64> {
    array.place(fd as u32 as usize)
}

/// A migration begins with the object: none is noted.
pub(super) fn begin(fd: c_int) -> bool {
    let found = place(&SETS, fd).inspect(|set| set.store(u64::from(NONE), Ordering::Relaxed));
    found.is_some() && place(&DATA, fd).is_some()
}

/// A watch goes into the kernel half of a set, which has this number; -1 if that is not clear.
pub(super) fn note(fd: c_int, watch: &DetachedWatch, set: c_int) {
    let (Some(noted), Some(data)) = (place(&SETS, fd), place(&DATA, fd)) else { return };
    let is_first = noted.load(Ordering::Relaxed) as u32 == NONE;
    let is_known = is_first && set >= 0 && watch.fd == fd && may_return(watch.interest);
    let set = if is_known { set as u32 + 1 } else { SEVERAL };
    let word = u64::from(set) | u64::from(watch.interest.bits()) << INTEREST;
    noted.store(word, Ordering::Relaxed);
    data.store(watch.data, Ordering::Relaxed);
}

/// Whether a watch can ever be made anew without a report that the program has had already: not if
/// it may be disarmed, nor if it has an edge at almost any time.
fn may_return(interest: Events) -> bool {
    let at_any_time = Events::OUT | Events::WRNORM | Events::WRBAND;
    let has_edges = interest.contains(Events::ET) && interest.intersects(at_any_time);
    let is_odd = interest.intersects(Events::ONESHOT | Events::EXCLUSIVE | Events::WAKEUP);
    !has_edges && !is_odd
}

/// The watch has turned out not to be where it was noted.
pub(crate) fn lose(fd: c_int) {
    if let Some(noted) = place(&SETS, fd) {
        noted.store(u64::from(SEVERAL), Ordering::Relaxed);
    }
}

/// What is noted.
pub(crate) fn of(fd: c_int) -> Watched {
    let (Some(noted), Some(data)) = (SETS.get(fd as u32 as usize), DATA.get(fd as u32 as usize))
    else {
        return Watched::Unclear;
    };
    let word = noted.load(Ordering::Relaxed);
    match word as u32 {
        NONE => Watched::No,
        SEVERAL => Watched::Unclear,
        set => {
            let interest = Events::from_bits_retain((word >> INTEREST) as u32);
            let asked = Event::new(interest, data.load(Ordering::Relaxed));
            Watched::By { set: set as c_int - 1, asked }
        }
    }
}
