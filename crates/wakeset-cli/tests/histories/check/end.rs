//! The end of a round, when all is still; and the events that are to wake one thread each.

use super::arms::Arm;
use super::flow::Description;
use super::{Checker, NEVER};
use crate::clock::Time;
use crate::log::{Call, What};
use crate::plan::{ET, EXCLUSIVE, IN, Kind, ONESHOT, OUT, Style};
use crate::round::Outcome;

impl Checker<'_> {
    pub(super) fn check_end(&mut self, outcome: &Outcome) {
        for d in 0..self.descriptions.len() {
            let Description { target, writes, reads, number, .. } = &self.descriptions[d];
            let (target, number) = (*target, *number);
            if self.kind(target) == Kind::Set || self.plan.targets[target].mortal {
                continue;
            }
            let (written, read) = (writes.perhaps_before(NEVER), reads.perhaps_before(NEVER));
            if written != read {
                let text = format!("target {target}: {written} units written, {read} read");
                self.broken("every unit is read once", text, &[], Some(number));
            }
        }
        for (set, &last_wait) in outcome.last_waits.iter().enumerate() {
            let call = &self.log.calls[last_wait];
            let time = call.start;
            let reports = self.log.reports[call.reports.clone()].to_vec();
            let (_, Some(description)) = self.resolve(call.fd, call.start, call.end) else {
                continue;
            };
            let keys: Vec<_> =
                self.by_key.keys().filter(|key| key.0 == description).copied().collect();
            for key in keys {
                let Some(arm) = self.standing(key, time, time) else { continue };
                if arm.flags & EXCLUSIVE != 0 {
                    continue;
                }
                let (target, armed) = (arm.target, arm.call);
                let Some(expected) = self.expected_at_end(outcome, arm, time) else { continue };
                let got =
                    reports.iter().find(|report| report.0 == arm.data).map_or(0, |report| report.1);
                let expected_again = arm.flags & ET != 0 && expected == 0;
                // An edge may come once more (Differences 8 and 9), if it holds.
                if got != expected && !(expected_again && got != 0) {
                    let left = outcome.left[target];
                    let text = format!(
                        "set {set}, data {:#x}: {got:#x} is reported in the end and not \
                         {expected:#x}, with {left} units left",
                        arm.data
                    );
                    let rule = if got == 0 { "no event is lost" } else { "what is reported holds" };
                    self.broken(rule, text, &[armed, last_wait], Some(key.1));
                }
            }
        }
    }

    /// What the last wait has to report of a watch. `None` if that is not certain.
    pub(super) fn expected_at_end(&self, outcome: &Outcome, arm: &Arm, time: Time) -> Option<u32> {
        let earlier = |report: &&(Time, Time)| report.0 < time;
        if arm.flags & ONESHOT != 0 && arm.reports.iter().any(|report| earlier(&report)) {
            return Some(0);
        }
        let source = arm.source?;
        if self.kind(arm.target) == Kind::Set {
            // Nothing waits in the end in a set that other threads close.
            let inner = &self.log.calls[*outcome.last_waits.get(arm.target)?];
            if arm.flags & ET != 0 {
                return None;
            }
            return Some(if inner.result == Ok(0) { 0 } else { IN & arm.flags });
        }
        let mut holds = if outcome.left[arm.target] > 0 { IN } else { 0 };
        if self.kind(arm.target) != Kind::Pipe {
            holds |= OUT;
        }
        holds &= arm.flags;
        if arm.flags & ET != 0 {
            let Description { writes, reads, .. } = &self.descriptions[source];
            // Whatever happened last, and with it every bit that holds.
            let mut since = arm.start;
            if arm.flags & IN != 0 && holds & IN != 0 {
                since = since.max(writes.last_start());
            }
            if arm.flags & OUT != 0 {
                let before_the_end = reads.possible.partition_point(|call| call.0 < time);
                since = since.max(reads.possible[..before_the_end].last().map_or(0, |call| call.0));
            }
            if arm.reports.iter().any(|report| report.1 > since && report.0 < time) {
                return Some(0);
            }
        }
        Some(holds)
    }

    pub(super) fn check_exclusive(&mut self, outcome: &Outcome) {
        if self.plan.style != Style::OneWake {
            return;
        }
        for &(start, end) in &outcome.events {
            let woken =
                |call: &&Call| call.what == What::Wait && call.end > start && call.end < end;
            let mut threads: Vec<_> =
                self.log.calls.iter().filter(woken).map(|call| call.thread).collect();
            threads.sort_unstable();
            threads.dedup();
            if threads.len() != 1 {
                let text = format!(
                    "{} of {} sleepers came back for one event",
                    threads.len(),
                    self.plan.roles.len()
                );
                let within = |call: &Call| {
                    matches!(call.what, What::Wait | What::Write)
                        && call.end > start
                        && call.end < end
                };
                let calls = &self.log.calls;
                let within: Vec<_> =
                    (0..calls.len()).filter(|&call| within(&calls[call])).collect();
                self.broken("an exclusive wake is for one", text, &within, None);
            }
        }
    }
}
