//! Arguments: slots, addresses, lengths, values and event masks, a few of them odd.

use super::{Generator, Slot};
use crate::program::choices::Choices;
use crate::program::{At, Calls, SLOTS};
use libc::{EPOLLIN, EPOLLRDHUP};

impl<C: Choices> Generator<'_, C> {
    /// Whether the next argument is to be odd.
    pub(super) fn is_odd(&mut self) -> bool {
        self.style.odd != 0 && self.choices.once_in(self.style.odd)
    }

    pub(super) fn everything(&self) -> bool {
        self.style.profile.calls == Calls::Everything
    }

    /// A slot of one of these kinds if there is one, else any that was used.
    pub(super) fn of_kind(&mut self, kinds: &[Slot]) -> u8 {
        if self.is_odd() && self.everything() {
            return self.choices.below(u32::from(SLOTS) + 8) as u8;
        }
        let start = self.choices.below(self.used.max(1));
        let at = |i: u32| ((start + i) % self.used.max(1)) as u8;
        (0..self.used)
            .map(at)
            .find(|slot| kinds.contains(&self.slots[usize::from(*slot)]))
            .unwrap_or(start as u8)
    }

    /// A slot to read from or write to.
    pub(super) fn source(&mut self) -> u8 {
        let kinds: &[Slot] = match self.choices.below(6) {
            0 | 1 => &[Slot::Other, Slot::Counter],
            2 | 3 if self.style.timers => &[Slot::Timer],
            _ => &[Slot::Counter],
        };
        self.of_kind(kinds)
    }

    /// A slot of anything that is open.
    pub(super) fn object(&mut self) -> u8 {
        self.of_kind(&[Slot::Counter, Slot::Timer, Slot::Set, Slot::Other])
    }

    /// The address of a buffer, nearly always a good one. `most` bounds [`At::Before`].
    pub(super) fn at(&mut self, most: u8) -> At {
        if !self.everything() || !self.is_odd() {
            return At::Good;
        }
        match self.choices.below(12) {
            0 => At::Null,
            1 => At::Low,
            2 => At::High,
            3 => At::Forbidden,
            4 => At::ReadOnly,
            _ => At::Before(self.choices.below(u32::from(most)) as u8),
        }
    }

    /// The length of a read or write.
    pub(super) fn len(&mut self) -> u8 {
        if self.everything() && self.is_odd() { self.choices.below(32) as u8 } else { 8 }
    }

    /// A value to write to a counter.
    pub(super) fn value(&mut self) -> u64 {
        match self.choices.below(32) {
            0 => 0,
            1 => u64::MAX,
            2 | 3 => u64::MAX - 1,
            4 => u64::MAX - 2,
            5 => self.choices.bits(),
            n => u64::from(n / 8),
        }
    }

    /// The event mask of a watch.
    pub(super) fn mask(&mut self) -> u32 {
        if self.style.odd != 0 && self.choices.once_in(8) {
            return match self.choices.below(4) {
                0 => self.choices.bits() as u32,
                1 => 0,
                2 => (EPOLLRDHUP | EPOLLIN) as u32,
                _ => 1 << self.choices.below(32),
            };
        }
        self.choices.one_of(&self.style.masks)
    }
}
