//! What Linux guarantees, held against a history.
//!
//! A call took effect at some moment between its start and its end, and that is all a history says.
//! So everything is judged by what is *certain*: a source is certainly ready throughout a time if
//! all units whose writes ended before it outweigh all units whose reads began before its end; a
//! watch is certainly there from the end of its ADD to the beginning of whatever may end it. A
//! number that other threads close and use again in mid-call may name either description: such a
//! call counts against certainty on both and for it on neither.
//!
//! A rule that claims too much fails on the kernel too, which runs the same rounds.

mod arms;
mod descriptions;
mod end;
mod flow;
mod reads;
mod reports;
mod waits;

use crate::clock::Time;
use crate::log::{Call, Log, What};
use crate::plan::{Kind, Plan};
use crate::round::Outcome;
use arms::Arm;
use flow::Description;
use libc::c_int;
use std::collections::HashMap;
use std::fmt::Write as _;

const NEVER: Time = Time::MAX;

/// A broken guarantee.
pub struct Violation {
    pub rule: &'static str,
    pub text: String,
}

struct Checker<'a> {
    plan: &'a Plan,
    log: &'a Log,
    descriptions: Vec<Description>,
    by_number: HashMap<c_int, Vec<usize>>,
    arms: Vec<Arm>,
    by_data: HashMap<u64, usize>,
    /// Arms of a set's description and a number, by start.
    by_key: HashMap<(usize, c_int), Vec<usize>>,
    /// The numbers each set has had watches on.
    numbers: HashMap<usize, Vec<c_int>>,
    /// Waits that may have been in each set.
    waits: HashMap<usize, Vec<(Time, Time)>>,
    found: Vec<Violation>,
}

/// Checks a round; what is broken.
pub fn check(outcome: &Outcome) -> Vec<Violation> {
    let mut checker = Checker {
        plan: &outcome.plan,
        log: &outcome.log,
        descriptions: Vec::new(),
        by_number: HashMap::new(),
        arms: Vec::new(),
        by_data: HashMap::new(),
        by_key: HashMap::new(),
        numbers: HashMap::new(),
        waits: HashMap::new(),
        found: Vec::new(),
    };
    checker.find_descriptions();
    checker.find_flows();
    checker.find_arms();
    checker.check_reports();
    checker.check_reads();
    checker.check_empty_waits();
    checker.check_end(outcome);
    checker.check_exclusive(outcome);
    checker.found
}

impl Checker<'_> {
    fn broken(
        &mut self,
        rule: &'static str,
        about: String,
        calls: &[usize],
        number: Option<c_int>,
    ) {
        // One tells as much as a hundred.
        if self.found.len() >= 5 {
            return;
        }
        let mut text = about;
        let given: Vec<_> = calls.iter().map(|&call| &self.log.calls[call]).collect();
        let origin = given.iter().map(|call| call.start).min().unwrap_or(0);
        let near = |call: &&Call| {
            let touches = number.is_none_or(|number| call.fd == number || call.target == number)
                || matches!(call.what, What::Open | What::Wait | What::Dup);
            touches
                && given.iter().any(|of| call.end + 2_000 > of.start && call.start < of.end + 2_000)
        };
        let mut calls: Vec<_> = self.log.calls.iter().filter(near).collect();
        calls.sort_by_key(|call| call.start);
        for call in calls.iter().take(60) {
            let reports = &self.log.reports[call.reports.clone()];
            let _ = write!(
                text,
                "\n    {:>7}..{:<7} thread {} {:?} {}",
                call.start as i64 - origin as i64,
                call.end as i64 - origin as i64,
                call.thread,
                call.what,
                call.fd
            );
            let _ = match call.what {
                What::Add | What::Modify => {
                    write!(text, " of {}, {:#x}, data {:#x}", call.target, call.flags, call.value)
                }
                What::Remove => write!(text, " of {}", call.target),
                What::Wait => write!(text, " for {} ms, maxevents {}", call.limit, call.value),
                _ => Ok(()),
            };
            let _ = write!(text, ": {:?}", call.result);
            for (data, bits) in reports {
                let _ = write!(text, " ({data:#x}, {bits:#x})");
            }
        }
        self.found.push(Violation { rule, text });
    }

    /// What a target is.
    fn kind(&self, target: usize) -> Kind {
        self.plan.targets[target].kind
    }
}
