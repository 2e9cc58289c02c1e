//! An area without a collector: the processes that take slots free those of processes that have
//! ended, and add up what these have counted.
//!
//! An image that has taken a slot looks at [`LOOKS`] slots, and folds those whose process has
//! ended. It also folds the slot of the program that its process was before.
//!
//! The looks go round: each begins where the last one has stopped, and slots that come in use for
//! the first time are at the end of the round. So while R slots have been in use, each has been
//! looked at since the last R / LOOKS + 1 images came. One that is held belongs to a process that
//! was alive then, or that has come since. An image takes a new slot only if all R are held, so
//! with N processes alive at a time R never passes N + R / LOOKS + 2, which is a third more than N
//! and a few: however many come and go, and in whatever order they end.
//! For that an image maps all slots that have been in use before it looks. Where it may not, its
//! looks beyond its mapping are lost.
//!
//! A fold moves each word of the page by a swap and an addition. If the folding process is killed,
//! another one folds what is left; one word at most is lost. A reader takes the sum as exact if no
//! fold began or ended meanwhile.

use super::super::page::{PAGE_BYTES, Page};
use super::{Area, FOLDING, Holder, KNOWN, copy};
use crate::sys;
use core::ptr;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// Slots that an image looks at when it takes one.
pub const LOOKS: usize = 4;

impl Area<'_> {
    /// Makes this an area without a collector. `name_space` is the inode of the PID name space in
    /// which processes say who they are. Before [`start`](Self::start).
    pub fn share(&self, name_space: u64) {
        self.control.name_space.store(name_space, Relaxed);
        self.control.shared.store(1, Relaxed);
    }

    /// Whether there is no collector, so that processes fold.
    pub fn is_shared(&self) -> bool {
        self.control.shared.load(Relaxed) == 1
    }

    /// The inode of the PID name space that [`share`](Self::share) was told.
    pub fn name_space(&self) -> u64 {
        self.control.name_space.load(Relaxed)
    }

    /// Folds what has ended among so many slots, and the earlier image of this process. For a
    /// process that has taken a slot or would like to. Async-signal-safe. Returns how many were
    /// freed.
    pub fn fold(&self, holder: Holder, mine: Option<&Page>, looks: usize) -> usize {
        if !self.is_shared() || !holder.known {
            return 0;
        }
        let reach = self.reach();
        let mapped = reach.min(self.slots);
        let word_of = |slot: usize| self.control.owners[slot].holder.load(Relaxed);
        let is_mine = |slot| mine.is_some_and(|page| ptr::eq(page, self.page(slot)));
        let mut folded = 0;
        for slot in (0..mapped).filter(|slot| word_of(*slot) == holder.word() && !is_mine(*slot)) {
            folded += usize::from(self.fold_slot(slot, holder.word(), holder));
        }
        for _ in 0..looks.min(reach) {
            let slot = self.next_look(reach);
            if slot >= mapped {
                continue;
            }
            let word = word_of(slot);
            let known = word & KNOWN != 0 && word as u32 != holder.pid;
            if known && !is_alive(word as u32) {
                folded += usize::from(self.fold_slot(slot, word, holder));
            }
        }
        folded
    }

    /// The slot to look at, of so many.
    fn next_look(&self, reach: usize) -> usize {
        let turn = |at: u64| if at < reach as u64 { at } else { 0 };
        let next = &self.control.next_look;
        let at = next.fetch_update(Relaxed, Relaxed, |at| Some(turn(at) + 1));
        turn(at.unwrap_or_default()) as usize
    }

    /// Adds a page to the sum and frees its slot, if its holder is still this one.
    fn fold_slot(&self, slot: usize, holder: u64, by: Holder) -> bool {
        let Some(owner) = self.control.owners.get(slot) else { return false };
        // Acquire: what an unfinished fold has left comes before ours.
        let taken = owner.holder.compare_exchange(holder, by.word() | FOLDING, Acquire, Relaxed);
        if taken.is_err() {
            return false;
        }
        self.control.folds_begun.fetch_add(1, AcqRel);
        self.control.folded.absorb(self.page(slot));
        self.control.folds_done.fetch_add(1, Release);
        owner.free();
        true
    }

    /// Whether a process has a slot and is alive, or may be: one whose number is not known here is
    /// taken to be. The mapping may be of the control alone.
    pub fn is_in_use(&self) -> bool {
        let words = self.control.owners.iter().map(|owner| owner.holder.load(Relaxed));
        words.filter(|word| *word != 0).any(|word| word & KNOWN == 0 || is_alive(word as u32))
    }

    /// How many folds there have been, begun and done. They differ while one is under way, and for
    /// good if a folding process was killed.
    pub fn folds(&self) -> (u64, u64) {
        // Acquire: what is read of the sum comes after.
        let done = self.control.folds_done.load(Acquire);
        (self.control.folds_begun.load(Acquire), done)
    }

    /// Copies the page with the sums of what has ended.
    pub fn copy_folded(&self, to: &mut [u8; PAGE_BYTES]) {
        let page = ptr::from_ref(&self.control.folded).cast::<[AtomicU64; PAGE_BYTES / 8]>();
        // SAFETY: a page consists of atomic words.
        copy(unsafe { &*page }, to);
    }
}

/// Whether there is a process of this number; one that its parent has not waited for is there.
/// Async-signal-safe.
pub fn is_alive(pid: u32) -> bool {
    // Signal 0 only asks. A process wrote the number, and only one above 0 is a process.
    let Ok(pid @ 1..) = i32::try_from(pid) else { return false };
    sys::raw!(tgkill, pid, pid, 0) != Err(syscalls::Errno::ESRCH)
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::super::super::{ListenerStat, ListenerSummary, Stat, Summary};
    use super::super::Claim;
    use super::super::tests::{area, holder, page};
    use super::*;

    /// No process has it: the highest that Linux gives out is 4,194,304.
    const NOBODY: u32 = 5_000_000;

    fn own() -> u32 {
        std::process::id()
    }

    fn sums(area: &Area<'_>) -> Summary {
        let mut bytes = [0; PAGE_BYTES];
        area.copy_folded(&mut bytes);
        Summary::parse(&bytes).expect("a started page")
    }

    fn shared(slots: usize) -> Area<'static> {
        let area = area(slots);
        area.share(1);
        area
    }

    #[test]
    fn what_has_ended_is_added_up_and_its_slot_used_again() {
        let area = shared(3);
        page(area.claim(holder(own()))).start(own(), b"alive");
        for generation in 1..=100 {
            let mine = page(area.claim(holder(NOBODY + generation)));
            mine.start(NOBODY, b"gone");
            let stripe = mine.claim_stripe();
            mine.bump(stripe, Stat::Waits, 2);
            let listener = mine.index_of_listener(b"address").expect("room");
            mine.bump_listener(listener, stripe, ListenerStat::Connections);
            area.fold(holder(NOBODY + generation), Some(mine), LOOKS);
        }
        assert_eq!(area.fold(holder(NOBODY), None, 3), 1);
        assert_eq!(area.folds(), (100, 100));
        assert_eq!(sums(&area).get(Stat::Waits), 200);
        let mut bytes = [0; PAGE_BYTES];
        area.copy_folded(&mut bytes);
        let listeners: std::vec::Vec<_> = ListenerSummary::parse(&bytes).collect();
        assert_eq!(listeners.len(), 1);
        assert_eq!(listeners[0].get(ListenerStat::Connections), 100);
        assert_eq!(listeners[0].threads().count(), 0, "workers that are gone");
        let held: std::vec::Vec<_> = area.held().map(|(_, holder, _)| holder.pid).collect();
        assert_eq!(held, [own()]);
        area.copy(1, &mut bytes);
        assert!(bytes.iter().all(|byte| *byte == 0));
    }

    /// Looks that did not go round passed by the slots of workers that ended as soon as they had
    /// begun, so that each of them took a new one.
    #[test]
    fn workers_that_end_at_once_do_not_use_slot_after_slot() {
        let sleeper = || std::process::Command::new("sleep").arg("100").spawn().expect("it starts");
        let mut alive: std::vec::Vec<_> = (0..8).map(|_| sleeper()).collect();
        let area = shared(200);
        for child in &alive {
            page(area.claim(holder(child.id())));
        }
        for generation in 1..=1000 {
            let holder = holder(NOBODY + generation);
            let mine = page(area.claim(holder));
            area.fold(holder, Some(mine), LOOKS);
        }
        let reach = area.control.reach.load(Relaxed);
        for child in &mut alive {
            child.kill().and_then(|()| child.wait()).expect("it ends");
        }
        // Nine at a time: 9 + reach / 4 + 2.
        assert!(reach <= 14, "{reach}");
    }

    #[test]
    fn a_program_that_becomes_another_one_keeps_one_slot() {
        let area = shared(2);
        let first = page(area.claim(holder(own())));
        first.bump(0, Stat::Wakes, 1);
        let second = page(area.claim(holder(own())));
        assert_eq!(area.fold(holder(own()), Some(second), 0), 1);
        assert_eq!(area.held().map(|(slot, ..)| slot).collect::<std::vec::Vec<_>>(), [1]);
        assert_eq!(sums(&area).get(Stat::Wakes), 1);
    }

    #[test]
    fn an_unfinished_fold_is_finished() {
        let area = shared(1);
        page(area.claim(holder(NOBODY))).bump(0, Stat::Events, 3);
        // As a process leaves it that is killed between two words.
        let word = holder(NOBODY + 1).word() | FOLDING;
        area.control.owners[0].holder.store(word, Relaxed);
        assert_eq!(area.held().count(), 0);
        assert_eq!(area.fold(holder(own()), None, 1), 1);
        assert_eq!(sums(&area).get(Stat::Events), 3);
        assert!(matches!(area.claim(holder(own())), Claim::Page(_)));
    }

    #[test]
    fn what_is_alive_or_not_known_stays() {
        let area = shared(3);
        page(area.claim(holder(own())));
        let other = Holder { pid: NOBODY, known: false };
        page(area.claim(other));
        assert_eq!(area.fold(holder(NOBODY), None, 3), 0);
        page(area.claim(holder(NOBODY)));
        assert_eq!(area.fold(other, None, 3), 0, "it does not know what is alive");
        assert_eq!(area.fold(holder(own() + 1), None, 3), 1);
    }

    #[test]
    fn an_area_with_a_collector_is_left_to_it() {
        let area = area(1);
        page(area.claim(holder(NOBODY)));
        assert_eq!(area.fold(holder(own()), None, 1), 0);
    }
}
