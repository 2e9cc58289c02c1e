//! The ways to get a second descriptor: dup(2) and its kin, and `SCM_RIGHTS`.

use super::Interpreter;
use super::memory::{ARGUMENT, ARGUMENT_2, ARGUMENT_3};
use super::migrate::may_be_doorbell;
use super::sink::Sink;
use crate::program::{Duplication, Op, SLOTS};
use crate::world::{Sysno, World};
use libc::c_int;

/// The lowest number of the sockets for `SCM_RIGHTS`.
const POST: usize = 380;
/// A number that stands for a message, in the model: the message keeps the description open.
const IN_FLIGHT: c_int = 379;

impl<W: World> Interpreter<W> {
    pub(super) fn duplicate(
        &mut self,
        slot: u8,
        to: u8,
        how: Duplication,
        sink: &mut impl Sink,
    ) -> Option<isize> {
        let old = self.number(slot);
        let number = old as usize;
        if self.model.polls(old) {
            // It migrates where an io_uring watches its sockets.
            self.aside(|this| this.settle(old, sink));
        }
        let result = match how {
            Duplication::Lowest => {
                self.model.before_duplicate(old);
                self.call(Sysno::dup, &[number])
            }
            Duplication::From(least) => {
                self.model.before_duplicate(old);
                self.call(Sysno::fcntl, &[number, libc::F_DUPFD as usize, least.into()])
            }
            Duplication::CloexecFrom(least) => {
                self.model.before_duplicate(old);
                self.call(Sysno::fcntl, &[number, libc::F_DUPFD_CLOEXEC as usize, least.into()])
            }
            Duplication::Onto(new) => {
                let new = self.chosen_number(new);
                self.before_onto(old, new, 0, sink)?;
                self.call(Sysno::dup2, &[number, new as usize])
            }
            Duplication::OntoSlot(new) => {
                let new = self.number(new);
                self.before_onto(old, new, 0, sink)?;
                self.call(Sysno::dup2, &[number, new as usize])
            }
            Duplication::OntoSlotWith(new, flags) => {
                let new = self.number(new);
                self.before_onto(old, new, flags, sink)?;
                self.call(Sysno::dup3, &[number, new as usize, flags as usize])
            }
            Duplication::Passed | Duplication::PassedAndClosed => {
                return self.pass(old, to, how == Duplication::PassedAndClosed, sink);
            }
        };
        if result >= 0 {
            if result as c_int != old {
                self.model.duplicated(old, result as c_int);
            }
            // What dup2(2) duplicates by instruction stays where it is.
            self.point_slot(to, result as c_int);
        }
        Some(self.shown(result))
    }

    /// A number for dup2(2): one that no other thread uses.
    fn chosen_number(&self, new: u16) -> c_int {
        if self.is_alone() {
            return new.into();
        }
        self.closed_number(SLOTS as usize + usize::from(new) % 8)
    }

    /// Numbers that a program must not take: the worker's own, and those that may be a doorbell's.
    fn is_reserved(&self, number: c_int) -> bool {
        (0..=2).contains(&number)
            || self.post.is_some_and(|post| post.contains(&number))
            || may_be_doorbell(number)
    }

    /// What dup2(2) and dup3(2) make migrate, unless they fail or have nothing to do. `None` if the
    /// number is reserved.
    fn before_onto(
        &mut self,
        old: c_int,
        new: c_int,
        flags: c_int,
        sink: &mut impl Sink,
    ) -> Option<()> {
        if self.is_reserved(new) {
            return None;
        }
        let valid = self.model.can_be_open(new) && flags & !libc::O_CLOEXEC == 0;
        if old != new && valid && self.model.is_open(old) {
            self.before_close(new, sink);
            self.model.before_duplicate_onto(old, new);
        }
        Some(())
    }

    /// Sends a descriptor over a socket pair and receives it again; with `close` the original is
    /// closed in between.
    fn pass(&mut self, old: c_int, to: u8, close: bool, sink: &mut impl Sink) -> Option<isize> {
        self.no_doorbell(old)?;
        let [sender, receiver] = match self.post {
            Some(post) => post,
            None => self.make_post(),
        };
        self.model.migrate(old);
        let (message, control) = self.put_message(old);
        let sent = self.call(Sysno::sendmsg, &[sender as usize, message, 0]);
        if sent < 0 {
            return Some(sent);
        }
        if close {
            self.rearm(sink);
            self.model.duplicated(old, IN_FLIGHT);
            self.before_close(old, sink);
            let result = self.call(Sysno::close, &[old as usize]);
            self.closed(old);
            sink.outcome(&Op::CloseAll, result, self.shown_beside(old as u64));
        }
        let received = self.call(Sysno::recvmsg, &[receiver as usize, message, 0]);
        let number = self.memory.get::<[u64; 3]>(control)[2] as u32 as c_int;
        if received < 0 {
            return Some(received);
        }
        self.model.duplicated(if close { IN_FLIGHT } else { old }, number);
        self.model.closed(IN_FLIGHT);
        self.set_slot(to, number);
        Some(self.shown(number as isize))
    }

    /// A message of one byte and one descriptor. Returns its address and that of the control
    /// message, which has the number in the low half of its third word.
    fn put_message(&self, fd: c_int) -> (usize, usize) {
        // Laid out as the kernel wants control messages on 64 bits: a header of 16 bytes, then the
        // number.
        let control = self.memory.put(
            ARGUMENT,
            [20_u64, (libc::SCM_RIGHTS as u64) << 32 | libc::SOL_SOCKET as u64, fd as u32 as u64],
        );
        let (vector, _) = self.memory.put_vector(ARGUMENT_2, b'x');
        // SAFETY: zeros are a message.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = vector as *mut libc::iovec;
        message.msg_iovlen = 1;
        message.msg_control = control as *mut libc::c_void;
        message.msg_controllen = 24;
        (self.memory.put(ARGUMENT_3, message), control)
    }

    pub(super) fn make_post(&mut self) -> [c_int; 2] {
        let pair = self.memory.put(ARGUMENT, [-1, -1]);
        let kind = (libc::SOCK_STREAM | libc::SOCK_NONBLOCK) as usize;
        self.call(Sysno::socketpair, &[libc::AF_UNIX as usize, kind, 0, pair]);
        let pair: [c_int; 2] = self.memory.get(pair);
        // At high numbers, so that it does not matter when they were made.
        let high = pair.map(|fd| {
            let high =
                self.call(Sysno::fcntl, &[fd as usize, libc::F_DUPFD as usize, POST]) as c_int;
            self.call(Sysno::close, &[fd as usize]);
            high
        });
        self.post = Some(high);
        high
    }
}
