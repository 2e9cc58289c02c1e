//! The pipe: bytes between writers, readers and a seal.

use super::*;
use loom::sync::Mutex;
use loom::sync::atomic::{AtomicU32, Ordering::SeqCst};
use wakeset::{Error, Piece, Pipe, PipeCapacity, WaitQueue};

#[path = "../common/pipe_ends.rs"]
mod pipe_ends;
use pipe_ends::Both;

impl Both {
    fn write(&self, bytes: &[u8]) -> Result<(), Error> {
        self.pipe.try_write(self.generation, bytes)?;
        self.queue.wake_published(Events::IN);
        Ok(())
    }

    fn read(&self, most: usize) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        self.pipe.try_read(self.generation, most, |part| {
            bytes.extend_from_slice(part);
            true
        })?;
        Ok(bytes)
    }

    fn close_writer(&self) {
        assert!(self.pipe.close_writer(self.generation, false));
        self.pipe.wake_closed();
        self.queue.wake_published(Events::empty());
    }

    fn read_blocking(&self, most: usize) -> Result<Vec<u8>, Error> {
        self.pipe.block_reader(|| self.read(most))
    }

    fn write_blocking(&self, bytes: &[u8]) -> Result<(), Error> {
        self.pipe.block_writer(|| self.write(bytes))
    }

    fn seal(&self) -> Vec<u8> {
        let mut left = Vec::new();
        self.pipe.seal(self.generation, |piece| match piece {
            Piece::Run(byte, n) => left.extend((0..n).map(|_| byte)),
            Piece::Bytes { bytes, .. } => left.extend_from_slice(bytes),
        });
        self.pipe.wake_sealed();
        left
    }
}

fn shared() -> Arc<Both> {
    Arc::new(Both::new())
}

/// Catches a byte lost, doubled or out of order between writes, a read and a seal. One write fits
/// into the word, one does not.
#[test]
fn what_is_written_is_read_or_sealed_once() {
    explore(3, || {
        let pipe = shared();
        let writer = run(&pipe, |pipe| {
            let written =
                [&b"a"[..], b"bc"].into_iter().take_while(|bytes| pipe.write(bytes).is_ok());
            written.flatten().copied().collect::<Vec<_>>()
        });
        let reader = run(&pipe, |pipe| pipe.read(2).unwrap_or_default());
        let sealed = pipe.seal();
        let (written, read) = (writer.join().unwrap(), reader.join().unwrap());
        assert_eq!([read, sealed].concat(), written);
    });
}

/// Catches a write in a node that is seen before its bytes, and one of two parts that another comes
/// between: the atomic writes of `PIPE_BUF`. Here a node has room for 8 bytes.
#[test]
fn writes_come_out_in_one_piece() {
    explore(3, || {
        let pipe = shared();
        let writers = [b"aaaaaaaaAA", b"bbbbbbbbBB"]
            .map(|bytes| run(&pipe, move |pipe| pipe.write(&bytes[..10])));
        let mut read = pipe.read(20).unwrap_or_default();
        let written = writers.map(|writer| writer.join().unwrap());
        // There are three nodes, and each write needs two.
        let refused = written.iter().filter(|result| **result == Err(Error::Unfit)).count();
        assert!(refused <= 1, "{written:?}");
        read.extend(pipe.seal());
        assert_eq!(read.len(), 20 - 10 * refused);
        for part in read.chunks(10) {
            assert!(part == b"aaaaaaaaAA" || part == b"bbbbbbbbBB", "{part:?}");
        }
    });
}

/// Catches a node that is used again while its bytes are still being read, and bytes that two
/// readers take.
#[test]
fn two_readers_share_what_is_there() {
    explore(2, || {
        let pipe = shared();
        pipe.write(b"ab").unwrap();
        pipe.write(b"cd").unwrap();
        let reader = run(&pipe, |pipe| pipe.read(2).unwrap_or_default());
        let writer = run(&pipe, |pipe| pipe.write(b"ef").and_then(|()| pipe.write(b"gh")).is_ok());
        let mine = pipe.read(2).unwrap_or_default();
        let (theirs, all) = (reader.join().unwrap(), writer.join().unwrap());
        let mut read = [mine, theirs, pipe.seal()].concat();
        read.chunks_mut(2).for_each(|part| assert_eq!(part[0] + 1, part[1], "torn"));
        read.sort_unstable();
        let read = read.as_slice();
        assert!(read == b"abcdefgh" || !all && matches!(read, b"abcd" | b"abcdef"), "{read:?}");
    });
}

/// Catches a blocked read that looked before the write and slept after its wake.
#[test]
fn a_blocked_read_sees_a_write() {
    explore(3, || {
        let pipe = shared();
        let reader = run(&pipe, |pipe| pipe.read_blocking(4).unwrap());
        pipe.write(b"x").unwrap();
        assert_eq!(reader.join().unwrap(), b"x");
    });
}

/// Catches a write of two bytes that wakes one reader, who takes one of them.
#[test]
fn one_write_serves_two_blocked_readers() {
    explore(2, || {
        let pipe = shared();
        let readers = [0, 1].map(|_| run(&pipe, |pipe| pipe.read_blocking(1).unwrap()));
        pipe.write(b"xx").unwrap();
        for reader in readers {
            assert_eq!(reader.join().unwrap(), b"x");
        }
    });
}

/// Catches a seal that leaves a blocked reader asleep.
#[test]
fn a_seal_ends_a_blocked_read() {
    explore(3, || {
        let pipe = shared();
        let reader = run(&pipe, |pipe| pipe.read_blocking(1));
        assert_eq!(pipe.seal(), b"");
        assert_eq!(reader.join().unwrap(), Err(Error::Sealed));
    });
}

/// Catches a close that leaves a blocked reader asleep.
#[test]
fn a_close_ends_a_blocked_read() {
    explore(3, || {
        let pipe = shared();
        let reader = run(&pipe, |pipe| pipe.read_blocking(1));
        pipe.close_writer();
        assert_eq!(reader.join().unwrap(), Ok(vec![]));
    });
}

/// A pipe with room for so many messages, all of which are there.
fn full(most: u32) -> Arc<Both> {
    let pipe = Both::with(PipeCapacity::Messages { most, writable: 0, telling: 0 });
    while pipe.write(b"a").is_ok() {}
    Arc::new(pipe)
}

/// Catches a blocked write that looked before the read and slept after its wake.
#[test]
fn a_blocked_write_sees_a_read() {
    explore(3, || {
        let pipe = full(1);
        let writer = run(&pipe, |pipe| pipe.write_blocking(b"b"));
        assert_eq!(pipe.read(1).unwrap(), b"a");
        assert_eq!(writer.join().unwrap(), Ok(()));
        assert_eq!(pipe.read(1).unwrap(), b"b");
    });
}

/// Catches a read that makes room for two and lets one writer go, which leaves the other one
/// asleep.
#[test]
fn one_read_lets_two_blocked_writers_go() {
    explore(2, || {
        let pipe = full(2);
        let writers = [0, 1].map(|_| run(&pipe, |pipe| pipe.write_blocking(b"a")));
        assert_eq!(pipe.read(2).unwrap(), b"aa");
        for writer in writers {
            assert_eq!(writer.join().unwrap(), Ok(()));
        }
        assert_eq!(pipe.read(2).unwrap(), b"aa");
    });
}

/// Catches a seal that leaves a blocked writer asleep.
#[test]
fn a_seal_ends_a_blocked_write() {
    explore(3, || {
        let pipe = full(1);
        let writer = run(&pipe, |pipe| pipe.write_blocking(b"b"));
        assert_eq!(pipe.seal(), b"a");
        assert_eq!(writer.join().unwrap(), Err(Error::Sealed));
    });
}

/// Catches a close of the reading end that leaves a writer asleep: the read before it has woken one
/// of two.
#[test]
fn a_close_ends_blocked_writes() {
    explore(2, || {
        let pipe = full(1);
        let writers = [0, 1].map(|_| run(&pipe, |pipe| pipe.write_blocking(b"b")));
        assert_eq!(pipe.read(1).unwrap(), b"a");
        while !pipe.pipe.close_reader(pipe.generation) {
            assert_eq!(pipe.read(1).unwrap(), b"b");
        }
        pipe.pipe.wake_closed();
        for writer in writers {
            assert!(matches!(writer.join().unwrap(), Ok(()) | Err(Error::Unfit)));
        }
    });
}

/// Catches a byte that is lost to a close, one that comes after the end has been read, and an end
/// that is forgotten when the last byte is read.
#[test]
fn what_is_written_before_the_close_is_read() {
    explore(3, || {
        let pipe = shared();
        let writer = run(&pipe, |pipe| {
            let written =
                [&b"a"[..], b"bc"].into_iter().take_while(|bytes| pipe.write(bytes).is_ok());
            written.flatten().copied().collect::<Vec<_>>()
        });
        pipe.close_writer();
        let mut read = Vec::new();
        loop {
            match pipe.read(2) {
                Ok(more) if more.is_empty() => break,
                more => read.extend(more.unwrap()),
            }
        }
        assert_eq!(read, writer.join().unwrap());
        assert_eq!(pipe.read(2), Ok(vec![]));
    });
}

/// The same of a shutdown, after which a write is refused and does not come late.
#[test]
fn what_is_written_before_a_shutdown_is_read() {
    explore(3, || {
        let pipe = shared();
        let writer = run(&pipe, |pipe| {
            let written = [&b"a"[..], b"bc"].map(|bytes| (bytes, pipe.write(bytes)));
            let done = written.iter().take_while(|(_, result)| result.is_ok());
            assert!(written.iter().all(|(_, result)| matches!(result, Ok(()) | Err(Error::Unfit))));
            done.flat_map(|(bytes, _)| *bytes).copied().collect::<Vec<_>>()
        });
        let left = pipe.pipe.shut(pipe.generation).unwrap();
        let mut read = Vec::new();
        while let more = pipe.read(2).unwrap()
            && !more.is_empty()
        {
            read.extend(more);
        }
        assert_eq!((read.len(), &read), (left as usize, &writer.join().unwrap()));
        assert_eq!(pipe.read(2), Ok(vec![]));
    });
}

/// Catches a write that succeeds once the reading end is closed, and a close with bytes that were
/// not read.
#[test]
fn what_is_written_is_there_or_the_reader_has_gone() {
    explore(3, || {
        let pipe = shared();
        let writer = run(&pipe, |pipe| pipe.write(b"a"));
        let closed = pipe.pipe.close_reader(pipe.generation);
        match writer.join().unwrap() {
            Ok(()) => assert!(!closed && pipe.read(2) == Ok(b"a".to_vec())),
            error => assert!(closed && error == Err(Error::Unfit)),
        }
    });
}

/// Catches an edge lost between a harvest and a write: a self-pipe's loop reads all there is and
/// waits for the next edge.
#[test]
fn an_edge_is_not_lost_to_a_loop_that_drains() {
    explore(2, || {
        let engine = Engine::new();
        let set = EventPoll::new(&engine).unwrap();
        let pipe = Description::new(&engine, Both::new());
        set.add(1, &pipe, Event::new(Events::IN | Events::ET, 1)).unwrap();
        let scene = Arc::new((set, pipe));
        let writer = run(&scene, |(_, pipe)| {
            pipe.write(b"a").unwrap();
            pipe.write(b"b").unwrap();
        });
        let mut read = Vec::new();
        while read.len() < 2 {
            assert_eq!(wait(&scene.0, Timeout::Never), Some(1));
            while let Ok(more) = scene.1.read(8) {
                read.extend(more);
            }
        }
        assert_eq!(read, b"ab");
        writer.join().unwrap();
    });
}

const HERE: u32 = 0;
const MOVING: u32 = 1;
const THERE: u32 = 2;

/// A pipe with another home, to which it moves in the steps that `wakeset-fd` takes.
struct Biased {
    here: Both,
    place: AtomicU32,
    there: Mutex<There>,
}

/// The other home, with one watch.
#[derive(Default)]
struct There {
    bytes: Vec<u8>,
    watched: bool,
    edge: bool,
}

impl There {
    fn write(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.edge |= self.watched;
    }
}

impl Source for Biased {
    fn poll(&self) -> Events {
        let Some(state) = self.here.pipe.state(self.here.generation) else {
            return Events::empty();
        };
        let len = match state.sealed && self.place.load(SeqCst) == THERE {
            true => self.there.lock().unwrap().bytes.len(),
            false => state.len as usize,
        };
        if len != 0 { Events::IN } else { Events::empty() }
    }

    fn wait_queue(&self) -> &WaitQueue {
        &self.here.queue
    }
}

impl Biased {
    fn write(&self, bytes: &[u8]) {
        if self.here.write(bytes).is_err() {
            while self.place.load(SeqCst) == MOVING {
                thread::yield_now();
            }
            self.there.lock().unwrap().write(bytes);
        }
    }

    fn move_there(&self) {
        self.here.queue.refuse_watches();
        self.place.store(MOVING, SeqCst);
        let bytes = self.here.seal();
        self.there.lock().unwrap().write(&bytes);
        self.here.queue.detach_watches(|_| {
            let mut there = self.there.lock().unwrap();
            there.watched = true;
            there.edge |= !there.bytes.is_empty();
        });
        self.place.store(THERE, SeqCst);
    }
}

/// Catches a byte or an edge that is in neither home when a write meets the move.
#[test]
fn what_is_written_is_there_once_moved() {
    explore(3, || {
        let engine = Engine::new();
        let set = EventPoll::new(&engine).unwrap();
        let biased =
            Biased { here: Both::new(), place: AtomicU32::new(HERE), there: Mutex::default() };
        let biased = Description::new(&engine, biased);
        set.add(1, &biased, Event::new(Events::IN | Events::ET, 1)).unwrap();
        let scene = Arc::new((set, biased));
        let writer = run(&scene, |(_, biased)| {
            biased.write(b"a");
            biased.write(b"bc");
        });
        scene.1.move_there();
        writer.join().unwrap();
        let there = scene.1.there.lock().unwrap();
        assert_eq!((there.bytes.as_slice(), there.edge), (&b"abc"[..], true));
    });
}

/// Catches an answer about the room of one pipe that is taken for the next one's in its memory, and
/// a write that does not see that there is no answer yet.
#[test]
fn an_answer_about_the_room_is_for_one_pipe() {
    explore(3, || {
        let pipe = Arc::new(Pipe::new());
        pipe.unseal(0, PipeCapacity::Unasked);
        let late = run(&pipe, |pipe| pipe.set_capacity(0, PipeCapacity::Pages));
        let writer = run(&pipe, |pipe| pipe.try_write(1, b"a"));
        assert!(pipe.seal(0, |_| ()));
        pipe.unseal(1, PipeCapacity::Unasked);
        assert!(matches!(writer.join().unwrap(), Err(Error::Sealed | Error::Unfit)));
        late.join().unwrap();
        assert_eq!(pipe.try_write(1, b"a"), Err(Error::Unfit));
        pipe.set_capacity(1, PipeCapacity::Pages);
        assert_eq!(pipe.try_write(1, b"a"), Ok(()));
    });
}
