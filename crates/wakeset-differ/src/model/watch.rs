//! What each set watches.

use super::description::{ET, EXCLUSIVE, IN, Kind, NONE, ONESHOT, RDNORM, Watch};
use super::{Description, Model, bits};

/// Watches that a set may have.
pub(super) const WATCHES: usize = 24;

/// Whether an event is of a level, which comes again: a bit of its data.
const LEVEL: u64 = 1 << 8;

impl Model {
    /// Whether `set` has a watch on `description`.
    pub(super) fn watches(&self, set: usize, description: usize) -> bool {
        self.descriptions[set].watches.iter().any(|watch| watch.is_on(description))
    }

    /// Whether any set watches `description`.
    pub(super) fn has_watchers(&self, description: usize) -> bool {
        bits(self.live).any(|set| self.watches(set, description))
    }

    /// Whether any set watches what the number stands for.
    pub fn is_watched(&self, number: i32) -> bool {
        self.at(number).is_some_and(|description| self.has_watchers(description))
    }

    /// Whether the set takes no more watches from programs.
    pub fn is_full(&self, set: i32) -> bool {
        self.at(set).is_some_and(|set| self.descriptions[set].watches.len() >= WATCHES)
    }

    pub(super) fn forget_watches_on(&mut self, description: usize) {
        for set in bits(self.live) {
            self.descriptions[set].watches.retain(|watch| !watch.is_on(description));
        }
    }

    /// How many sets are below this one, one in the other.
    pub(super) fn depth(&self, set: usize) -> u32 {
        let inner =
            self.descriptions[set].watches.iter().map(|watch| usize::from(watch.description));
        inner
            .filter(|inner| self.is_set(*inner))
            .map(|inner| 1 + self.depth(inner))
            .max()
            .unwrap_or(0)
    }

    /// Whether the set watches what the number stands for, under that number.
    pub fn has_watch(&self, epfd: i32, number: i32) -> bool {
        self.find(epfd, number).is_some()
    }

    /// The set and the place of a watch in it.
    fn find(&self, epfd: i32, number: i32) -> Option<(usize, usize)> {
        let (set, target) = (self.at(epfd)?, self.at(number)?);
        let is_it = |watch: &Watch| watch.number == number && watch.is_on(target);
        Some((set, self.descriptions[set].watches.iter().position(is_it)?))
    }

    /// The event mask to ask for instead of `events`.
    pub fn asked(&self, target: i32, events: u32) -> u32 {
        let kind = self.kind(target);
        let events = if self.anywhere { Self::asked_anywhere(kind, events) } else { events };
        // Two watches on a timer make it migrate if one of them is exclusive.
        let events = if kind == Some(Kind::Timer) { events & !EXCLUSIVE } else { events };
        // A set reports nothing but IN to the sets around it. So whether a watch that asks for
        // RDNORM alone is reported depends on whether it happened to be on the ready list, and that
        // does not survive a migration.
        if self.migrations && events & RDNORM != 0 && kind == Some(Kind::Set) {
            events | IN
        } else {
            events
        }
    }

    /// Without what a migration may report: the end of a stream whose watch is disarmed (known
    /// difference 50).
    fn asked_anywhere(kind: Option<Kind>, events: u32) -> u32 {
        events & !(if kind == Some(Kind::Stream) { ONESHOT } else { 0 })
    }

    /// A watch has been added.
    pub fn added(&mut self, epfd: i32, number: i32, events: u32) {
        let (Some(set), Some(target)) = (self.at(epfd), self.at(number)) else { return };
        if self.find(epfd, number).is_some() {
            // A bug, which is found as soon as outcomes are compared. Until then it must not make a
            // call sleep for ever.
            return self.modified(epfd, number, events);
        }
        let in_kernel = !self.descriptions[target].is_in_process();
        let it = &self.descriptions[set];
        if in_kernel && it.is_in_process() && !it.has_kernel && self.has_watchers(set) {
            self.migrate_one(Some(set));
        }
        let it = &mut self.descriptions[set];
        it.has_kernel |= in_kernel;
        it.watches.push(Watch { number, description: target as u8, events });
        self.scramble_after_add(set, target);
    }

    /// A watch asks for something else.
    pub fn modified(&mut self, epfd: i32, number: i32, events: u32) {
        if let Some((set, watch)) = self.find(epfd, number) {
            self.descriptions[set].watches[watch].events = events;
            self.rearm_after_change(set);
        }
    }

    /// A watch has been removed.
    pub fn removed(&mut self, epfd: i32, number: i32) {
        if let Some((set, watch)) = self.find(epfd, number) {
            self.descriptions[set].watches.swap_remove(watch);
        }
    }

    /// Data that tells which watch an event is of: the low byte is the description, the bit above
    /// it says whether the event is a level, and the rest is `rest`.
    pub fn data(&self, number: i32, events: u32, rest: u64) -> u64 {
        let level = if events & (ET | ONESHOT) == 0 { LEVEL } else { 0 };
        rest << 9 | level | self.at(number).map_or(u64::from(NONE), |at| at as u64)
    }

    /// Whether an event with such data is of a level, which comes again.
    pub fn is_of_level(data: u64) -> bool {
        data & LEVEL != 0
    }

    /// Whether an event with such data is of the in-process half of its set.
    pub fn is_of_in_process(&self, data: u64) -> bool {
        self.descriptions.get((data & 0xff) as usize).is_some_and(Description::is_in_process)
    }
}
