//! The counter by itself.

use super::*;

fn shared(initial: u64, flags: CounterFlags) -> Arc<Counter> {
    Arc::new(Counter::new(initial, flags))
}

/// Catches a read, write or seal that loses or doubles what another adds or takes at the same
/// moment.
#[test]
fn what_is_written_is_read_or_sealed_once() {
    explore(3, || {
        let counter = shared(1, CounterFlags::NONBLOCK);
        let writer = run(&counter, |counter| {
            [2, 4].into_iter().filter(|n| counter.write(*n).is_ok()).sum::<u64>()
        });
        let reader = run(&counter, |counter| counter.read().unwrap_or(0));
        let sealed = counter.seal().unwrap();
        let (written, read) = (writer.join().unwrap(), reader.join().unwrap());
        assert_eq!(1 + written, read + sealed);
    });
}

/// Catches a blocked read that looked before the write and slept after its wake.
#[test]
fn a_blocked_read_sees_a_write() {
    explore(3, || {
        let counter = shared(0, CounterFlags::empty());
        let reader = run(&counter, |counter| counter.read().unwrap());
        counter.write(7).unwrap();
        assert_eq!(reader.join().unwrap(), 7);
    });
}

/// Catches a write that blocks at the limit and misses the read that made room.
#[test]
fn a_blocked_write_sees_a_read() {
    explore(3, || {
        let counter = shared(u64::MAX - 1, CounterFlags::empty());
        let writer = run(&counter, |counter| counter.write(7).unwrap());
        assert_eq!(counter.read().unwrap(), u64::MAX - 1);
        writer.join().unwrap();
        assert_eq!(counter.value(), Some(7));
    });
}

/// Catches a semaphore whose write of 2 wakes one reader only.
#[test]
fn one_write_serves_two_blocked_semaphore_readers() {
    explore(2, || {
        let counter = shared(0, CounterFlags::SEMAPHORE);
        let readers = [0, 1].map(|_| run(&counter, |counter| counter.read().unwrap()));
        counter.write(2).unwrap();
        for reader in readers {
            assert_eq!(reader.join().unwrap(), 1);
        }
    });
}

/// Catches a seal that leaves a blocked reader asleep.
#[test]
fn a_seal_ends_a_blocked_read() {
    explore(3, || {
        let counter = shared(0, CounterFlags::empty());
        let reader = run(&counter, |counter| counter.read());
        assert_eq!(counter.seal(), Some(0));
        assert_eq!(reader.join().unwrap(), Err(wakeset::Error::Sealed));
    });
}
