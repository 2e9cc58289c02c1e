//! A short path on the stack, for calls of our own below /proc.

use core::fmt::{self, Write};

/// A C string: all of it is zero after the text.
pub(crate) struct Path {
    bytes: [u8; 32],
    len: usize,
}

impl Path {
    /// `None` if it is too long.
    pub(crate) fn of(text: fmt::Arguments<'_>) -> Option<Self> {
        let mut path = Self { bytes: [0; 32], len: 0 };
        path.write_fmt(text).is_ok().then_some(path)
    }

    pub(crate) fn as_ptr(&self) -> *const u8 {
        self.bytes.as_ptr()
    }
}

impl Write for Path {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.len + text.len();
        // The last byte stays 0.
        let has_room = end < self.bytes.len();
        let place = self.bytes.get_mut(self.len..end).filter(|_| has_room).ok_or(fmt::Error)?;
        place.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}
