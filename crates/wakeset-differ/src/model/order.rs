//! How much of the order of a set's events is defined.

use super::description::Watch;
use super::watch::WATCHES;
use super::{Model, bits};

/// How much of the order of a set's events is defined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// All of it.
    Whole,
    /// The order of the in-process watches, and the order of the kernel's watches (known difference
    /// 1).
    Halves,
    /// Nothing of it: watches have migrated from one half to the other, which keeps what is ready
    /// but not since when.
    None,
}

/// How the events of a set that has an event ring are compared. One wait may report fewer events
/// than are ready (SEMANTICS.md, 65), so several waits are made, on all sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gathering {
    /// There is no ring: one wait as it is.
    None,
    /// One wait, with room for every event there can be.
    OneWait,
    /// Waits until there are so many events that each watch has been polled; in order.
    Count,
    /// Waits until there is nothing new; which events come, each level once.
    News,
}

impl Model {
    /// How much of the order of the set's events is defined.
    pub fn order(&self, epfd: i32) -> Order {
        let Some(set) = self.at(epfd).map(|set| &self.descriptions[set]) else {
            return Order::Whole;
        };
        // After what a timer is queued depends on when the set was polled (known difference 55),
        // here and in the sets around it.
        if set.scrambled || self.timers || self.anywhere {
            return Order::None;
        }
        if set.migrated || !set.has_kernel {
            return Order::Whole;
        }
        let in_process =
            |watch: &&Watch| self.descriptions[usize::from(watch.description)].is_in_process();
        match set.watches.iter().filter(in_process).count() {
            0 => Order::Whole,
            all if all == set.watches.len() => Order::Whole,
            _ => Order::Halves,
        }
    }

    /// A set is about to be given an event ring.
    pub fn ringed(&mut self, epfd: i32, entries: u8, polls: bool) {
        if let Some(set) = self.at(epfd).filter(|set| self.is_set(*set)) {
            let it = &mut self.descriptions[set];
            it.ring = if it.ring == 0 { entries } else { it.ring };
            it.polls |= polls;
            if polls {
                self.scramble_sets_around(set);
            }
            self.gathering(epfd);
        }
    }

    /// How the events of a set are compared. An empty ring is filled from what is ready then, so
    /// what becomes ready later comes after levels that were taken in the meantime (SEMANTICS.md,
    /// 66).
    pub fn gathering(&mut self, epfd: i32) -> Gathering {
        let gathering = self.gathering_by_size(epfd);
        let Some(set) = self.at(epfd) else { return gathering };
        if gathering == Gathering::News || self.descriptions[set].polls {
            // Levels go round a different number of times; what an io_uring watches has an order of
            // its own.
            self.scramble(set);
        } else if gathering != Gathering::None {
            // The ring polls the sets below when it is filled, not when a wait reads it.
            self.scramble_below(set);
        }
        gathering
    }

    fn gathering_by_size(&self, epfd: i32) -> Gathering {
        match self.at(epfd).map_or(0, |set| self.descriptions[set].ring) {
            0 => Gathering::None,
            1 if self.order(epfd) == Order::Whole => Gathering::Count,
            // All that there can be fits, and comes out again.
            ring if usize::from(ring) > WATCHES => Gathering::OneWait,
            _ => Gathering::News,
        }
    }

    /// Whether an io_uring watches the set's sockets, or did.
    pub fn polls(&self, epfd: i32) -> bool {
        self.at(epfd).is_some_and(|set| self.descriptions[set].polls)
    }

    /// A set that watches this number while another number stands for the same file; with `polls`,
    /// one of those with polls.
    pub fn watches_one_of_several(&self, number: i32, polls: bool) -> Option<i32> {
        let target = self.at(number).filter(|target| self.descriptions[*target].refs > 1)?;
        let is_it = |watch: &Watch| watch.number == number && watch.is_on(target);
        self.open.iter().copied().find(|epfd| {
            let set = self.at(*epfd).map(|set| &self.descriptions[set]);
            set.is_some_and(|set| (set.polls || !polls) && set.watches.iter().any(is_it))
        })
    }

    /// A watch on `target` has been added to `set`.
    pub(super) fn scramble_after_add(&mut self, set: usize, target: usize) {
        let it = &self.descriptions[set];
        let (scrambled, mixed) = (it.scrambled, it.has_kernel && !it.migrated);
        if self.migrations && scrambled {
            self.scramble(set);
        } else if self.migrations && mixed {
            self.scramble_below(set);
        }
        let target = &self.descriptions[target];
        if target.polls || target.around_polls {
            self.scramble_around_polls(set);
        }
    }

    /// A set below this one has given up its polls, or never had them. Its watches then stand in a
    /// socket's wait queue where they would if they had been added at that time: before or after
    /// those of this set and of the sets around it (known difference 75).
    fn scramble_around_polls(&mut self, set: usize) {
        if self.descriptions[set].around_polls {
            return;
        }
        self.descriptions[set].around_polls = true;
        self.scramble(set);
        self.scramble_sets_around(set);
    }

    fn scramble_sets_around(&mut self, inner: usize) {
        for set in bits(self.live) {
            if self.watches(set, inner) {
                self.scramble_around_polls(set);
            }
        }
    }

    /// From here on the order in which the set polls its watches is not defined, and so neither is
    /// that of the sets below it: polling a set takes its watches off the ready list, up to the
    /// first one that is ready.
    pub(super) fn scramble(&mut self, set: usize) {
        self.descriptions[set].scrambled = true;
        self.scramble_below(set);
    }

    fn scramble_below(&mut self, set: usize) {
        for i in 0..self.descriptions[set].watches.len() {
            let inner = usize::from(self.descriptions[set].watches[i].description);
            if self.is_set(inner) {
                self.scramble(inner);
            }
        }
    }
}
