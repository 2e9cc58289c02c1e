//! What the threads of a round do.

use crate::actor::Actor;
use crate::log::What;
use crate::plan::{Data, EXCLUSIVE, Key, Kind, MODES, ONESHOT, Role, STOP, Style};
use crate::world::World;
use libc::c_int;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The highest maxevents of a wait.
pub const MOST_EVENTS: usize = 8;
/// What ends a reader of a blocking source: more than all it gets otherwise.
pub const STOP_UNITS: u64 = 1 << 40;
impl<W: World> Actor<W> {
    /// Does what the role says until the round is over.
    pub fn run(&mut self, role: Role) {
        // All begin at once, if there are processors for all.
        for attempt in 0.. {
            if self.shared.go.load(Ordering::Acquire) {
                break;
            }
            if attempt < 2_000 {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
        match role {
            Role::Server { set } => while self.serve(set, -1) {},
            Role::Reader { target } => {
                while self.read(target).expect("a blocking read") < STOP_UNITS {}
            }
            Role::Writer => self.repeat(Self::write_something),
            Role::Changer => self.change_own(),
            Role::Closer { target } => self.close_and_open(target),
            Role::Migrator => self.repeat_few(|actor| {
                if actor.random.chance(1, 6) {
                    return actor.fork();
                }
                let target = actor.random.below(actor.shared.plan.targets.len());
                actor.duplicate(target);
            }),
            Role::Poller => self.repeat(|actor| {
                let set = actor.set();
                let limit = actor.random.of(&[0, 0, 0, 1]);
                actor.serve(set, limit);
            }),
            Role::Anything => self.do_anything(),
        }
    }

    fn repeat(&mut self, mut act: impl FnMut(&mut Self)) {
        for _ in 0..self.shared.plan.calls {
            act(self);
            self.pause();
        }
    }

    /// As [`repeat`](Self::repeat), but a few times over the same while: what is done cannot be
    /// undone.
    fn repeat_few(&mut self, mut act: impl FnMut(&mut Self)) {
        for _ in 0..self.random.between(1, 4) {
            for _ in 0..self.shared.plan.calls / 4 {
                self.pause();
            }
            act(self);
        }
    }

    /// Waits, and takes all that is reported. False: the end.
    fn serve(&mut self, set: usize, limit: c_int) -> bool {
        let capacity = self.random.between(1, MOST_EVENTS);
        let reports = match self.wait(set, capacity, limit) {
            Err(_) if self.shared.plan.targets[set].mortal => return true,
            reports => reports.expect("a set that stays"),
        };
        if self.shared.plan.style == Style::OneWake {
            // So that other threads that are woken find it too.
            std::thread::sleep(Duration::from_micros(500));
        }
        for (data, _) in reports {
            self.take(set, data);
        }
        !self.stopped
    }

    fn take(&mut self, set: usize, data: u64) {
        let Data { target, mode, .. } = Data::unpack(data);
        if data == STOP || target >= self.shared.plan.targets.len() {
            // The checker finds the second case.
            self.stopped = true;
            return;
        }
        match self.kind(target) {
            Kind::Set => {
                // Where anything goes, something may stay ready for ever.
                let attempts = if self.shared.plan.style == Style::Served { usize::MAX } else { 3 };
                for _ in 0..attempts {
                    let capacity = self.random.between(1, MOST_EVENTS);
                    match self.wait(target, capacity, 0) {
                        Ok(reports) if !reports.is_empty() && !self.stopped => {
                            for (data, _) in reports {
                                self.take(target, data);
                            }
                        }
                        _ => break,
                    }
                }
            }
            // The checker finds it.
            Kind::Blocking => {}
            _ if MODES[mode] & libc::EPOLLET as u32 == 0 && self.random.chance(1, 2) => {
                let _ = self.read(target);
            }
            _ => self.drain(target),
        }
        if MODES[mode] & ONESHOT != 0 {
            // It may have been removed, or changed, meanwhile.
            let _ = self.control(What::Modify, set, target, mode);
        }
    }

    fn own_keys(&self) -> Vec<Key> {
        let own = |key: &&Key| key.owner == Some(self.thread as usize - 1);
        self.shared.plan.keys.iter().filter(own).cloned().collect()
    }

    /// Changes, removes and adds its watches. In the end all are there.
    fn change_own(&mut self) {
        let keys = self.own_keys();
        if keys.is_empty() {
            return self.repeat(Self::write_something);
        }
        // The round's own thread adds them; exclusive ones cannot be modified.
        let mut exclusive = vec![true; keys.len()];
        for _ in 0..self.shared.plan.calls {
            let i = self.random.below(keys.len());
            let Key { set, target, .. } = keys[i];
            let mode = self.mode(target);
            if !exclusive[i] && MODES[mode] & EXCLUSIVE == 0 && self.random.chance(1, 2) {
                self.control(What::Modify, set, target, mode).expect("it is there");
            } else {
                self.control(What::Remove, set, target, 0).expect("it is there");
                self.pause();
                if self.random.chance(1, 3) && self.kind(target) != Kind::Set {
                    let _ = self.write(target, 1);
                }
                self.control(What::Add, set, target, mode).expect("it is not there");
                exclusive[i] = MODES[mode] & EXCLUSIVE != 0;
            }
            self.pause();
        }
    }

    /// Fills, closes and makes anew its own source.
    fn close_and_open(&mut self, target: usize) {
        let keys = self.own_keys();
        for _ in 0..self.shared.plan.calls / 4 {
            match self.kind(target) {
                Kind::Set => {
                    self.serve(target, 0);
                }
                _ if self.random.chance(2, 3) => {
                    let _ = self.write(target, 1);
                }
                _ => {}
            }
            self.pause();
            self.close(target);
            self.pause();
            self.open(target);
            for key in &keys {
                let mode = self.mode(key.target);
                let added = self.control(What::Add, key.set, key.target, mode);
                assert!(added.is_ok() || self.shared.plan.free, "a new description: {added:?}");
            }
            self.pause();
        }
    }

    fn do_anything(&mut self) {
        let keys = self.shared.plan.keys.clone();
        let own = self.own_keys();
        self.repeat(|actor| match actor.random.below(10) {
            0..=2 => actor.write_something(),
            3 | 4 => {
                let target = actor.source();
                if actor.kind(target) != Kind::Blocking {
                    let _ = actor.read(target);
                }
            }
            5..=7 => {
                let set = actor.set();
                let capacity = actor.random.between(1, MOST_EVENTS);
                let limit = actor.random.of(&[0, 0, 0, 0, 0, 1, 2]);
                let reports = actor.wait(set, capacity, limit).unwrap_or_default();
                for (data, _) in reports {
                    if actor.random.chance(1, 3) {
                        actor.take(set, data);
                    }
                }
            }
            _ => {
                let keys = if actor.shared.plan.free { &keys } else { &own };
                if keys.is_empty() {
                    return actor.write_something();
                }
                let Key { set, target, .. } = keys[actor.random.below(keys.len())];
                let mode = actor.mode(target);
                let what = actor.random.of(&[
                    What::Add,
                    What::Add,
                    What::Modify,
                    What::Modify,
                    What::Remove,
                ]);
                let _ = actor.control(what, set, target, mode);
            }
        });
    }
}
