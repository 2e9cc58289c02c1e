//! `ring`: a busy set. All its counters are written, then the threads take events and read the
//! counters until all are read, again and again. The rate is events per second over all threads, of
//! the time from the first take to the last read: the writes are not in it.
//!
//! The kernel's side is epoll_wait(2) with no timeout and read(2), Wakeset's the event ring.
//!
//! Sockets, which are the kernel's, have rows of their own: [`sockets`].

mod sockets;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::bench::measure::joined::joined;
use crate::bench::measure::point::{Params, Point, Rates, params};
use crate::bench::measure::report::Report;
use crate::bench::measure::rounds::{Compared, measure_into};
use crate::bench::options::count;
use crate::bench::sides::backend::{Backend, ET, IN, ONESHOT, lost};
use crate::bench::sides::kernel::raise_descriptor_limit;
use crate::failure::Failure;

/// Counters of the set, and slots of the ring.
const COUNTERS: usize = 1024;
/// After so many attempts in a row that find nothing although something is left, an event was
/// lost.
const ATTEMPTS: usize = 100_000_000;

/// How the counters are watched: a name, and the bits beside IN.
type Mode = (&'static str, u32);

/// What `wakeset bench ring` takes.
#[derive(clap::Args)]
pub struct Options {
    /// Numbers of threads that take events, as in 1,2
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = count,
        default_values_t = [1, 2])]
    threads: Vec<usize>,
    #[command(flatten)]
    compared: Compared,
}

/// Measures, prints the table and writes the JSON.
pub fn ring(options: &Options) -> Result<(), Failure> {
    let mut report = Report::new("ring", options.compared.json())?;
    measure_into(&mut report, "ring", &points(&options.threads), &options.compared)?;
    let limit = raise_descriptor_limit(sockets::DESCRIPTORS);
    if limit < sockets::DESCRIPTORS {
        report.note(format!(
            "The sockets need more descriptors than the {limit} allowed (ulimit -n): not run."
        ));
    } else {
        sockets::measure(&mut report, &options.compared.timed)
            .map_err(|e| Failure::own(format!("ring failed at sockets: {e}")))?;
    }
    report.finish()
}

fn points(threads: &[usize]) -> Vec<Ring> {
    let mut points = Vec::new();
    for &threads in threads {
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

    fn run<B: Backend>(
        &self,
        backend: &B,
        time: Duration,
        _expected: Option<&Rates>,
    ) -> io::Result<Rates> {
        let set = backend.create_set()?;
        backend.make_ring(&set, COUNTERS)?;
        let bits = IN | self.mode.1;
        let counters: Vec<_> =
            (0..COUNTERS).map(|_| backend.create_counter()).collect::<io::Result<_>>()?;
        for (i, counter) in counters.iter().enumerate() {
            backend.add(&set, counter, bits, i as u64)?;
        }
        let table = Table { ring: self, backend, set, counters, gate: Gate::new(self.threads - 1) };
        std::thread::scope(|scope| {
            let helpers: Vec<_> = (1..self.threads).map(|_| scope.spawn(|| table.help())).collect();
            let measured = table.lead(time);
            table.gate.end();
            let mut result = measured.map(|rate| vec![rate]);
            for helper in helpers {
                let helped = joined(helper);
                result = result.and_then(|rates| helped.map(|()| rates));
            }
            result
        })
    }
}

/// What lets the threads of a round begin together, and says when it is over.
struct Gate {
    helpers: usize,
    /// The round, counted from 1.
    round: AtomicUsize,
    /// Helpers that are still in it.
    busy: AtomicUsize,
    over: AtomicBool,
    /// Counters that have not been read in this round.
    left: AtomicUsize,
}

impl Gate {
    fn new(helpers: usize) -> Self {
        let zero = || AtomicUsize::new(0);
        Gate { helpers, round: zero(), busy: zero(), over: AtomicBool::new(false), left: zero() }
    }

    fn open(&self) {
        self.left.store(COUNTERS, Ordering::Relaxed);
        self.busy.store(self.helpers, Ordering::Relaxed);
        self.round.fetch_add(1, Ordering::Release);
    }

    fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
        self.round.fetch_add(1, Ordering::Release);
    }
}

/// One run: the set, its counters, and the threads' meeting point.
struct Table<'a, B: Backend> {
    ring: &'a Ring,
    backend: &'a B,
    set: B::Set,
    counters: Vec<B::Counter>,
    gate: Gate,
}

impl<B: Backend> Table<'_, B> {
    /// The first thread: writes all counters and takes events, until the time is over. Returns
    /// events per second of taking them.
    fn lead(&self, time: Duration) -> io::Result<f64> {
        let (mut events, mut taking, start) = (0, Duration::ZERO, Instant::now());
        let mut result = Ok(());
        while start.elapsed() < time && result.is_ok() {
            result = self.write_all(events > 0);
            let before = Instant::now();
            self.gate.open();
            result = result.and(self.take_all());
            taking += before.elapsed();
            events += COUNTERS;
            spin_until(|| self.gate.busy.load(Ordering::Acquire) == 0);
        }
        result.map(|()| events as f64 / taking.as_secs_f64())
    }

    /// Every other thread: takes events in each round. A thread that fails goes through the
    /// rounds all the same.
    fn help(&self) -> io::Result<()> {
        let mut result = Ok(());
        for round in 1.. {
            spin_until(|| self.gate.round.load(Ordering::Acquire) == round);
            if self.gate.over.load(Ordering::Relaxed) {
                break;
            }
            result = result.and(self.take_all());
            self.gate.busy.fetch_sub(1, Ordering::Release);
        }
        result
    }

    fn write_all(&self, armed_before: bool) -> io::Result<()> {
        let (_, flags) = self.ring.mode;
        for (i, counter) in self.counters.iter().enumerate() {
            self.backend.write(counter, 1)?;
            if flags == ONESHOT && armed_before {
                // Disarmed by the round before.
                self.backend.modify(&self.set, counter, IN | flags, i as u64)?;
            }
        }
        Ok(())
    }

    /// Takes events and reads their counters until all of the round have been read, by this
    /// thread or another.
    fn take_all(&self) -> io::Result<()> {
        let left = &self.gate.left;
        let mut events = vec![B::NO_EVENT; self.ring.batch];
        let mut attempts = 0;
        while left.load(Ordering::Relaxed) != 0 {
            let n = self.backend.take(&self.set, &mut events)?;
            let mut read = 0;
            for event in &events[..n] {
                let counter = &self.counters[B::data(event) as usize];
                // Level-triggered, another thread may have been faster.
                read += usize::from(self.backend.read(counter)?.is_some());
            }
            if read != 0 {
                left.fetch_sub(read, Ordering::Relaxed);
                attempts = 0;
            } else {
                attempts += 1;
                if attempts == ATTEMPTS {
                    return Err(lost(&format!(
                        "{} events were lost",
                        left.load(Ordering::Relaxed)
                    )));
                }
                // Another thread has taken what is left and is about to read it.
                std::hint::spin_loop();
            }
        }
        Ok(())
    }
}

/// Waits without a system call as long as the wait is short, so that the threads of a round begin
/// together.
fn spin_until(condition: impl Fn() -> bool) {
    for attempt in 0_u32.. {
        if condition() {
            return;
        }
        match attempt % 64 {
            63 => std::thread::yield_now(),
            _ => std::hint::spin_loop(),
        }
    }
}
