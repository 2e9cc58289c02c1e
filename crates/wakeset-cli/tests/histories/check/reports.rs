//! What is reported: that it was asked for, that it holds, and that it is not reported too often.

use super::Checker;
use super::arms::Arm;
use super::flow::Description;
use crate::clock::millis;
use crate::log::{Call, What};
use crate::plan::{ET, IN, Kind, ONESHOT, OUT, STOP};

impl Checker<'_> {
    pub(super) fn check_reports(&mut self) {
        for i in 0..self.log.calls.len() {
            let call = &self.log.calls[i];
            if call.what != What::Wait {
                continue;
            }
            let (sets, certain) = self.resolve(call.fd, call.start, call.end);
            for &set in &sets {
                self.waits.entry(set).or_default().push((call.start, call.end));
            }
            let reports = self.log.reports[call.reports.clone()].to_vec();
            if call.result == Ok(0) && call.end - call.start < millis(call.limit) {
                self.broken("a wait is not over early", String::new(), &[i], None);
            }
            let call = &self.log.calls[i];
            let open = certain.is_some_and(|d| self.kind(self.descriptions[d].target) == Kind::Set);
            if open && call.result.is_err() || reports.len() as u64 > call.value {
                self.broken(
                    "a wait fills its buffer at most, and does not fail",
                    String::new(),
                    &[i],
                    None,
                );
            }
            for (earlier, &(data, bits)) in reports.iter().enumerate() {
                if data == STOP {
                    continue;
                }
                if reports[..earlier].iter().any(|report| report.0 == data) {
                    self.broken(
                        "one wait reports a watch once",
                        format!("data {data:#x}"),
                        &[i],
                        None,
                    );
                }
                self.check_report(i, &sets, data, bits);
            }
        }
        for i in 0..self.arms.len() {
            self.check_number_of_reports(i);
        }
    }

    pub(super) fn check_report(&mut self, wait: usize, sets: &[usize], data: u64, bits: u32) {
        let call = &self.log.calls[wait];
        let (start, end, fd) = (call.start, call.end, call.fd);
        let Some(&index) = self.by_data.get(&data) else {
            let text = format!("data {data:#x} was never asked for in set {fd}");
            return self.broken("what is reported was asked for", text, &[wait], None);
        };
        let arm = &mut self.arms[index];
        arm.reports.push((start, end));
        let Arm { call: armed, flags, source, target, start: armed_from, must_end, .. } = *arm;
        let number = self.log.calls[armed].target;
        let text = |what: &str| format!("{what}: data {data:#x} in set {fd}");
        if !self.arms[index].sets.iter().any(|set| sets.contains(set)) {
            self.broken(
                "what is reported was asked for",
                text("another set's"),
                &[armed, wait],
                Some(number),
            );
        } else if end < armed_from {
            self.broken(
                "nothing is reported from before an ADD or MOD",
                text("early"),
                &[armed, wait],
                Some(number),
            );
        } else if start > must_end {
            let text = text("the watch had been changed, removed or closed before the wait began");
            let ends = |call: &Call| call.end == must_end && call.start > armed_from;
            let by = self.log.calls.iter().position(ends).unwrap_or(armed);
            self.broken(
                "nothing is reported after DEL, MOD or close returned",
                text,
                &[armed, by, wait],
                Some(number),
            );
        }
        if bits == 0 || bits & !(flags & 0xffff) != 0 {
            let text = text(&format!("bits {bits:#x} of {flags:#x}"));
            self.broken("only what was asked for is reported", text, &[armed, wait], Some(number));
        }
        if let Some(source) = source
            && self.kind(target) != Kind::Set
            && bits & IN != 0
            && self.certainly_empty(source, start, end)
        {
            let text = text("nothing was there throughout the wait");
            self.broken("what is reported holds", text, &[armed, wait], Some(number));
        }
    }

    pub(super) fn check_number_of_reports(&mut self, index: usize) {
        let Arm { flags, source, start, call, target, .. } = self.arms[index];
        let number = self.log.calls[call].target;
        let reports = self.arms[index].reports.len();
        if flags & ONESHOT != 0 && reports > 1 {
            self.broken(
                "ONESHOT is reported once per arm",
                format!("{reports} times: data {:#x}", self.arms[index].data),
                &[call],
                Some(number),
            );
        }
        let Some(source) = source else { return };
        if flags & ET == 0 || self.kind(target) == Kind::Set {
            return;
        }
        let Description { writes, reads, number, .. } = &self.descriptions[source];
        let number = *number;
        let edges = writes.perhaps_after(start)
            + if flags & OUT != 0 { reads.perhaps_after(start) } else { 0 };
        let migrations = self.log.calls.iter().filter(|call| call.what == What::Dup).count();
        // Twice, because an edge whose waker was stopped, or which migrated, may come once more
        // (SEMANTICS.md, Differences 8 and 9).
        if reports > 2 * edges + 1 + migrations {
            let text =
                format!("{reports} reports of {edges} changes: data {:#x}", self.arms[index].data);
            self.broken("an edge is not reported again and again", text, &[call], Some(number));
        }
    }
}
