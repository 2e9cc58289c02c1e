//! Where functions begin, from an object's unwind table (`PT_GNU_EH_FRAME`).
//!
//! Only the form that every linker writes is read: a sorted table of 32-bit offsets from its own
//! beginning. In any other form nothing is known about any function.

use super::Range;

/// The beginning of `.eh_frame_hdr`: version 1; then how the pointer to the frames, the number of
/// entries and the entries are encoded.
const HEADER: [u8; 4] = [1, 0x1b, 0x03, 0x3b];

/// The unwind table of an object.
#[derive(Clone, Copy)]
pub(crate) struct Frames {
    table: usize,
    entries: usize,
}

fn word(address: usize) -> u32 {
    // SAFETY: callers give addresses in the mapped tables of a loaded object.
    unsafe { core::ptr::with_exposed_provenance::<u32>(address).read_unaligned() }
}

/// A 32-bit offset from a base.
fn relative(base: usize, offset: u32) -> usize {
    base.wrapping_add_signed(offset.cast_signed() as isize)
}

impl Frames {
    /// The table in this memory, if it has the known form.
    pub(super) fn at(memory: Range) -> Option<Self> {
        let table = memory.start;
        if memory.len() < 12 || word(table) != u32::from_ne_bytes(HEADER) {
            return None;
        }
        let entries = word(table + 8) as usize;
        (12 + entries.checked_mul(8)? <= memory.len()).then_some(Self { table, entries })
    }

    fn entry(self, index: usize) -> (usize, usize) {
        let place = self.table + 12 + 8 * index;
        (relative(self.table, word(place)), relative(self.table, word(place + 4)))
    }

    /// The function that contains an address, if the table has it.
    pub(super) fn function_of(self, address: usize) -> Option<Range> {
        let (mut low, mut high) = (0, self.entries);
        while low < high {
            let middle = low.midpoint(high);
            if self.entry(middle).0 <= address {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let (start, description) = self.entry(low.checked_sub(1)?);
        // Its length, the pointer to what it has in common with others, its beginning, its size.
        let begins = relative(description + 8, word(description + 8));
        let end = start.checked_add(word(description + 12) as usize)?;
        (begins == start && (start..end).contains(&address)).then_some(Range { start, end })
    }
}
