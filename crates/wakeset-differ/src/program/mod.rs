//! What a program is, how one is made, and how one is made smaller.
//!
//! A program is a list of calls whose descriptors are slots. A slot keeps the number of the
//! descriptor that was last made for it, also after a close, so programs naturally use numbers that
//! are closed or that stand for another object by now.

pub mod choices;
pub mod generate;
pub mod shrink;

mod arguments;
mod op;

pub use crate::world::Road;
pub use arguments::{At, Duplication, Ending, Mask, Time, Timeout, WaitCall};
pub use op::{BATCH, Command, Lens, Op};
use serde::{Deserialize, Serialize};

/// Slots of a program.
pub const SLOTS: u8 = 16;

/// Children that may live at a time.
pub const CHILDREN: u8 = 3;

/// Numbers that no object of a program has. The slots from [`SLOTS`] on stand for them. Wakeset
/// keeps its doorbells at the numbers from 400 on.
pub const BAD_NUMBERS: [i32; 8] = [-1, 399, 400, 401, 1023, 1 << 20, i32::MAX, i32::MIN];

/// Which calls and arguments a program may use, and what it is mostly about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Which it may use.
    pub calls: Calls,
    /// What it is mostly about.
    pub focus: Focus,
}

impl Profile {
    /// All calls, about anything.
    pub const EVERYTHING: Self = Self { calls: Calls::Everything, focus: Focus::Anything };
    /// The engine's calls, about anything.
    pub const ENGINE: Self = Self { calls: Calls::Engine, focus: Focus::Anything };
}

/// Which calls and arguments a program may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// All of them.
    Everything,
    /// Counters, timers, sets and their duplicates, with the errors that the engine itself reports
    /// and no others: for the sides that have no descriptors.
    Engine,
}

/// What programs are mostly about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Focus {
    /// Whatever a program's random part of all there is has in it.
    #[default]
    Anything,
    /// Sets in sets that watch timers.
    NestedTimers,
    /// Every road to libc's functions.
    Roads,
    /// The same, and the system call instruction.
    Instructions,
    /// Forked children that live for a while, and make calls in turn with their parent.
    Children,
}

impl Focus {
    /// All of them, with the names they have on the command line.
    pub const NAMES: [(&str, Self); 5] = [
        ("anything", Self::Anything),
        ("nested-timers", Self::NestedTimers),
        ("roads", Self::Roads),
        ("instructions", Self::Instructions),
        ("children", Self::Children),
    ];

    /// Whether programs take every road to libc's functions.
    pub fn takes_roads(self) -> bool {
        matches!(self, Self::Roads | Self::Instructions)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, focus)| *focus == self).map_or("", |(name, _)| name)
    }

    /// The focus of that name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, focus)| *focus)
    }
}

/// A list of calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Make the calls through syscall(2) where the side has a choice.
    pub by_number: bool,
    /// The calls, in order.
    pub ops: Vec<Op>,
}

impl Program {
    /// Whether it sets a timer to a time that comes while it runs.
    pub fn has_near_timers(&self) -> bool {
        self.ops.iter().any(|op| matches!(op, Op::SetTimer { time: Time::Near, .. }))
    }
}

/// Joins several programs into one that closes everything where one ends and the next begins.
pub fn join(programs: &[Program]) -> Program {
    let mut ops = Vec::new();
    for (i, program) in programs.iter().enumerate() {
        if i > 0 {
            ops.extend([Op::CloseAll, Op::Route { by_number: program.by_number }]);
        }
        ops.extend_from_slice(&program.ops);
    }
    Program { by_number: programs.first().is_some_and(|program| program.by_number), ops }
}
