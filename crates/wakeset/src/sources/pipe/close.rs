//! The close of an end of a pipe.

use crate::sources::pipe::handle::Pipe;
use crate::sources::pipe::word::Word;
use crate::sync::Ordering;
use crate::sync::blocked::{ALL, READERS};

impl Pipe {
    /// Notes that the writing end has been closed. A write that comes late through it fails with
    /// [`Error::Sealed`](crate::error::Error::Sealed), a read takes what is left and then nothing.
    /// With `if_empty` only if nothing is left. Returns whether it was done; readers that sleep are
    /// woken by [`wake_closed`](Self::wake_closed).
    pub fn close_writer(&self, generation: u32, if_empty: bool) -> bool {
        self.close_end(generation, Word::NO_WRITER, if_empty)
    }

    /// Notes that the reading end has been closed, if nothing is left that was not read. A read
    /// that comes late through it fails with [`Error::Sealed`](crate::error::Error::Sealed), and a
    /// write with [`Error::Unfit`](crate::error::Error::Unfit). Returns whether it was done.
    pub fn close_reader(&self, generation: u32) -> bool {
        self.close_end(generation, Word::NO_READER, true)
    }

    fn close_end(&self, generation: u32, end: u64, if_empty: bool) -> bool {
        loop {
            let Ok(word) = self.word(generation, Ordering::SeqCst) else { return false };
            if if_empty && word.len() != 0 {
                return false;
            }
            if mutant!("pipe_close_without_compare") {
                self.word.store(word.0 | end, Ordering::SeqCst);
                return true;
            }
            if self.change(word, Word(word.0 | end)) {
                return true;
            }
        }
    }

    /// Wakes the readers that are blocked in a pipe whose writing end has been closed.
    pub fn wake_closed(&self) {
        self.blocked.changed(mutant!("pipe_close_without_fence"), ALL, READERS);
    }
}
