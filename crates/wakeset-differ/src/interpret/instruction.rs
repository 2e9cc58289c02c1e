//! Calls by instruction, which Wakeset catches: what they name migrates before they are made, and
//! what they make is the kernel's.

use super::Interpreter;
use crate::program::Road;
use crate::world::{Sysno, World};
use libc::c_int;

impl<W: World> Interpreter<W> {
    /// Whether the next call is made by instruction.
    pub(super) fn by_instruction(&self) -> bool {
        self.road == Road::Instruction
    }

    /// Makes calls that are no part of the program itself. They are not made by instruction: what
    /// they are about would migrate.
    pub(super) fn aside<R>(&mut self, calls: impl FnOnce(&mut Self) -> R) -> R {
        let by_instruction = self.by_instruction();
        if by_instruction {
            self.take(Road::Name);
        }
        let result = calls(self);
        if by_instruction {
            self.take(Road::Instruction);
        }
        result
    }

    /// A call is about to be made by instruction that leaves its objects alone if it is made
    /// through libc. All other calls do the same on both roads.
    pub(super) fn before_instruction(&mut self, number: Sysno, arguments: [usize; 6]) {
        use Sysno as S;
        let number_at = |at: usize| arguments[at] as c_int;
        match number {
            S::read | S::write | S::readv | S::writev | S::timerfd_settime => {
                self.model.migrate(number_at(0))
            }
            S::dup | S::timerfd_gettime => self.model.migrate(number_at(0)),
            S::fcntl if number_at(1) != libc::F_SETFL => self.model.migrate(number_at(0)),
            S::epoll_wait | S::epoll_pwait | S::epoll_pwait2 => self.model.migrate(number_at(0)),
            S::epoll_ctl => {
                self.model.migrate(number_at(0));
                self.model.migrate(number_at(2));
            }
            _ => {}
        }
    }
}
