//! A watch as a wait queue knows it.

use crate::wake::state::{GENERATION_BITS, State};
use crate::wake::watch::Watch;
use core::ptr;

/// A watch as a wait queue knows it: address, generation, exclusive or not; never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle(pub(in crate::wake) u64);

/// Watches are 64-byte aligned and user addresses are below 2^48: 42 bits say which one.
const ADDRESS_SHIFT: u32 = GENERATION_BITS + 1;

impl Handle {
    pub(crate) fn new(watch: *mut Watch, state: State, exclusive: bool) -> Self {
        let address = (watch.expose_provenance() as u64) >> 6;
        Self(address << ADDRESS_SHIFT | state.generation() << 1 | u64::from(exclusive))
    }

    /// The handle in a slot, if it holds one.
    #[inline]
    pub(in crate::wake) fn decode(slot: u64) -> Option<Self> {
        (slot >> ADDRESS_SHIFT != 0).then_some(Self(slot))
    }

    #[inline]
    pub(crate) fn watch(self) -> *mut Watch {
        ptr::with_exposed_provenance_mut(((self.0 >> ADDRESS_SHIFT) << 6) as usize)
    }

    #[inline]
    pub(crate) const fn generation(self) -> u64 {
        (self.0 >> 1) & ((1 << GENERATION_BITS) - 1)
    }

    #[inline]
    pub(crate) const fn is_exclusive(self) -> bool {
        self.0 & 1 != 0
    }
}
