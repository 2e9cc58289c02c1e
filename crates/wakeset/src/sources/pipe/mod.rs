//! The pipe: bytes on their way from writers to readers, pipe(7) or one direction of a unix(7)
//! stream, while both ends are open.
//!
//! One word says what is in it, as a counter's does, so a write or a seal is one compare-and-swap,
//! and so is a read in the usual case: the bytes that wake a loop are mostly all the same, and then
//! the word holds them (a *run*). Other bytes stand in *nodes*, a stack that writers push to and
//! that one reader at a time takes whole and reverses.
//!
//! Only what Linux would hold in the same way is held here. A write for which that cannot be said
//! fails with [`Error::Unfit`](crate::error::Error::Unfit), and the pipe's owner migrates it to the
//! kernel.
//!
//! `write` and `read` change the word (`word`); what does not fit into it lies in `nodes`, which
//! the reader strings to a `chain`. `close` notes in the word that an end has gone.

mod chain;
mod close;
mod handle;
mod nodes;
mod read;
mod room;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
mod word;
mod write;

pub use chain::Piece;
pub use handle::{Pipe, PipeCapacity, PipeState, Taken};
pub use nodes::LONGEST_MESSAGE;
pub use word::{LONGEST_WRITE, PIPE_CAPACITY};
