//! `inversion`: how long a thread of high real-time priority waits for threads of low priority,
//! while a thread of medium priority keeps the only processor that they have.
//!
//! | thread | priority | does |
//! |---|---|---|
//! | watchdog | SCHED_FIFO 40 | ends a call of the consumer that would last for ever |
//! | consumer | SCHED_FIFO 30 | each millisecond: signals a counter of its own, and waits with timeout 0 for events |
//! | hog | SCHED_FIFO 20 | computes for 10 ms, sleeps for 2 to 12 ms |
//! | low | SCHED_OTHER | N threads that signal a counter each (*ready list*) or change the interest list (*scan lock*) |
//!
//! The consumer's call has an event to report and nothing to wait for; so what it takes is its own
//! work and, if a lock that it needs is held by a low thread that the hog has interrupted, the rest
//! of the hog's burst: a priority inversion. Measured is the time from before the signal until the
//! events are there.
//!
//! A lock whose taker spins is worse on one processor: the holder does not run as long as the
//! consumer does, so the call never ends. And where several low threads share a lock, each of them
//! may be interrupted with it. After 100 ms the watchdog ends a call: it makes the consumer an
//! ordinary thread, and the low threads idle, until the events are there. Such a call counts as
//! *stuck*, and what it would have taken is not known.

mod latencies;
mod row;
mod scenario;
mod side;
mod stage;

use super::realtime::prepare;
use crate::bench::measure::machine::machine;
use crate::bench::measure::processor::choose_processor;
use crate::bench::measure::progress::progress_bar;
use crate::bench::measure::report::Json;
use crate::bench::options::{Timed, count};
use crate::bench::sides::kernel::raise_descriptor_limit;
use crate::failure::Failure;
use crate::format;
use latencies::LATE;
use row::{Row, print_worst};
use scenario::Scenario;
use side::{Contended, Policy, READY_LIST_SIDES, SCAN_LOCK_SIDES, Side};
use stage::{STUCK, WATCHDOG};

/// What `wakeset bench inversion` takes.
#[derive(clap::Args)]
pub struct Options {
    /// Numbers of low-priority threads to measure; none at all is measured in any case
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        value_parser = count,
        default_values_t = [1, 4, 16]
    )]
    threads: Vec<usize>,
    /// Whose latency to measure, as in kernel,lock-free
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_enum, default_value = "all")]
    policy: Vec<Policy>,
    #[command(flatten)]
    timed: Timed,
}

/// Measures, prints the tables and writes the JSON.
pub fn inversion(options: &Options) -> Result<(), Failure> {
    prepare(WATCHDOG).map_err(|e| {
        let help =
            "it takes CAP_SYS_NICE, or a limit of real-time priority of at least 40 (ulimit -r)";
        Failure::own(format!("bench inversion needs threads under SCHED_FIFO: {e}; {help}"))
    })?;
    let processor =
        choose_processor().map_err(|e| Failure::own(format!("no processor to run on: {e}")))?;
    let mut low = vec![0];
    low.extend(&options.threads);
    let need = low.iter().max().unwrap_or(&0) + 64;
    if raise_descriptor_limit(need) < need {
        return Err(Failure::own(format!(
            "the kernel's side needs {need} descriptors (ulimit -n)"
        )));
    }
    let policies = &options.policy;
    let wanted = |side: &Side| policies.contains(&side.policy) || policies.contains(&Policy::All);
    let tables = [
        (Contended::ReadyList, READY_LIST_SIDES.to_vec()),
        (Contended::ScanLock, SCAN_LOCK_SIDES.to_vec()),
    ]
    .map(|(contended, sides)| (contended, sides.into_iter().filter(wanted).collect::<Vec<_>>()));
    for list in tables.iter().flat_map(|(_, sides)| sides).filter_map(|side| side.policy.list()) {
        list.check_available()?;
    }
    let json = Json::create(options.timed.common.json.as_deref())?;
    let progress =
        progress_bar((tables.len() * low.len()) as u64 * u64::from(options.timed.common.rounds));

    print_head();
    let mut rows = Vec::new();
    for (contended, sides) in tables.iter().filter(|(_, sides)| !sides.is_empty()) {
        println!("\n{}", Row::headings(*contended));
        for &low in &low {
            let scenario = Scenario { contended: *contended, low, processor };
            let measured = scenario.rounds(sides, &options.timed, &progress).map_err(|e| {
                progress.finish_and_clear();
                Failure::own(format!("{contended} failed at {low} low-priority threads: {e}"))
            })?;
            for (side, latencies) in sides.iter().zip(&measured) {
                let row = Row::new(*contended, low, side, latencies);
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

fn print_head() {
    let [late, stuck] = [LATE, STUCK].map(|time| format::number(time.as_secs_f64() * 1e6));
    println!("{}", machine());
    println!(
        "microseconds from a signal of one's own to having it, at high priority; \
         late: over {late}, stuck: over {stuck}"
    );
    println!("not lent: Wakeset without priority inheritance on the scan lock");
}
