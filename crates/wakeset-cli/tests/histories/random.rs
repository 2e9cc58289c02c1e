//! Random numbers that depend on nothing but their seed.

/// A generator.
#[derive(Clone, Debug)]
pub struct Random(fastrand::Rng);

impl Random {
    /// The generator of `seed` for purpose `stream`: the streams of one seed differ.
    pub fn new(seed: u64, stream: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed ^ stream.wrapping_mul(0xd134_2543_de82_ef95)))
    }

    /// The next 64 bits.
    pub fn next(&mut self) -> u64 {
        self.0.u64(..)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        self.0.usize(..n)
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: usize, high: usize) -> usize {
        self.0.usize(low..=high)
    }

    /// True in `n` of `of` cases.
    pub fn chance(&mut self, n: usize, of: usize) -> bool {
        self.below(of) < n
    }

    /// One of them.
    pub fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}
