//! The last migrations of a process: which object, why, by which call, and when.
//!
//! A migration holds the migrations lock of its process, so one thread at a time writes here.

use super::page::Page;
use super::stat::Stat;
use core::mem::offset_of;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Relaxed, Release};

/// Migrations that a page keeps.
pub const MIGRATIONS: usize = 15;
/// The most bytes of a call's name; the last is 0.
const NAME: usize = 16;

/// One migration in a page.
#[repr(C)]
pub(super) struct Entry {
    /// In nanoseconds of `CLOCK_BOOTTIME`; 0: there is none.
    when: AtomicU64,
    /// The number, from bit 32 the kind, from bit 40 the reason.
    what: AtomicU64,
    call: [AtomicU64; NAME / 8],
}

/// The last ones, in a ring.
#[repr(C, align(64))]
pub(super) struct Migrations {
    next: AtomicU64,
    entries: [Entry; MIGRATIONS],
}

impl Migrations {
    pub(super) const fn zeroed() -> Self {
        Migrations {
            next: AtomicU64::new(0),
            entries: [const {
                Entry {
                    when: AtomicU64::new(0),
                    what: AtomicU64::new(0),
                    call: [const { AtomicU64::new(0) }; NAME / 8],
                }
            }; MIGRATIONS],
        }
    }

    /// Leaves all of it zero.
    pub(super) fn clear(&self) {
        self.next.store(0, Relaxed);
        for entry in &self.entries {
            entry.when.store(0, Relaxed);
            entry.what.store(0, Relaxed);
            entry.call.iter().for_each(|word| word.store(0, Relaxed));
        }
    }
}

impl Page {
    /// Notes a migration. The caller holds the lock of migrations.
    pub fn note_migration(&self, migration: &Migration) {
        let next = self.migrations.next.load(Relaxed);
        let Some(entry) = self.migrations.entries.get(next as usize % MIGRATIONS) else { return };
        let what = u64::from(migration.fd)
            | u64::from(migration.kind) << 32
            | (migration.reason as u64) << 40;
        // A reader that comes now leaves it out.
        entry.when.store(0, Release);
        entry.what.store(what, Relaxed);
        for (word, half) in entry.call.iter().zip(migration.call.chunks_exact(8)) {
            word.store(u64::from_le_bytes(half.try_into().unwrap_or_default()), Relaxed);
        }
        entry.when.store(migration.when, Release);
        self.migrations.next.store(next.wrapping_add(1), Relaxed);
    }
}

/// What can migrate.
pub const OBJECTS: [&str; 4] = ["eventfd", "timerfd", "set", "pipe or pair"];

/// A migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Migration {
    /// In nanoseconds of `CLOCK_BOOTTIME`.
    pub when: u64,
    /// The object's number.
    pub fd: u32,
    /// What it is, by its place in [`OBJECTS`].
    pub kind: u8,
    /// Why.
    pub reason: Stat,
    call: [u8; NAME],
}

impl Migration {
    /// `call` is the name of the call that it was for, empty if that is not known.
    pub fn new(when: u64, fd: u32, kind: u8, reason: Stat, call: &[u8]) -> Self {
        let mut name = [0; NAME];
        name[..NAME - 1].iter_mut().zip(call).for_each(|(to, from)| *to = *from);
        Migration { when, fd, kind, reason, call: name }
    }

    /// Reads the migrations of a page from its bytes, in no order.
    pub fn parse(bytes: &[u8]) -> impl Iterator<Item = Migration> {
        (0..MIGRATIONS).filter_map(move |i| {
            let entries = offset_of!(Page, migrations) + offset_of!(Migrations, entries);
            let start = entries + i * size_of::<Entry>();
            let word = |at: usize| -> Option<u64> {
                let eight = bytes.get(start + at..start + at + 8)?;
                Some(u64::from_ne_bytes(eight.try_into().ok()?))
            };
            let (when, what) = (word(offset_of!(Entry, when))?, word(offset_of!(Entry, what))?);
            let reason = *Stat::ALL.get((what >> 40) as usize)?;
            if when == 0 || !Stat::MOVED.contains(&(reason as usize)) {
                return None;
            }
            let mut call = [0; NAME];
            for (half, bytes) in call.chunks_exact_mut(8).enumerate() {
                bytes.copy_from_slice(&word(offset_of!(Entry, call) + 8 * half)?.to_le_bytes());
            }
            Some(Migration { when, fd: what as u32, kind: (what >> 32) as u8, reason, call })
        })
    }

    /// The name of the call, empty if it is not known.
    pub fn call(&self) -> &[u8] {
        self.call.split(|byte| *byte == 0).next().unwrap_or_default()
    }

    /// What the object is, in a word.
    pub fn object(&self) -> &'static str {
        OBJECTS.get(usize::from(self.kind)).copied().unwrap_or("object")
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::super::page::tests::bytes_of;
    use super::*;
    use std::vec::Vec;

    #[test]
    fn the_last_ones_are_kept() {
        let page = Page::zeroed();
        let last = MIGRATIONS as u64 + 4;
        for when in 1..=last {
            let call = b"a name longer than fifteen";
            page.note_migration(&Migration::new(when, 7, 1, Stat::MigratedPoll, call));
        }
        let mut read: Vec<_> = Migration::parse(bytes_of(&page)).collect();
        read.sort_by_key(|it| it.when);
        assert_eq!(read.len(), MIGRATIONS);
        assert_eq!((read[0].when, read[MIGRATIONS - 1].when), (5, last));
        assert_eq!((read[0].fd, read[0].reason), (7, Stat::MigratedPoll));
        assert_eq!(read[0].call(), b"a name longer t");
        page.migrations.clear();
        assert_eq!(Migration::parse(bytes_of(&page)).count(), 0);
    }

    /// Another process can write anything there.
    #[test]
    fn nonsense_is_left_out() {
        let page = Page::zeroed();
        page.note_migration(&Migration::new(1, 7, 1, Stat::MigratedPoll, b""));
        page.migrations.entries[0].what.store(u64::MAX, Relaxed);
        assert_eq!(Migration::parse(bytes_of(&page)).count(), 0);
    }
}
