//! The table's words as poll(2) and select(2) go through them, number by number.

use super::hidden::claims::{CLAIMED, DOORBELL, LEFT, SPARE_DOORBELL, TAG, VACANT};
use super::{COUNTER, END, PIPE, SlotHead, TABLE, TIMER};
use core::sync::atomic::{AtomicUsize, Ordering};

/// The words of the numbers that may stand for something of ours, for [`is_kernels`].
#[inline(always)]
pub(crate) fn words() -> &'static [AtomicUsize] {
    // SAFETY: the entry below the end is there, since before the end was stored.
    unsafe { TABLE.first(END.load(Ordering::SeqCst) as usize) }
}

/// Whether a word stands for nothing that lives here: such a number is the kernel's. A further
/// number of an object, and what a forked child has inherited, may be as well.
#[inline(always)]
pub(crate) fn is_kernels(word: usize) -> bool {
    const KERNELS: u32 =
        1 | 1 << VACANT | 1 << DOORBELL | 1 << SPARE_DOORBELL | 1 << CLAIMED | 1 << LEFT;
    KERNELS >> (word & TAG) & 1 == 1
}

/// Whether a word stands for nothing of ours at all, as [`is_vacant`] says of a number.
#[inline(always)]
pub(crate) fn is_vacant_word(word: usize) -> bool {
    matches!(word & TAG, 0 | VACANT)
}

/// The object that a word stands for, if its number's own slot has it, and it is no set. For a
/// process that no vfork(2) child asks anything of.
#[inline(always)]
pub(crate) fn plain_object(word: usize) -> Option<&'static SlotHead> {
    const PLAIN: u32 = 1 << COUNTER | 1 << TIMER | 1 << PIPE;
    // SAFETY: entries with these tags lead to slots, which begin with a head and are never freed.
    (PLAIN >> (word & TAG) & 1 == 1).then(|| unsafe { SlotHead::at(word & !TAG) })
}
