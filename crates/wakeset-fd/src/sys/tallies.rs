//! What a thread counts on its fastest paths, without a look at whether anybody counts.
//!
//! A count is one instruction on a word that the thread finds through an offset which it keeps: a
//! word of its own that nobody reads, or one in its stripe of the page that the process counts in
//! ([`stats::count`](crate::stats::count)). So a call costs the same whether the process counts or
//! not; and a signal handler of the thread counts before or after that, so that nothing is lost.
//!
//! Calls are counted downwards. The first count takes a word from 0 below it, which the instruction
//! shows by itself. That is when a thread asks for its stripe; in a process that does not count
//! the word goes on from there. Events are counted upwards.
//!
//! | word of the thread | means | changed by |
//! |---|---|---|
//! | `counts` | from the thread's own tallies to those of its stripe, in bytes; 0 without one | the thread |
//! | `place` | where the set is whose waits the thread counts in words of the page that are its own ([`SetPlace`](crate::stats::count::SetPlace)); 0, as every set's where nobody counts: in its own words; [`NO_PLACE`] | the thread |
//! | `set` | from the thread's own two words for a set to those of the page, in bytes | the thread |
//! | own words | [`TALLIES`], and two for a set | the thread |

use core::sync::atomic::AtomicU64;

/// How many tallies there are. What each is for is `stats::Tally`.
pub(crate) const TALLIES: usize = 4;

/// Words for a set: its waits, and the events that they reported.
pub(crate) const SET_TALLIES: usize = 2;

/// The word `place` of a thread that counts for no set in words of its own.
pub(crate) const NO_PLACE: u64 = u64::MAX;

#[cfg(target_arch = "x86_64")]
mod words {
    use super::super::thread_words::{COUNTS, OWN_SET, OWN_TALLIES, PLACE, SET, word};
    use super::*;
    use core::ptr;
    use core::sync::atomic::Ordering::Relaxed;

    /// Counts 1. Calls `first` if the word was at 0.
    #[inline(always)]
    pub(crate) fn count_one<const TALLY: usize>(first: fn()) {
        // SAFETY: the words are this thread's own, or in a stripe of a page that it has alone; an
        // instruction without LOCK, so that a handler sees it before or after.
        unsafe {
            core::arch::asm!(
                "mov {words}, qword ptr [rip + wakeset_thread_words@GOTTPOFF]",
                "mov {counts}, qword ptr fs:[{words} + {at_counts}]",
                "sub qword ptr fs:[{words} + {counts} + {tally}], 1",
                "jc {first}",
                words = out(reg) _,
                counts = out(reg) _,
                at_counts = const COUNTS,
                tally = const OWN_TALLIES + 8 * TALLY,
                first = label { first() },
                options(nostack),
            );
        }
    }

    /// Counts a wait that was answered at once, on the set at `place`, and its events. Calls
    /// `other` instead if the thread has no words of its own for that set; `first` as
    /// [`count_one`].
    #[inline(always)]
    pub(crate) fn count_wait<const SERVED: usize, const EVENTS: usize>(
        place: u64,
        events: u64,
        other: impl FnOnce(),
        first: impl FnOnce(),
    ) {
        // SAFETY: as in `count_one`. The words of the set are this thread's own, too.
        unsafe {
            core::arch::asm!(
                "mov {words}, qword ptr [rip + wakeset_thread_words@GOTTPOFF]",
                "cmp {place}, qword ptr fs:[{words} + {at_place}]",
                "jne {other}",
                "mov {to}, qword ptr fs:[{words} + {at_set}]",
                "add qword ptr fs:[{words} + {to} + {set_waits}], 1",
                "add qword ptr fs:[{words} + {to} + {set_events}], {n}",
                "mov {to}, qword ptr fs:[{words} + {at_counts}]",
                "add qword ptr fs:[{words} + {to} + {events}], {n}",
                "sub qword ptr fs:[{words} + {to} + {served}], 1",
                "jc {first}",
                words = out(reg) _,
                to = out(reg) _,
                place = in(reg) place,
                n = in(reg) events,
                at_place = const PLACE,
                at_set = const SET,
                at_counts = const COUNTS,
                set_waits = const OWN_SET,
                set_events = const OWN_SET + 8,
                events = const OWN_TALLIES + 8 * EVENTS,
                served = const OWN_TALLIES + 8 * SERVED,
                other = label { other() },
                first = label { first() },
                options(nostack),
            );
        }
    }

    /// Has the calling thread count there from now on; with `None` in its own words. Takes what
    /// these had.
    pub(crate) fn set_tallies(to: Option<&'static [AtomicU64; TALLIES]>) -> [u64; TALLIES] {
        word(COUNTS).store(distance(OWN_TALLIES, to), Relaxed);
        core::array::from_fn(|i| {
            let own = word(OWN_TALLIES + 8 * i);
            if own.load(Relaxed) == 0 { 0 } else { own.swap(0, Relaxed) }
        })
    }

    /// Has the calling thread count its waits on the set at `place` there; with `None` in words
    /// that nobody reads.
    pub(crate) fn set_place(place: u64, to: Option<&'static [AtomicU64; SET_TALLIES]>) {
        // A handler between the two finds no place.
        word(PLACE).store(NO_PLACE, Relaxed);
        word(SET).store(distance(OWN_SET, to), Relaxed);
        word(PLACE).store(place, Relaxed);
    }

    /// From the thread's own words to the others.
    fn distance<const N: usize>(own: usize, to: Option<&'static [AtomicU64; N]>) -> u64 {
        to.map_or(0, |to| ptr::from_ref(to).addr().wrapping_sub(ptr::from_ref(word(own)).addr()))
            as u64
    }
}

/// Without such instructions: in the process's words, each time.
#[cfg(not(target_arch = "x86_64"))]
mod words {
    use super::*;
    use core::cell::Cell;
    extern crate std;
    std::thread_local! { static OWN: Cell<[u64; TALLIES]> = const { Cell::new([0; TALLIES]) }; }

    fn add(tally: usize, n: u64) {
        OWN.with(|own| {
            let mut words = own.get();
            words[tally] = words[tally].wrapping_add(n);
            own.set(words);
        });
    }
    pub(crate) fn count_one<const TALLY: usize>(first: fn()) {
        add(TALLY, u64::MAX);
        first();
    }
    pub(crate) fn count_wait<const SERVED: usize, const EVENTS: usize>(
        _: u64,
        _: u64,
        other: impl FnOnce(),
        _: impl FnOnce(),
    ) {
        other();
    }
    pub(crate) fn set_tallies(_: Option<&'static [AtomicU64; TALLIES]>) -> [u64; TALLIES] {
        OWN.replace([0; TALLIES])
    }
    pub(crate) fn set_place(_: u64, _: Option<&'static [AtomicU64; SET_TALLIES]>) {}
}

pub(crate) use words::{count_one, count_wait, set_place, set_tallies};
