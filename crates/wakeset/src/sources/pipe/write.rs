//! Writes into a pipe.

use crate::error::Error;
use crate::sources::pipe::handle::Pipe;
use crate::sources::pipe::nodes::{LONGEST_MESSAGE, NODE};
use crate::sources::pipe::room::MOST;
use crate::sources::pipe::word::{LONGEST_WRITE, PAGE, PAGES, Word};
use crate::sync::Ordering;
use crate::sync::adaptive_spin::joint;
use crate::sync::blocked::READERS;
use crate::testing::steps::step;

impl Pipe {
    /// The word with `n` more bytes, if Linux's has room for them.
    #[inline(always)]
    fn with_more(&self, word: Word, n: u32) -> Result<Word, Error> {
        let room = self.room();
        if !room.is_by_pages() {
            return match word.offset() {
                _ if room.is_unasked() => Err(Error::Unfit),
                messages if messages >= room.most() => Err(Error::WouldBlock),
                messages if messages >= MOST => Err(Error::Unfit),
                messages => Ok(word.with(word.len() + n, messages + 1)),
            };
        }
        // A write goes on in the last page if it fits there in whole; else it begins a page, of
        // which there may be none.
        let filled = (word.offset() + word.len()) % PAGE;
        if word.len() != 0 && (filled == 0 || filled + n > PAGE) {
            if word.pages() >= PAGES {
                return Err(Error::WouldBlock);
            }
            if filled != 0 {
                // The last page keeps a gap.
                return Err(Error::Unfit);
            }
        }
        Ok(word.with(word.len() + n, word.offset()))
    }

    /// The word, before a write. Acquire: with a word of this generation goes what
    /// [`unseal`](Self::unseal) has said of the capacity, and with a sealed one what the migrating
    /// thread has stored before: where the bytes are now.
    #[inline(always)]
    fn word_to_write(&self, generation: u32) -> Result<Word, Error> {
        if mutant!("pipe_sealed_unfenced") {
            return self.word(generation, Ordering::Relaxed);
        }
        let word = Word(self.word.load(ordering!(Acquire, "pipe_room_relaxed")));
        if word.takes_writes(generation) {
            return Ok(word);
        }
        Self::refused(word, generation)
    }

    /// Why a write cannot go on. One through an end that has been closed comes late.
    #[cold]
    fn refused(word: Word, generation: u32) -> Result<Word, Error> {
        let is_late = word.has_no_writer() && !mutant!("pipe_write_after_close");
        if word.is_sealed() || word.generation() != generation || is_late {
            return Err(Error::Sealed);
        }
        if word.has_no_reader() || word.is_shut() { Err(Error::Unfit) } else { Ok(word) }
    }

    /// Puts bytes in, all or none.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] if Linux's would; [`Error::Sealed`], also if `generation` is over, or
    /// the writing end closed; [`Error::Unfit`] if they cannot be held here, or no reader is left,
    /// or the pipe has been shut down.
    pub fn try_write(&self, generation: u32, bytes: &[u8]) -> Result<(), Error> {
        let Some((first, rest)) = bytes.split_first() else { return Ok(()) };
        // A run may be several writes, or one: only messages must be told apart.
        if rest.is_empty() || self.is_run_by_pages(*first, rest) {
            match self.try_write_run(generation, *first, bytes.len() as u32) {
                Err(Error::Unfit) => {}
                done => return done,
            }
        }
        self.write_nodes(generation, bytes)
    }

    /// [`try_write`](Self::try_write) of one byte, without memory being made for it.
    ///
    /// # Errors
    /// As those, and [`Error::Unfit`] if that takes memory.
    #[inline(always)]
    pub fn try_write_byte(&self, generation: u32, byte: u8) -> Result<(), Error> {
        self.try_write_run(generation, byte, 1)
    }

    #[inline(always)]
    fn try_write_run(&self, generation: u32, byte: u8, n: u32) -> Result<(), Error> {
        loop {
            let word = self.word_to_write(generation)?;
            if !word.is_run() || word.len() != 0 && word.item() != byte {
                return Err(Error::Unfit);
            }
            let more = self.with_more(word, n)?.with_item(byte);
            step!(pipe_before_write);
            if self.change(word, more) {
                self.written(more);
                return Ok(());
            }
        }
    }

    #[cold]
    fn is_run_by_pages(&self, first: u8, rest: &[u8]) -> bool {
        self.room().is_by_pages()
            && rest.len() < LONGEST_WRITE
            && rest.iter().all(|byte| *byte == first)
    }

    #[cold]
    fn write_nodes(&self, generation: u32, bytes: &[u8]) -> Result<(), Error> {
        let most = match self.room() {
            room if room.is_by_pages() => LONGEST_WRITE,
            room if room.is_unasked() => 0,
            _ => LONGEST_MESSAGE,
        };
        if bytes.len() > most {
            return Err(Error::Unfit);
        }
        if mutant!("pipe_write_in_parts") && bytes.len() > NODE {
            return bytes.chunks(NODE).try_for_each(|part| self.write_nodes(generation, part));
        }
        let nodes = self.nodes().ok_or(Error::Unfit)?;
        let (newest, lowest) = nodes.fill(bytes).ok_or(Error::Unfit)?;
        let link = nodes.link(lowest);
        let written = loop {
            let more = self
                .word_to_write(generation)
                .and_then(|word| Ok((word, self.with_more(word, bytes.len() as u32)?)));
            let (word, more) = match more {
                Ok(words) => words,
                Err(error) => break Err(error),
            };
            let below = match word.is_run() {
                true if word.len() != 0 => link.after_run(word.item(), word.len()),
                true => link,
                false => link.with_next(word.item()),
            };
            nodes.set_link(lowest, below);
            step!(pipe_before_push);
            if self.change(word, more.with_node(newest)) {
                break Ok(more);
            }
        };
        match written {
            Ok(more) => self.written(more),
            Err(_) => {
                nodes.set_link(lowest, link);
                nodes.give_stack(newest);
            }
        }
        written.map(|_| ())
    }

    /// After a write: wakes a reader that sleeps, and a writer if there is still room, because the
    /// read that made it has woken one only.
    #[inline(always)]
    fn written(&self, left: Word) {
        step!(pipe_written);
        joint::signals();
        if self.blocked.any(mutant!("pipe_write_without_fence")) {
            self.wake_after_write(left);
        }
    }

    #[cold]
    fn wake_after_write(&self, left: Word) {
        self.blocked.wake(1, READERS);
        if !mutant!("pipe_write_wakes_no_writer") {
            self.wake_writer(left);
        }
    }
}
