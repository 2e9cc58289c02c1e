//! `nest`: threads that each add a set to a set and remove it again, in a tree of their own. Such
//! an add takes a lock of all sets on both sides, for the loop and path checks: this is what it
//! costs. The rates are adds per second, each with its removal, over all threads.

use std::io;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use crate::bench::measure::joined::joined;
use crate::bench::measure::point::{Params, Point, Rates, params};
use crate::bench::measure::rounds::{Compared, measure};
use crate::bench::options::count;
use crate::bench::sides::backend::{Backend, IN};
use crate::failure::Failure;

const THREADS: [usize; 4] = [1, 2, 4, 8];
/// Counters in the set that is added, and in the one inside it.
const LEAVES: [usize; 3] = [1, 16, 256];

/// What `wakeset bench nest` takes.
#[derive(clap::Args)]
pub struct Options {
    /// Numbers of threads to measure, as in 1,2
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = count,
        default_values_t = THREADS)]
    threads: Vec<usize>,
    #[command(flatten)]
    compared: Compared,
}

/// Measures, prints the table and writes the JSON.
pub fn nest(options: &Options) -> Result<(), Failure> {
    measure("nest", &points(&options.threads), &options.compared)
}

fn points(threads: &[usize]) -> Vec<Nest> {
    threads.iter().flat_map(|&threads| LEAVES.map(|leaves| Nest { threads, leaves })).collect()
}

/// A number of threads, and the size of each one's tree: two sets above, two below with counters.
pub struct Nest {
    threads: usize,
    leaves: usize,
}

/// Top, outer, inner and bottom set, and what the lower two watch.
type Tree<B> = ([<B as Backend>::Set; 4], Vec<<B as Backend>::Counter>);

impl Point for Nest {
    fn rows(&self) -> Vec<Params> {
        vec![params([("threads", self.threads.into()), ("leaves", self.leaves.into())])]
    }

    fn unit(&self) -> &'static str {
        "adds/s"
    }

    fn descriptors(&self) -> usize {
        self.threads * (2 * self.leaves + 4) + 64
    }

    fn run<B: Backend>(
        &self,
        backend: &B,
        time: Duration,
        _expected: Option<&Rates>,
    ) -> io::Result<Rates> {
        let start = Barrier::new(self.threads);
        let work = || {
            let tree = self.grow(backend);
            start.wait();
            let ([_, outer, inner, _], _counters) = &tree?;
            let begin = Instant::now();
            let mut adds = 0;
            while adds == 0 || begin.elapsed() < time {
                for _ in 0..16 {
                    backend.add_set(outer, inner, IN, 0)?;
                    backend.remove_set(outer, inner)?;
                }
                adds += 16;
            }
            Ok(f64::from(adds) / begin.elapsed().as_secs_f64())
        };
        let rates = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.threads).map(|_| scope.spawn(work)).collect();
            threads.into_iter().map(joined).collect::<io::Result<Vec<f64>>>()
        })?;
        Ok(vec![rates.iter().sum()])
    }
}

impl Nest {
    fn grow<B: Backend>(&self, backend: &B) -> io::Result<Tree<B>> {
        let sets = [
            backend.create_set()?,
            backend.create_set()?,
            backend.create_set()?,
            backend.create_set()?,
        ];
        let [top, outer, inner, bottom] = &sets;
        backend.add_set(top, outer, IN, 0)?;
        backend.add_set(inner, bottom, IN, 0)?;
        let counters: Vec<_> =
            (0..2 * self.leaves).map(|_| backend.create_counter()).collect::<io::Result<_>>()?;
        for (i, counter) in counters.iter().enumerate() {
            backend.add(if i % 2 == 0 { inner } else { bottom }, counter, IN, i as u64)?;
        }
        Ok((sets, counters))
    }
}
