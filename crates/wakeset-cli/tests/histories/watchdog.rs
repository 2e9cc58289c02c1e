//! Waits for what has to happen in a round, and says what is known if it does not.

use crate::actor::{Actor, Shared};
use crate::log::{Progress, What};
use crate::plan::Data;
use crate::roles::MOST_EVENTS;
use crate::world::World;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Describes a round that hangs, and what its sets report.
pub fn describe<W: World>(
    shared: &Shared,
    threads: &[Arc<Progress>],
    main: &mut Actor<W>,
) -> String {
    let mut text = String::new();
    for thread in threads {
        let at = thread
            .at()
            .map_or("between two calls".to_string(), |(what, fd)| format!("in {what:?} of {fd}"));
        let (calls, state) = (thread.calls.load(Ordering::Relaxed), thread.state().unwrap_or('-'));
        let done = if thread.done.load(Ordering::Acquire) { "done" } else { &at };
        let _ =
            writeln!(text, "  {}: {done}, scheduler's state {state}, {calls} calls", thread.name);
    }
    for (target, kind) in shared.plan.targets.iter().enumerate() {
        let left = balance(threads, target);
        let (number, _) = shared.numbers[target].load();
        let mortal = if kind.mortal { ", mortal" } else { "" };
        let _ = writeln!(
            text,
            "  target {target}: {:?} under number {number}{mortal}, {left} units left",
            kind.kind
        );
    }
    for set in 0..shared.plan.sets {
        // Last, because it takes what is there and wakes other threads.
        let reports: Vec<_> = main.wait(set, MOST_EVENTS, 0).unwrap_or_default();
        let reports: Vec<_> =
            reports.iter().map(|&(data, bits)| (Data::unpack(data), bits)).collect();
        let _ = writeln!(text, "  set {set} reports now: {reports:?}");
    }
    text
}

/// The units a target should hold, as far as its writers and readers have come.
pub fn balance(threads: &[Arc<Progress>], target: usize) -> i64 {
    threads
        .iter()
        .fold(0u64, |sum, thread| sum.wrapping_add(thread.balance[target].load(Ordering::Relaxed)))
        as i64
}

/// Waits for something that has to happen.
pub fn until<W: World>(mut done: impl FnMut() -> bool) -> bool {
    let give_up = Instant::now() + W::time_limit();
    let mut attempts = 0;
    while !done() {
        if Instant::now() > give_up {
            return false;
        }
        attempts += 1;
        if attempts < 100 {
            std::thread::yield_now();
        } else {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    true
}

/// Waits until a thread sleeps in a wait. Only a means to make the interesting case certain enough.
pub fn until_asleep<W: World>(thread: &Progress) -> bool {
    let mut seen = 0;
    until::<W>(|| {
        let asleep = matches!(thread.at(), Some((What::Wait, _))) && thread.state() == Some('S');
        seen = if asleep { seen + 1 } else { 0 };
        seen == 3
    })
}
