//! Where the generator's decisions come from: a seeded random generator, or the bytes of a
//! coverage-guided fuzzer.

/// A stream of decisions.
pub trait Choices {
    /// A number below `n`, which must not be 0.
    fn below(&mut self, n: u32) -> u32;

    /// Any 64 bits.
    fn bits(&mut self) -> u64;

    /// Whether the decisions are used up: every further one is 0.
    fn is_at_end(&self) -> bool {
        false
    }

    /// True once in `n` times.
    fn once_in(&mut self, n: u32) -> bool {
        self.below(n) == n - 1
    }

    /// One of these.
    fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u32) as usize]
    }
}

impl Choices for fastrand::Rng {
    #[inline]
    fn below(&mut self, n: u32) -> u32 {
        // Not `Rng::u32(..n)`, whose algorithm may change with a release of the crate: the programs
        // of known seeds would change with it. The bias of this multiplication is far below what a
        // test could show.
        ((self.u64(..) as u32 as u64 * u64::from(n)) >> 32) as u32
    }

    #[inline]
    fn bits(&mut self) -> u64 {
        self.u64(..)
    }
}

/// Decisions that are read from bytes, first byte first.
#[derive(Clone, Debug)]
pub struct Bytes<'a>(pub &'a [u8]);

impl Bytes<'_> {
    fn take(&mut self, n: usize) -> u64 {
        let n = n.min(self.0.len());
        let (head, rest) = self.0.split_at(n);
        self.0 = rest;
        head.iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
    }
}

impl Choices for Bytes<'_> {
    fn below(&mut self, n: u32) -> u32 {
        let bytes = if n <= 1 << 8 { 1 } else { 4 };
        (self.take(bytes) % u64::from(n)) as u32
    }

    fn bits(&mut self) -> u64 {
        self.take(8)
    }

    fn is_at_end(&self) -> bool {
        self.0.is_empty()
    }
}
