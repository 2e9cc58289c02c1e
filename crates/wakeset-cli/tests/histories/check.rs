//! What Linux guarantees, held against a history.
//!
//! A call took effect at some moment between its start and its end, and that is all a history says. So everything is
//! judged by what is *certain*: a source is certainly ready throughout a time if all units whose writes ended before it
//! outweigh all units whose reads began before its end; a watch is certainly there from the end of its ADD to the beginning of
//! whatever may end it. A number that is closed and used again by others in mid-call may name either description: such a call
//! counts against certainty on both and for it on neither.
//!
//! A rule that claims too much fails on the kernel too, which runs the same rounds.

use crate::clock::{Time, millis};
use crate::log::{Call, Log, What};
use crate::plan::{Data, ET, EXCLUSIVE, IN, Kind, ONESHOT, OUT, Plan, STOP, Style};
use crate::round::Outcome;
use libc::c_int;
use std::collections::HashMap;
use std::fmt::Write as _;

const NEVER: Time = Time::MAX;

/// A description: what lives under a number from an open to a close.
struct Description {
    target: usize,
    number: c_int,
    open: (Time, Time),
    /// The close. Its end is that of the last call which may still hold the description.
    close: (Time, Time),
    writes: Flow,
    reads: Flow,
}

/// Units added to a description, or taken from it.
#[derive(Default)]
struct Flow {
    /// Calls that certainly went to it, by their end; the running sum behind each.
    certain: Vec<(Time, Time, u64)>,
    /// Calls that may have gone to it, by their start.
    possible: Vec<(Time, Time, u64)>,
}

impl Flow {
    fn sort(&mut self) {
        self.certain.sort_by_key(|call| call.1);
        self.possible.sort_by_key(|call| call.0);
        for list in [&mut self.certain, &mut self.possible] {
            let mut sum = 0;
            for call in list {
                sum += call.2;
                call.2 = sum;
            }
        }
    }

    /// Units that were certainly moved before `time`.
    fn before(&self, time: Time) -> u64 {
        let n = self.certain.partition_point(|call| call.1 < time);
        if n == 0 { 0 } else { self.certain[n - 1].2 }
    }

    /// Units that may have been moved before `time`.
    fn perhaps_before(&self, time: Time) -> u64 {
        let n = self.possible.partition_point(|call| call.0 < time);
        if n == 0 { 0 } else { self.possible[n - 1].2 }
    }

    /// The last call that certainly ended before `time`.
    fn last_before(&self, time: Time) -> Option<(Time, Time)> {
        let n = self.certain.partition_point(|call| call.1 < time);
        (n > 0).then(|| (self.certain[n - 1].0, self.certain[n - 1].1))
    }

    /// How many may have come after `time`.
    fn perhaps_after(&self, time: Time) -> usize {
        self.possible.len() - self.certain.partition_point(|call| call.1 <= time)
    }

    /// When the last of them began; 0 for none.
    fn last_start(&self) -> Time {
        self.possible.last().map_or(0, |call| call.0)
    }
}

/// A watch between two changes of it: from an ADD or MOD to whatever follows.
struct Arm {
    call: usize,
    data: u64,
    flags: u32,
    /// The descriptions of the set that it may be in.
    sets: Vec<usize>,
    start: Time,
    end: Time,
    /// The description, if there is no doubt.
    source: Option<usize>,
    target: usize,
    /// When it may have ended, at the earliest.
    may_end: Time,
    /// When it certainly had.
    must_end: Time,
    /// What was reported of it: the waits' starts and ends.
    reports: Vec<(Time, Time)>,
}

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
    fn broken(&mut self, rule: &'static str, about: String, calls: &[usize], number: Option<c_int>) {
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
            touches && given.iter().any(|of| call.end + 2_000 > of.start && call.start < of.end + 2_000)
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
                What::Wait => write!(text, " for {} ms, room {}", call.limit, call.value),
                _ => Ok(()),
            };
            let _ = write!(text, ": {:?}", call.result);
            for (data, bits) in reports {
                let _ = write!(text, " ({data:#x}, {bits:#x})");
            }
        }
        self.found.push(Violation { rule, text });
    }

    fn find_descriptions(&mut self) {
        let mut current: HashMap<usize, usize> = HashMap::new();
        let mut calls: Vec<_> = self.log.calls.iter().collect();
        calls.sort_by_key(|call| call.start);
        for call in &calls {
            match call.what {
                What::Open => {
                    let (number, target) = (call.result.unwrap_or(0) as c_int, call.value as u8 as usize);
                    let description = Description {
                        target,
                        number,
                        open: (call.start, call.end),
                        close: (NEVER, NEVER),
                        writes: Flow::default(),
                        reads: Flow::default(),
                    };
                    current.insert(target, self.descriptions.len());
                    self.by_number.entry(number).or_default().push(self.descriptions.len());
                    self.descriptions.push(description);
                }
                What::Close => {
                    let description = current[&(call.value as usize)];
                    self.descriptions[description].close = (call.start, call.end);
                }
                _ => {}
            }
        }
        // A call in progress holds what it is about, and a wait holds what it looks at for a moment. The last of them
        // to let go ends it.
        for description in self.descriptions.iter_mut().filter(|description| description.close.1 != NEVER) {
            let (start, end) = description.close;
            let about = |call: &&&Call| {
                let named = call.fd == description.number || call.target == description.number;
                let any = call.what == What::Wait || call.what == What::Dup && call.fd == -1;
                call.start < end && call.end > start && (named || any)
            };
            description.close.1 = calls.iter().filter(about).map(|call| call.end).max().unwrap_or(end).max(end);
        }
    }

    /// The descriptions a number may have stood for during a call, and whether there is but one.
    fn resolve(&self, number: c_int, start: Time, end: Time) -> (Vec<usize>, Option<usize>) {
        let Some(all) = self.by_number.get(&number) else { return (Vec::new(), None) };
        let may = |&&d: &&usize| self.descriptions[d].open.0 < end && self.descriptions[d].close.1 > start;
        let possible: Vec<_> = all.iter().filter(may).copied().collect();
        let certain = match possible[..] {
            [d] => {
                let Description { open, close, .. } = self.descriptions[d];
                (open.1 < start && close.0 > end).then_some(d)
            }
            _ => None,
        };
        (possible, certain)
    }

    fn find_flows(&mut self) {
        for call in &self.log.calls {
            let Ok(units) = call.result else { continue };
            if !matches!(call.what, What::Read | What::Write) {
                continue;
            }
            let (possible, certain) = self.resolve(call.fd, call.start, call.end);
            for d in possible {
                let description = &mut self.descriptions[d];
                let flow = if call.what == What::Read { &mut description.reads } else { &mut description.writes };
                flow.possible.push((call.start, call.end, units));
                if certain == Some(d) {
                    flow.certain.push((call.start, call.end, units));
                }
            }
        }
        for description in &mut self.descriptions {
            description.reads.sort();
            description.writes.sort();
        }
    }

    fn kind(&self, target: usize) -> Kind {
        self.plan.targets[target].kind
    }

    /// Whether there are certainly units in it throughout a time.
    fn certainly_filled(&self, description: usize, from: Time, to: Time) -> bool {
        let Description { writes, reads, .. } = &self.descriptions[description];
        writes.before(from) > reads.perhaps_before(to)
    }

    /// Whether it certainly is empty throughout a time.
    fn certainly_empty(&self, description: usize, from: Time, to: Time) -> bool {
        let Description { writes, reads, .. } = &self.descriptions[description];
        writes.perhaps_before(to) <= reads.before(from)
    }

    fn find_arms(&mut self) {
        // All changes of a key, by start.
        let mut changes: HashMap<(c_int, c_int), Vec<usize>> = HashMap::new();
        for (i, call) in self.log.calls.iter().enumerate() {
            if matches!(call.what, What::Add | What::Modify | What::Remove) && call.result.is_ok() {
                changes.entry((call.fd, call.target)).or_default().push(i);
            }
        }
        for ((fd, number), mut calls) in changes {
            calls.sort_by_key(|&call| self.log.calls[call].start);
            let resolved: Vec<_> = calls
                .iter()
                .map(|&call| &self.log.calls[call])
                .map(|call| (self.resolve(fd, call.start, call.end), self.resolve(number, call.start, call.end)))
                .collect();
            // What certainly ends the watch of a description, by start; behind each the earliest end of those that follow. An ADD
            // ends none: that of a number used again is of another description, and both may be there.
            let mut enders: HashMap<(usize, usize), Vec<(Time, Time)>> = HashMap::new();
            for (&index, resolved) in calls.iter().zip(&resolved).rev() {
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
            let mut latest = 0;
            for (i, (&index, resolved)) in calls.iter().zip(resolved).enumerate() {
                let call = &self.log.calls[index];
                let overlapped = latest > call.start;
                latest = latest.max(call.end);
                if call.what == What::Remove {
                    continue;
                }
                let next = calls.get(i + 1).map_or(NEVER, |&next| self.log.calls[next].start);
                let ((sets, certain_set), (possible, certain)) = resolved;
                let ended = certain_set.zip(certain).and_then(|key| {
                    let list = enders.get(&key)?;
                    list.get(list.partition_point(|ender| ender.0 <= call.end)).map(|ender| ender.1)
                });
                let closes = |of: &[usize]| of.iter().map(|&d| self.descriptions[d].close).collect::<Vec<_>>();
                let (source_closes, set_closes) = (closes(&possible), closes(&sets));
                let may_close = source_closes.iter().chain(&set_closes).map(|close| close.0).min().unwrap_or(0);
                // Whichever source it is of, all of them must have gone; or all the sets that it may be in.
                let gone = |closes: &[(Time, Time)]| closes.iter().map(|close| close.1).max().unwrap_or(NEVER);
                let must_close = gone(&source_closes).min(gone(&set_closes));
                let arm = Arm {
                    call: index,
                    data: call.value,
                    flags: call.flags,
                    sets,
                    start: call.start,
                    end: call.end,
                    source: certain,
                    // A number may have come to stand for something else than was meant.
                    target: certain.map_or(Data::unpack(call.value).target, |d| self.descriptions[d].target),
                    may_end: if overlapped { 0 } else { next.min(may_close) },
                    must_end: ended.unwrap_or(NEVER).min(must_close),
                    reports: Vec::new(),
                };
                if let Some(set) = certain_set {
                    self.by_key.entry((set, number)).or_default().push(self.arms.len());
                    let numbers = self.numbers.entry(set).or_default();
                    if !numbers.contains(&number) {
                        numbers.push(number);
                    }
                }
                self.by_data.insert(call.value, self.arms.len());
                self.arms.push(arm);
            }
        }
    }

    // ---- what is reported ----

    fn check_reports(&mut self) {
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
                self.broken("a wait fills its buffer at most, and does not fail", String::new(), &[i], None);
            }
            for (place, &(data, bits)) in reports.iter().enumerate() {
                if data == STOP {
                    continue;
                }
                if reports[..place].iter().any(|report| report.0 == data) {
                    self.broken("one wait reports a watch once", format!("data {data:#x}"), &[i], None);
                }
                self.check_report(i, &sets, data, bits);
            }
        }
        for i in 0..self.arms.len() {
            self.check_number_of_reports(i);
        }
    }

    fn check_report(&mut self, wait: usize, sets: &[usize], data: u64, bits: u32) {
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
        let tell = |what: &str| format!("{what}: data {data:#x} in set {fd}");
        if !self.arms[index].sets.iter().any(|set| sets.contains(set)) {
            self.broken("what is reported was asked for", tell("another set's"), &[armed, wait], Some(number));
        } else if end < armed_from {
            self.broken("nothing is reported from before an ADD or MOD", tell("early"), &[armed, wait], Some(number));
        } else if start > must_end {
            let text = tell("the watch had been changed, removed or closed before the wait began");
            let ends = |call: &Call| call.end == must_end && call.start > armed_from;
            let by = self.log.calls.iter().position(ends).unwrap_or(armed);
            self.broken("nothing is reported after DEL, MOD or close returned", text, &[armed, by, wait], Some(number));
        }
        if bits == 0 || bits & !(flags & 0xffff) != 0 {
            let text = tell(&format!("bits {bits:#x} of {flags:#x}"));
            self.broken("only what was asked for is reported", text, &[armed, wait], Some(number));
        }
        if let Some(source) = source
            && self.kind(target) != Kind::Set
            && bits & IN != 0
            && self.certainly_empty(source, start, end)
        {
            let text = tell("nothing was there throughout the wait");
            self.broken("what is reported holds", text, &[armed, wait], Some(number));
        }
    }

    fn check_number_of_reports(&mut self, index: usize) {
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
        let edges = writes.perhaps_after(start) + if flags & OUT != 0 { reads.perhaps_after(start) } else { 0 };
        let escapes = self.log.calls.iter().filter(|call| call.what == What::Dup).count();
        // Twice, because an edge whose waker was stopped, or which moved, may come once more (SEMANTICS.md, Differences 8 and 9).
        if reports > 2 * edges + 1 + escapes {
            let text = format!("{reports} reports of {edges} changes: data {:#x}", self.arms[index].data);
            self.broken("an edge is not reported again and again", text, &[call], Some(number));
        }
    }

    // ---- what is read ----

    fn check_reads(&mut self) {
        for i in 0..self.log.calls.len() {
            let call = &self.log.calls[i];
            if call.what != What::Read {
                continue;
            }
            let (_, certain) = self.resolve(call.fd, call.start, call.end);
            let Some(d) = certain.filter(|&d| self.kind(self.descriptions[d].target) != Kind::Set) else { continue };
            let (fd, start, end) = (call.fd, call.start, call.end);
            match call.result {
                Ok(_) => {
                    let Description { writes, reads, .. } = &self.descriptions[d];
                    // Itself and those that ended before it.
                    let (taken, written) = (reads.before(end + 1), writes.perhaps_before(end));
                    if taken > written {
                        let text = format!("{taken} units taken of {written} at most");
                        self.broken("a unit is read once, and after it was written", text, &[i], Some(fd));
                    }
                }
                Err(libc::EAGAIN) if self.certainly_filled(d, start, end) => {
                    let text = "nothing was read of what is there".to_string();
                    self.broken("a read finds what was written", text, &[i], Some(fd));
                }
                Err(libc::EAGAIN) => {}
                Err(errno) => {
                    let text = format!("errno {errno}");
                    self.broken("a read of an open descriptor does not fail", text, &[i], Some(fd));
                }
            }
        }
    }

    // ---- what is not reported ----

    /// The arm that is certainly in place before `time`, if nothing may end it before `until`.
    fn standing(&self, key: (usize, c_int), time: Time, until: Time) -> Option<&Arm> {
        let arms = self.by_key.get(&key)?;
        let n = arms.partition_point(|&arm| self.arms[arm].start < time);
        let arm = &self.arms[*arms.get(n.checked_sub(1)?)?];
        (arm.end < time && arm.may_end > until).then_some(arm)
    }

    /// Whether a wait in its set that looks at some moment of a time must find this watch, given that it is in place
    /// all the while; and since when.
    fn must_report(&self, arm: &Arm, from: Time, to: Time, depth: usize) -> bool {
        // An exclusive watch may be left untold.
        if arm.flags & EXCLUSIVE != 0 || depth > 5 {
            return false;
        }
        let Some(source) = arm.source else { return false };
        if arm.flags & ONESHOT != 0 && arm.reports.iter().any(|report| report.0 < to) {
            return false;
        }
        if self.kind(arm.target) == Kind::Set {
            // An edge of a set is what happens in it, of which a history says too little.
            return arm.flags & ET == 0 && self.must_find(source, from, to, depth + 1).is_some();
        }
        let writable = arm.flags & OUT != 0 && self.kind(arm.target) != Kind::Pipe;
        let holds = |from| writable || arm.flags & IN != 0 && self.certainly_filled(source, from, to);
        if arm.flags & ET == 0 {
            return holds(from);
        }
        // Since the arm, or since the last write: a report that may have seen it takes the edge.
        let untaken = |since: Time| !arm.reports.iter().any(|report| report.1 > since && report.0 < to);
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

    fn must_find(&self, set: usize, from: Time, to: Time, depth: usize) -> Option<&Arm> {
        self.numbers.get(&set)?.iter().find_map(|&number| {
            let arm = self.standing((set, number), from, to)?;
            self.must_report(arm, from, to, depth).then_some(arm)
        })
    }

    fn check_empty_waits(&mut self) {
        for i in 0..self.log.calls.len() {
            let call = &self.log.calls[i];
            if call.what != What::Wait || call.result != Ok(0) {
                continue;
            }
            let (_, Some(set)) = self.resolve(call.fd, call.start, call.end) else { continue };
            let to = call.end;
            // It looks once more when its time is up.
            let from = call.start + millis(call.limit);
            if call.limit > 0 {
                // Of several who wait, the one who is woken may take the event a little later than this one leaves.
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

    // ---- the end, when all is still ----

    fn check_end(&mut self, outcome: &Outcome) {
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
            let (_, Some(description)) = self.resolve(call.fd, call.start, call.end) else { continue };
            let keys: Vec<_> = self.by_key.keys().filter(|key| key.0 == description).copied().collect();
            for key in keys {
                let Some(arm) = self.standing(key, time, time) else { continue };
                if arm.flags & EXCLUSIVE != 0 {
                    continue;
                }
                let (target, armed) = (arm.target, arm.call);
                let Some(expected) = self.expected_at_end(outcome, arm, time) else { continue };
                let got = reports.iter().find(|report| report.0 == arm.data).map_or(0, |report| report.1);
                let expected_again = arm.flags & ET != 0 && expected == 0;
                // An edge may come once more (Differences 8 and 9), if it holds.
                if got != expected && !(expected_again && got != 0) {
                    let left = outcome.left[target];
                    let text = format!(
                        "set {set}, data {:#x}: {got:#x} is reported in the end and not {expected:#x}, with {left} units left",
                        arm.data
                    );
                    let rule = if got == 0 { "no event is lost" } else { "what is reported holds" };
                    self.broken(rule, text, &[armed, last_wait], Some(key.1));
                }
            }
        }
    }

    /// What the last wait has to say of a watch. `None`: one cannot tell.
    fn expected_at_end(&self, outcome: &Outcome, arm: &Arm, time: Time) -> Option<u32> {
        let earlier = |report: &&(Time, Time)| report.0 < time;
        if arm.flags & ONESHOT != 0 && arm.reports.iter().any(|report| earlier(&report)) {
            return Some(0);
        }
        let source = arm.source?;
        if self.kind(arm.target) == Kind::Set {
            let inner = &self.log.calls[outcome.last_waits[arm.target]];
            if arm.flags & ET != 0 {
                return None;
            }
            return Some(if inner.result == Ok(0) { 0 } else { IN });
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

    fn check_exclusive(&mut self, outcome: &Outcome) {
        if self.plan.style != Style::OneWake {
            return;
        }
        for &(start, end) in &outcome.events {
            let woken = |call: &&Call| call.what == What::Wait && call.end > start && call.end < end;
            let mut threads: Vec<_> = self.log.calls.iter().filter(woken).map(|call| call.thread).collect();
            threads.sort_unstable();
            threads.dedup();
            if threads.len() != 1 {
                let text = format!("{} of {} sleepers came back for one event", threads.len(), self.plan.roles.len());
                let within =
                    |call: &Call| matches!(call.what, What::Wait | What::Write) && call.end > start && call.end < end;
                let calls = &self.log.calls;
                let within: Vec<_> = (0..calls.len()).filter(|&call| within(&calls[call])).collect();
                self.broken("an exclusive wake is for one", text, &within, None);
            }
        }
    }
}
