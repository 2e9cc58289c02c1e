//! Watches between two changes of them, and for how long each was certainly there.

use super::descriptions::Resolved;
use super::{Checker, NEVER};
use crate::clock::Time;
use crate::log::What;
use crate::plan::Data;
use libc::c_int;
use std::collections::HashMap;

/// A watch between two changes of it: from an ADD or MOD to whatever follows.
pub struct Arm {
    pub call: usize,
    pub data: u64,
    pub flags: u32,
    /// The descriptions of the set that it may be in.
    pub sets: Vec<usize>,
    pub start: Time,
    pub end: Time,
    /// The description, if there is no doubt.
    pub source: Option<usize>,
    pub target: usize,
    /// When it may have ended, at the earliest.
    pub may_end: Time,
    /// When it certainly had.
    pub must_end: Time,
    /// What was reported of it: the waits' starts and ends.
    pub reports: Vec<(Time, Time)>,
}

/// Times that certainly end the watch of a set's description on a source's, by start, each with the
/// earliest end of those that follow.
type Enders = HashMap<(usize, usize), Vec<(Time, Time)>>;

impl Checker<'_> {
    pub(super) fn find_arms(&mut self) {
        // All changes of a key, by start.
        let mut changes: HashMap<(c_int, c_int), Vec<usize>> = HashMap::new();
        for (i, call) in self.log.calls.iter().enumerate() {
            if matches!(call.what, What::Add | What::Modify | What::Remove) && call.result.is_ok() {
                changes.entry((call.fd, call.target)).or_default().push(i);
            }
        }
        for ((fd, number), mut calls) in changes {
            calls.sort_by_key(|&call| self.log.calls[call].start);
            let resolve = |&call: &usize| {
                let call = &self.log.calls[call];
                let of = |number| self.resolve(number, call.start, call.end);
                (of(fd), of(number))
            };
            let resolved: Vec<_> = calls.iter().map(resolve).collect();
            let enders = self.enders(&calls, &resolved);
            let mut latest = 0;
            for (i, (&index, resolved)) in calls.iter().zip(resolved).enumerate() {
                let call = &self.log.calls[index];
                let overlapped = latest > call.start;
                latest = latest.max(call.end);
                if call.what == What::Remove {
                    continue;
                }
                let next = calls.get(i + 1).map_or(NEVER, |&next| self.log.calls[next].start);
                let certain_set = resolved.0.1;
                let mut arm = self.arm(index, resolved, &enders);
                arm.may_end = if overlapped { 0 } else { next.min(arm.may_end) };
                self.keep(arm, certain_set, number);
            }
        }
    }

    /// What certainly ends a watch. An ADD ends none: an ADD of a number that is used again is of
    /// another description, and both watches may be there.
    fn enders(&self, calls: &[usize], resolved: &[(Resolved, Resolved)]) -> Enders {
        let mut enders = Enders::new();
        for (&index, resolved) in calls.iter().zip(resolved).rev() {
            let call = &self.log.calls[index];
            if let ((_, Some(set)), (_, Some(source))) = *resolved
                && call.what != What::Add
            {
                let list = enders.entry((set, source)).or_default();
                let later = list.last().map_or(NEVER, |later| later.1);
                list.push((call.start, call.end.min(later)));
            }
        }
        enders.values_mut().for_each(|list| list.reverse());
        enders
    }

    /// The arm of an ADD or MOD. It may end with a close; the next change is left to the caller.
    fn arm(&self, index: usize, resolved: (Resolved, Resolved), enders: &Enders) -> Arm {
        let call = &self.log.calls[index];
        let ((sets, certain_set), (possible, certain)) = resolved;
        let ended = certain_set.zip(certain).and_then(|key| {
            let list = enders.get(&key)?;
            list.get(list.partition_point(|ender| ender.0 <= call.end)).map(|ender| ender.1)
        });
        let closes =
            |of: &[usize]| of.iter().map(|&d| self.descriptions[d].close).collect::<Vec<_>>();
        let (source_closes, set_closes) = (closes(&possible), closes(&sets));
        let may_close = source_closes.iter().chain(&set_closes).map(|close| close.0).min();
        // Whichever source it is of, all of them must have gone; or all the sets that it may be
        // in.
        let gone =
            |closes: &[(Time, Time)]| closes.iter().map(|close| close.1).max().unwrap_or(NEVER);
        let must_close = gone(&source_closes).min(gone(&set_closes));
        // A number may have come to stand for something else than was meant.
        let target =
            certain.map_or(Data::unpack(call.value).target, |d| self.descriptions[d].target);
        Arm {
            call: index,
            data: call.value,
            flags: call.flags,
            sets,
            start: call.start,
            end: call.end,
            source: certain,
            target,
            may_end: may_close.unwrap_or(0),
            must_end: ended.unwrap_or(NEVER).min(must_close),
            reports: Vec::new(),
        }
    }

    fn keep(&mut self, arm: Arm, certain_set: Option<usize>, number: c_int) {
        if let Some(set) = certain_set {
            self.by_key.entry((set, number)).or_default().push(self.arms.len());
            let numbers = self.numbers.entry(set).or_default();
            if !numbers.contains(&number) {
                numbers.push(number);
            }
        }
        self.by_data.insert(arm.data, self.arms.len());
        self.arms.push(arm);
    }
}
