//! What is known of a program's descriptors from the outcomes so far, the same on every side: as much as it takes to say what
//! the next outcome may not depend on (SEMANTICS.md, Known differences), and not to call what would block for ever.

const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE as u32;
const ET: u32 = libc::EPOLLET as u32;
const ONESHOT: u32 = libc::EPOLLONESHOT as u32;
const IN: u32 = libc::EPOLLIN as u32;
const RDNORM: u32 = libc::EPOLLRDNORM as u32;

/// Numbers that are followed; programs' objects get no higher ones.
const NUMBERS: usize = 400;
/// Descriptions that may be open at once.
const DESCRIPTIONS: usize = 64;
/// Watches that a set may have.
const WATCHES: usize = 24;
const NOBODY: u8 = u8::MAX;

/// What a description is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An eventfd.
    Counter,
    /// A timerfd: a counter that holds 1 or nothing.
    Timer,
    /// An epoll set.
    Set,
    /// An end of a pipe or socket pair that begins in user space.
    Stream,
    /// Something that Wakeset leaves to the kernel.
    Other,
}

/// How much of the order of a set's events is defined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// All of it.
    Whole,
    /// Known difference 1: the order of in-process watches, and the order of kernel watches.
    Halves,
    /// None: watches have moved from one half to the other, which keeps what is ready but not since when.
    None,
}

/// How the events of a set that has an event ring are compared: a wait may give fewer than are ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gathering {
    /// It has none.
    None,
    /// One wait, with room for all there can be.
    Room,
    /// Waits until there are so many that each watch has been looked at; in order.
    Count,
    /// Waits until there is nothing new; which events, each level once.
    News,
}

/// A watch that a move may make report once more (known difference 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    set: u8,
    /// The number half of the watch's key.
    pub number: i32,
    /// What it asks for.
    pub events: u32,
}

#[derive(Clone, Copy, Debug)]
struct Watch {
    number: i32,
    description: u8,
    events: u32,
}

#[derive(Clone, Debug)]
struct Description {
    kind: Kind,
    /// Descriptors.
    refs: u8,
    /// In the kernel by now.
    moved: bool,
    nonblocking: bool,
    semaphore: bool,
    /// Of an eventfd; of a stream, an upper bound on the room it may have taken.
    value: u64,
    /// Of a stream: its other end, while that is open.
    other: u8,
    /// Of a set: it has, or had, a watch in the kernel.
    has_kernel: bool,
    /// Of a set: it may hold edges in the kernel.
    kernel_edges: bool,
    /// Of a set: watches have moved.
    scrambled: bool,
    /// Of a set: the slots of its event ring, where the side has such a thing; 0 for none.
    ring: u8,
    /// Of a set: its sockets are, or were, watched through an io_uring.
    polls: bool,
    /// Of a set: one below it has, or had, such sockets.
    around_polls: bool,
    watches: Vec<Watch>,
}

impl Description {
    const fn none() -> Self {
        Self {
            kind: Kind::Other,
            refs: 0,
            moved: false,
            nonblocking: true,
            semaphore: false,
            value: 0,
            other: NOBODY,
            has_kernel: false,
            kernel_edges: false,
            scrambled: false,
            ring: 0,
            polls: false,
            around_polls: false,
            watches: Vec::new(),
        }
    }

    fn is_in_process(&self) -> bool {
        self.kind != Kind::Other && !self.moved
    }
}

/// See the module.
#[derive(Debug)]
pub struct Model {
    numbers: [u8; NUMBERS],
    open: Vec<i32>,
    descriptions: Vec<Description>,
    live: u64,
    rearm: Vec<(u32, Moved)>,
    /// Objects move.
    moves: bool,
    /// There has been a timer since nothing was open.
    timers: bool,
}

fn bits(mut mask: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let next = mask.trailing_zeros();
        mask &= mask.wrapping_sub(1);
        (next < 64).then_some(next as usize)
    })
}

impl Model {
    /// Without anything open. `moves`: objects may have to move into the kernel, which the engine by itself does not know.
    pub fn new(moves: bool) -> Self {
        Self {
            moves,
            timers: false,
            numbers: [NOBODY; NUMBERS],
            open: Vec::new(),
            descriptions: vec![Description::none(); DESCRIPTIONS],
            live: 0,
            rearm: Vec::new(),
        }
    }

    fn at(&self, number: i32) -> Option<usize> {
        let place = *self.numbers.get(usize::try_from(number).ok()?)?;
        (place != NOBODY).then_some(usize::from(place))
    }

    fn is_set(&self, description: usize) -> bool {
        self.descriptions[description].kind == Kind::Set
    }

    /// The number that was opened first of those still open.
    pub fn first_open(&self) -> Option<i32> {
        self.open.first().copied()
    }

    /// Whether a number is open.
    pub fn is_open(&self, number: i32) -> bool {
        self.at(number).is_some()
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

    /// A new description at `number`.
    pub fn made(&mut self, number: i32, kind: Kind) {
        let place = self.live.trailing_ones() as usize;
        self.live |= 1 << place;
        let watches = std::mem::take(&mut self.descriptions[place].watches);
        self.descriptions[place] = Description { kind, watches, ..Description::none() };
        self.give_number(number, place);
    }

    /// Both ends of a new stream.
    pub fn made_streams(&mut self, numbers: [i32; 2]) {
        numbers.iter().for_each(|number| self.made(*number, Kind::Stream));
        if let [Some(one), Some(other)] = numbers.map(|number| self.at(number)) {
            self.descriptions[one].other = other as u8;
            self.descriptions[other].other = one as u8;
        }
    }

    /// Something has been written to a stream. Whether it is to move on all sides: it might not hold more in user space.
    pub fn wrote_to_stream(&mut self, number: i32, len: u64) -> bool {
        self.at(number).is_some_and(|place| {
            let stream = &mut self.descriptions[place];
            stream.value = stream.value.saturating_add(len + 16);
            !stream.moved && stream.value > 3000
        })
    }

    /// A new eventfd at `number`.
    pub fn made_counter(&mut self, number: i32, initial: u32, flags: i32) {
        self.made(number, Kind::Counter);
        if let Some(place) = self.at(number) {
            let counter = &mut self.descriptions[place];
            counter.value = u64::from(initial);
            counter.nonblocking = flags & libc::EFD_NONBLOCK != 0;
            counter.semaphore = flags & libc::EFD_SEMAPHORE != 0;
        }
    }

    /// A new timerfd at `number`.
    pub fn made_timer(&mut self, number: i32, flags: i32) {
        self.made(number, Kind::Timer);
        self.timers = true;
        self.set_nonblocking(number, flags & libc::TFD_NONBLOCK != 0);
    }

    /// A timer has been set, to a time that has passed or not.
    pub fn set_timer(&mut self, number: i32, expired: bool) {
        if let Some(place) = self.at(number) {
            self.descriptions[place].value = u64::from(expired);
            self.arm_outer(place);
        }
    }

    /// Whether those can be: the number half of such a watch's key may be closed.
    pub fn can_set_timer(&self, number: i32) -> bool {
        self.at(number).is_none_or(|place| self.can_arm_outer(place))
    }

    fn can_arm_outer(&self, inner: usize) -> bool {
        bits(self.live).all(|set| {
            let watches = self.descriptions[set].watches.iter().filter(|watch| usize::from(watch.description) == inner);
            let mut watches = watches.peekable();
            let has_number = self.open.iter().any(|number| self.at(*number) == Some(set));
            let can = |watch: &Watch| watch.events & ET == 0 || has_number && self.at(watch.number) == Some(inner);
            watches.peek().is_none() || (!self.is_set(inner) || watches.all(can)) && self.can_arm_outer(set)
        })
    }

    /// Setting a timer may be an edge for the sets around a set that watches it (known difference 56): those are armed anew.
    fn arm_outer(&mut self, inner: usize) {
        for set in bits(self.live) {
            for i in 0..self.descriptions[set].watches.len() {
                let watch = self.descriptions[set].watches[i];
                if usize::from(watch.description) != inner {
                    continue;
                }
                if self.is_set(inner) && watch.events & ET != 0 {
                    let depth = self.depth(set);
                    self.rearm.push((depth, Moved { set: set as u8, number: watch.number, events: watch.events }));
                }
                self.arm_outer(set);
            }
        }
        self.rearm.sort_by_key(|(depth, _)| std::cmp::Reverse(*depth));
    }

    /// `new` is another number of what `old` stands for, and of nothing else any more.
    pub fn duplicated(&mut self, old: i32, new: i32) {
        self.closed(new);
        if let Some(place) = self.at(old) {
            self.give_number(new, place);
        }
    }

    /// A number has been closed.
    pub fn closed(&mut self, number: i32) {
        let Some(place) = self.at(number) else { return };
        self.numbers[number as usize] = NOBODY;
        self.open.retain(|open| *open != number);
        self.timers &= !self.open.is_empty();
        self.descriptions[place].refs -= 1;
        if self.descriptions[place].refs > 0 {
            return;
        }
        if self.descriptions[place].kind == Kind::Stream {
            // The other end moves before; what watches this one is forgotten.
            self.forget_watches_on(place);
            self.move_one(Some(place));
            if let Some(other) = self.other(place) {
                self.descriptions[other].other = NOBODY;
            }
        }
        self.live &= !(1 << place);
        self.descriptions[place].watches.clear();
        self.forget_watches_on(place);
    }

    fn forget_watches_on(&mut self, place: usize) {
        for set in bits(self.live) {
            self.descriptions[set].watches.retain(|watch| usize::from(watch.description) != place);
        }
    }

    /// The other end of a stream.
    fn other(&self, place: usize) -> Option<usize> {
        let other = self.descriptions[place].other;
        (self.descriptions[place].kind == Kind::Stream && other != NOBODY).then_some(usize::from(other))
    }

    // Counters.

    /// Whether a write of `value` would sleep.
    pub fn write_blocks(&self, number: i32, value: u64) -> bool {
        self.at(number).map(|place| &self.descriptions[place]).is_some_and(|it| {
            it.kind == Kind::Counter && !it.nonblocking && value < u64::MAX && it.value > u64::MAX - 1 - value
        })
    }

    /// Whether a read would sleep.
    pub fn read_blocks(&self, number: i32) -> bool {
        self.at(number)
            .map(|place| &self.descriptions[place])
            .is_some_and(|it| matches!(it.kind, Kind::Counter | Kind::Timer) && !it.nonblocking && it.value == 0)
    }

    /// A write has been done.
    pub fn wrote(&mut self, number: i32, value: u64) {
        if let Some(place) = self.at(number) {
            let counter = &mut self.descriptions[place];
            counter.value = counter.value.saturating_add(value);
        }
    }

    /// A read has taken something.
    pub fn has_read(&mut self, number: i32) {
        if let Some(place) = self.at(number) {
            let counter = &mut self.descriptions[place];
            counter.value = if counter.semaphore { counter.value.saturating_sub(1) } else { 0 };
            if counter.kind == Kind::Timer {
                // It may have been set again by that.
                self.arm_outer(place);
            }
        }
    }

    /// `O_NONBLOCK` has been turned on or off.
    pub fn set_nonblocking(&mut self, number: i32, on: bool) {
        if let Some(place) = self.at(number) {
            self.descriptions[place].nonblocking = on;
        }
    }

    // Sets.

    /// What to ask for instead. A set tells those around it of IN only, so whether a watch that asks for RDNORM alone is told depends on
    /// whether it happened to be on the ready list still; what happens to be there does not survive a move.
    pub fn asked(&self, target: i32, events: u32) -> u32 {
        let alone = self.moves && events & RDNORM != 0 && self.kind(target) == Some(Kind::Set);
        // Several watches move a timer that has one with EXCLUSIVE.
        let events = if self.kind(target) == Some(Kind::Timer) { events & !EXCLUSIVE } else { events };
        if alone { events | IN } else { events }
    }

    /// Whether the set takes no more watches here: no program of use needs so many.
    pub fn is_full(&self, set: i32) -> bool {
        self.at(set).is_some_and(|set| self.descriptions[set].watches.len() >= WATCHES)
    }

    /// Before an epoll_ctl that passes a readable event (`readable`): what it moves, whatever comes of it.
    pub fn before_ctl(&mut self, epfd: i32, op: i32, number: i32, events: u32, readable: bool) {
        let adds = op == libc::EPOLL_CTL_ADD;
        let target = self.at(number);
        let in_process = |model: &Self, place: usize| model.descriptions[place].is_in_process();
        let target_in_process = target.is_some_and(|target| in_process(self, target));
        let Some(set) = self.at(epfd).filter(|set| in_process(self, *set)) else {
            if adds && target_in_process {
                self.move_one(target);
            }
            return;
        };
        if !self.is_set(set) || (op != libc::EPOLL_CTL_DEL && !readable) || target == Some(set) {
            return;
        }
        if let Some(target) = target.filter(|_| target_in_process) {
            if adds && self.is_set(target) && self.descriptions[target].has_kernel {
                self.move_one(Some(target));
                // To the kernel's half, then; which is the rest of this function.
            } else {
                return;
            }
        }
        let asked = if op == libc::EPOLL_CTL_DEL { 0 } else { events };
        self.descriptions[set].kernel_edges |= asked & (ET | ONESHOT) != 0;
    }

    /// A watch has been added.
    pub fn added(&mut self, epfd: i32, number: i32, events: u32) {
        let (Some(set), Some(target)) = (self.at(epfd), self.at(number)) else { return };
        if self.find(epfd, number).is_some() {
            // A bug, and found as soon as outcomes are compared: until then nothing is to wait for ever because of it.
            return self.modified(epfd, number, events);
        }
        let in_kernel = !self.descriptions[target].is_in_process();
        if in_kernel
            && self.descriptions[set].is_in_process()
            && !self.descriptions[set].has_kernel
            && self.has_watchers(set)
        {
            self.move_one(Some(set));
        }
        let it = &mut self.descriptions[set];
        it.has_kernel |= in_kernel;
        it.watches.push(Watch { number, description: target as u8, events });
        if self.descriptions[target].kind == Kind::Timer {
            self.arm_outer(target);
        }
        let it = &mut self.descriptions[set];
        let (scrambled, mixed) = (it.scrambled, it.has_kernel && !it.moved);
        if self.moves && scrambled {
            self.scramble(set);
        } else if self.moves && mixed {
            self.scramble_below(set);
        }
        let it = &self.descriptions[target];
        if it.polls || it.around_polls {
            self.scramble_around_polls(set);
        }
    }

    /// A set below this one has given its polls up, or never had them: in a socket's wait queue its watches stand where they would if they had been added then, behind or
    /// before those of this set and of the sets around it (known difference 75).
    fn scramble_around_polls(&mut self, set: usize) {
        if self.descriptions[set].around_polls {
            return;
        }
        self.descriptions[set].around_polls = true;
        self.scramble(set);
        self.scramble_those_around(set);
    }

    fn scramble_those_around(&mut self, inner: usize) {
        for set in bits(self.live) {
            if self.descriptions[set].watches.iter().any(|watch| usize::from(watch.description) == inner) {
                self.scramble_around_polls(set);
            }
        }
    }

    /// The order in which the set looks at its watches is not defined from here on. A look at a set takes what is not ready off its
    /// list, up to the first that is: so those below it have none either.
    fn scramble(&mut self, set: usize) {
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

    fn find(&mut self, epfd: i32, number: i32) -> Option<(usize, usize)> {
        let (set, target) = (self.at(epfd)?, self.at(number)?);
        let is_it = |watch: &Watch| watch.number == number && usize::from(watch.description) == target;
        Some((set, self.descriptions[set].watches.iter().position(is_it)?))
    }

    /// A watch asks for something else.
    pub fn modified(&mut self, epfd: i32, number: i32, events: u32) {
        if let Some((set, watch)) = self.find(epfd, number) {
            self.descriptions[set].watches[watch].events = events;
            self.tell_outer(set);
            if self.kind(number) == Some(Kind::Timer) {
                self.arm_outer(set);
            }
        }
    }

    /// A change of a watch that is on the ready list already is no news to the sets around its set. Whether it is depends, after a
    /// move or with a ring, on the order in which the watches went: so those sets' edges are armed anew.
    fn tell_outer(&mut self, inner: usize) {
        let it = &self.descriptions[inner];
        let moved = self.moves && it.moved;
        if it.scrambled && (moved || it.ring != 0) {
            self.tell_all_around(inner);
            self.rearm.sort_by_key(|(depth, _)| std::cmp::Reverse(*depth));
        }
    }

    /// A set passes news on to those around it, also if its own watch of it is level-triggered.
    fn tell_all_around(&mut self, inner: usize) {
        for set in bits(self.live) {
            for i in 0..self.descriptions[set].watches.len() {
                let watch = self.descriptions[set].watches[i];
                if usize::from(watch.description) != inner {
                    continue;
                }
                if watch.events & ET != 0 {
                    self.scramble(set);
                    let depth = self.depth(set);
                    self.rearm.push((depth, Moved { set: set as u8, number: watch.number, events: watch.events }));
                }
                self.tell_all_around(set);
            }
        }
    }

    /// A watch has been removed.
    pub fn removed(&mut self, epfd: i32, number: i32) {
        if let Some((set, watch)) = self.find(epfd, number) {
            self.descriptions[set].watches.swap_remove(watch);
        }
    }

    /// How much of the order of the set's events is defined.
    pub fn order(&self, epfd: i32) -> Order {
        let Some(set) = self.at(epfd).map(|set| &self.descriptions[set]) else { return Order::Whole };
        // What a timer is queued behind depends on when the set was looked at (known difference 55), here and in sets around it.
        if set.scrambled || self.timers {
            return Order::None;
        }
        if set.moved || !set.has_kernel {
            return Order::Whole;
        }
        let here = set.watches.iter().filter(|it| self.descriptions[usize::from(it.description)].is_in_process());
        match here.count() {
            0 => Order::Whole,
            here if here == set.watches.len() => Order::Whole,
            _ => Order::Halves,
        }
    }

    /// A set is about to have an event ring.
    pub fn ringed(&mut self, epfd: i32, entries: u8, polls: bool) {
        if let Some(set) = self.at(epfd).filter(|set| self.is_set(*set)) {
            let it = &mut self.descriptions[set];
            it.ring = if it.ring == 0 { entries } else { it.ring };
            it.polls |= polls;
            if polls {
                self.scramble_those_around(set);
            }
            self.gathering(epfd);
        }
    }

    /// How the events of a set are compared that has one. A ring is filled when it is empty, from what is ready then: so what becomes ready later comes behind
    /// levels that were taken meanwhile (SEMANTICS.md, 66).
    pub fn gathering(&mut self, epfd: i32) -> Gathering {
        let gathering = self.gathering_by_size(epfd);
        if let Some(set) = self.at(epfd)
            && (gathering == Gathering::News || self.descriptions[set].polls)
        {
            // Levels go round a different number of times; what an io_uring watches has an order of its own.
            self.scramble(set);
        } else if let (true, Some(set)) = (gathering != Gathering::None, self.at(epfd)) {
            // It looks at the sets below when it is filled, not when it is waited in.
            self.scramble_below(set);
        }
        gathering
    }

    /// Whether the set's sockets are, or were, watched through an io_uring.
    pub fn polls(&self, epfd: i32) -> bool {
        self.at(epfd).is_some_and(|set| self.descriptions[set].polls)
    }

    /// A set with polls that watches this number, which is not the only one of its file.
    pub fn polls_one_of_several(&self, number: i32) -> Option<i32> {
        let target = self.at(number).filter(|target| self.descriptions[*target].refs > 1)?;
        let is_it = |watch: &Watch| watch.number == number && usize::from(watch.description) == target;
        self.open.iter().copied().find(|epfd| {
            let set = self.at(*epfd).map(|set| &self.descriptions[set]);
            set.is_some_and(|set| set.polls && set.watches.iter().any(is_it))
        })
    }

    fn gathering_by_size(&self, epfd: i32) -> Gathering {
        match self.at(epfd).map_or(0, |set| self.descriptions[set].ring) {
            0 => Gathering::None,
            1 if self.order(epfd) == Order::Whole => Gathering::Count,
            // All that there can be goes in at once, and comes out.
            ring if usize::from(ring) > WATCHES => Gathering::Room,
            _ => Gathering::News,
        }
    }

    /// Data that tells which watch an event is of: the description in the low byte; and whether it is a level, in the bit above.
    pub fn data(&self, number: i32, events: u32, rest: u64) -> u64 {
        rest << 9
            | u64::from(events & (ET | ONESHOT) == 0) << 8
            | self.at(number).map_or(u64::from(NOBODY), |place| place as u64)
    }

    /// Whether an event with such data is of a level, which comes again.
    pub fn is_of_level(data: u64) -> bool {
        data & 1 << 8 != 0
    }

    /// Whether an event with such data is of the in-process half.
    pub fn is_of_in_process(&self, data: u64) -> bool {
        self.descriptions.get((data & 0xff) as usize).is_some_and(Description::is_in_process)
    }

    /// Whether a wait on the set cannot but find something.
    pub fn is_certainly_ready(&self, epfd: i32) -> bool {
        let Some(set) = self.at(epfd).filter(|set| self.is_set(*set)) else { return false };
        self.descriptions[set].watches.iter().any(|watch| {
            let target = &self.descriptions[usize::from(watch.description)];
            watch.events & (ET | ONESHOT) == 0
                && watch.events & IN != 0
                && matches!(target.kind, Kind::Counter | Kind::Timer)
                && target.value > 0
        })
    }

    /// Whether a set watches what the number stands for.
    pub fn is_watched(&self, number: i32) -> bool {
        self.at(number).is_some_and(|description| self.has_watchers(description))
    }

    fn has_watchers(&self, description: usize) -> bool {
        let watches_it = |set: usize| {
            self.descriptions[set].watches.iter().any(|watch| usize::from(watch.description) == description)
        };
        bits(self.live).any(watches_it)
    }

    // Moves.

    /// What `number` stands for is about to be in the kernel.
    pub fn moves(&mut self, number: i32) {
        self.move_one(self.at(number));
    }

    /// Everything is.
    pub fn everything_moves(&mut self) {
        self.move_all(self.live);
    }

    fn move_one(&mut self, description: Option<usize>) {
        if let Some(description) = description {
            self.move_all(1 << description);
        }
    }

    fn move_all(&mut self, mut todo: u64) {
        if !self.moves {
            return;
        }
        let mut moved = 0_u64;
        let edges_before =
            bits(self.live).filter(|it| self.descriptions[*it].kernel_edges).fold(0, |m, it| m | 1 << it);
        loop {
            let Some(next) = bits(todo & !moved).find(|it| self.descriptions[*it].is_in_process()) else { break };
            moved |= 1 << next;
            self.descriptions[next].moved = true;
            if let Some(other) = self.other(next) {
                todo |= 1 << other;
            }
            if self.is_set(next) {
                let it = &mut self.descriptions[next];
                it.has_kernel = true;
                for watch in &it.watches {
                    todo |= 1 << watch.description;
                }
                if !self.descriptions[next].watches.is_empty() {
                    self.scramble(next);
                }
            }
            for set in bits(self.live) {
                let its = |watch: &Watch| usize::from(watch.description) == next;
                if !self.descriptions[set].watches.iter().any(its) {
                    continue;
                }
                self.descriptions[set].has_kernel = true;
                self.scramble(set);
                if self.has_watchers(set) {
                    todo |= 1 << set;
                }
            }
        }
        if moved == 0 {
            return;
        }
        // One counter or pair alone: its edges are told apart, unless the kernel half may hold others.
        let first = moved.trailing_zeros() as usize;
        let pair = 1 << first | self.other(first).map_or(0, |other| 1 << other);
        let alone = moved & !pair == 0 && !self.is_set(first);
        let watches = |set: usize, end: usize| {
            self.descriptions[set].watches.iter().any(|watch| usize::from(watch.description) == end)
        };
        // The end whose edges are all reported goes first; but an edge that another set has not been told of keeps it back.
        let watches_both = |set: usize| bits(pair).all(|end| watches(set, end));
        let contested = pair.count_ones() == 2
            && bits(self.live).filter(|set| bits(pair).any(|end| watches(*set, end))).count() > 1;
        let mixed = bits(self.live).filter(|set| contested && watches_both(*set)).fold(0, |m, it| m | 1_u64 << it);
        for set in bits(self.live) {
            for i in 0..self.descriptions[set].watches.len() {
                let watch = self.descriptions[set].watches[i];
                let it = &mut self.descriptions[set];
                // What the set's io_uring watches goes into its kernel epoll (known difference 73).
                let polled = it.polls && moved & (1 << set) != 0 && watch.events & ET != 0;
                if moved & (1 << watch.description) == 0 && !polled {
                    continue;
                }
                it.kernel_edges |= watch.events & (ET | ONESHOT) != 0;
                let is_stream = self.descriptions[usize::from(watch.description)].kind == Kind::Stream;
                // A disarmed watch of a stream hears of its end (known difference 50).
                let disarmed = watch.events & ONESHOT != 0 && is_stream;
                if polled || disarmed || watch.events & ET != 0 && !(alone && (edges_before | mixed) & (1 << set) == 0)
                {
                    // Armed anew it is ready from now on here, and from the move on there.
                    self.scramble(set);
                    let depth = self.depth(set);
                    self.rearm.push((depth, Moved { set: set as u8, number: watch.number, events: watch.events }));
                }
            }
        }
        // From the end: inner sets before those around them.
        self.rearm.sort_by_key(|(depth, _)| std::cmp::Reverse(*depth));
    }

    /// A batch is over. The watches to be armed anew are so only now, behind all its commands, so what they make ready is anywhere in
    /// the sets around them.
    pub fn batch_ended(&mut self) {
        let mut todo: Vec<usize> = self.rearm.iter().map(|(_, moved)| usize::from(moved.set)).collect();
        while let Some(inner) = todo.pop() {
            for set in bits(self.live) {
                let its = |watch: &Watch| usize::from(watch.description) == inner;
                if !self.descriptions[set].scrambled && self.descriptions[set].watches.iter().any(its) {
                    self.scramble(set);
                    todo.push(set);
                }
            }
        }
    }

    /// How many sets are below this one, one in the other.
    fn depth(&self, set: usize) -> u32 {
        let inner = self.descriptions[set].watches.iter().map(|watch| usize::from(watch.description));
        inner.filter(|inner| self.is_set(*inner)).map(|inner| 1 + self.depth(inner)).max().unwrap_or(0)
    }

    /// A watch that may have been told twice, with a number of its set: to be armed anew, on all sides.
    pub fn next_to_rearm(&mut self) -> Option<(i32, Moved)> {
        while let Some((_, moved)) = self.rearm.pop() {
            let set = usize::from(moved.set);
            let there = self.live & (1 << set) != 0
                && self.descriptions[set].watches.iter().any(|watch| {
                    watch.number == moved.number && self.at(moved.number) == Some(usize::from(watch.description))
                });
            let number = self.open.iter().find(|number| self.at(**number) == Some(set));
            if let (true, Some(number)) = (there, number) {
                return Some((*number, moved));
            }
        }
        None
    }
}

impl Moved {
    /// Whether it can only be armed anew by removing and adding it.
    pub fn is_exclusive(self) -> bool {
        self.events & EXCLUSIVE != 0
    }
}
