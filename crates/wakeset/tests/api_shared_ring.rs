//! The ring in shared memory, both sides in this process; and what a hostile side can do to the
//! other.
#![cfg(not(any(loom, shuttle)))]
#![allow(missing_docs)]

use fastrand::Rng;
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;
use wakeset::{
    Counter, CounterFlags, Description, Engine, Error, Event, EventPoll, Events, RingReader,
    RingWriter, Timeout,
};

const MILLISECOND: Timeout = Timeout::After(Duration::from_millis(1));

/// A set that watches `n` counters under their number for `events`.
fn watching(n: usize, events: Events) -> (EventPoll, Vec<Description<Counter>>) {
    let engine = Engine::new();
    let set = EventPoll::new(&engine).unwrap();
    let counters: Vec<_> = (0..n)
        .map(|_| Description::new(&engine, Counter::new(0, CounterFlags::NONBLOCK)))
        .collect();
    for (i, counter) in counters.iter().enumerate() {
        set.add(i as i32, counter, Event::new(events, i as u64)).unwrap();
    }
    (set, counters)
}

fn open(writer: &RingWriter<'_>) -> RingReader {
    open_raw(writer.fd()).unwrap()
}

fn open_raw(fd: i32) -> Result<RingReader, Error> {
    // SAFETY: the tests' descriptors are open.
    unsafe { RingReader::open(fd) }
}

fn file<'a>(writer: &'a RingWriter<'_>) -> BorrowedFd<'a> {
    // SAFETY: it is the writer's.
    unsafe { BorrowedFd::borrow_raw(writer.fd()) }
}

/// All that is there, by its data.
fn drain(reader: &mut RingReader) -> Vec<u64> {
    let mut events = [Event::default(); 64];
    let n = reader.take(&mut events).unwrap();
    events[..n].iter().map(|event| event.data).collect()
}

/// The words of the shared memory, as a hostile side has them: tail at 0, head at `HEAD`.
fn words(writer: &RingWriter<'_>) -> &'static [AtomicU32] {
    let length = 4096 + 16 * writer.capacity();
    // SAFETY: a new mapping, which stays.
    unsafe {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let memory =
            mmap(std::ptr::null_mut(), length, access, MapFlags::SHARED, file(writer), 0).unwrap();
        std::slice::from_raw_parts(memory.cast(), length / 4)
    }
}

const TAIL: usize = 0;
const HEAD: usize = 128 / 4;

#[test]
fn levels_come_again_when_they_have_been_taken_and_still_hold() {
    let (set, counters) = watching(2, Events::IN);
    let mut writer = RingWriter::new(&set, 4).unwrap();
    let mut reader = open(&writer);
    assert_eq!((writer.capacity(), reader.capacity()), (4, 4));
    counters[0].write(1).unwrap();
    counters[1].write(1).unwrap();
    assert_eq!(writer.pump(), Ok(2));
    for _ in 0..10 {
        assert_eq!(writer.pump(), Ok(0), "not before they have been taken");
    }
    let mut first = [Event::default()];
    assert_eq!((reader.take(&mut first), first[0]), (Ok(1), Event::new(Events::IN, 0)));
    assert_eq!((writer.pump(), drain(&mut reader)), (Ok(1), vec![1, 0]));
    counters[0].read().unwrap();
    assert_eq!((writer.pump(), drain(&mut reader)), (Ok(1), vec![1]));
    counters[1].read().unwrap();
    assert_eq!((writer.pump(), drain(&mut reader)), (Ok(0), vec![]));
}

/// A level that no longer held as its slot was taken: it is on the list, as far as a wake can see,
/// and nobody has it.
#[test]
fn a_level_that_was_gone_for_a_moment_is_not_forgotten() {
    let (set, counters) = watching(2, Events::IN);
    // Larger than what the reader has.
    set.make_ring(8).unwrap();
    let mut writer = RingWriter::new(&set, 1).unwrap();
    let mut reader = open(&writer);
    for counter in &counters {
        counter.write(1).unwrap();
    }
    assert_eq!(writer.pump(), Ok(1));
    for counter in &counters {
        counter.read().unwrap();
    }
    assert_eq!((drain(&mut reader), writer.pump()), (vec![0], Ok(0)));
    for counter in counters.iter().rev() {
        counter.write(1).unwrap();
        assert_eq!(writer.pump(), Ok(1));
        counter.read().unwrap();
        assert_eq!((drain(&mut reader).len(), writer.pump()), (1, Ok(0)));
    }
}

/// A removal looks at the ready list, and puts what it finds there elsewhere.
#[test]
fn what_is_ready_is_written_after_another_watch_is_removed() {
    for flags in [Events::empty(), Events::ET, Events::ONESHOT] {
        let (set, counters) = watching(2, Events::IN | flags);
        let mut writer = RingWriter::new(&set, 4).unwrap();
        for counter in &counters {
            counter.write(1).unwrap();
        }
        set.remove(1, &counters[1]).unwrap();
        assert_eq!(writer.pump(), Ok(1), "{flags:?}");
    }
}

#[test]
fn edges_and_shots_come_once() {
    for flags in [Events::ET, Events::ONESHOT, Events::ET | Events::ONESHOT] {
        let (set, counters) = watching(1, Events::IN | flags);
        let mut writer = RingWriter::new(&set, 2).unwrap();
        let mut reader = open(&writer);
        counters[0].write(1).unwrap();
        assert_eq!((writer.pump(), drain(&mut reader)), (Ok(1), vec![0]));
        assert_eq!((writer.pump(), drain(&mut reader)), (Ok(0), vec![]));
        counters[0].write(1).unwrap();
        let again = usize::from(flags == Events::ET);
        assert_eq!((writer.pump(), drain(&mut reader)), (Ok(again), vec![0; again]));
        set.modify(0, &counters[0], Event::new(Events::IN | flags, 7)).unwrap();
        assert_eq!((writer.pump(), drain(&mut reader)), (Ok(1), vec![7]));
        set.remove(0, &counters[0]).unwrap();
        counters[0].write(1).unwrap();
        assert_eq!((writer.pump(), drain(&mut reader)), (Ok(0), vec![]));
    }
}

#[test]
fn more_than_fits_waits_its_turn() {
    for flags in [Events::empty(), Events::ET, Events::ONESHOT] {
        let (set, counters) = watching(50, Events::IN | flags);
        let mut writer = RingWriter::new(&set, 8).unwrap();
        let mut reader = open(&writer);
        for counter in &counters {
            counter.write(1).unwrap();
        }
        let mut seen = Vec::new();
        while seen.len() < 50 {
            assert!(writer.pump().unwrap() <= 8);
            assert_eq!(writer.pump(), Ok(0), "it is full");
            seen.extend(drain(&mut reader));
        }
        seen.truncate(50);
        assert_eq!(seen, (0..50).collect::<Vec<_>>(), "{flags:?}");
    }
}

/// However the two sides take turns, each level keeps coming, as often as the others.
#[test]
fn levels_keep_coming_however_many_are_taken_at_once() {
    let (set, counters) = watching(10, Events::IN);
    for counter in &counters {
        counter.write(1).unwrap();
    }
    let mut writer = RingWriter::new(&set, 4).unwrap();
    let mut reader = open(&writer);
    let words = words(&writer);
    let (mut random, mut seen) = (Rng::with_seed(1), [0; 10]);
    for turn in 0..10_000 {
        let mut events = [Event::default(); 5];
        let n = reader.take(&mut events[..random.u64(..) as usize % 6]).unwrap();
        for event in &events[..n] {
            seen[event.data as usize] += 1;
        }
        if random.bool() {
            writer.pump().unwrap();
        } else {
            writer.pump_waiting(MILLISECOND).unwrap();
        }
        assert_ne!(
            words[TAIL].load(Ordering::SeqCst),
            words[HEAD].load(Ordering::SeqCst),
            "turn {turn}: {seen:?}"
        );
    }
    assert!(seen.iter().max().unwrap() - seen.iter().min().unwrap() <= 4, "{seen:?}");
}

#[test]
fn what_is_ready_before_there_is_a_ring_is_written() {
    let (set, _open) = watching(3, Events::OUT | Events::ET);
    let mut writer = RingWriter::new(&set, 4).unwrap();
    assert_eq!(writer.pump_waiting(Timeout::After(Duration::from_secs(20))), Ok(3));
    assert_eq!(drain(&mut open(&writer)), [0, 1, 2]);
}

/// Both sides sleep whenever they have nothing to do; all that is written is read, and a lost
/// wake-up would end in time.
#[test]
fn nothing_is_lost_and_nobody_sleeps_on() {
    const ALL: u64 = 30_000;
    const LONG: Timeout = Timeout::After(Duration::from_secs(20));
    for flags in [Events::empty(), Events::ET] {
        let (set, counters) = watching(5, Events::IN | flags);
        let mut writer = RingWriter::new(&set, 2).unwrap();
        let mut reader = open(&writer);
        let (read, over) = (AtomicU64::new(0), AtomicBool::new(false));
        thread::scope(|threads| {
            threads.spawn(|| {
                for i in 0..ALL {
                    counters[i as usize % 5].write(1).unwrap();
                    if i % 64 == 0 {
                        thread::sleep(Duration::from_micros(50));
                    }
                }
            });
            threads.spawn(|| {
                let mut events = [Event::default(); 3];
                while read.load(Ordering::SeqCst) < ALL {
                    let n = reader.wait(&mut events, LONG).unwrap();
                    assert!(n > 0, "slept on, {} of {ALL} read", read.load(Ordering::SeqCst));
                    for event in &events[..n] {
                        let got = counters[event.data as usize].read().unwrap_or(0);
                        read.fetch_add(got, Ordering::SeqCst);
                    }
                }
                over.store(true, Ordering::SeqCst);
                // So that the writer wakes up and sees it.
                counters[0].write(1).unwrap();
            });
            threads.spawn(|| {
                while !over.load(Ordering::SeqCst) {
                    writer.pump_waiting(LONG).unwrap();
                }
            });
        });
        assert!(read.load(Ordering::SeqCst) >= ALL);
    }
}

#[test]
fn waits_end_when_their_time_is_up() {
    let (set, counters) = watching(1, Events::IN);
    let mut writer = RingWriter::new(&set, 1).unwrap();
    let mut reader = open(&writer);
    assert_eq!(reader.wait(&mut [Event::default()], MILLISECOND), Ok(0));
    assert_eq!(reader.wait(&mut [], MILLISECOND), Err(Error::Invalid));
    assert_eq!(writer.pump_waiting(MILLISECOND), Ok(0));
    counters[0].write(1).unwrap();
    assert_eq!(writer.pump_waiting(Timeout::Never), Ok(1));
    assert_eq!(writer.pump_waiting(MILLISECOND), Ok(0), "full");
}

#[test]
fn only_memory_that_cannot_shrink_and_has_a_rings_size_is_opened() {
    let memory = |length: u64, seals: SealFlags| {
        let file = memfd_create(c"test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, length).unwrap();
        fcntl_add_seals(&file, seals).unwrap();
        open_raw(file.as_raw_fd()).map(|reader| reader.capacity())
    };
    assert_eq!(memory(4096 + 64, SealFlags::SHRINK), Ok(4));
    assert_eq!(memory(4096 + 64, SealFlags::GROW), Err(Error::Invalid));
    for length in [0, 15, 4096, 4096 + 15, 4096 + 48, 4096 + 65, 1 << 40] {
        assert_eq!(memory(length, SealFlags::SHRINK), Err(Error::Invalid), "{length}");
    }
    let null = std::fs::File::open("/dev/null").unwrap();
    assert_eq!(open_raw(std::os::fd::AsRawFd::as_raw_fd(&null)).unwrap_err(), Error::Invalid);
    let (set, _) = watching(0, Events::IN);
    let writer = RingWriter::new(&set, 4).unwrap();
    assert!(ftruncate(file(&writer), 0).is_err() && ftruncate(file(&writer), 1 << 20).is_err());
    assert_eq!(RingWriter::new(&set, 0).unwrap_err(), Error::Invalid);
    assert_eq!(RingWriter::new(&set, (1 << 20) + 1).unwrap_err(), Error::Invalid);
}

#[test]
fn an_index_that_cannot_be_ends_the_flow() {
    let (set, counters) = watching(3, Events::IN | Events::ET);
    let mut writer = RingWriter::new(&set, 4).unwrap();
    let mut reader = open(&writer);
    let words = words(&writer);
    for counter in &counters {
        counter.write(1).unwrap();
    }
    assert_eq!(writer.pump(), Ok(3));
    for head in [4, 5, 1000, u32::MAX] {
        words[HEAD].store(head, Ordering::SeqCst);
        assert_eq!(writer.pump(), Err(Error::BrokenPeer), "{head} of 3 taken");
        assert_eq!(writer.pump_waiting(Timeout::Never), Err(Error::BrokenPeer));
    }
    for tail in [5, 6, 1000, u32::MAX] {
        words[TAIL].store(tail, Ordering::SeqCst);
        assert_eq!(
            reader.take(&mut [Event::default(); 8]),
            Err(Error::BrokenPeer),
            "{tail} written"
        );
        assert_eq!(reader.wait(&mut [Event::default(); 8], Timeout::Never), Err(Error::BrokenPeer));
    }
    // What is the set's own goes on.
    counters[1].write(1).unwrap();
    let mut events = [Event::default(); 4];
    assert_eq!(set.wait(&mut events, Timeout::Now), Ok(1));
    assert_eq!(events[0], Event::new(Events::IN, 1));
}

/// Somebody writes all over the memory, whatever the rules: no call of either side panics, hangs,
/// or gives more than fits, and the set is as good as before.
#[test]
fn scribbling_on_the_memory_harms_nobody() {
    let rounds = std::env::var("WAKESET_FUZZ_ROUNDS").map_or(30, |rounds| rounds.parse().unwrap());
    let seed = std::env::var("WAKESET_SEED").map_or(1, |seed| seed.parse().unwrap());
    let mut random = Rng::with_seed(seed);
    for round in 0..rounds {
        let flags = [Events::empty(), Events::ET, Events::ONESHOT][round % 3];
        let (set, counters) = watching(8, Events::IN | flags);
        let mut writer = RingWriter::new(&set, 1 << (round % 5)).unwrap();
        let mut reader = open(&writer);
        let words = words(&writer);
        let over = AtomicBool::new(false);
        let mut scribbler = Rng::with_seed(random.u64(..));
        let mut writes = Rng::with_seed(random.u64(..));
        thread::scope(|threads| {
            threads.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let word = match scribbler.u64(..) % 4 {
                        // Mostly what matters.
                        0 => TAIL + scribbler.u64(..) as usize % 2,
                        1 => HEAD + scribbler.u64(..) as usize % 2,
                        _ => scribbler.u64(..) as usize % words.len(),
                    };
                    let value = match scribbler.u64(..) % 4 {
                        0 => scribbler.u64(..) as u32,
                        1 => words[word].load(Ordering::Relaxed).wrapping_add(1),
                        2 => words[word].load(Ordering::Relaxed).wrapping_sub(1),
                        _ => scribbler.u64(..) as u32 % 8,
                    };
                    words[word].store(value, Ordering::Relaxed);
                }
            });
            threads.spawn(|| {
                let mut events = [Event::default(); 40];
                for i in 0..300 {
                    let taken = match i % 8 {
                        0 => reader.wait(&mut events, MILLISECOND),
                        _ => reader.take(&mut events),
                    };
                    match taken {
                        Ok(n) => assert!(n <= reader.capacity()),
                        Err(error) => assert_eq!(error, Error::BrokenPeer),
                    }
                }
            });
            for i in 0..300 {
                let counter = writes.u64(..) as usize % 8;
                counters[counter].write(1).unwrap();
                if flags == Events::ONESHOT {
                    set.modify(
                        counter as i32,
                        &counters[counter],
                        Event::new(Events::IN | flags, 1),
                    )
                    .unwrap();
                }
                let written = match i % 8 {
                    0 => writer.pump_waiting(MILLISECOND),
                    _ => writer.pump(),
                };
                match written {
                    Ok(n) => assert!(n <= writer.capacity()),
                    Err(error) => assert_eq!(error, Error::BrokenPeer),
                }
            }
            over.store(true, Ordering::Relaxed);
        });
        // All that holds comes out of the set by itself.
        for (i, counter) in counters.iter().enumerate() {
            let _ = counter.read();
            set.modify(i as i32, counter, Event::new(Events::IN | flags, i as u64)).unwrap();
            counter.write(1).unwrap();
        }
        let mut events = [Event::default(); 16];
        let n = set.wait(&mut events, Timeout::Now).unwrap();
        let mut seen: Vec<_> = events[..n].iter().map(|event| event.data).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..8).collect::<Vec<_>>());
    }
}
