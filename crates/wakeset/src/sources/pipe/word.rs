//! The word of a pipe.
//!
//! | bits of the word | what |
//! |---|---|
//! | 0–16 | how many bytes are in it |
//! | 17–28 | by pages: where in its page the first of them stands; by messages: how many messages they are |
//! | 29–36 | a run: the byte; nodes: the newest node on the stack, 0 for none (the reader's chain has them all) |
//! | 37 | nodes, not a run |
//! | 38 | sealed: the bytes are elsewhere, and these were the last |
//! | 39–60 | the generation: a call that comes late, from an earlier one, finds another number and is told "sealed" |
//! | 61 | the writing end has been closed |
//! | 62 | the reading end has been closed, when the pipe was empty |
//! | 63 | it has been shut down: what is in it can be read, and then the end |

/// A page, as Linux's pipes count.
pub(in crate::sources::pipe) const PAGE: u32 = 4096;
/// How many pages a pipe holds (`F_GETPIPE_SZ` says 65,536).
pub(in crate::sources::pipe) const PAGES: u32 = 16;
/// The bytes that a pipe holds at most.
pub const PIPE_CAPACITY: u32 = PAGE * PAGES;
/// The longest write, `PIPE_BUF`: it is one write, or none.
pub const LONGEST_WRITE: usize = PAGE as usize;

/// The word of a [`Pipe`](super::Pipe).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sources::pipe) struct Word(pub(in crate::sources::pipe) u64);

impl Word {
    pub(in crate::sources::pipe) const LEN: u64 = (1 << 17) - 1;
    pub(in crate::sources::pipe) const OFFSET_SHIFT: u32 = 17;
    pub(in crate::sources::pipe) const OFFSET: u64 = (1 << 12) - 1;
    pub(in crate::sources::pipe) const ITEM_SHIFT: u32 = 29;
    pub(in crate::sources::pipe) const NODES: u64 = 1 << 37;
    pub(in crate::sources::pipe) const SEALED: u64 = 1 << 38;
    pub(in crate::sources::pipe) const GENERATION_SHIFT: u32 = 39;
    pub(in crate::sources::pipe) const GENERATION: u64 = (1 << 22) - 1;
    pub(in crate::sources::pipe) const NO_WRITER: u64 = 1 << 61;
    pub(in crate::sources::pipe) const NO_READER: u64 = 1 << 62;
    pub(in crate::sources::pipe) const SHUT: u64 = 1 << 63;

    pub(in crate::sources::pipe) const fn empty(generation: u32) -> Self {
        Self((generation as u64 & Self::GENERATION) << Self::GENERATION_SHIFT)
    }

    pub(in crate::sources::pipe) const fn generation(self) -> u32 {
        (self.0 >> Self::GENERATION_SHIFT & Self::GENERATION) as u32
    }

    pub(in crate::sources::pipe) const fn len(self) -> u32 {
        (self.0 & Self::LEN) as u32
    }

    /// Where the first byte stands in its page, or how many messages there are.
    pub(in crate::sources::pipe) const fn offset(self) -> u32 {
        (self.0 >> Self::OFFSET_SHIFT & Self::OFFSET) as u32
    }

    pub(in crate::sources::pipe) const fn item(self) -> u8 {
        (self.0 >> Self::ITEM_SHIFT) as u8
    }

    pub(in crate::sources::pipe) const fn is_run(self) -> bool {
        self.0 & Self::NODES == 0
    }

    pub(in crate::sources::pipe) const fn is_sealed(self) -> bool {
        self.0 & Self::SEALED != 0
    }

    /// Whether the writing end has been closed.
    pub(in crate::sources::pipe) const fn has_no_writer(self) -> bool {
        self.0 & Self::NO_WRITER != 0
    }

    /// Whether the reading end has been closed.
    pub(in crate::sources::pipe) const fn has_no_reader(self) -> bool {
        self.0 & Self::NO_READER != 0
    }

    /// Whether it has been shut down.
    pub(in crate::sources::pipe) const fn is_shut(self) -> bool {
        self.0 & Self::SHUT != 0
    }

    /// Whether a write of this generation may go on: the pipe is not sealed or shut down, and has
    /// both ends. All of that is in the bits from [`SEALED`](Self::SEALED) on.
    #[inline(always)]
    pub(in crate::sources::pipe) const fn takes_writes(self, generation: u32) -> bool {
        self.0 >> (Self::GENERATION_SHIFT - 1) == (generation as u64) << 1
    }

    pub(in crate::sources::pipe) const fn with(self, len: u32, offset: u32) -> Self {
        let kept = self.0 & !(Self::LEN | Self::OFFSET << Self::OFFSET_SHIFT);
        Self(kept | len as u64 | (offset as u64) << Self::OFFSET_SHIFT)
    }

    pub(in crate::sources::pipe) const fn with_item(self, item: u8) -> Self {
        Self(self.0 & !(0xff << Self::ITEM_SHIFT) | (item as u64) << Self::ITEM_SHIFT)
    }

    pub(in crate::sources::pipe) const fn with_node(self, node: u8) -> Self {
        Self(self.with_item(node).0 | Self::NODES)
    }

    pub(in crate::sources::pipe) const fn sealed(self) -> Self {
        Self(self.0 | Self::SEALED)
    }

    /// Pages in use.
    pub(in crate::sources::pipe) const fn pages(self) -> u32 {
        (self.offset() + self.len()).div_ceil(PAGE)
    }

    /// Without the first `n` bytes, which were `messages` messages.
    pub(in crate::sources::pipe) fn without(
        self,
        n: u32,
        messages: u32,
        by_messages: bool,
    ) -> Self {
        let left = self.len() - n;
        if left == 0 {
            let ends = match mutant!("pipe_drain_forgets_close") {
                true => 0,
                false => Self::NO_WRITER | Self::NO_READER | Self::SHUT,
            };
            return Self(Self::empty(self.generation()).0 | self.0 & ends);
        }
        self.with(
            left,
            if by_messages { self.offset() - messages } else { (self.offset() + n) % PAGE },
        )
    }
}
