//! `inversion`: how long a thread of high real-time priority waits for threads of low priority, while one of medium
//! priority keeps the only processor they have.
//!
//! | thread | priority | does |
//! |---|---|---|
//! | watchdog | SCHED_FIFO 40 | ends a call of the consumer that would last for ever |
//! | consumer | SCHED_FIFO 30 | each millisecond: signals a counter of its own, and waits with timeout 0 for events |
//! | hog | SCHED_FIFO 20 | computes for 10 ms, sleeps for 2 to 12 ms |
//! | low | SCHED_OTHER | N threads that signal a counter each (*ready list*) or change the interest list (*scan lock*) |
//!
//! The consumer's call has an event to report and nothing to wait for; so what it takes is its own work and, if a lock that it
//! needs is held by a low thread that the hog has interrupted, the rest of the hog's burst: a priority inversion. Measured is
//! the time from before the signal until the events are there.
//!
//! A lock whose taker spins is worse on one processor: the holder does not run as long as the consumer does, so the call
//! never ends. And where several low threads share a lock, each of them may be interrupted with it. After 100 ms the watchdog
//! ends a call: it makes the consumer an ordinary thread, and the low threads idle, until the events are there. Such a call
//! counts as *stuck*, and what it would have taken is not known.

use std::fmt;
use std::io;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use serde::Serialize;
use wakeset::{LockFree, RwLock, SpinLock};

use super::backend::{Backend, IN};
use super::engine::Wakeset;
use super::kernel::{self, Kernel};
use super::realtime::{choose_processor, pin, prepare, set_priority, thread_number};
use super::report::{Json, label, machine};
use super::{Options, Params, ROUNDS, params, progress_bar};
use crate::{Failure, table};

const WATCHDOG: i32 = 40;
const CONSUMER: i32 = 30;
const HOG: i32 = 20;

/// How long the consumer sleeps between its calls.
const PERIOD: Duration = Duration::from_millis(1);
/// How long the hog computes.
const BURST: Duration = Duration::from_millis(10);
/// How long it sleeps at least, and how much longer at most.
const GAP: Duration = Duration::from_millis(2);
const MORE_GAP: Duration = Duration::from_millis(10);
/// A call that takes longer than this is late: on its own it takes some ten microseconds.
const LATE: Duration = Duration::from_millis(1);
/// A call that takes longer than this is ended.
const STUCK: Duration = Duration::from_millis(100);
/// How often the watchdog looks.
const LOOK: Duration = Duration::from_millis(5);

/// Low-priority threads, if not told otherwise; none is measured in any case.
const LOW: [usize; 3] = [1, 4, 16];

/// Whose latency is measured.
#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
pub enum Policy {
    /// The kernel's epoll and eventfd
    Kernel,
    /// Wakeset with its ready list behind a read-write lock
    Rwlock,
    /// Wakeset with its ready list behind a spinlock
    Spinlock,
    /// Wakeset
    LockFree,
    /// All of them
    All,
}

/// What the low-priority threads do, and so which lock they hold.
#[derive(Clone, Copy, PartialEq)]
enum Contended {
    ReadyList,
    ScanLock,
}

impl fmt::Display for Contended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Contended::ReadyList => "ready list",
            Contended::ScanLock => "scan lock",
        })
    }
}

/// One column.
#[derive(Clone, Copy)]
struct Side {
    name: &'static str,
    policy: Policy,
    /// Whether a thread that waits for a scan lock lends its priority to the holder, as it does but for this comparison.
    inherit: bool,
}

const READY_LIST_SIDES: [Side; 4] = [
    Side { name: "kernel", policy: Policy::Kernel, inherit: true },
    Side { name: "rwlock", policy: Policy::Rwlock, inherit: true },
    Side { name: "spinlock", policy: Policy::Spinlock, inherit: true },
    Side { name: "lock-free", policy: Policy::LockFree, inherit: true },
];
const SCAN_LOCK_SIDES: [Side; 3] = [
    Side { name: "kernel", policy: Policy::Kernel, inherit: true },
    Side { name: "not lent", policy: Policy::LockFree, inherit: false },
    Side { name: "wakeset", policy: Policy::LockFree, inherit: true },
];

/// Measures, prints the tables and writes the JSON.
pub fn inversion(options: &Options) -> Result<(), Failure> {
    prepare(WATCHDOG).map_err(|e| {
        let help = "it takes CAP_SYS_NICE, or a limit of real-time priority of at least 40 (ulimit -r)";
        Failure::own(format!("bench inversion needs threads under SCHED_FIFO: {e}; {help}"))
    })?;
    let processor = choose_processor().map_err(|e| Failure::own(format!("no processor to run on: {e}")))?;
    let mut low = vec![0];
    low.extend(options.threads.as_deref().unwrap_or(&LOW));
    let need = low.iter().max().unwrap_or(&0) + 64;
    if kernel::raise_descriptor_limit(need) < need {
        return Err(Failure::own(format!("the kernel's side needs {need} descriptors (ulimit -n)")));
    }
    let policies = options.policy.as_deref().unwrap_or(&[Policy::All]);
    let wanted = |side: &Side| policies.contains(&side.policy) || policies.contains(&Policy::All);
    let tables = [(Contended::ReadyList, READY_LIST_SIDES.to_vec()), (Contended::ScanLock, SCAN_LOCK_SIDES.to_vec())]
        .map(|(contended, sides)| (contended, sides.into_iter().filter(wanted).collect::<Vec<_>>()));
    let json = Json::create(options.json.as_deref())?;
    let progress = progress_bar((tables.len() * low.len()) as u64 * u64::from(ROUNDS));
    let time = Duration::from_secs_f64(options.secs);

    println!("{}", machine());
    println!(
        "microseconds from a signal of one's own to having it, at high priority; late: over {}, stuck: over {}",
        table::number(LATE.as_secs_f64() * 1e6),
        table::number(STUCK.as_secs_f64() * 1e6)
    );
    println!("not lent: Wakeset without priority inheritance on the scan lock");
    let mut rows = Vec::new();
    for (contended, sides) in tables.iter().filter(|(_, sides)| !sides.is_empty()) {
        println!("\n{}", Row::headings(*contended));
        for &low in &low {
            let scenario = Scenario { contended: *contended, low, processor };
            let measured = scenario.rounds(sides, time, &progress).map_err(|e| {
                progress.finish_and_clear();
                Failure::own(format!("{contended} failed at {low} low-priority threads: {e}"))
            })?;
            for row in measured {
                progress.suspend(|| println!("{row}"));
                rows.push(row);
            }
        }
    }
    progress.finish_and_clear();
    for (contended, sides) in tables.iter().filter(|(_, sides)| !sides.is_empty()) {
        print_worst(*contended, sides, &rows);
    }
    json.write(&rows)
}

/// The worst of each in little room: what shall not grow with the number of low-priority threads.
fn print_worst(contended: Contended, sides: &[Side], rows: &[Row]) {
    let mut cells = vec![vec![format!("{contended}, worst")]];
    cells[0].extend(sides.iter().map(|side| side.name.to_string()));
    for chunk in rows.iter().filter(|row| row.contended == contended).collect::<Vec<_>>().chunks(sides.len()) {
        let mut line = vec![low_threads(chunk[0].low)];
        line.extend(chunk.iter().map(|row| row.worst_text()));
        cells.push(line);
    }
    print!("\n{}", table::align(&cells));
}

fn low_threads(low: usize) -> String {
    match low {
        0 => "no low-priority thread".to_string(),
        1 => "1 low-priority thread".to_string(),
        n => format!("{n} low-priority threads"),
    }
}

/// What one side came to in all rounds. Times are microseconds.
#[derive(Serialize)]
struct Row {
    workload: &'static str,
    params: Params,
    unit: &'static str,
    calls: usize,
    median: f64,
    p99: f64,
    p999: f64,
    worst: f64,
    late: usize,
    stuck: usize,
    #[serde(skip)]
    contended: Contended,
    #[serde(skip)]
    low: usize,
    #[serde(skip)]
    side: &'static str,
}

impl Row {
    fn new(scenario: &Scenario, side: &Side, mut turns: Turns) -> Self {
        turns.latencies.sort_unstable();
        let calls = turns.latencies.len();
        // The smallest latency that this share of the calls does not exceed.
        let at = |share: f64| {
            let rank = (share * calls as f64).ceil() as usize;
            turns.latencies.get(rank.clamp(1, calls.max(1)) - 1).map_or(0.0, |latency| latency.as_secs_f64() * 1e6)
        };
        let params = params([
            ("contended", scenario.contended.to_string().into()),
            ("low", scenario.low.into()),
            ("side", side.name.into()),
        ]);
        Row {
            workload: "inversion",
            params,
            unit: "us",
            calls,
            median: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            worst: at(1.0),
            late: turns.latencies.iter().filter(|&&latency| latency > LATE).count(),
            stuck: turns.stuck,
            contended: scenario.contended,
            low: scenario.low,
            side: side.name,
        }
    }

    fn headings(contended: Contended) -> String {
        Self::line(
            &contended.to_string(),
            "",
            ["calls", "50%", "99%", "99.9%", "worst", "late", "stuck"].map(String::from),
        )
    }

    fn line(low: &str, side: &str, [calls, median, p99, p999, worst, late, stuck]: [String; 7]) -> String {
        format!("{low:<25}{side:<12}{calls:>8}{median:>10}{p99:>10}{p999:>10}{worst:>11}{late:>7}{stuck:>7}")
    }

    /// Of a stuck call only the watchdog's patience is known.
    fn worst_text(&self) -> String {
        match self.stuck {
            0 => table::number(self.worst),
            _ => format!(">{}", table::number(STUCK.as_secs_f64() * 1e6)),
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = [self.calls, self.late, self.stuck].map(|count| count.to_string());
        let [median, p99, p999] = [self.median, self.p99, self.p999].map(table::number);
        let [calls, late, stuck] = counts;
        let cells = [calls, median, p99, p999, self.worst_text(), late, stuck];
        f.write_str(&Self::line(&low_threads(self.low), self.side, cells))
    }
}

/// One number of low-priority threads.
struct Scenario {
    contended: Contended,
    low: usize,
    processor: usize,
}

/// What the consumer's calls took.
#[derive(Default)]
struct Turns {
    latencies: Vec<Duration>,
    stuck: usize,
}

impl Scenario {
    /// All rounds, each side in turn in each.
    fn rounds(&self, sides: &[Side], time: Duration, progress: &ProgressBar) -> io::Result<Vec<Row>> {
        let mut turns: Vec<_> = sides.iter().map(|_| Turns::default()).collect();
        let slice = time / (sides.len() as u32 * ROUNDS);
        for round in 0..ROUNDS {
            for (side, turns) in sides.iter().zip(&mut turns) {
                let params = params([("low", self.low.into()), ("side", side.name.into())]);
                progress.set_message(format!("{} {}", self.contended, label(&params)));
                wakeset::set_priority_inheritance(side.inherit);
                let more = match side.policy {
                    Policy::Kernel => self.run(&Kernel, slice, round)?,
                    Policy::Rwlock => self.run(&Wakeset::<RwLock>::new(), slice, round)?,
                    Policy::Spinlock => self.run(&Wakeset::<SpinLock>::new(), slice, round)?,
                    Policy::LockFree | Policy::All => self.run(&Wakeset::<LockFree>::new(), slice, round)?,
                };
                turns.latencies.extend(more.latencies);
                turns.stuck += more.stuck;
            }
            progress.inc(1);
        }
        Ok(sides.iter().zip(turns).map(|(side, turns)| Row::new(self, side, turns)).collect())
    }

    /// Runs the threads for about this long.
    fn run<B: Backend>(&self, backend: &B, time: Duration, round: u32) -> io::Result<Turns> {
        let set = backend.create_set()?;
        let counters: Vec<_> = (0..=self.low).map(|_| backend.create_counter()).collect::<io::Result<_>>()?;
        for (i, counter) in counters.iter().enumerate() {
            backend.add(&set, counter, IN, i as u64)?;
        }
        let stage = Stage::new(self.low + 3);
        std::thread::scope(|scope| {
            let (stage, set, counters) = (&stage, &set, &counters);
            let on_stage =
                |priority| pin(self.processor).and_then(|()| set_priority(0, priority)).inspect_err(|_| stage.end());
            let mut others = vec![
                scope.spawn(move || {
                    stage.enter(on_stage(WATCHDOG))?;
                    stage.watch_over_consumer()
                }),
                scope.spawn(move || {
                    stage.enter(on_stage(HOG))?;
                    stage.hog(round);
                    Ok(())
                }),
            ];
            // The last counter is the consumer's own.
            for (i, counter) in counters[..self.low].iter().enumerate() {
                others.push(scope.spawn(move || {
                    stage.enter(on_stage(0))?;
                    while !stage.is_over() {
                        stage.make_way();
                        match self.contended {
                            Contended::ReadyList => backend.write(counter, 1),
                            Contended::ScanLock => backend.modify(set, counter, IN, i as u64),
                        }
                        .inspect_err(|_| stage.end())?;
                    }
                    Ok(())
                }));
            }
            let consumer = scope.spawn(move || {
                let _last = EndOnDrop(stage);
                stage.enter(on_stage(CONSUMER))?;
                stage.consume(backend, set, counters, time)
            });
            let turns = join(consumer);
            others.into_iter().try_for_each(join)?;
            turns
        })
    }
}

fn join<T>(thread: std::thread::ScopedJoinHandle<'_, io::Result<T>>) -> io::Result<T> {
    match thread.join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// What the threads of one run share.
struct Stage {
    start: Barrier,
    over: AtomicBool,
    /// When the consumer's call began, in nanoseconds from `epoch`; or one of the two below. The consumer sets it before and
    /// clears it after; the watchdog changes what it has found too old, in one step, so that it never ends the next call.
    call: AtomicU64,
    consumer: AtomicI32,
    epoch: Instant,
}

/// The consumer is in no call.
const NONE: u64 = 0;
/// The watchdog has ended the call.
const RESCUED: u64 = u64::MAX;

impl Stage {
    fn new(threads: usize) -> Self {
        Stage {
            start: Barrier::new(threads),
            over: AtomicBool::new(false),
            call: AtomicU64::new(NONE),
            consumer: AtomicI32::new(0),
            epoch: Instant::now(),
        }
    }

    /// Waits until all threads are here; also one that has failed already, which the others would wait for.
    fn enter(&self, prepared: io::Result<()>) -> io::Result<()> {
        self.start.wait();
        prepared
    }

    fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    fn now(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    fn consume<B: Backend>(
        &self,
        backend: &B,
        set: &B::Set,
        counters: &[B::Counter],
        time: Duration,
    ) -> io::Result<Turns> {
        self.consumer.store(thread_number(), Ordering::Relaxed);
        let own = counters.len() - 1;
        let mut events = vec![B::NO_EVENT; counters.len()];
        let mut turns = Turns::default();
        let begin = Instant::now();
        while begin.elapsed() < time {
            std::thread::sleep(PERIOD);
            let start = self.now().max(NONE + 1);
            self.call.store(start, Ordering::Relaxed);
            backend.write(&counters[own], 1)?;
            let n = backend.wait(set, &mut events, Duration::ZERO)?;
            let latency = Duration::from_nanos(self.now() - start);
            // The watchdog has the higher priority on the same processor: between its change of this word and that of
            // our priority we do not run.
            if self.call.swap(NONE, Ordering::Relaxed) == RESCUED {
                set_priority(0, CONSUMER)?;
                turns.stuck += 1;
            }
            turns.latencies.push(latency);
            let mut found = false;
            for event in &events[..n] {
                let i = B::data(event) as usize;
                found |= i == own;
                backend.read(&counters[i])?;
            }
            if !found {
                return Err(io::Error::other("an event was lost: the consumer's own, signalled before the call"));
            }
        }
        Ok(turns)
    }

    /// Lets a rescued consumer have what it is after: sixteen who share a lock may never leave it free.
    fn make_way(&self) {
        while self.call.load(Ordering::Relaxed) == RESCUED && !self.is_over() {
            std::thread::sleep(PERIOD);
        }
    }

    /// Makes the consumer an ordinary thread when a call of it takes too long.
    fn watch_over_consumer(&self) -> io::Result<()> {
        while !self.is_over() {
            std::thread::sleep(LOOK);
            let call = self.call.load(Ordering::Relaxed);
            let is_old = call != NONE && call != RESCUED && self.now() > call + STUCK.as_nanos() as u64;
            if is_old && self.call.compare_exchange(call, RESCUED, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                set_priority(self.consumer.load(Ordering::Relaxed), 0)?;
            }
        }
        Ok(())
    }

    /// Computes and sleeps in turn. The gaps are random, so that a burst begins anywhere in what the low threads do.
    fn hog(&self, seed: u32) {
        let mut random = u64::from(seed);
        while !self.is_over() {
            // A linear congruential generator; its upper bits are good enough for this.
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            std::thread::sleep(GAP + MORE_GAP.mul_f64((random >> 40) as f64 / (1 << 24) as f64));
            let begin = Instant::now();
            while begin.elapsed() < BURST && !self.is_over() {
                std::hint::spin_loop();
            }
        }
    }
}

/// Ends the run also when its thread fails or panics: the others would go on for ever.
struct EndOnDrop<'a>(&'a Stage);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}
