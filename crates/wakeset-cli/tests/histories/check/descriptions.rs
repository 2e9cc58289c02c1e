//! Which description each call of a history was about, as far as that is certain.

use super::flow::{Description, Flow};
use super::{Checker, NEVER};
use crate::clock::Time;
use crate::log::{Call, What};
use libc::c_int;
use std::collections::HashMap;

/// The descriptions that a number may have stood for, and the one that it certainly stood for.
pub type Resolved = (Vec<usize>, Option<usize>);

impl Checker<'_> {
    pub(super) fn find_descriptions(&mut self) {
        let mut current: HashMap<usize, usize> = HashMap::new();
        let mut calls: Vec<_> = self.log.calls.iter().collect();
        calls.sort_by_key(|call| call.start);
        for call in &calls {
            match call.what {
                What::Open => {
                    let (number, target) =
                        (call.result.unwrap_or(0) as c_int, call.value as u8 as usize);
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
        // A call in progress holds what it is about, and a wait holds for a moment what it
        // checks. The last of them to let go ends it.
        for description in
            self.descriptions.iter_mut().filter(|description| description.close.1 != NEVER)
        {
            let (start, end) = description.close;
            let about = |call: &&&Call| {
                let named = call.fd == description.number || call.target == description.number;
                let any = call.what == What::Wait || call.what == What::Dup && call.fd == -1;
                call.start < end && call.end > start && (named || any)
            };
            description.close.1 =
                calls.iter().filter(about).map(|call| call.end).max().unwrap_or(end).max(end);
        }
    }

    /// The descriptions a number may have stood for during a call, and whether there is but one.
    pub(super) fn resolve(&self, number: c_int, start: Time, end: Time) -> Resolved {
        let Some(all) = self.by_number.get(&number) else { return (Vec::new(), None) };
        let may = |&&d: &&usize| {
            self.descriptions[d].open.0 < end && self.descriptions[d].close.1 > start
        };
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

    pub(super) fn find_flows(&mut self) {
        for call in &self.log.calls {
            let Ok(units) = call.result else { continue };
            if !matches!(call.what, What::Read | What::Write) {
                continue;
            }
            let (possible, certain) = self.resolve(call.fd, call.start, call.end);
            for d in possible {
                let description = &mut self.descriptions[d];
                let flow = if call.what == What::Read {
                    &mut description.reads
                } else {
                    &mut description.writes
                };
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

    /// Whether there are certainly units in it throughout a time.
    pub(super) fn certainly_filled(&self, description: usize, from: Time, to: Time) -> bool {
        let Description { writes, reads, .. } = &self.descriptions[description];
        writes.before(from) > reads.perhaps_before(to)
    }

    /// Whether it certainly is empty throughout a time.
    pub(super) fn certainly_empty(&self, description: usize, from: Time, to: Time) -> bool {
        let Description { writes, reads, .. } = &self.descriptions[description];
        writes.perhaps_before(to) <= reads.before(from)
    }
}
