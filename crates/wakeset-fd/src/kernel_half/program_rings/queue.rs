//! The submission queue of an io_uring of the program's.
//!
//! It is memory that the program, the kernel and we share. The program may write to it at any time;
//! what we read of it decides only what migrates, and what we write are fields of entries that the
//! program has handed over.

use super::Entry;
use crate::sys::refusable::refusable;
use crate::sys::signal_guard::SignalSafeLock;
use crate::sys::user;
use core::ffi::c_int;
use core::ptr;
use rustix::io_uring::io_uring_params;

/// `IORING_SETUP_…` of [`SetUp`].
mod setup {
    pub(super) const CQSIZE: u32 = 1 << 3;
    pub(super) const CLAMP: u32 = 1 << 4;
    pub(super) const ATTACH_WQ: u32 = 1 << 5;
    pub(super) const SUBMIT_ALL: u32 = 1 << 7;
    pub(super) const COOP_TASKRUN: u32 = 1 << 8;
    pub(super) const TASKRUN_FLAG: u32 = 1 << 9;
    pub(super) const SQE128: u32 = 1 << 10;
    pub(super) const CQE32: u32 = 1 << 11;
    pub(super) const NO_MMAP: u32 = 1 << 14;
    pub(super) const NO_SQARRAY: u32 = 1 << 16;

    const SQPOLL: u32 = 1 << 1;
    const SQ_AFF: u32 = 1 << 2;
    const REGISTERED_FD_ONLY: u32 = 1 << 15;
    /// The highest flag of Linux 6.18.
    const CQE_MIXED: u32 = 1 << 18;

    /// Submissions can be seen with any of these: no thread of the kernel's takes them by itself,
    /// and there is a number.
    pub(super) const FOLLOWED: u32 =
        ((CQE_MIXED << 1) - 1) & !(SQPOLL | SQ_AFF | REGISTERED_FD_ONLY);
    /// An entry may be answered here with these alone: any thread may submit, at any time, and a
    /// request that does nothing completes at once.
    pub(super) const ANSWERED: u32 = CQSIZE
        | CLAMP
        | ATTACH_WQ
        | SUBMIT_ALL
        | COOP_TASKRUN
        | TASKRUN_FLAG
        | SQE128
        | CQE32
        | NO_MMAP
        | NO_SQARRAY;
}

/// What io_uring_setup(2) was asked for, and has answered.
#[derive(Clone, Copy, Debug)]
pub struct SetUp(io_uring_params);

impl SetUp {
    /// Reads it. `None`: the memory is not there.
    ///
    /// # Safety
    /// No other thread writes to it at the same time.
    pub unsafe fn load(address: usize) -> Option<Self> {
        // SAFETY: any bits are a value; the caller's contract.
        unsafe { user::load(ptr::with_exposed_provenance::<io_uring_params>(address)) }.map(Self)
    }
}

/// Whether an io_uring that is asked for with these parameters can be followed. `None`: the memory
/// is not there.
///
/// # Safety
/// As [`SetUp::load`].
pub unsafe fn setup_flags(address: usize) -> Option<bool> {
    // SAFETY: the caller's contract.
    let SetUp(asked) = unsafe { SetUp::load(address) }?;
    Some(asked.flags.bits() & !setup::FOLLOWED == 0)
}

/// Where everything is. Addresses; 0: there is none.
#[derive(Debug)]
pub(super) struct Layout {
    head: usize,
    tail: usize,
    /// The indices of the entries; 0 if they are in order.
    array: usize,
    entries: usize,
    /// Of an entry, in bytes.
    size: usize,
    /// How many there are, less one.
    mask: u32,
    complete_head: usize,
    complete_tail: usize,
    flags: usize,
    /// Our own mappings.
    mapped: [(usize, usize); 2],
    may_answer: bool,
    /// `IORING_NOP_INJECT_RESULT`: a request that does nothing returns what it is told.
    injects: bool,
    /// An entry has made later ones wait.
    has_drained: bool,
    /// All entries before this position have been looked at.
    seen: u32,
}

impl Layout {
    pub(super) const NONE: Self = Self {
        head: 0,
        tail: 0,
        array: 0,
        entries: 0,
        size: 0,
        mask: 0,
        complete_head: 0,
        complete_tail: 0,
        flags: 0,
        mapped: [(0, 0); 2],
        may_answer: false,
        injects: false,
        has_drained: false,
        seen: 0,
    };

    /// Maps the queue of an io_uring.
    pub(super) fn map(number: c_int, SetUp(set_up): &SetUp) -> Option<Self> {
        /// `IORING_OFF_SQ_RING` and `IORING_OFF_SQES`.
        const OFFSETS: [usize; 2] = [0, 0x1000_0000];
        /// `IORING_FEAT_SINGLE_MMAP`, Linux 5.4.
        const ONE_MAPPING: u32 = 1 << 0;
        /// `IORING_FEAT_RECVSEND_BUNDLE` came with injected results, in Linux 6.10.
        const RECVSEND_BUNDLE: u32 = 1 << 14;
        let (flags, features) = (set_up.flags.bits(), set_up.features.bits());
        if features & ONE_MAPPING == 0 || flags & !setup::FOLLOWED != 0 {
            return None;
        }
        let (sq, cq) = (&set_up.sq_off, &set_up.cq_off);
        let entries = set_up.sq_entries as usize;
        let has_array = flags & setup::NO_SQARRAY == 0;
        let size = if flags & setup::SQE128 == 0 { 64 } else { 128 };
        let words = [sq.head, sq.tail, sq.flags, cq.head, cq.tail].into_iter().max()? as usize + 4;
        let array_end = if has_array { sq.array as usize + 4 * entries } else { 0 };
        let mut mapped = [(0, 0); 2];
        let [ring, first] = if flags & setup::NO_MMAP != 0 {
            // The program's memory.
            [cq.user_addr.ptr.expose_provenance(), sq.user_addr.ptr.expose_provenance()]
        } else {
            let lens = [words.max(array_end), entries * size];
            for (place, (offset, len)) in mapped.iter_mut().zip(OFFSETS.into_iter().zip(lens)) {
                let Some(address) = map(number, offset, len) else {
                    unmap(mapped);
                    return None;
                };
                *place = (address, len);
            }
            mapped.map(|(address, _)| address)
        };
        let at = |offset: u32| ring + offset as usize;
        Some(Self {
            head: at(sq.head),
            tail: at(sq.tail),
            array: if has_array { at(sq.array) } else { 0 },
            entries: first,
            size,
            mask: set_up.sq_entries.wrapping_sub(1),
            complete_head: at(cq.head),
            complete_tail: at(cq.tail),
            flags: at(sq.flags),
            mapped,
            may_answer: flags & !setup::ANSWERED == 0,
            injects: features & RECVSEND_BUNDLE != 0,
            has_drained: false,
            seen: 0,
        })
    }

    pub(super) fn unmap(self) {
        unmap(self.mapped);
    }
}

/// Maps a part of an io_uring, for this process alone.
fn map(number: c_int, offset: usize, len: usize) -> Option<usize> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let start = refusable!(mmap, 0, len, access, libc::MAP_SHARED, number, offset).ok()?;
    if refusable!(madvise, start, len, libc::MADV_DONTFORK).is_err() {
        unmap([(start, len), (0, 0)]);
        return None;
    }
    Some(start)
}

fn unmap(mapped: [(usize, usize); 2]) {
    for (start, len) in mapped {
        if len != 0 {
            let _ = refusable!(munmap, start, len);
        }
    }
}

/// The queue of an io_uring, whose lock this holds.
#[derive(Debug)]
pub struct Queue<'a> {
    layout: &'a mut Layout,
    lock: &'a SignalSafeLock,
}

/// What was in an entry that is answered.
#[derive(Clone, Copy, Debug, Default)]
pub struct Original {
    position: u32,
    opcode: u8,
    len: u32,
    op_flags: u32,
}

impl Original {
    /// Whether it stands before a position.
    pub fn is_before(&self, position: u32) -> bool {
        position.wrapping_sub(self.position) as i32 > 0
    }
}

/// Reads a word; `None` if it is not there.
fn word(address: usize) -> Option<u32> {
    // SAFETY: any bits are a number. That others write to it is what it is for.
    unsafe { user::load(ptr::with_exposed_provenance::<u32>(address)) }
}

impl<'a> Queue<'a> {
    /// # Safety
    /// The caller holds the lock of this layout.
    pub(super) unsafe fn new(layout: &'a mut Layout, lock: &'a SignalSafeLock) -> Self {
        Self { layout, lock }
    }

    /// The positions of the first entry that the kernel has not taken, and of the first that the
    /// program has not handed over. `None`: they are not there.
    pub fn window(&self) -> Option<(u32, u32)> {
        let (head, tail) = (word(self.layout.head)?, word(self.layout.tail)?);
        core::sync::atomic::fence(core::sync::atomic::Ordering::Acquire);
        // The kernel takes no more than there is room for.
        let count = tail.wrapping_sub(head).min(self.layout.mask.wrapping_add(1));
        Some((head, head.wrapping_add(count)))
    }

    /// The entry at a position. `None`: the memory is not there.
    pub fn entry(&self, position: u32) -> Option<Entry> {
        let Some(address) = self.address(position)? else { return Some(Entry::NONE) };
        // SAFETY: any bits are an entry.
        unsafe { user::load(ptr::with_exposed_provenance::<Entry>(address)) }
    }

    /// Where that entry is. The inner `None`: it has an index that the kernel drops.
    fn address(&self, position: u32) -> Option<Option<usize>> {
        let place = position & self.layout.mask;
        let index = match self.layout.array {
            0 => place,
            array => word(array + 4 * place as usize)?,
        };
        let address = self.layout.entries + index as usize * self.layout.size;
        Some((index <= self.layout.mask).then_some(address))
    }

    /// Stores into a field of an entry.
    fn store(&self, position: u32, offset: usize, value: u32) {
        if let Some(Some(address)) = self.address(position) {
            let field = ptr::with_exposed_provenance_mut(address + offset);
            // SAFETY: the program has handed the entry over.
            let _ = unsafe { user::store_int(field, value as i32) };
        }
    }

    fn store_opcode(&self, position: u32, opcode: u8) {
        if let Some(Some(address)) = self.address(position) {
            let field = ptr::with_exposed_provenance_mut(address);
            // SAFETY: as above.
            let _ = unsafe { user::store_bytes(field, &[opcode]) };
        }
    }

    /// The entry names a number that is closed, to the program: the kernel gets one that is.
    pub fn close_number(&self, position: u32) {
        self.store(position, core::mem::offset_of!(Entry, fd), u32::MAX);
    }

    /// Whether a command may be answered here.
    pub fn may_answer(&self) -> bool {
        self.layout.may_answer && !self.layout.has_drained
    }

    /// Whether the answer may be an error.
    pub fn may_answer_errors(&self) -> bool {
        self.layout.injects
    }

    pub(super) fn forbid_answers(&mut self) {
        self.layout.may_answer = false;
    }

    /// Replaces an entry by one that does nothing and completes with `result`, 0 or a negative
    /// errno.
    pub fn answer(&self, position: u32, entry: &Entry, result: c_int) -> Original {
        /// `IORING_NOP_INJECT_RESULT`.
        const INJECT_RESULT: u32 = 1 << 0;
        let flags = if result == 0 { 0 } else { INJECT_RESULT };
        self.store(position, core::mem::offset_of!(Entry, len), result as u32);
        self.store(position, core::mem::offset_of!(Entry, op_flags), flags);
        self.store_opcode(position, 0);
        let Entry { opcode, len, op_flags, .. } = *entry;
        Original { position, opcode, len, op_flags }
    }

    /// Puts an entry back that the kernel has taken, for a program that submits it once more.
    pub fn restore(&self, original: &Original) {
        let Original { position, opcode, len, op_flags } = *original;
        self.store(position, core::mem::offset_of!(Entry, len), len);
        self.store(position, core::mem::offset_of!(Entry, op_flags), op_flags);
        self.store_opcode(position, opcode);
    }

    /// Whether the kernel has taken an entry that nobody has looked at.
    pub fn has_missed(&self, head: u32) -> bool {
        head.wrapping_sub(self.layout.seen) as i32 > 0
    }

    /// All entries before this position have been looked at.
    pub fn note_seen(&mut self, position: u32) {
        if position.wrapping_sub(self.layout.seen) as i32 > 0 {
            self.layout.seen = position;
        }
    }

    /// Whether descriptors of an entry may be looked up later than those of an ordinary one.
    pub fn note_late(&mut self, entry: &Entry) -> bool {
        self.layout.has_drained |= entry.drains();
        self.layout.has_drained || entry.is_late()
    }

    /// Whether there are so many completions, and nothing else that a wait would do.
    pub fn has_completed(&self, count: u32) -> bool {
        // SQ_NEED_WAKEUP is not used; SQ_CQ_OVERFLOW and SQ_TASKRUN ask for a call.
        let is_quiet = word(self.layout.flags) == Some(0);
        let completed = word(self.layout.complete_tail)
            .zip(word(self.layout.complete_head))
            .map_or(0, |(tail, head)| tail.wrapping_sub(head));
        is_quiet && completed >= count
    }
}

impl Drop for Queue<'_> {
    fn drop(&mut self) {
        self.lock.unlock();
    }
}
