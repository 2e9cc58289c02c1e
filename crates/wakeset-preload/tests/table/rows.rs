//! The rows as data. The library cannot be linked here, because its symbols would replace libc's;
//! so the files of the table are read with a macro of the same name and another meaning.

/// A row of the table.
pub(crate) struct Call {
    pub(super) row: &'static str,
    names: &'static [&'static str],
    alias: &'static [&'static str],
    hand: &'static [&'static str],
    number: &'static [&'static str],
    raw: &'static [&'static str],
    /// The first word of what happens.
    pub(super) policy: &'static str,
    pub(super) class: Class,
    pub(super) note: &'static str,
    /// Why the two roads cannot be compared.
    pub(super) apart: Option<&'static str>,
}

impl Call {
    /// Every exported name.
    pub(super) fn exported(&self) -> impl Iterator<Item = &'static str> {
        [self.names, self.alias, self.hand].into_iter().flatten().copied()
    }

    /// Every system call.
    pub(super) fn numbers(&self) -> impl Iterator<Item = &'static str> {
        [self.number, self.raw].into_iter().flatten().copied()
    }
}

/// What happens to a call, in the order of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Answered,
    WaitsInTurn,
    Noted,
    MigratesNamed,
    MigratesPipes,
    MigratesInherited,
    MigratesAll,
    ForGood,
}

macro_rules! reason {
    () => {
        None
    };
    ($reason:literal) => {
        Some($reason)
    };
}

macro_rules! calls {
    ($(
        $abi:literal $row:ident $args:tt -> $ret:tt {
            $(names [$($name:ident)+])?
            $(alias [$($alias:ident)+])?
            $(hand [$($hand:ident)+])?
            $(number [$($number:ident)+])?
            $(raw [$($raw:ident = $adapter:path),+])?
            => $policy:ident $what:tt
            $class:ident $note:literal
            $(apart $apart:literal)?
        }
    )+) => {
        pub(super) static CALLS: &[super::Call] = &[$(super::Call {
            row: stringify!($row),
            names: &[$($(stringify!($name)),+)?],
            alias: &[$($(stringify!($alias)),+)?],
            hand: &[$($(stringify!($hand)),+)?],
            number: &[$($(stringify!($number)),+)?],
            raw: &[$($(stringify!($raw)),+)?],
            policy: stringify!($policy),
            class: super::Class::$class,
            note: $note,
            apart: reason!($($apart)?),
        }),+];
    };
}

#[path = "../../src/calls/table/bytes.rs"]
mod bytes;
#[path = "../../src/calls/table/descriptors.rs"]
mod descriptors;
#[path = "../../src/calls/table/memory.rs"]
mod memory;
#[path = "../../src/calls/table/processes.rs"]
mod processes;
#[path = "../../src/calls/table/waits.rs"]
mod waits;

/// All rows, in the order of the page.
pub(super) fn calls() -> impl Iterator<Item = &'static Call> {
    let parts = [bytes::CALLS, waits::CALLS, descriptors::CALLS, processes::CALLS, memory::CALLS];
    parts.into_iter().flatten()
}
