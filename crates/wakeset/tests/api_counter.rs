//! The counter beyond eventfd: values, bytes, and sealing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;
use wakeset::{
    Counter, CounterFlags, Description, Engine, Error, Event, EventPoll, Events, Source, Timeout,
};

const MOST: u64 = u64::MAX - 1;

fn nonblocking(initial: u64) -> Counter {
    Counter::new(initial, CounterFlags::NONBLOCK)
}

#[test]
fn starts_anywhere_up_to_the_most() {
    for initial in [0, 1, 1 << 40, MOST] {
        assert_eq!(nonblocking(initial).value(), Some(initial));
    }
}

#[test]
#[should_panic(expected = "2^64-2")]
fn does_not_start_beyond() {
    nonblocking(u64::MAX);
}

#[test]
fn trying_never_blocks() {
    let counter = Counter::new(0, CounterFlags::empty());
    assert_eq!(counter.try_read(), Err(Error::WouldBlock));
    counter.try_write(MOST).unwrap();
    assert_eq!(counter.try_write(1), Err(Error::WouldBlock));
    assert_eq!(counter.try_write(u64::MAX), Err(Error::Invalid));
    assert_eq!(counter.try_read(), Ok(MOST));
}

#[test]
fn bytes_are_as_in_read_and_write() {
    let counter = nonblocking(0);
    assert_eq!(counter.write_bytes(&7u64.to_ne_bytes()), Ok(8));
    assert_eq!(counter.write_bytes(&[0; 7]), Err(Error::Invalid));
    assert_eq!(counter.write_bytes(&[0; 9]), Err(Error::Invalid));
    assert_eq!(counter.write_bytes(&[]), Err(Error::Invalid));
    let mut buffer = [0xaa; 12];
    assert_eq!(counter.read_bytes(&mut buffer[..7]), Err(Error::Invalid));
    assert_eq!(counter.read_bytes(&mut buffer), Ok(8));
    assert_eq!((&buffer[..8], &buffer[8..]), (&7u64.to_ne_bytes()[..], &[0xaa; 4][..]));
    assert_eq!(counter.read_bytes(&mut buffer), Err(Error::WouldBlock));
}

#[test]
fn flags_can_be_read_and_changed() {
    let counter = Counter::new(3, CounterFlags::SEMAPHORE);
    counter.set_nonblocking(true);
    assert_eq!(counter.flags(), CounterFlags::SEMAPHORE | CounterFlags::NONBLOCK);
    assert_eq!((counter.read(), counter.value()), (Ok(1), Some(2)));
    counter.set_nonblocking(false);
    assert_eq!(counter.flags(), CounterFlags::SEMAPHORE);
}

#[test]
fn a_sealed_counter_gives_its_value_once() {
    let counter = nonblocking(5);
    assert_eq!(counter.seal(), Some(5));
    assert_eq!(counter.seal(), None);
    assert_eq!(counter.value(), None);
    assert_eq!(counter.read(), Err(Error::Sealed));
    assert_eq!(counter.write(0), Err(Error::Sealed));
    assert_eq!(counter.write(1), Err(Error::Sealed));
    assert_eq!(counter.write(u64::MAX), Err(Error::Invalid));
    assert_eq!(counter.poll(), Events::empty());
}

#[test]
fn a_sealed_counter_reports_nothing() {
    let engine = Engine::new();
    let set = EventPoll::new(&engine).unwrap();
    let counter = Description::new(&engine, nonblocking(1));
    set.add(1, &counter, Event::new(Events::IN | Events::OUT, 0)).unwrap();
    counter.seal();
    assert_eq!(set.wait(&mut [Event::default()], Timeout::Now), Ok(0));
}

#[test]
fn sealing_lets_go_who_is_blocked() {
    let empty = Counter::new(0, CounterFlags::empty());
    let full = Counter::new(MOST, CounterFlags::empty());
    thread::scope(|scope| {
        let readers = [scope.spawn(|| empty.read()), scope.spawn(|| empty.read())];
        let writer = scope.spawn(|| full.write(1));
        thread::sleep(Duration::from_millis(5));
        assert_eq!((empty.seal(), full.seal()), (Some(0), Some(MOST)));
        for reader in readers {
            assert_eq!(reader.join().unwrap(), Err(Error::Sealed));
        }
        assert_eq!(writer.join().unwrap(), Err(Error::Sealed));
    });
}

/// However a seal falls among writes and reads, each unit is counted on exactly one side of it.
#[test]
fn no_unit_is_lost_or_doubled_by_a_seal() {
    for _ in 0..200 {
        let counter = nonblocking(0);
        let (before, taken) = (AtomicU64::new(0), AtomicU64::new(0));
        let sealed = thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while counter.write(1).is_ok() {
                        before.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            scope.spawn(|| {
                loop {
                    match counter.read() {
                        Ok(n) => taken.fetch_add(n, Ordering::Relaxed),
                        Err(Error::WouldBlock) => continue,
                        Err(error) => break assert_eq!(error, Error::Sealed),
                    };
                }
            });
            while before.load(Ordering::Relaxed) < 100 {
                std::hint::spin_loop();
            }
            counter.seal().unwrap()
        });
        assert_eq!(before.into_inner(), taken.into_inner() + sealed);
    }
}
