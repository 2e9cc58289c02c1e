//! Where the area is, as the environment says it.

use core::fmt::{self, Write};
use wakeset_fd::stats::area::Nonce;

/// The longest string, and the zero byte at its end.
const TEXT_BYTES: usize = 256;

/// A string on the stack: no hook may allocate with libc, and this runs before anything else does.
pub(super) struct Text {
    bytes: [u8; TEXT_BYTES],
    len: usize,
}

impl Text {
    pub(super) const EMPTY: Text = Text { bytes: [0; TEXT_BYTES], len: 0 };

    /// The string.
    pub(super) fn as_str(&self) -> &str {
        self.bytes.get(..self.len).and_then(|bytes| str::from_utf8(bytes).ok()).unwrap_or_default()
    }

    /// The string with a zero byte at its end.
    pub(super) fn as_ptr(&self) -> *const u8 {
        self.bytes.as_ptr()
    }
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // The last byte stays 0, to end the C string.
        let end = self.len + text.len();
        let to =
            self.bytes.get_mut(self.len..end).filter(|_| end < TEXT_BYTES).ok_or(fmt::Error)?;
        to.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

/// Where the area is, as [`AREA_VARIABLE`] has it.
pub(super) struct Place {
    pub(super) path: Text,
    pub(super) owner: u32,
    pub(super) nonce: Nonce,
}

impl Place {
    pub(super) fn parse(value: &str) -> Option<Place> {
        let (owner, rest) = value.split_once(' ')?;
        let (nonce, path) = rest.split_once(' ')?;
        let half = |range| u64::from_str_radix(nonce.get(range)?, 16).ok();
        let mut text = Text::EMPTY;
        text.write_str(path).ok()?;
        Some(Place { path: text, owner: owner.parse().ok()?, nonce: [half(0..16)?, half(16..32)?] })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([high, low], path) = (self.nonce, self.path.as_str());
        write!(f, "{} {high:016x}{low:016x} {path}", self.owner)
    }
}
