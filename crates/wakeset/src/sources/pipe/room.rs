//! How much fits into a pipe: one word, so that an answer that comes late, for an earlier
//! generation, changes all of it or nothing.
//!
//! | bits | what |
//! |---|---|
//! | 0–12 | by messages: how many fit |
//! | 13–24 | by messages: how many there may be while it is writable |
//! | 25–36 | by messages: how many a read may leave that tells the writing side |
//! | 39–60 | if nobody has asked yet: the generation |
//! | 63 | nobody has asked yet |
//!
//! 0 is a pipe by pages. No more messages than [`MOST`] are ever here, so greater numbers are not
//! told apart.

use crate::sources::pipe::handle::PipeCapacity;
use crate::sources::pipe::word::Word;

/// The most messages that a pipe's word can count.
pub(in crate::sources::pipe) const MOST: u32 = Word::OFFSET as u32;
const WRITABLE_SHIFT: u32 = 13;
const TELLING_SHIFT: u32 = 25;
const UNASKED: u64 = 1 << 63;

/// The room of a [`Pipe`](super::Pipe).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sources::pipe) struct Room(pub(in crate::sources::pipe) u64);

impl Room {
    pub(in crate::sources::pipe) fn of(generation: u32, capacity: PipeCapacity) -> Self {
        match capacity {
            PipeCapacity::Unasked => Self::unasked(generation),
            PipeCapacity::Pages => Self(0),
            PipeCapacity::Messages { most, writable, telling } => Self(
                u64::from(most.clamp(1, MOST + 1))
                    | u64::from(writable.min(MOST)) << WRITABLE_SHIFT
                    | u64::from(telling.min(MOST)) << TELLING_SHIFT,
            ),
        }
    }

    pub(in crate::sources::pipe) const fn unasked(generation: u32) -> Self {
        Self(UNASKED | Word::empty(generation).0)
    }

    pub(in crate::sources::pipe) const fn is_unasked(self) -> bool {
        self.0 & UNASKED != 0
    }

    pub(in crate::sources::pipe) const fn is_by_pages(self) -> bool {
        self.0 == 0
    }

    pub(in crate::sources::pipe) const fn most(self) -> u32 {
        (self.0 & ((1 << WRITABLE_SHIFT) - 1)) as u32
    }

    /// While nobody has asked, only an empty pipe is.
    pub(in crate::sources::pipe) const fn is_writable_with(self, messages: u32) -> bool {
        messages <= (self.0 >> WRITABLE_SHIFT) as u32 & MOST
    }

    pub(in crate::sources::pipe) const fn tells_with(self, messages: u32) -> bool {
        messages <= (self.0 >> TELLING_SHIFT) as u32 & MOST
    }
}
