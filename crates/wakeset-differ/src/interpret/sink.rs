//! Where an interpreter reports outcomes.

use crate::model::Order;
use crate::program::Op;
use libc::c_int;

/// An event as it was reported: its data and its bits.
pub type Report = (u64, u32);

/// Takes the outcomes of a program's calls.
pub trait Sink {
    /// A call and its result, a negative errno if it failed. `beside` is what else it gave: a value
    /// that was read, the bits of a poll.
    fn outcome(&mut self, op: &Op, result: isize, beside: u64);

    /// The events of the wait that was reported last. The second half of each says whether the
    /// event is of the in-process half of its set, which matters for [`Order::Halves`].
    fn events(&mut self, order: Order, events: &[(Report, bool)]);

    /// A call that was not made, because it might sleep for ever or goes beyond what the model
    /// follows.
    fn skipped(&mut self, op: &Op) {
        let _ = op;
    }

    /// The next call, with the numbers that its slots stand for.
    fn about_to(&mut self, op: &Op, number: &dyn Fn(u8) -> c_int) {
        let _ = (op, number);
    }
}

/// The outcome of a call.
#[derive(Clone, Copy)]
pub(super) struct Outcome {
    pub result: isize,
    pub beside: u64,
}

impl From<isize> for Outcome {
    fn from(result: isize) -> Self {
        Self { result, beside: 0 }
    }
}
