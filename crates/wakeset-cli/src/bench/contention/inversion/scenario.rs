//! One number of low-priority threads: its threads, and its rounds.

use std::io;
use std::time::Duration;

use indicatif::ProgressBar;

use super::latencies::Latencies;
use super::side::{Contended, Side};
use super::stage::{CONSUMER, EndOnDrop, HOG, Stage, WATCHDOG};
use crate::bench::contention::realtime::set_priority;
use crate::bench::measure::joined::joined;
use crate::bench::measure::point::params;
use crate::bench::measure::processor::pin;
use crate::bench::measure::report::label;
use crate::bench::options::Timed;
use crate::bench::sides::backend::{Backend, IN};
use crate::bench::sides::engine::{Engines, Work};
use crate::bench::sides::kernel::Kernel;

/// One number of low-priority threads.
pub struct Scenario {
    pub contended: Contended,
    pub low: usize,
    pub processor: usize,
}

/// One run of a scenario, for any backend.
struct Run<'a> {
    scenario: &'a Scenario,
    time: Duration,
    round: u32,
}

impl Work for Run<'_> {
    type Output = io::Result<Latencies>;

    fn run<B: Backend>(self, backend: &B) -> io::Result<Latencies> {
        self.scenario.run(backend, self.time, self.round)
    }
}

impl Scenario {
    /// Runs all rounds, each side in turn in each. Returns what each side came to.
    pub fn rounds(
        &self,
        sides: &[Side],
        options: &Timed,
        progress: &ProgressBar,
    ) -> io::Result<Vec<Latencies>> {
        let mut measured: Vec<_> = sides.iter().map(|_| Latencies::new()).collect();
        let rounds = options.common.rounds;
        let time = options.time() / (sides.len() as u32 * rounds);
        let engines = Engines::new();
        for round in 0..rounds {
            for (side, measured) in sides.iter().zip(&mut measured) {
                let params = params([("low", self.low.into()), ("side", side.name.into())]);
                progress.set_message(format!("{} {}", self.contended, label(&params)));
                wakeset::set_priority_inheritance(side.inherit);
                let run = Run { scenario: self, time, round };
                measured.add(&match side.policy.list() {
                    None => run.run(&Kernel)?,
                    Some(list) => engines.run(list, run)?,
                });
            }
            progress.inc(1);
        }
        Ok(measured)
    }

    /// Runs the threads for about this long.
    fn run<B: Backend>(&self, backend: &B, time: Duration, round: u32) -> io::Result<Latencies> {
        let set = backend.create_set()?;
        let counters: Vec<_> =
            (0..=self.low).map(|_| backend.create_counter()).collect::<io::Result<_>>()?;
        for (i, counter) in counters.iter().enumerate() {
            backend.add(&set, counter, IN, i as u64)?;
        }
        let stage = Stage::new(self.low + 3);
        std::thread::scope(|scope| {
            let (stage, set, counters) = (&stage, &set, &counters);
            let on_stage = |priority| {
                pin(self.processor)
                    .and_then(|()| set_priority(0, priority))
                    .inspect_err(|_| stage.end())
            };
            let mut threads = vec![
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
                threads.push(scope.spawn(move || {
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
            let latencies = joined(consumer);
            threads.into_iter().try_for_each(joined)?;
            latencies
        })
    }
}
