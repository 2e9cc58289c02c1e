//! Reads from a pipe.

use crate::error::Error;
use crate::sources::pipe::chain::give_run;
use crate::sources::pipe::handle::{Pipe, Taken};
use crate::sources::pipe::word::{PAGES, Word};
use crate::sync::Ordering;
use crate::sync::blocked::READERS;
use crate::testing::steps::step;

impl Pipe {
    /// Takes up to `most` bytes out and gives them to `sink`, in order and in one or more pieces.
    /// `sink` may say that it has no place for them; then none is taken if that can be helped.
    /// No bytes are the end: the writing end has been closed, or the pipe shut down.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] if it is empty; [`Error::Sealed`], also if `generation` is over, or
    /// the reading end closed; [`Error::Unfit`] if `sink` refuses.
    #[inline(always)]
    pub fn try_read(
        &self,
        generation: u32,
        most: usize,
        mut sink: impl FnMut(&[u8]) -> bool,
    ) -> Result<Taken, Error> {
        loop {
            let word = self.word(generation, Ordering::SeqCst)?;
            if word.len() == 0 || most == 0 {
                return Self::read_nothing(word);
            }
            if !word.is_run() {
                match self.read_nodes(generation, most, &mut sink) {
                    None => continue,
                    Some(taken) => return taken,
                }
            }
            let n = word.len().min(u32::try_from(most).unwrap_or(u32::MAX));
            let by_messages = !self.room().is_by_pages();
            let left = word.without(n, n, by_messages);
            step!(pipe_before_read);
            if self.change(word, left) {
                self.taken(left);
                let filled = give_run(word.item(), n, &mut sink);
                return match filled {
                    true => {
                        Ok(Taken { n: n as usize, made_room: self.made_room(word, left, true) })
                    }
                    // Gone: whoever gives memory that it takes away meanwhile gets what it gets.
                    false => Err(Error::Unfit),
                };
            }
        }
    }

    /// A read that finds nothing.
    fn read_nothing(word: Word) -> Result<Taken, Error> {
        match (word.has_no_reader(), word.has_no_writer() || word.is_shut()) {
            (true, _) => Err(Error::Sealed),
            (_, true) => Ok(Taken { n: 0, made_room: false }),
            _ => Err(Error::WouldBlock),
        }
    }

    /// Whether a read that left `after` of `before` tells the writing side. `freed`: at least one
    /// message is read to its end.
    fn made_room(&self, before: Word, after: Word, freed: bool) -> bool {
        let room = self.room();
        if !room.is_by_pages() {
            return freed && room.tells_with(after.offset());
        }
        before.pages() >= PAGES && after.pages() < PAGES
    }

    /// After a read: what it has left is the next reader's, which the write may not have woken, and
    /// the room is a writer's.
    #[inline(always)]
    fn taken(&self, left: Word) {
        step!(pipe_read);
        if self.blocked.any(mutant!("pipe_read_without_fence")) {
            self.wake_after_read(left);
        }
    }

    #[cold]
    fn wake_after_read(&self, left: Word) {
        if left.len() != 0 && !mutant!("pipe_read_wakes_no_reader") {
            self.blocked.wake(1, READERS);
        }
        self.wake_writer(left);
    }

    /// `None`: they are no nodes any more.
    #[cold]
    #[inline(never)]
    fn read_nodes(
        &self,
        generation: u32,
        most: usize,
        sink: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Option<Result<Taken, Error>> {
        let mut chain = self.chain.lock();
        // SAFETY: a writer has pushed nodes, so they are there; they go with the pipe.
        let nodes = unsafe { self.nodes.load(Ordering::Acquire).as_ref() };
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        let mut done = chain.begin();
        loop {
            let word = match self.word(generation, Ordering::SeqCst) {
                Ok(word) => word,
                Err(error) => return Some(Err(error)),
            };
            let (false, Some(nodes)) = (word.is_run(), nodes) else { return None };
            if word.item() != 0 && done.bytes < most {
                step!(pipe_before_take);
                if !self.change(word, word.with_node(0)) {
                    continue;
                }
                let appended = chain.append(nodes, word.item());
                if done.number == 0 {
                    done.number = appended;
                }
            }
            if done.bytes == 0 {
                done = chain.begin();
            }
            if !done.go_on(nodes, most, sink) {
                return Some(Err(Error::Unfit));
            }
            // What came meanwhile is read as well, as long as there is room.
            let word = match self.word(generation, Ordering::SeqCst) {
                Ok(word) if word.item() != 0 && done.bytes < most => continue,
                Ok(word) => word,
                Err(error) => return Some(Err(error)),
            };
            let by_messages = !self.room().is_by_pages();
            let left = word.without(done.bytes, done.messages, by_messages);
            step!(pipe_before_read);
            if self.change(word, left) {
                chain.drop_to(nodes, &done);
                drop(chain);
                self.taken(left);
                let made_room = self.made_room(word, left, done.messages != 0);
                return Some(Ok(Taken { n: done.bytes as usize, made_room }));
            }
        }
    }
}
