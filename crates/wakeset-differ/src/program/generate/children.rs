//! Which process makes the next call, and how long processes live.

use super::Generator;
use crate::program::choices::Choices;
use crate::program::{CHILDREN, Ending, Op};

/// Longer than it takes until a child counts as a worker.
const LONG: u16 = 1100;

impl<C: Choices> Generator<'_, C> {
    /// Most programs have a second thread: a process of one thread serves a child before fork(2)
    /// returns, and another one by a thread of its own.
    pub(super) fn begin_with_children(&mut self, ops: &mut Vec<Op>) {
        if self.style.children && !self.choices.once_in(4) {
            ops.push(Op::Thread);
        }
    }

    fn child(&mut self) -> u8 {
        1 + self.choices.below(u32::from(CHILDREN)) as u8
    }

    /// What happens to processes before the next call.
    pub(super) fn change_process(&mut self, ops: &mut Vec<Op>) {
        if !self.style.children {
            return;
        }
        match self.choices.below(48) {
            0..2 => ops.push(Op::Child { child: self.child() }),
            2 => {
                let how = match self.choices.below(8) {
                    0 => Ending::Exec,
                    1 | 2 => Ending::Killed,
                    _ => Ending::Exit,
                };
                ops.push(Op::End { child: self.child(), how });
            }
            3..18 => ops.push(Op::Turn { child: self.child() }),
            18..24 => ops.push(Op::Turn { child: 0 }),
            24 if self.choices.once_in(32) => {
                let millis = if self.choices.once_in(64) { LONG } else { 3 };
                ops.push(Op::Pause { millis });
            }
            _ => {}
        }
    }
}
