//! What a wait must report, and waits that report nothing.

use super::Checker;
use super::arms::Arm;
use crate::clock::{Time, millis};
use crate::log::What;
use crate::plan::{ET, EXCLUSIVE, IN, Kind, ONESHOT, OUT};
use libc::c_int;

impl Checker<'_> {
    /// The arm that is certainly in place before `time`, if nothing may end it before `until`.
    pub(super) fn standing(&self, key: (usize, c_int), time: Time, until: Time) -> Option<&Arm> {
        let arms = self.by_key.get(&key)?;
        let n = arms.partition_point(|&arm| self.arms[arm].start < time);
        let arm = &self.arms[*arms.get(n.checked_sub(1)?)?];
        (arm.end < time && arm.may_end > until).then_some(arm)
    }

    /// Whether a wait in its set that checks at some moment of a time must find this watch, given
    /// that it is in place all the while.
    pub(super) fn must_report(&self, arm: &Arm, from: Time, to: Time, depth: usize) -> bool {
        // An exclusive watch may be passed over.
        if arm.flags & EXCLUSIVE != 0 || depth > 5 {
            return false;
        }
        let Some(source) = arm.source else { return false };
        if arm.flags & ONESHOT != 0 && arm.reports.iter().any(|report| report.0 < to) {
            return false;
        }
        if self.kind(arm.target) == Kind::Set {
            // An edge of a set is what happens in it, of which a history says too little.
            return arm.flags & (IN | ET) == IN
                && self.must_find(source, from, to, depth + 1).is_some();
        }
        let writable = arm.flags & OUT != 0 && self.kind(arm.target) != Kind::Pipe;
        let holds =
            |from| writable || arm.flags & IN != 0 && self.certainly_filled(source, from, to);
        if arm.flags & ET == 0 {
            return holds(from);
        }
        // Since the arm, or since the last write: a report that may have seen it takes the edge.
        let untaken =
            |since: Time| !arm.reports.iter().any(|report| report.1 > since && report.0 < to);
        let written = self.descriptions[source].writes.last_before(from);
        let by_write = match written {
            Some((start, end)) if arm.flags & IN != 0 => {
                let since = if start > arm.end { start } else { arm.start };
                untaken(since) && self.certainly_filled(source, end.max(arm.end) + 1, to)
            }
            _ => false,
        };
        by_write || (untaken(arm.start) && holds(arm.end + 1))
    }

    pub(super) fn must_find(&self, set: usize, from: Time, to: Time, depth: usize) -> Option<&Arm> {
        self.numbers.get(&set)?.iter().find_map(|&number| {
            let arm = self.standing((set, number), from, to)?;
            self.must_report(arm, from, to, depth).then_some(arm)
        })
    }

    pub(super) fn check_empty_waits(&mut self) {
        for i in 0..self.log.calls.len() {
            let call = &self.log.calls[i];
            if call.what != What::Wait || call.result != Ok(0) {
                continue;
            }
            let (_, Some(set)) = self.resolve(call.fd, call.start, call.end) else { continue };
            let to = call.end;
            // It checks once more when its time is up.
            let from = call.start + millis(call.limit);
            if call.limit > 0 {
                // Of several waiting threads, the one that is woken may take the event a little
                // later than this one leaves.
                let overlaps = |wait: &&(Time, Time)| wait.0 < to && wait.1 > call.start;
                if self.waits[&set].iter().filter(overlaps).count() > 1 {
                    continue;
                }
            }
            if let Some(arm) = self.must_find(set, from, to, 0) {
                let (armed, number) = (arm.call, self.log.calls[arm.call].target);
                let text = format!("set {}, data {:#x}, source {number}", call.fd, arm.data);
                self.broken("a wait does not miss what is ready", text, &[armed, i], Some(number));
            }
        }
    }
}
