//! Which watches are to be armed anew, by an `EPOLL_CTL_MOD` on all sides, because one side may
//! report an edge of theirs that another does not.

use super::description::{EXCLUSIVE, Watch};
use super::{Model, bits};

/// A watch that is to be armed anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rearm {
    pub(super) set: u8,
    /// The number half of the watch's key.
    pub number: i32,
    /// What the watch asks for.
    pub events: u32,
}

impl Rearm {
    /// Whether the watch can be armed anew only by removing and adding it.
    pub fn is_exclusive(self) -> bool {
        self.events & EXCLUSIVE != 0
    }
}

impl Model {
    /// Notes that a watch is to be armed anew. [`sort_rearm`](Self::sort_rearm) must follow.
    pub(super) fn push_rearm(&mut self, set: usize, watch: Watch) {
        let rearm = Rearm { set: set as u8, number: watch.number, events: watch.events };
        self.rearm.push((self.depth(set), rearm));
    }

    /// Inner sets come before the sets around them; the last entry is taken first.
    pub(super) fn sort_rearm(&mut self) {
        self.rearm.sort_by_key(|(depth, _)| std::cmp::Reverse(*depth));
    }

    /// A watch that is to be armed anew, with a number of its set. Watches that are gone, and those
    /// of sets without a number, are passed over.
    pub fn next_to_rearm(&mut self) -> Option<(i32, Rearm)> {
        while let Some((_, rearm)) = self.rearm.pop() {
            let set = usize::from(rearm.set);
            let there = self.live & (1 << set) != 0
                && self.descriptions[set].watches.iter().any(|watch| {
                    watch.number == rearm.number
                        && self.at(rearm.number) == Some(usize::from(watch.description))
                });
            let number = self.open.iter().find(|number| self.at(**number) == Some(set));
            if let (true, Some(number)) = (there, number) {
                return Some((*number, rearm));
            }
        }
        None
    }

    /// The edges of a set and of those below it are to be armed anew, where objects may have
    /// migrated at any time (known difference 8). `false`, and they are not: this process does not
    /// have all their numbers.
    pub fn rearm_below(&mut self, epfd: i32) -> bool {
        let Some(set) = self.at(epfd).filter(|set| self.anywhere && self.is_set(*set)) else {
            return true;
        };
        let can = self.push_edges_below(set);
        if !can {
            self.rearm.clear();
        }
        self.sort_rearm();
        can
    }

    fn push_edges_below(&mut self, set: usize) -> bool {
        let has_number = self.open.iter().any(|number| self.at(*number) == Some(set));
        for i in 0..self.descriptions[set].watches.len() {
            let watch = self.descriptions[set].watches[i];
            let target = usize::from(watch.description);
            if self.is_set(target) && !self.push_edges_below(target) {
                return false;
            }
            if watch.is_edge() {
                if !has_number || self.at(watch.number) != Some(target) {
                    return false;
                }
                self.push_rearm(set, watch);
            }
        }
        true
    }

    /// Whether the edges that setting a timer may cause in outer sets can be armed anew: the number
    /// half of such a watch's key may have been closed.
    pub fn can_set_timer(&self, number: i32) -> bool {
        self.at(number).is_none_or(|timer| self.can_rearm_around(timer))
    }

    fn can_rearm_around(&self, inner: usize) -> bool {
        bits(self.live).all(|set| {
            let watches = self.descriptions[set].watches.iter().filter(|watch| watch.is_on(inner));
            let mut watches = watches.peekable();
            let has_number = self.open.iter().any(|number| self.at(*number) == Some(set));
            let can = |watch: &Watch| {
                !watch.is_edge() || has_number && self.at(watch.number) == Some(inner)
            };
            watches.peek().is_none()
                || (!self.is_set(inner) || watches.all(can)) && self.can_rearm_around(set)
        })
    }

    /// Whether the watches of a set can be changed: whether that is an edge in the sets around it
    /// may depend on an order that is not defined, and then the edges there have to be armed anew,
    /// for which the number half of the key of such a watch must not have been closed.
    pub fn can_change(&self, epfd: i32) -> bool {
        self.at(epfd).is_none_or(|set| !self.is_news_by_order(set) || self.can_rearm_around(set))
    }

    /// Whether the number is that of an edge-triggered watch in process, and another number stands
    /// for the same file.
    pub fn has_edges_of_one_of_several(&self, number: i32) -> bool {
        let Some(target) = self.at(number) else { return false };
        let it = &self.descriptions[target];
        let is_it =
            |watch: &Watch| watch.number == number && watch.is_on(target) && watch.is_edge();
        it.refs > 1
            && self.migrations
            && it.is_in_process()
            && bits(self.live).any(|set| self.descriptions[set].watches.iter().any(is_it))
    }

    /// Whether the order of a set's watches, which is not defined, decides whether a change of one
    /// of them is news to the sets around.
    fn is_news_by_order(&self, set: usize) -> bool {
        let it = &self.descriptions[set];
        let migrated = self.migrations && it.migrated;
        it.scrambled && (migrated || it.ring != 0)
    }

    /// A timer has been set. That may be an edge for the sets
    /// around a set that watches it (known difference 56); their watches are to be armed anew.
    pub(super) fn timer_set(&mut self, inner: usize) {
        for set in bits(self.live) {
            for i in 0..self.descriptions[set].watches.len() {
                let watch = self.descriptions[set].watches[i];
                if !watch.is_on(inner) {
                    continue;
                }
                if self.is_set(inner) && watch.is_edge() {
                    self.push_rearm(set, watch);
                }
                self.timer_set(set);
            }
        }
        self.sort_rearm();
    }

    /// A watch of `inner` has changed. If the watch is on the ready list already, that is no news
    /// to the sets around. Whether it is there depends on the order of the watches after a
    /// migration or with a ring; so the edges of those sets are armed anew.
    pub(super) fn rearm_after_change(&mut self, inner: usize) {
        if self.is_news_by_order(inner) {
            self.rearm_around(inner);
            self.sort_rearm();
        }
    }

    /// All edges around a set: it passes news on to the sets around it, also where the watch
    /// between them is level-triggered.
    fn rearm_around(&mut self, inner: usize) {
        for set in bits(self.live) {
            for i in 0..self.descriptions[set].watches.len() {
                let watch = self.descriptions[set].watches[i];
                if !watch.is_on(inner) {
                    continue;
                }
                if watch.is_edge() {
                    self.scramble(set);
                    self.push_rearm(set, watch);
                }
                self.rearm_around(set);
            }
        }
    }

    /// A batch is over. The watches that it made migrate are armed anew only now, after all of its
    /// commands, so what they make ready is anywhere in the order of the sets around them.
    pub fn batch_ended(&mut self) {
        let mut todo: Vec<usize> =
            self.rearm.iter().map(|(_, rearm)| usize::from(rearm.set)).collect();
        while let Some(inner) = todo.pop() {
            for set in bits(self.live) {
                if !self.descriptions[set].scrambled && self.watches(set, inner) {
                    self.scramble(set);
                    todo.push(set);
                }
            }
        }
    }
}
