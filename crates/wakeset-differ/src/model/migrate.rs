//! Which objects have migrated into the kernel, and which watches report an edge twice for it.

use super::description::{ET, Kind, ONESHOT};
use super::{Description, Model, bits};

impl Model {
    /// What `number` stands for is about to be in the kernel.
    pub fn migrate(&mut self, number: i32) {
        self.migrate_one(self.at(number));
    }

    /// Every object is about to be in the kernel.
    pub fn migrate_everything(&mut self) {
        self.migrate_all(self.live);
    }

    pub(super) fn migrate_one(&mut self, description: Option<usize>) {
        if let Some(description) = description {
            self.migrate_all(1 << description);
        }
    }

    /// An epoll_ctl(2) is about to be made: what it makes migrate, whatever it returns. `readable`:
    /// it passes an event at an address that can be read.
    pub fn before_ctl(&mut self, epfd: i32, op: i32, number: i32, events: u32, readable: bool) {
        let adds = op == libc::EPOLL_CTL_ADD;
        let in_process = |model: &Self, at: usize| model.descriptions[at].is_in_process();
        let target = self.at(number);
        let target_in_process = target.filter(|target| in_process(self, *target));
        let Some(set) = self.at(epfd).filter(|set| in_process(self, *set)) else {
            if adds {
                self.migrate_one(target_in_process);
            }
            return;
        };
        if !self.is_set(set) || (op != libc::EPOLL_CTL_DEL && !readable) || target == Some(set) {
            return;
        }
        if let Some(target) = target_in_process {
            if !(adds && self.is_set(target) && self.descriptions[target].has_kernel) {
                return;
            }
            // The watch goes to the kernel's half, as one on any object of the kernel's does.
            self.migrate_one(Some(target));
        }
        let asked = if op == libc::EPOLL_CTL_DEL { 0 } else { events };
        self.descriptions[set].kernel_edges |= asked & (ET | ONESHOT) != 0;
    }

    /// `old` is about to be duplicated to a number that is closed. An end of a stream migrates.
    pub fn before_duplicate(&mut self, old: i32) {
        if self.kind(old) == Some(Kind::Stream) {
            self.migrate(old);
        }
    }

    /// `old` is about to be duplicated to `new`, which is another number. What has one number alone
    /// there migrates, and so does what is put over a file of the kernel's.
    pub fn before_duplicate_onto(&mut self, old: i32, new: i32) {
        self.before_duplicate(old);
        let Some(replaced) = self.at(new).filter(|replaced| self.at(old) != Some(*replaced)) else {
            return;
        };
        let it = &self.descriptions[replaced];
        if !(it.several && it.is_in_process()) {
            self.migrate(new);
            self.migrate(old);
        }
    }

    fn migrate_all(&mut self, todo: u64) {
        if !self.migrations || self.anywhere {
            return;
        }
        let edges_before = self.sets_with(|it| it.kernel_edges);
        let migrated = self.migrate_what_hangs_together(todo);
        if migrated == 0 {
            return;
        }
        let certain = self.sets_with_certain_edges(migrated, edges_before);
        for set in bits(self.live) {
            for i in 0..self.descriptions[set].watches.len() {
                let watch = self.descriptions[set].watches[i];
                let it = &mut self.descriptions[set];
                // What the set's io_uring watches goes into its kernel epoll (known difference 73).
                let polled = it.polls && migrated & (1 << set) != 0 && watch.is_edge();
                if migrated & (1 << watch.description) == 0 && !polled {
                    continue;
                }
                it.kernel_edges |= watch.events & (ET | ONESHOT) != 0;
                let target = &self.descriptions[usize::from(watch.description)];
                // A disarmed watch of a stream is told of its end (known difference 50).
                let disarmed = watch.events & ONESHOT != 0 && target.kind == Kind::Stream;
                if polled || disarmed || watch.is_edge() && certain & (1 << set) == 0 {
                    // Armed anew it is ready from now on here, and since the migration there.
                    self.scramble(set);
                    self.push_rearm(set, watch);
                }
            }
        }
        self.sort_rearm();
    }

    fn sets_with(&self, property: impl Fn(&Description) -> bool) -> u64 {
        bits(self.live)
            .filter(|it| property(&self.descriptions[*it]))
            .fold(0, |mask, it| mask | 1 << it)
    }

    /// Migrates these descriptions and those that have to go with them: the other end of a stream,
    /// what a set watches, and a set that is watched itself and watches one of them. Returns all
    /// that have migrated now.
    fn migrate_what_hangs_together(&mut self, mut todo: u64) -> u64 {
        let mut migrated = 0_u64;
        while let Some(next) =
            bits(todo & !migrated).find(|it| self.descriptions[*it].is_in_process())
        {
            migrated |= 1 << next;
            self.descriptions[next].migrated = true;
            if let Some(other) = self.other(next) {
                todo |= 1 << other;
            }
            if self.is_set(next) {
                let it = &mut self.descriptions[next];
                it.has_kernel = true;
                for watch in &it.watches {
                    todo |= 1 << watch.description;
                }
                if !it.watches.is_empty() {
                    self.scramble(next);
                }
            }
            for set in bits(self.live) {
                if !self.watches(set, next) {
                    continue;
                }
                self.descriptions[set].has_kernel = true;
                self.scramble(set);
                if self.has_watchers(set) {
                    todo |= 1 << set;
                }
            }
        }
        migrated
    }

    /// The sets in which no edge is reported twice after this migration. No other thread may run
    /// meanwhile: Wakeset takes an edge back only while they sleep. It has to be one counter
    /// or one stream alone, and the kernel's half of the set must not have held other edges. Of a
    /// stream, the end whose edges are all reported migrates first; an edge that another set has
    /// not been told of keeps it back. The watches of one file by several numbers migrate together,
    /// and an edge of one that has not been reported keeps back that of another.
    fn sets_with_certain_edges(&self, migrated: u64, edges_before: u64) -> u64 {
        let first = migrated.trailing_zeros() as usize;
        let pair = 1 << first | self.other(first).map_or(0, |other| 1 << other);
        if self.others_run || migrated & !pair != 0 || self.is_set(first) {
            return 0;
        }
        let watches_one = |set: &usize| bits(pair).any(|end| self.watches(*set, end));
        let watches_both = |set: &usize| bits(pair).all(|end| self.watches(*set, end));
        let contested = pair.count_ones() == 2 && bits(self.live).filter(watches_one).count() > 1;
        let mixed = bits(self.live)
            .filter(|set| contested && watches_both(set))
            .fold(0, |mask, set| mask | 1_u64 << set);
        // Those that a report disarms are held back as edges are.
        let once_of = |set: usize, end: usize| {
            let watches = self.descriptions[set].watches.iter();
            let once = watches.filter(|watch| watch.events & (ET | ONESHOT) != 0);
            once.filter(|watch| usize::from(watch.description) == end).count()
        };
        let doubled = bits(self.live)
            .filter(|set| bits(pair).any(|end| once_of(*set, end) > 1))
            .fold(0, |mask, set| mask | 1_u64 << set);
        !(edges_before | mixed | doubled)
    }
}
