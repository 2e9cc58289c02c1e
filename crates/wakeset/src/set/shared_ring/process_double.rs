//! The two sides of a shared ring as threads of one model, in place of
//! `set/shared_ring/process.rs`.

use super::reader::RingReader;
use super::writer::RingWriter;

impl RingWriter<'_> {
    /// The other side, for a model: memory that is shared with a thread only.
    #[doc(hidden)]
    pub fn reader(&self) -> RingReader {
        RingReader { memory: self.memory.clone(), head: 0 }
    }
}
