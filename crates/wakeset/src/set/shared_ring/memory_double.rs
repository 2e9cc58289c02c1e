//! The two sides' memory for the models, in place of `set/shared_ring/memory.rs`: the heap's,
//! shared with a thread.

use super::layout::{Header, Line, Slot};
use crate::error::Error;
use crate::sync::{AtomicU32, AtomicU64, SharedFutex};
use alloc::sync::Arc;
use alloc::vec::Vec;

#[derive(Clone)]
pub(in crate::set) struct Memory(Arc<(Header, Vec<Slot>)>);

impl Memory {
    pub(in crate::set) fn new(entries: u32) -> Result<Self, Error> {
        let line = || Line { index: SharedFutex::new(0), sleeps: AtomicU32::new(0) };
        let slot = |_| Slot { bits: AtomicU64::new(0), data: AtomicU64::new(0) };
        Ok(Self(Arc::new((
            Header { writer: line(), reader: line() },
            (0..entries).map(slot).collect(),
        ))))
    }

    pub(in crate::set) fn entries(&self) -> u32 {
        self.0.1.len() as u32
    }

    pub(in crate::set) fn header(&self) -> &Header {
        &self.0.0
    }

    pub(in crate::set) fn slot(&self, at: u32) -> &Slot {
        &self.0.1[(at & (self.entries() - 1)) as usize]
    }
}
