//! The threads of one run of `bench inversion`, and what they share.

use std::io;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::latencies::Latencies;
use crate::bench::contention::realtime::{set_priority, thread_number};
use crate::bench::sides::backend::Backend;

pub const WATCHDOG: i32 = 40;
pub const CONSUMER: i32 = 30;
pub const HOG: i32 = 20;

/// How long the consumer sleeps between its calls.
const PERIOD: Duration = Duration::from_millis(1);
/// How long the hog computes.
const BURST: Duration = Duration::from_millis(10);
/// How long it sleeps at least, and how much longer at most.
const GAP: Duration = Duration::from_millis(2);
const MORE_GAP: Duration = Duration::from_millis(10);
/// A call that takes longer than this is ended.
pub const STUCK: Duration = Duration::from_millis(100);
/// How often the watchdog checks.
const CHECK: Duration = Duration::from_millis(5);

/// What the threads of one run share.
pub struct Stage {
    start: Barrier,
    over: AtomicBool,
    /// When the consumer's call began, in nanoseconds from `epoch`, or [`NONE`] or [`RESCUED`].
    /// The consumer sets it before the call and clears it after; the watchdog changes a value that
    /// it has found too old in one step, so that it never ends the next call.
    call: AtomicU64,
    consumer: AtomicI32,
    epoch: Instant,
}

/// The consumer is in no call.
const NONE: u64 = 0;
/// The watchdog has ended the call.
const RESCUED: u64 = u64::MAX;

impl Stage {
    pub fn new(threads: usize) -> Self {
        Stage {
            start: Barrier::new(threads),
            over: AtomicBool::new(false),
            call: AtomicU64::new(NONE),
            consumer: AtomicI32::new(0),
            epoch: Instant::now(),
        }
    }

    /// Waits until all threads are here. A thread that has failed already comes too, because the
    /// other threads would wait for it.
    pub fn enter(&self, prepared: io::Result<()>) -> io::Result<()> {
        self.start.wait();
        prepared
    }

    pub fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    fn now(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    pub fn consume<B: Backend>(
        &self,
        backend: &B,
        set: &B::Set,
        counters: &[B::Counter],
        time: Duration,
    ) -> io::Result<Latencies> {
        self.consumer.store(thread_number(), Ordering::Relaxed);
        let own = counters.len() - 1;
        let mut events = vec![B::NO_EVENT; counters.len()];
        let mut latencies = Latencies::new();
        let begin = Instant::now();
        while begin.elapsed() < time {
            std::thread::sleep(PERIOD);
            let start = self.now().max(NONE + 1);
            self.call.store(start, Ordering::Relaxed);
            backend.write(&counters[own], 1)?;
            let n = backend.wait(set, &mut events, Duration::ZERO)?;
            let latency = Duration::from_nanos(self.now() - start);
            // The watchdog has the higher priority on the same processor: between its change of
            // this word and that of our priority we do not run.
            let stuck = self.call.swap(NONE, Ordering::Relaxed) == RESCUED;
            if stuck {
                set_priority(0, CONSUMER)?;
            }
            latencies.record(latency, stuck);
            let mut found = false;
            for event in &events[..n] {
                let i = B::data(event) as usize;
                found |= i == own;
                backend.read(&counters[i])?;
            }
            if !found {
                return Err(io::Error::other(
                    "an event was lost: the consumer's own, signalled before the call",
                ));
            }
        }
        Ok(latencies)
    }

    /// Lets a rescued consumer have the lock that it waits for: sixteen threads that share a lock
    /// may never leave it free.
    pub fn make_way(&self) {
        while self.call.load(Ordering::Relaxed) == RESCUED && !self.is_over() {
            std::thread::sleep(PERIOD);
        }
    }

    /// Makes the consumer an ordinary thread when a call of it takes too long.
    pub fn watch_over_consumer(&self) -> io::Result<()> {
        while !self.is_over() {
            std::thread::sleep(CHECK);
            let call = self.call.load(Ordering::Relaxed);
            let is_old =
                call != NONE && call != RESCUED && self.now() > call + STUCK.as_nanos() as u64;
            if is_old
                && self
                    .call
                    .compare_exchange(call, RESCUED, Ordering::Relaxed, Ordering::Relaxed)
                    .is_ok()
            {
                set_priority(self.consumer.load(Ordering::Relaxed), 0)?;
            }
        }
        Ok(())
    }

    /// Computes and sleeps in turn. The gaps are random, so that a burst begins anywhere in what
    /// the low threads do.
    pub fn hog(&self, seed: u32) {
        let mut random = fastrand::Rng::with_seed(seed.into());
        while !self.is_over() {
            std::thread::sleep(GAP + MORE_GAP.mul_f64(random.f64()));
            let begin = Instant::now();
            while begin.elapsed() < BURST && !self.is_over() {
                std::hint::spin_loop();
            }
        }
    }
}

/// Ends the run also when its thread fails or panics: the other threads would go on for ever.
pub struct EndOnDrop<'a>(pub &'a Stage);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}
