//! What is known of a program's descriptors from its outcomes so far. It is the same on every side,
//! and it is as much as it takes to say what the next outcome may not depend on (SEMANTICS.md,
//! Known differences), and not to make a call that would sleep for ever.
//!
//! | file | what it knows |
//! |---|---|
//! | `mod` | which number stands for which description |
//! | `description` | one description, one watch |
//! | `children` | which process has which numbers |
//! | `value` | what counters, timers and streams hold, and so which calls would sleep |
//! | `watch` | what each set watches |
//! | `order` | how much of the order of a set's events is defined |
//! | `rearm` | which watches may report an edge twice on one side, and so have to be armed anew |
//! | `migrate` | which objects have migrated into the kernel |

mod children;
mod description;
mod migrate;
mod order;
mod rearm;
mod value;
mod watch;

use children::Table;
pub use description::Kind;
use description::{Description, NONE};
pub use order::{Gathering, Order};
pub use rearm::Rearm;

/// Children that are followed.
const CHILDREN: u8 = 3;
/// Numbers that are followed; the objects of programs get no higher ones.
const NUMBERS: usize = 400;
/// Descriptions that may be open at once.
const DESCRIPTIONS: usize = 64;

/// What is known of a program's descriptors.
#[derive(Debug)]
pub struct Model {
    /// By number: its description, or [`NONE`].
    numbers: [u8; NUMBERS],
    /// The open numbers, in the order in which they were opened.
    open: Vec<i32>,
    descriptions: Vec<Description>,
    /// The descriptions in use, a bit each.
    live: u64,
    /// Watches that are to be armed anew, with the depth of their sets.
    rearm: Vec<(u32, Rearm)>,
    /// The timer that expires soon.
    near: Option<u8>,
    /// Whether objects may migrate.
    migrations: bool,
    /// The numbers of the processes whose turn it is not: the parent's first.
    elsewhere: [Option<Table>; 1 + CHILDREN as usize],
    /// Whose turn it is.
    turn: usize,
    /// Whether objects may leave and come home at any time, so that nothing is known of where they
    /// are.
    anywhere: bool,
    /// Whether there has been a timer since nothing was open.
    timers: bool,
    /// Whether other threads run while an object migrates. No edge that has been reported is
    /// certain to be taken back then (known difference 8).
    others_run: bool,
}

/// The places of the bits of a mask that are set.
fn bits(mut mask: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let next = mask.trailing_zeros();
        mask &= mask.wrapping_sub(1);
        (next < 64).then_some(next as usize)
    })
}

impl Model {
    /// A model with nothing open. `migrations`: whether objects may migrate into the kernel, which
    /// the engine by itself does not know.
    pub fn new(migrations: bool) -> Self {
        Self {
            migrations,
            elsewhere: [const { None }; 1 + CHILDREN as usize],
            turn: 0,
            anywhere: false,
            timers: false,
            others_run: false,
            numbers: [NONE; NUMBERS],
            open: Vec::new(),
            descriptions: vec![Description::none(); DESCRIPTIONS],
            live: 0,
            rearm: Vec::new(),
            near: None,
        }
    }

    /// The same, for a process whose other threads run at the same time.
    pub fn beside_others(self) -> Self {
        Self { others_run: true, ..self }
    }

    /// The description that a number stands for.
    fn at(&self, number: i32) -> Option<usize> {
        let description = *self.numbers.get(usize::try_from(number).ok()?)?;
        (description != NONE).then_some(usize::from(description))
    }

    fn is_set(&self, description: usize) -> bool {
        self.descriptions[description].kind == Kind::Set
    }

    /// The number that was opened first of those that are open.
    pub fn first_open(&self) -> Option<i32> {
        self.open.first().copied()
    }

    /// Whether a number is open.
    pub fn is_open(&self, number: i32) -> bool {
        self.at(number).is_some()
    }

    /// Whether a number is one that programs may open.
    pub fn can_be_open(&self, number: i32) -> bool {
        usize::try_from(number).is_ok_and(|number| number < self.numbers.len())
    }

    /// Whether a number may be closed by a call that Wakeset does not see. It has to be the lowest
    /// one that is free then, so that the next call notices; those below 3 are the process's own.
    /// What is unread in a pair of sockets does not survive that, nor does the edge of a hang-up at
    /// the other end of any pair.
    pub fn may_be_closed_unseen(&self, number: i32) -> bool {
        let is_end = self.at(number).is_some_and(|at| {
            let it = &self.descriptions[at];
            it.kind == Kind::Stream && !it.migrated
        });
        !is_end && (3..number).all(|lower| self.is_open(lower))
    }

    /// What a number stands for.
    pub fn kind(&self, number: i32) -> Option<Kind> {
        Some(self.descriptions[self.at(number)?].kind)
    }

    /// Whether `n` more descriptions can be followed.
    pub fn has_room(&self, n: u32) -> bool {
        self.live.count_zeros() >= n
    }

    fn give_number(&mut self, number: i32, description: usize) {
        self.numbers[number as usize] = description as u8;
        self.descriptions[description].refs += 1;
        self.open.push(number);
    }

    /// There is a new description at `number`.
    pub fn made(&mut self, number: i32, kind: Kind) {
        let free = self.live.trailing_ones() as usize;
        self.live |= 1 << free;
        // The allocation is used again.
        let watches = std::mem::take(&mut self.descriptions[free].watches);
        self.descriptions[free] = Description { kind, watches, ..Description::none() };
        self.give_number(number, free);
    }

    /// There are two new descriptions, the ends of a stream: a pipe, or a pair of sockets.
    pub fn made_streams(&mut self, numbers: [i32; 2], sockets: bool) {
        numbers.iter().for_each(|number| self.made(*number, Kind::Stream));
        if let [Some(one), Some(other)] = numbers.map(|number| self.at(number)) {
            self.descriptions[one].other = other as u8;
            self.descriptions[other].other = one as u8;
            [one, other].into_iter().for_each(|end| self.descriptions[end].socket = sockets);
            self.descriptions[other].writes = !sockets;
        }
    }

    /// There is a new eventfd at `number`.
    pub fn made_counter(&mut self, number: i32, initial: u32, flags: i32) {
        self.made(number, Kind::Counter);
        if let Some(counter) = self.at(number) {
            let counter = &mut self.descriptions[counter];
            counter.value = u64::from(initial);
            counter.nonblocking = flags & libc::EFD_NONBLOCK != 0;
            counter.semaphore = flags & libc::EFD_SEMAPHORE != 0;
        }
    }

    /// There is a new timerfd at `number`.
    pub fn made_timer(&mut self, number: i32, flags: i32) {
        self.made(number, Kind::Timer);
        self.timers = true;
        self.set_nonblocking(number, flags & libc::TFD_NONBLOCK != 0);
    }

    /// `new` is another number of what `old` stands for, and stands for nothing else any more.
    pub fn duplicated(&mut self, old: i32, new: i32) {
        self.closed(new);
        if let Some(description) = self.at(old) {
            self.descriptions[description].several = true;
            self.give_number(new, description);
        }
    }

    /// A number has been closed.
    pub fn closed(&mut self, number: i32) {
        let Some(closed) = self.at(number) else { return };
        self.numbers[number as usize] = NONE;
        self.open.retain(|open| *open != number);
        self.timers &= !self.open.is_empty();
        self.descriptions[closed].refs -= 1;
        if self.descriptions[closed].refs > 0 {
            return;
        }
        if self.descriptions[closed].kind == Kind::Stream {
            // The watches on the closed end are gone when the other end migrates.
            self.forget_watches_on(closed);
            if self.may_be_unread(closed) {
                self.migrate_one(Some(closed));
            }
            if let Some(other) = self.other(closed) {
                self.descriptions[other].other = NONE;
            }
        }
        self.live &= !(1 << closed);
        self.near = self.near.filter(|near| usize::from(*near) != closed);
        self.descriptions[closed].watches.clear();
        self.forget_watches_on(closed);
    }

    /// A number of each end of the pipe that a number belongs to, the one to read from first;
    /// `None` if it is no pipe that begins in user space, or one end of it is closed.
    pub fn pipe(&self, number: i32) -> Option<(i32, i32)> {
        let at = self.at(number)?;
        let other = self.other(at).filter(|_| !self.descriptions[at].socket)?;
        let beyond = self.open.iter().copied().find(|open| self.at(*open) == Some(other))?;
        Some(if self.descriptions[at].writes { (beyond, number) } else { (number, beyond) })
    }

    /// Whether the close of a number may make the other end of its stream migrate.
    pub fn close_may_migrate(&self, number: i32) -> bool {
        self.at(number).is_some_and(|at| {
            let it = &self.descriptions[at];
            it.refs == 1 && !it.migrated && self.may_be_unread(at)
        })
    }

    /// Whether a shutdown makes a pair of sockets migrate: if its other end has been closed.
    pub fn shutdown_migrates(&self, number: i32, how: i32) -> bool {
        self.at(number).is_some_and(|at| {
            let it = &self.descriptions[at];
            let is_modelled = it.kind == Kind::Stream && it.socket && (0..3).contains(&how);
            is_modelled && it.other == NONE
        })
    }

    /// Whether there may be something that an end of a stream was sent and has not read. How much
    /// it has read is not known.
    fn may_be_unread(&self, end: usize) -> bool {
        self.other(end).is_some_and(|other| self.descriptions[other].value > 0)
    }

    /// The other end of a stream.
    fn other(&self, stream: usize) -> Option<usize> {
        let other = self.descriptions[stream].other;
        (self.descriptions[stream].kind == Kind::Stream && other != NONE)
            .then_some(usize::from(other))
    }
}
