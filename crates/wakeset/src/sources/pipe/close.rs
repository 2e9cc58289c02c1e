//! The close of an end of a pipe, and the shutdown of all of it.

use crate::sources::pipe::handle::Pipe;
use crate::sources::pipe::word::Word;
use crate::sync::Ordering;
use crate::testing::steps::step;

impl Pipe {
    /// Notes that the writing end has been closed. A write that comes late through it fails with
    /// [`Error::Sealed`](crate::error::Error::Sealed), a read takes what is left and then nothing.
    /// With `if_empty` only if nothing is left. Returns whether it was done; threads that sleep are
    /// woken by [`wake_closed`](Self::wake_closed).
    pub fn close_writer(&self, generation: u32, if_empty: bool) -> bool {
        self.end(generation, Word::NO_WRITER, if_empty).is_some()
    }

    /// Notes that the reading end has been closed, if nothing is left that was not read. A read
    /// that comes late through it fails with [`Error::Sealed`](crate::error::Error::Sealed), and a
    /// write with [`Error::Unfit`](crate::error::Error::Unfit). Returns whether it was done.
    pub fn close_reader(&self, generation: u32) -> bool {
        self.end(generation, Word::NO_READER, true).is_some()
    }

    /// Notes that nothing more will be written: a read takes what is left and then nothing, and a
    /// write fails with [`Error::Unfit`](crate::error::Error::Unfit). Returns how many bytes are
    /// left, or `None` if the pipe is sealed. Threads that sleep are woken by
    /// [`wake_closed`](Self::wake_closed).
    pub fn shut(&self, generation: u32) -> Option<u32> {
        self.end(generation, Word::SHUT, false)
    }

    /// Sets a bit of the word; with `if_empty` only if nothing is in the pipe. Returns how many
    /// bytes are, if it was done.
    fn end(&self, generation: u32, how: u64, if_empty: bool) -> Option<u32> {
        loop {
            let word = self.word(generation, Ordering::SeqCst).ok()?;
            if if_empty && word.len() != 0 {
                return None;
            }
            step!(pipe_before_close);
            if mutant!("pipe_close_without_compare") {
                self.word.store(word.0 | how, Ordering::SeqCst);
                return Some(word.len());
            }
            if self.change(word, Word(word.0 | how)) {
                step!(pipe_closed);
                return Some(word.len());
            }
        }
    }

    /// Wakes the threads that are blocked in a pipe of which an end has been closed, or that has
    /// been shut down.
    pub fn wake_closed(&self) {
        self.wake_all(mutant!("pipe_close_without_fence"));
    }
}
