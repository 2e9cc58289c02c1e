//! The memory that all processes of a run count in: a page for each process image that is alive.
//!
//! `wakeset run` makes it, once: a `Control` and [`SLOTS`] slots, each with room for one [`Page`].
//! An image takes a free slot; a fork finds the mapping of its parent. When the process has ended,
//! its page is added to a sum and the slot is free again, so there are about as many slots in use
//! as there are processes. With `--stats` the collector does that, in `wakeset run`. An area of
//! `--share` has no collector: whoever takes a slot looks at a few others (`fold`), and the sum is
//! in the control. `docs/design/statistics.md` says why it is as it is.
//!
//! | word | written by | how |
//! |---|---|---|
//! | magic, version, slots, nonce, shared, name space | `wakeset run`, before the program runs | relaxed stores, `magic` last (release) |
//! | ended | the collector, once | release |
//! | claims, not counted, reach, `next_look` | every process | relaxed fetch-add, fetch-max; `next_look` by compare-exchange |
//! | `holder`, from 0 | the image that takes the slot | compare-exchange, acquire |
//! | `holder`, to `FOLDING` | the image that folds the slot | compare-exchange, acquire |
//! | `holder`, to 0 | the collector or the folding image; or the image, if there is no memory | release, after the page is all zero |
//! | `claim`, `since` | the image that holds the slot | relaxed |
//! | folded, folds | the folding image | fetch-add; folds begun before (acquire and release), folds done after (release) |
//!
//! A process may write anything here: no address and no size is taken from it without a check, so
//! that only figures suffer. The memory is of a kind that no process can make shorter.

mod fold;

pub use fold::{LOOKS, is_alive};

use super::page::{PAGE_BYTES, Page};
use crate::sys;
use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};

/// The environment variable that says where the area is: its owner's user id, its [`Nonce`] as 32
/// hexadecimal digits and its path, each after a space but the first.
pub const AREA_VARIABLE: &str = "WAKESET_STATS";

/// Process images that can be counted at once.
pub const SLOTS: usize = 4095;

/// From one slot to the next, in bytes: a [`Page`], in whole pages of the machine.
pub const SLOT_BYTES: usize = PAGE_BYTES.next_multiple_of(MACHINE_PAGE);

/// What lies before the first slot, in bytes.
pub const CONTROL_BYTES: usize = size_of::<Control>();

const MACHINE_PAGE: usize = 4096;
const MAGIC: u64 = u64::from_le_bytes(*b"WAKEAREA");
const VERSION: u32 = 3;

/// What tells the area of this run from any other memory. Only processes of the run know it.
pub type Nonce = [u64; 2];

/// Why a process image is not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Refusal {
    /// The kernel has no memory for another page.
    NoMemory,
    /// [`SLOTS`], or as many as the area has, are in use.
    TooMany,
    /// The process may not map more (`RLIMIT_AS`).
    NoAddressSpace,
}

impl Refusal {
    /// Every reason, in the order of the discriminants.
    pub const ALL: [Refusal; 3] = [Refusal::NoMemory, Refusal::TooMany, Refusal::NoAddressSpace];
}

/// The beginning of an area.
#[repr(C, align(4096))]
struct Control {
    magic: AtomicU64,
    version: AtomicU32,
    slots: AtomicU32,
    nonce: [AtomicU64; 2],
    /// 1: the run is over, and nobody reads the counts.
    ended: AtomicU64,
    claims: AtomicU64,
    not_counted: [AtomicU64; Refusal::ALL.len()],
    /// 1: there is no collector, and the processes fold.
    shared: AtomicU64,
    /// The inode of the PID name space in which `holder` says numbers.
    name_space: AtomicU64,
    /// No slot from this one on has ever been taken.
    reach: AtomicU64,
    /// Where the next look for a process that has ended goes.
    next_look: AtomicU64,
    folds_begun: AtomicU64,
    folds_done: AtomicU64,
    /// What the folded pages counted.
    folded: Page,
    owners: [Owner; SLOTS],
}

/// Which process image has a slot.
#[repr(C)]
struct Owner {
    /// 0, or [`HELD`], the process id, and [`KNOWN`] if the collector knows the process by it. With
    /// [`FOLDING`] the process id is that of the process that folds the slot.
    holder: AtomicU64,
    /// The number of the claim: a later one has a higher number.
    claim: AtomicU64,
    /// When the slot was taken, in nanoseconds of `CLOCK_BOOTTIME`.
    since: AtomicU64,
}

const KNOWN: u64 = 1 << 32;
const HELD: u64 = 1 << 33;
const FOLDING: u64 = 1 << 34;

/// The process that asks for a slot, or has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The process id.
    pub pid: u32,
    /// Whether the collector knows the process by this id: not if it is in another PID namespace.
    pub known: bool,
}

impl Holder {
    /// The word that says that this process has a slot.
    fn word(self) -> u64 {
        HELD | u64::from(self.pid) | if self.known { KNOWN } else { 0 }
    }

    fn of_word(word: u64) -> Self {
        Holder { pid: word as u32, known: word & KNOWN != 0 }
    }
}

/// What came of an attempt to take a slot.
#[allow(missing_debug_implementations, reason = "a page has none")]
#[derive(Clone, Copy)]
pub enum Claim<'a> {
    /// An empty page, all of whose memory is there.
    Page(&'a Page),
    /// All slots of this mapping are taken, and the area has more.
    MapMore,
    /// All slots of the area are taken.
    Full,
    /// There is none to be had, and the image has been counted as not counted.
    Refused(Refusal),
}

/// A mapping of an area, or of its beginning.
#[derive(Clone, Copy, Debug)]
pub struct Area<'a> {
    control: &'a Control,
    slots: usize,
}

impl core::fmt::Debug for Control {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Control").finish_non_exhaustive()
    }
}

impl<'a> Area<'a> {
    /// The area whose first `bytes` bytes are mapped at `start`. `None` if these are too few for
    /// the control.
    ///
    /// # Safety
    /// `start` is aligned to a page; that many bytes from it are mapped shared, readable and
    /// writable for `'a`, of a file that does not become shorter.
    pub unsafe fn at(start: *const u8, bytes: usize) -> Option<Self> {
        let slots = bytes.checked_sub(CONTROL_BYTES)? / SLOT_BYTES;
        // SAFETY: the caller's contract; any bit pattern is a valid control.
        let control = unsafe { &*start.cast::<Control>() };
        Some(Area { control, slots: slots.min(SLOTS) })
    }

    /// Makes this memory, all zero, an area. The mapping is of the whole area.
    pub fn start(&self, nonce: Nonce) {
        for (word, value) in self.control.nonce.iter().zip(nonce) {
            word.store(value, Relaxed);
        }
        self.control.slots.store(self.slots as u32, Relaxed);
        self.control.folded.start(0, b"");
        self.control.version.store(VERSION, Relaxed);
        self.control.magic.store(MAGIC, Release);
    }

    /// Whether this is an area that has been started.
    pub fn is_started(&self) -> bool {
        self.control.magic.load(Acquire) == MAGIC && self.control.version.load(Relaxed) == VERSION
    }

    /// Whether this is the area with this nonce, and its run is not over.
    pub fn is_open(&self, nonce: Nonce) -> bool {
        self.is_started()
            && self.control.nonce.iter().zip(nonce).all(|(word, value)| word.load(Relaxed) == value)
            && !self.has_ended()
    }

    /// Whether the run is over.
    pub fn has_ended(&self) -> bool {
        self.control.ended.load(Acquire) != 0
    }

    /// Says that the run is over.
    pub fn end(&self) {
        self.control.ended.store(1, Release);
    }

    /// Slots in this mapping.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// How many slots have ever been in use: those with the lowest numbers.
    pub fn reach(&self) -> usize {
        (self.control.reach.load(Relaxed) as usize).min(SLOTS)
    }

    /// How often a slot has been taken so far.
    pub fn claims(&self) -> u64 {
        self.control.claims.load(Relaxed)
    }

    /// Process images that were not counted for this reason.
    pub fn not_counted(&self, why: Refusal) -> u64 {
        self.control.not_counted[why as usize].load(Relaxed)
    }

    /// Counts a process image that is not counted.
    pub fn refuse(&self, why: Refusal) {
        self.control.not_counted[why as usize].fetch_add(1, Relaxed);
    }

    /// Takes a slot for a process image. Async-signal-safe; never faults.
    pub fn claim(&self, holder: Holder) -> Claim<'a> {
        let taken = holder.word();
        let there = (self.control.slots.load(Relaxed) as usize).min(SLOTS);
        let mine = self.owners().take(there).position(|owner| {
            owner.holder.load(Relaxed) == 0
                // Acquire: the zeros that the collector has written come before our counts.
                && owner.holder.compare_exchange(0, taken, Acquire, Relaxed).is_ok()
        });
        let Some(slot) = mine else {
            return match self.slots < there {
                true => Claim::MapMore,
                false => Claim::Full,
            };
        };
        let owner = &self.control.owners[slot];
        owner.since.store(now(), Relaxed);
        owner.claim.store(self.control.claims.fetch_add(1, Relaxed) + 1, Relaxed);
        self.control.reach.fetch_max(slot as u64 + 1, Relaxed);
        if !make_present(self.address(slot)) {
            owner.free();
            self.refuse(Refusal::NoMemory);
            return Claim::Refused(Refusal::NoMemory);
        }
        Claim::Page(self.page(slot))
    }

    /// The slots in use: index, holder, and the number of the claim (0: not known yet).
    pub fn held(&self) -> impl Iterator<Item = (usize, Holder, u64)> {
        self.owners().enumerate().filter_map(|(slot, owner)| {
            let word = owner.holder.load(Acquire);
            let is_held = word != 0 && word & FOLDING == 0;
            is_held.then(|| (slot, Holder::of_word(word), owner.claim.load(Relaxed)))
        })
    }

    /// When a slot in use was taken, in nanoseconds of `CLOCK_BOOTTIME`.
    pub fn since(&self, slot: usize) -> u64 {
        self.control.owners.get(slot).map_or(0, |owner| owner.since.load(Relaxed))
    }

    /// Copies the page in a slot. Its process may be counting.
    pub fn copy(&self, slot: usize, to: &mut [u8; PAGE_BYTES]) {
        let words = self.words(slot);
        copy(words, to);
    }

    /// Frees a slot whose process has ended.
    pub fn recycle(&self, slot: usize) {
        for word in self.words(slot) {
            word.store(0, Relaxed);
        }
        if let Some(owner) = self.control.owners.get(slot) {
            owner.free();
        }
    }

    fn owners(&self) -> impl Iterator<Item = &'a Owner> {
        self.control.owners.iter().take(self.slots)
    }

    /// Where the slot begins; the first for one that this mapping does not have.
    fn address(&self, slot: usize) -> *const u8 {
        let slot = if slot < self.slots { slot } else { 0 };
        ptr::from_ref(self.control).cast::<u8>().wrapping_add(CONTROL_BYTES + slot * SLOT_BYTES)
    }

    fn page(&self, slot: usize) -> &'a Page {
        // SAFETY: within the mapping, by the contract of `at`. Whatever else touches it does so
        // with atomic operations, or in the kernel before the page is started.
        unsafe { Page::page_at(self.address(slot)) }
    }

    fn words(&self, slot: usize) -> &'a [AtomicU64; PAGE_BYTES / 8] {
        // SAFETY: as for `page`, which consists of atomic words.
        unsafe { &*self.address(slot).cast() }
    }
}

impl Owner {
    /// Frees the slot, whose page is all zero.
    fn free(&self) {
        self.claim.store(0, Relaxed);
        self.since.store(0, Relaxed);
        self.holder.store(0, Release);
    }
}

fn copy(words: &[AtomicU64; PAGE_BYTES / 8], to: &mut [u8; PAGE_BYTES]) {
    for (bytes, word) in to.chunks_exact_mut(8).zip(words) {
        bytes.copy_from_slice(&word.load(Relaxed).to_ne_bytes());
    }
}

/// Nanoseconds of `CLOCK_BOOTTIME`, in which Linux also says when a process began.
pub fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
}

/// Has the kernel allocate the memory of a slot, and says whether it is there. An access of our own
/// would end the process with SIGBUS where there is none; the kernel's returns EFAULT. What it
/// writes is the signal mask: a filter that allows a fork allows that call, which libc makes then.
fn make_present(slot: *const u8) -> bool {
    (0..SLOT_BYTES).step_by(MACHINE_PAGE).all(|at| {
        let word = slot.wrapping_add(at).cast::<AtomicU64>();
        let none = ptr::null::<u8>();
        if sys::raw!(rt_sigprocmask, libc::SIG_BLOCK, none, word, sys::SIGSET_BYTES).is_err() {
            return false;
        }
        // SAFETY: within the mapping; the kernel has just written there.
        unsafe { (*word).store(0, Relaxed) };
        true
    })
}

#[cfg(test)]
pub(super) mod tests {
    extern crate std;

    use super::super::{Stat, Summary};
    use super::*;

    const NONCE: Nonce = [7, 8];

    /// A mapping of memory without a name, with room for these slots.
    pub(super) fn area(slots: usize) -> Area<'static> {
        let bytes = CONTROL_BYTES + slots * SLOT_BYTES;
        let (kind, protection) =
            (libc::MAP_SHARED | libc::MAP_ANONYMOUS, libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: a fresh mapping, which is never undone.
        let area = unsafe {
            let start = libc::mmap(ptr::null_mut(), bytes, protection, kind, -1, 0);
            assert_ne!(start, libc::MAP_FAILED);
            Area::at(start.cast(), bytes).expect("room for the control")
        };
        area.start(NONCE);
        area
    }

    pub(super) fn holder(pid: u32) -> Holder {
        Holder { pid, known: true }
    }

    pub(super) fn page(claim: Claim<'static>) -> &'static Page {
        match claim {
            Claim::Page(page) => page,
            _ => panic!("there is a slot"),
        }
    }

    #[test]
    fn a_slot_is_used_again_and_begins_empty() {
        let area = area(2);
        let first = page(area.claim(holder(11)));
        first.start(11, b"first");
        first.bump(3, Stat::Waits, 5);
        page(area.claim(holder(12))).start(12, b"second");
        assert!(matches!(area.claim(holder(13)), Claim::Full));

        let mut bytes = [0; PAGE_BYTES];
        area.copy(0, &mut bytes);
        let read = Summary::parse(&bytes).expect("a started page");
        assert_eq!((read.pid, read.name(), read.get(Stat::Waits)), (11, &b"first"[..], 5));
        area.recycle(0);
        let again = page(area.claim(holder(14)));
        assert!(ptr::eq(first, again));
        area.copy(0, &mut bytes);
        assert!(bytes.iter().all(|byte| *byte == 0));
        let held: std::vec::Vec<_> = area.held().collect();
        assert_eq!(held, [(0, holder(14), 3), (1, holder(12), 2)]);
    }

    #[test]
    fn a_mapping_of_the_beginning_asks_for_more() {
        let whole = area(3);
        // SAFETY: a part of the mapping of `whole`.
        let part =
            unsafe { Area::at(ptr::from_ref(whole.control).cast(), CONTROL_BYTES + SLOT_BYTES) }
                .expect("room for the control");
        assert!(matches!(part.claim(holder(1)), Claim::Page(_)));
        assert!(matches!(part.claim(holder(2)), Claim::MapMore));
        assert!(matches!(whole.claim(holder(2)), Claim::Page(_)));
    }

    #[test]
    fn another_area_and_one_whose_run_is_over_are_told_apart() {
        let area = area(1);
        assert!(area.is_open(NONCE));
        assert!(!area.is_open([7, 9]));
        area.end();
        assert!(!area.is_open(NONCE));
    }

    /// Where the kernel has no memory, which a file that is too short stands for, the process goes
    /// on.
    #[test]
    fn missing_memory_is_a_refusal_and_no_signal() {
        let bytes = CONTROL_BYTES + 2 * SLOT_BYTES;
        // SAFETY: a file of our own, and a fresh mapping, which is never undone.
        let area = unsafe {
            let fd = libc::memfd_create(c"area".as_ptr(), libc::MFD_CLOEXEC);
            assert_eq!(libc::ftruncate(fd, (bytes - MACHINE_PAGE) as i64), 0);
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let start = libc::mmap(ptr::null_mut(), bytes, protection, libc::MAP_SHARED, fd, 0);
            assert_ne!(start, libc::MAP_FAILED);
            Area::at(start.cast(), bytes).expect("room for the control")
        };
        area.start(NONCE);
        assert!(matches!(area.claim(holder(1)), Claim::Page(_)));
        assert!(matches!(area.claim(holder(2)), Claim::Refused(Refusal::NoMemory)));
        assert_eq!(area.not_counted(Refusal::NoMemory), 1);
        assert_eq!(area.held().count(), 1);
    }
}
