//! The machine's atomics, and a pair of words that change together.

pub(crate) use core::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
/// For counts of handles, which the models take for granted, as they do `Arc`'s, for plain notes
/// that a lock guards, and for guesses that nothing depends on.
pub(crate) use core::sync::atomic::{
    AtomicU8 as UnmodelledU8, AtomicU16 as UnmodelledU16, AtomicU32 as UnmodelledU32,
    AtomicU64 as UnmodelledU64, AtomicUsize as UnmodelledUsize,
};

/// Two words that change together, for a state that one does not hold. Lock-free on every machine
/// that has the instruction, which is all with 64-bit x86 since 2006; elsewhere the crate takes a
/// lock for its length.
#[derive(Debug)]
pub(crate) struct AtomicPair(portable_atomic::AtomicU128);

impl AtomicPair {
    pub(crate) const fn new((low, high): (u64, u64)) -> Self {
        // `u128::from` is not const.
        Self(portable_atomic::AtomicU128::new((high as u128) << 64 | low as u128))
    }

    fn join((low, high): (u64, u64)) -> u128 {
        u128::from(high) << 64 | u128::from(low)
    }

    fn split(both: u128) -> (u64, u64) {
        (both as u64, (both >> 64) as u64)
    }

    #[inline]
    pub(crate) fn load(&self) -> (u64, u64) {
        Self::split(self.0.load(Ordering::SeqCst))
    }

    pub(crate) fn store(&self, pair: (u64, u64)) {
        self.0.store(Self::join(pair), Ordering::SeqCst);
    }

    #[inline]
    pub(crate) fn compare_exchange(
        &self,
        old: (u64, u64),
        new: (u64, u64),
    ) -> Result<(), (u64, u64)> {
        let exchanged = self.0.compare_exchange(
            Self::join(old),
            Self::join(new),
            Ordering::SeqCst,
            Ordering::SeqCst,
        );
        exchanged.map(drop).map_err(Self::split)
    }
}
