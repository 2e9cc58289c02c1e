//! What a round consists of, drawn from a seed.

use crate::random::Random;
use crate::world::World;

pub const IN: u32 = libc::EPOLLIN as u32;
pub const OUT: u32 = libc::EPOLLOUT as u32;
pub const ET: u32 = libc::EPOLLET as u32;
pub const ONESHOT: u32 = libc::EPOLLONESHOT as u32;
pub const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE as u32;

/// What a watch may ask for; a report's data says which.
pub const MODES: [u32; 11] = [
    IN,
    IN | ET,
    IN | ONESHOT,
    IN | ET | ONESHOT,
    IN | EXCLUSIVE,
    IN | ET | EXCLUSIVE,
    IN | OUT,
    IN | OUT | ET,
    OUT | ONESHOT,
    OUT,
    0,
];
/// As many of them wait for input, and are not exclusive.
const PLAIN_MODES: usize = 4;
/// As many of them wait for input.
const INPUT_MODES: usize = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Semaphore,
    /// Its reading end is watched. A kernel descriptor, so its watches are in a set's kernel half.
    Pipe,
    /// An eventfd that threads sleep in to read it. Not watched.
    Blocking,
    Set,
}

/// What the threads of a round are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Servers wait in every set, without limit, and take all that is reported: in the end nothing
    /// may be left.
    Served,
    /// Every thread does anything, and no thread sleeps for long.
    Wild,
    /// Sleeping servers, one for each set, and a source that all watch exclusively; or all in one
    /// set, and an edge.
    OneWake,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Server {
        set: usize,
    },
    /// Reads a blocking source.
    Reader {
        target: usize,
    },
    Writer,
    Changer,
    /// Closes and makes anew its own target.
    Closer {
        target: usize,
    },
    /// Gives objects a second descriptor, and forks.
    Migrator,
    /// Waits with a short limit, or none.
    Poller,
    Anything,
}

/// A source or a set.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    pub kind: Kind,
    /// Closed and made anew during the round.
    pub mortal: bool,
}

/// A set, something it may watch, and the one thread that adds and removes it (none: it stays).
#[derive(Clone, Debug)]
pub struct Key {
    pub set: usize,
    pub target: usize,
    pub owner: Option<usize>,
}

/// How threads pass the time between two calls.
#[derive(Clone, Copy, Debug)]
pub enum Tempo {
    Tight,
    Mixed,
    Slow,
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub style: Style,
    /// The sets that stay are the first of them, as many as `sets`.
    pub targets: Vec<Target>,
    pub sets: usize,
    pub keys: Vec<Key>,
    /// Thread 0 is the round's own.
    pub roles: Vec<Role>,
    pub calls: usize,
    pub tempo: Tempo,
    /// Any thread changes any watch.
    pub free: bool,
    /// What watches ask for at most: an index into [`MODES`].
    pub modes: usize,
}

impl Plan {
    pub fn draw<W: World>(random: &mut Random) -> Self {
        let style = match random.below(20) {
            0 => Style::OneWake,
            1..=12 => Style::Served,
            _ => Style::Wild,
        };
        match style {
            Style::OneWake => Self::one_wake(random),
            Style::Served => Self::served::<W>(random),
            Style::Wild => Self::wild::<W>(random),
        }
    }

    fn one_wake(random: &mut Random) -> Self {
        let servers = random.between(3, 5);
        let sets = if random.chance(1, 2) { servers } else { 1 };
        let mut targets = vec![Target { kind: Kind::Set, mortal: false }; sets];
        targets.push(Target { kind: Kind::Counter, mortal: false });
        Self {
            style: Style::OneWake,
            targets,
            sets,
            keys: (0..sets).map(|set| Key { set, target: sets, owner: None }).collect(),
            roles: (0..servers).map(|server| Role::Server { set: server % sets }).collect(),
            calls: random.between(3, 10),
            tempo: Tempo::Tight,
            free: false,
            modes: INPUT_MODES,
        }
    }

    /// Sets, sources that stay, and as many that do not; those are eventfds and sets.
    fn targets<W: World>(random: &mut Random, sets: usize, mortals: usize) -> Vec<Target> {
        let mut targets = vec![Target { kind: Kind::Set, mortal: false }; sets];
        let pipes = W::PIPES && random.chance(1, 3);
        for _ in 0..random.between(1, 4) {
            let kind = match random.below(6) {
                0 => Kind::Semaphore,
                1 | 2 if pipes => Kind::Pipe,
                _ => Kind::Counter,
            };
            targets.push(Target { kind, mortal: false });
        }
        for _ in 0..mortals {
            let kind = if random.chance(1, 3) { Kind::Set } else { Kind::Counter };
            targets.push(Target { kind, mortal: true });
        }
        targets
    }

    /// Which set watches what: every set something, every source is watched by one at least, sets
    /// by those before them.
    fn keys(random: &mut Random, targets: &[Target], sets: usize) -> Vec<Key> {
        let mut keys = Vec::new();
        for target in 1..targets.len() {
            let Target { kind, mortal } = targets[target];
            if kind == Kind::Blocking {
                continue;
            }
            if kind == Kind::Set && mortal {
                // It watches what stays.
                let sources = sets..targets.len();
                let stays = |source: &usize| {
                    !targets[*source].mortal && targets[*source].kind != Kind::Blocking
                };
                keys.extend(sources.filter(stays).map(|source| Key {
                    set: target,
                    target: source,
                    owner: None,
                }));
                continue;
            }
            let around = target.min(sets);
            let nested = target < sets;
            if nested && random.chance(1, 2) {
                continue;
            }
            let first = random.below(around);
            for set in 0..around {
                if set == first || (!nested && random.chance(1, 3)) {
                    keys.push(Key { set, target, owner: None });
                }
            }
        }
        keys
    }

    fn served<W: World>(random: &mut Random) -> Self {
        let sets = random.of(&[1, 1, 1, 2, 2, 3]);
        let closers = if W::CLOSES && random.chance(1, 4) { random.between(1, 2) } else { 0 };
        let mut targets = Self::targets::<W>(random, sets, closers);
        let readers = random.of(&[0, 0, 1, 2]);
        if readers > 0 {
            targets.insert(sets, Target { kind: Kind::Blocking, mortal: false });
        }
        let mut keys = Self::keys(random, &targets, sets);
        let mut roles = vec![Role::Reader { target: sets }; readers];
        for set in 0..sets {
            let inner = keys.iter().any(|key| key.target == set);
            let servers = if inner { random.between(0, 1) } else { random.of(&[1, 1, 2, 3]) };
            roles.extend((0..servers).map(|_| Role::Server { set }));
        }
        roles.extend((0..random.of(&[1, 1, 2, 3])).map(|_| Role::Writer));
        let changers = random.of(&[0, 0, 1, 2]);
        let first_changer = roles.len();
        roles.extend((0..changers).map(|_| Role::Changer));
        for target in targets.len() - closers..targets.len() {
            for key in keys.iter_mut().filter(|key| key.target == target || key.set == target) {
                key.owner = Some(roles.len());
            }
            roles.push(Role::Closer { target });
        }
        for key in keys.iter_mut().filter(|key| key.owner.is_none()) {
            if changers > 0 && random.chance(2, 3) {
                key.owner = Some(first_changer + random.below(changers));
            }
        }
        if W::CLOSES && random.chance(1, 3) {
            roles.push(Role::Migrator);
        }
        if random.chance(1, 3) {
            roles.push(Role::Poller);
        }
        Self {
            style: Style::Served,
            targets,
            sets,
            keys,
            roles,
            calls: random.of(&[50, 200, 1_000, 2_000]),
            tempo: random.of(&[
                Tempo::Tight,
                Tempo::Tight,
                Tempo::Mixed,
                Tempo::Mixed,
                Tempo::Slow,
            ]),
            free: false,
            modes: random.of(&[1, PLAIN_MODES, PLAIN_MODES, INPUT_MODES]),
        }
    }

    fn wild<W: World>(random: &mut Random) -> Self {
        let sets = random.between(1, 3);
        let closers = if W::CLOSES { random.of(&[0, 0, 1, 2]) } else { 0 };
        let targets = Self::targets::<W>(random, sets, closers);
        let mut keys = Self::keys(random, &targets, sets);
        let mut roles = vec![Role::Anything; random.between(2, 4)];
        let general = roles.len();
        for target in targets.len() - closers..targets.len() {
            for key in keys.iter_mut().filter(|key| key.target == target || key.set == target) {
                key.owner = Some(roles.len());
            }
            roles.push(Role::Closer { target });
        }
        for key in keys.iter_mut().filter(|key| key.owner.is_none()) {
            key.owner = Some(random.below(general));
        }
        if W::CLOSES && random.chance(1, 3) {
            roles.push(Role::Migrator);
        }
        Self {
            style: Style::Wild,
            targets,
            sets,
            keys,
            roles,
            calls: random.of(&[50, 200, 1_000, 2_000]),
            tempo: random.of(&[Tempo::Tight, Tempo::Tight, Tempo::Mixed]),
            free: random.chance(1, 4),
            modes: random.of(&[PLAIN_MODES, MODES.len(), MODES.len()]),
        }
    }
}

/// The data of a watch. No two arms of a round have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    pub target: usize,
    pub set: usize,
    pub mode: usize,
}

/// The data of the watch that ends the servers.
pub const STOP: u64 = u64::MAX;

impl Data {
    pub fn pack(self, thread: u32, number: u32) -> u64 {
        self.target as u64
            | (self.set as u64) << 8
            | u64::from(thread) << 16
            | (self.mode as u64) << 24
            | u64::from(number) << 32
    }

    pub fn unpack(data: u64) -> Self {
        Self {
            target: data as u8 as usize,
            set: (data >> 8) as u8 as usize,
            mode: (data >> 24) as u8 as usize,
        }
    }
}
