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

pub use arguments::{At, Duplication, Mask, Time, Timeout, WaitCall};
pub use op::{BATCH, Command, Op};
use serde::{Deserialize, Serialize};

/// Slots of a program.
pub const SLOTS: u8 = 16;

/// Numbers that no object of a program has. The slots from [`SLOTS`] on stand for them. Wakeset
/// keeps its doorbells at the numbers from 400 on.
pub const BAD_NUMBERS: [i32; 8] = [-1, 399, 400, 401, 1023, 1 << 20, i32::MAX, i32::MIN];

/// Which calls and arguments a program may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// All of them.
    Everything,
    /// Counters, timers, sets and their duplicates, with the errors that the engine itself reports
    /// and no others: for the sides that have no descriptors.
    Engine,
}

/// A list of calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Make the calls through syscall(2) where the side has a choice.
    pub by_number: bool,
    /// The calls, in order.
    pub ops: Vec<Op>,
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
