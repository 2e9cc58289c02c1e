//! A point of a workload: what one row, or a few rows, of a table measure.

use std::io;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::bench::sides::backend::Backend;
use crate::bench::sides::engine::Work;

/// What describes one row: the `params` of the JSON.
pub type Params = Map<String, Value>;

/// What one run of a point came to: one rate for each of the point's rows, higher is better.
pub type Rates = Vec<f64>;

/// One point of a workload: a body that runs on any backend.
pub trait Point {
    /// What tells this point's rows from the workload's other rows.
    fn rows(&self) -> Vec<Params>;
    /// What the rates count.
    fn unit(&self) -> &'static str;
    /// Descriptors the kernel needs for this, a few spare ones included.
    fn descriptors(&self) -> usize {
        64
    }
    /// Runs once, for about `time`. `expected` is what the previous run came to on the same
    /// backend, for a workload whose amount has to be fixed beforehand.
    fn run<B: Backend>(
        &self,
        backend: &B,
        time: Duration,
        expected: Option<&Rates>,
    ) -> io::Result<Rates>;
    /// Runs once what bounds every backend from above, if there is such a thing.
    fn run_bare(&self, _time: Duration, _expected: Option<&Rates>) -> Option<io::Result<Rates>> {
        None
    }
}

/// One run of a point, as [`Work`] for any backend.
pub struct Run<'a, P> {
    pub point: &'a P,
    pub time: Duration,
    pub expected: Option<&'a Rates>,
}

impl<P: Point> Work for Run<'_, P> {
    type Output = io::Result<Rates>;

    fn run<B: Backend>(self, backend: &B) -> io::Result<Rates> {
        self.point.run(backend, self.time, self.expected)
    }
}

/// A point's parameters from names and values.
pub fn params<const N: usize>(pairs: [(&str, Value); N]) -> Params {
    pairs.into_iter().map(|(name, value)| (name.to_string(), value)).collect()
}
