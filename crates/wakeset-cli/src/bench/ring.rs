//! `ring`: a busy set. All its counters are written, then the threads take events and read the counters until all are read, again and
//! again. The rate is events per second over all threads, of the time from the first take to the last read: the writes are not in it.
//!
//! The kernel's side is epoll_wait(2) with no timeout and read(2), Wakeset's the event ring.
//!
//! Sockets, which are the kernel's, have rows of their own: [`sockets`].

pub mod sockets;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::backend::{Backend, ET, IN, ONESHOT, lost};
use super::{Params, Point, Rates, params};

/// Counters of the set, and slots of the ring.
const COUNTERS: usize = 1024;
/// Looks in a row that find nothing although something is there: then an event was lost.
const LOOKS: usize = 100_000_000;

/// How the counters are watched: a name, and the bits beside IN.
type Mode = (&'static str, u32);

pub fn points(threads: Option<&[usize]>) -> Vec<Ring> {
    let mut points = Vec::new();
    for &threads in threads.unwrap_or(&[1, 2]) {
        for mode in [("level", 0), ("edge", ET), ("oneshot", ONESHOT)] {
            for batch in [1, 64] {
                points.push(Ring { threads, mode, batch });
            }
        }
    }
    points
}

/// One combination.
pub struct Ring {
    threads: usize,
    mode: Mode,
    batch: usize,
}

impl Point for Ring {
    fn rows(&self) -> Vec<Params> {
        vec![params([
            ("threads", self.threads.into()),
            ("counters", COUNTERS.into()),
            ("mode", self.mode.0.into()),
            ("batch", self.batch.into()),
        ])]
    }

    fn unit(&self) -> &'static str {
        "events/s"
    }

    fn descriptors(&self) -> usize {
        COUNTERS + 64
    }

    fn run<B: Backend>(&self, backend: &B, time: Duration, _expected: Option<&Rates>) -> io::Result<Rates> {
        let set = backend.create_set()?;
        backend.make_ring(&set, COUNTERS)?;
        let bits = IN | self.mode.1;
        let counters: Vec<_> = (0..COUNTERS).map(|_| backend.create_counter()).collect::<io::Result<_>>()?;
        for (i, counter) in counters.iter().enumerate() {
            backend.add(&set, counter, bits, i as u64)?;
        }
        let (left, round, busy) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..self.threads)
                .map(|_| {
                    scope.spawn(|| {
                        let (mut failed, mut rounds) = (Ok(()), 0);
                        loop {
                            rounds += 1;
                            spin_until(|| round.load(Ordering::Acquire) == rounds);
                            if over.load(Ordering::Relaxed) {
                                return failed;
                            }
                            // Who fails goes through the rounds with the others.
                            failed = failed.and(self.take_all(backend, &set, &counters, &left));
                            busy.fetch_sub(1, Ordering::Release);
                        }
                    })
                })
                .collect();
            let (mut events, mut taking, start) = (0, Duration::ZERO, Instant::now());
            let mut result = Ok(());
            while start.elapsed() < time && result.is_ok() {
                for (i, counter) in counters.iter().enumerate() {
                    result = result.and(backend.write(counter, 1));
                    if self.mode.1 == ONESHOT && events > 0 {
                        // Disarmed by the round before.
                        result = result.and(backend.modify(&set, counter, bits, i as u64));
                    }
                }
                left.store(COUNTERS, Ordering::Relaxed);
                busy.store(self.threads - 1, Ordering::Relaxed);
                let before = Instant::now();
                round.fetch_add(1, Ordering::Release);
                result = result.and(self.take_all(backend, &set, &counters, &left));
                taking += before.elapsed();
                events += COUNTERS;
                spin_until(|| busy.load(Ordering::Acquire) == 0);
            }
            over.store(true, Ordering::Relaxed);
            round.fetch_add(1, Ordering::Release);
            for other in others {
                match other.join() {
                    Ok(others) => result = result.and(others),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            result.map(|()| vec![events as f64 / taking.as_secs_f64()])
        })
    }
}

/// A wait that takes no system call as long as it is short: the threads of a round are to begin together.
fn spin_until(condition: impl Fn() -> bool) {
    for turn in 0_u32.. {
        if condition() {
            return;
        }
        match turn % 64 {
            63 => std::thread::yield_now(),
            _ => std::hint::spin_loop(),
        }
    }
}

impl Ring {
    /// Takes events and reads their counters until all `left` have been read, by this thread or another.
    fn take_all<B: Backend>(
        &self,
        backend: &B,
        set: &B::Set,
        counters: &[B::Counter],
        left: &AtomicUsize,
    ) -> io::Result<()> {
        let mut events = vec![B::NO_EVENT; self.batch];
        let mut looks = 0;
        while left.load(Ordering::Relaxed) != 0 {
            let n = backend.take(set, &mut events)?;
            let mut read = 0;
            for event in &events[..n] {
                // Level-triggered, another thread may have been faster.
                read += usize::from(backend.read(&counters[B::data(event) as usize])?.is_some());
            }
            if read != 0 {
                left.fetch_sub(read, Ordering::Relaxed);
                looks = 0;
            } else {
                looks += 1;
                if looks == LOOKS {
                    return Err(lost(&format!("{} events were lost", left.load(Ordering::Relaxed))));
                }
                // What is left is in another thread's hands.
                std::hint::spin_loop();
            }
        }
        Ok(())
    }
}
