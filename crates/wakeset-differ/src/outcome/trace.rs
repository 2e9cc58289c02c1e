//! Everything about one program.

use crate::interpret::{Report, Sink};
use crate::model::Order;
use crate::program::Op;
use serde::{Deserialize, Serialize};

/// Everything about one operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The operation.
    pub op: Op,
    /// The numbers that its slots stood for.
    pub numbers: Vec<i32>,
    /// What each of its calls gave: the result, and what came beside it. Empty if it was skipped.
    pub outcomes: Vec<(isize, u64)>,
    /// Of a wait: how much of the order of its events is defined, as the place of an [`Order`].
    pub order: Option<u8>,
    /// Of a wait: its events.
    pub events: Vec<Report>,
}

impl Step {
    /// Whether the events are in the order in which they were reported.
    pub(super) fn is_in_order(&self) -> bool {
        self.order.is_none_or(|order| order == Order::Whole as u8)
    }
}

/// Everything about one program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    /// One for each operation.
    pub steps: Vec<Step>,
    /// Numbers that were closed at the end or within an operation, and the results.
    pub closed: Vec<(u64, isize)>,
}

impl Sink for Trace {
    fn about_to(&mut self, op: &Op, number: &dyn Fn(u8) -> i32) {
        let numbers = op.slots().iter().map(|slot| number(*slot)).collect();
        self.steps.push(Step {
            op: *op,
            numbers,
            outcomes: Vec::new(),
            order: None,
            events: Vec::new(),
        });
    }

    fn outcome(&mut self, op: &Op, result: isize, beside: u64) {
        if matches!(op, Op::CloseAll) {
            return self.closed.push((beside, result));
        }
        if let Some(step) = self.steps.last_mut() {
            step.outcomes.push((result, beside));
        }
    }

    fn events(&mut self, order: Order, events: &[(Report, bool)]) {
        if let Some(step) = self.steps.last_mut() {
            step.order = Some(order as u8);
            step.events = events.iter().map(|(report, _)| *report).collect();
        }
    }
}
