//! Runs a program on one side, call by call, and tells a [`Sink`] every outcome.

use crate::generate::Profile;
use crate::model::{Gathering, Kind, Model, Order};
use crate::program::{At, BAD_NUMBERS, Duplication, Mask, Op, Patience, Program, SLOTS, Time, WaitCall};
use crate::world::{self, Sysno, World};
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, c_int, epoll_event, timespec};

/// An event as it was reported.
pub type Report = (u64, u32);

/// Who hears of outcomes.
pub trait Sink {
    /// A call and its result, a negative errno if it failed, with what it gave beside: a value read, bits polled.
    fn outcome(&mut self, op: &Op, result: isize, beside: u64);

    /// The events of a wait that was just told. Which half each is of matters where the order is that of the halves.
    fn events(&mut self, order: Order, events: &[(Report, bool)]);

    /// A call that was not made, because it could sleep for ever or goes beyond what is followed.
    fn skipped(&mut self, op: &Op) {
        let _ = op;
    }

    /// The numbers that the next operation's slots stand for.
    fn about_to(&mut self, op: &Op, number: &dyn Fn(u8) -> c_int) {
        let _ = (op, number);
    }
}

const PAGE: usize = 4096;
/// Events a wait has room for if the program does not care.
const ROOM: i32 = 64;

/// Memory for the program's pointers: a page, one without access, one that can only be read, one without access.
#[derive(Debug)]
struct Memory {
    base: usize,
}

impl Memory {
    fn new() -> Self {
        // Low enough that room for the most events there may be is still user memory, which is checked before anything else.
        // SAFETY: fresh memory where there is none.
        unsafe {
            let (all, private) = (4 * PAGE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            let base = libc::mmap(
                (1_usize << 36) as *mut libc::c_void,
                all,
                libc::PROT_READ | libc::PROT_WRITE,
                private,
                -1,
                0,
            );
            assert_ne!(base, libc::MAP_FAILED, "no memory for the programs' buffers");
            for (page, access) in [(1, libc::PROT_NONE), (2, libc::PROT_READ), (3, libc::PROT_NONE)] {
                assert_eq!(libc::mprotect(base.byte_add(page * PAGE), PAGE, access), 0);
            }
            Self { base: base as usize }
        }
    }

    /// Where a buffer is, so that `unit`s lie before a forbidden page where it comes to that.
    fn place(&self, at: At, unit: usize) -> usize {
        match at {
            At::Good => self.base,
            At::Null => 0,
            At::Low => 8,
            At::High => 1 << 63,
            At::Forbidden => self.base + PAGE,
            At::ReadOnly => self.base + 2 * PAGE,
            At::Before(n) => self.base + PAGE - usize::from(n) * unit,
        }
    }

    /// Puts a value where it is in nobody's way; its address.
    fn put<T: Copy>(&self, place: usize, value: T) -> usize {
        debug_assert!((2048..PAGE).contains(&place));
        let address = self.base + place;
        // SAFETY: the first page can be written, and is this memory's own.
        unsafe { (address as *mut T).write_unaligned(value) };
        address
    }

    fn get<T: Copy>(&self, address: usize) -> T {
        debug_assert!((self.base..self.base + PAGE).contains(&address));
        // SAFETY: as above; `T` here is always valid for any bits.
        unsafe { (address as *const T).read_unaligned() }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`.
        unsafe { libc::munmap(self.base as *mut libc::c_void, 4 * PAGE) };
    }
}

/// The events kept for [`Sink::events`], in canonical order.
type Reports = Vec<(Report, bool)>;

/// Runs programs on a side.
#[derive(Debug)]
pub struct Interpreter<W> {
    world: W,
    memory: Memory,
    model: Model,
    slots: [c_int; SLOTS as usize],
    reports: Reports,
    /// For `SCM_RIGHTS`; made when first used, as the lowest numbers left, by every side at the same time.
    post: Option<[c_int; 2]>,
}

impl<W: World> Interpreter<W> {
    /// For programs of this profile on `world`.
    pub fn new(world: W, profile: Profile) -> Self {
        Self {
            world,
            memory: Memory::new(),
            model: Model::new(profile == Profile::Everything),
            slots: [0; SLOTS as usize],
            reports: Vec::with_capacity(64),
            post: None,
        }
    }

    /// The side.
    pub fn world(&mut self) -> &mut W {
        &mut self.world
    }

    /// Runs a program, and closes all that it has opened.
    pub fn run(&mut self, program: &Program, sink: &mut impl Sink) {
        self.world.begin(program.by_number);
        self.forget_slots();
        for op in &program.ops {
            sink.about_to(op, &|slot| self.number(slot));
            if self.step(op, sink).is_none() {
                sink.skipped(op);
            }
            self.rearm(sink);
        }
        self.close_all(sink);
    }

    /// Closed numbers for all slots, until something is made for them.
    fn forget_slots(&mut self) {
        for (slot, number) in self.slots.iter_mut().enumerate() {
            *number = 300 + slot as c_int;
        }
    }

    fn number(&self, slot: u8) -> c_int {
        match self.slots.get(usize::from(slot)) {
            Some(number) => *number,
            None => BAD_NUMBERS[usize::from(slot) % BAD_NUMBERS.len()],
        }
    }

    fn set_slot(&mut self, slot: u8, number: c_int) {
        if let Some(place) = self.slots.get_mut(usize::from(slot)) {
            *place = number;
        }
    }

    fn call(&mut self, number: Sysno, arguments: &[usize]) -> isize {
        let mut all = [0; 6];
        all[..arguments.len()].copy_from_slice(arguments);
        // SAFETY: addresses come from `Memory`, with room behind them for what the call wants, or are not there.
        unsafe { self.world.call(number, all) }
    }

    fn close_all(&mut self, sink: &mut impl Sink) {
        while let Some(number) = self.model.first_open() {
            let result = self.call(Sysno::close, &[number as usize]);
            self.model.closed(number);
            sink.outcome(&Op::CloseAll, result, number as u64);
        }
    }

    /// One operation; `None` if it must not be done.
    fn step(&mut self, op: &Op, sink: &mut impl Sink) -> Option<()> {
        let mut beside = 0;
        let result = match *op {
            Op::Counter { slot, initial, flags } => {
                self.room_for(1)?;
                let result = self.call(Sysno::eventfd2, &[initial as usize, flags as usize]);
                if result >= 0 {
                    self.model.made_counter(result as c_int, initial, flags);
                    self.set_slot(slot, result as c_int);
                }
                result
            }
            Op::Timer { slot, flags } => {
                self.room_for(1)?;
                let result = self.call(Sysno::timerfd_create, &[libc::CLOCK_MONOTONIC as usize, flags as usize]);
                if result >= 0 {
                    self.model.made_timer(result as c_int, flags);
                    self.set_slot(slot, result as c_int);
                }
                result
            }
            Op::SetTimer { slot, time, at } => {
                let number = self.number(slot);
                self.no_bell(number)?;
                if !self.model.can_set_timer(number) {
                    return None;
                }
                const CENTURY: i64 = 100 * 365 * 24 * 3600;
                let (flags, seconds, nanos, interval) = match time {
                    Time::Past => (libc::TFD_TIMER_ABSTIME, 0, 1, 0),
                    Time::PastAndAgain => (libc::TFD_TIMER_ABSTIME, 0, 1, CENTURY),
                    Time::Far => (0, CENTURY, 0, 0),
                    Time::Never => (0, 0, 0, 0),
                    Time::Nonsense(flags, seconds, nanos) => (flags, seconds.into(), nanos, 0),
                };
                if let Time::Nonsense(flags, 0 | 1, 0) = time
                    && flags & !libc::TFD_TIMER_ABSTIME == 0
                {
                    // It makes sense, and expires at a time that a later call may meet or not.
                    return None;
                }
                let spec = libc::itimerspec {
                    it_interval: timespec { tv_sec: interval, tv_nsec: 0 },
                    it_value: timespec { tv_sec: seconds, tv_nsec: nanos },
                };
                let place = match at {
                    At::Good | At::ReadOnly => self.memory.put(2048, spec),
                    At::Before(n) if usize::from(n) >= size_of::<libc::itimerspec>() => {
                        let place = self.memory.place(at, 1);
                        self.memory.put(place - self.memory.base, spec)
                    }
                    _ => self.memory.place(at, 1),
                };
                let old = self.memory.put(2560, [u64::MAX; 4]);
                let arguments = [number as usize, flags as usize, place, old];
                let result = self.call(Sysno::timerfd_settime, &arguments);
                if result == 0 {
                    let expired = matches!(time, Time::Past | Time::PastAndAgain);
                    self.model.set_timer(number, expired);
                    if expired {
                        self.world.until_expired(number);
                    }
                    // The interval, and whether there was time left.
                    let [seconds, nanos, left @ ..] = self.memory.get::<[u64; 4]>(old);
                    beside = seconds << 2 | (nanos & 1) << 1 | u64::from(left != [0; 2]);
                }
                result
            }
            Op::Set { slot, flags } => {
                self.room_for(1)?;
                let result = self.call(Sysno::epoll_create1, &[flags as usize]);
                self.made(result, slot, Kind::Set);
                result
            }
            Op::Directory { slot } => {
                self.room_for(1)?;
                let flags = libc::O_RDONLY | libc::O_DIRECTORY;
                let result = self.call(Sysno::open, &[c"/".as_ptr().addr(), flags as usize]);
                self.made(result, slot, Kind::Other);
                result
            }
            Op::Pipe { slot, other } | Op::Sockets { slot, other } => {
                self.room_for(2)?;
                let pair = self.memory.put(2048, [-1, -1]);
                // Every second one keeps its messages apart: the kernel's, and so descriptors that are from the beginning.
                let kernels = slot % 2 == 0;
                let result = if let Op::Pipe { .. } = op {
                    let flags = libc::O_NONBLOCK | if kernels { libc::O_DIRECT } else { 0 };
                    self.call(Sysno::pipe2, &[pair, flags as usize])
                } else {
                    let kind = libc::SOCK_NONBLOCK | if kernels { libc::SOCK_SEQPACKET } else { libc::SOCK_STREAM };
                    self.call(Sysno::socketpair, &[libc::AF_UNIX as usize, kind as usize, 0, pair])
                };
                let [first, second] = self.memory.get::<[c_int; 2]>(pair);
                if result == 0 {
                    if kernels {
                        self.model.made(first, Kind::Other);
                        self.model.made(second, Kind::Other);
                    } else {
                        self.model.made_streams([first, second]);
                    }
                    self.set_slot(slot, first);
                    self.set_slot(other, second);
                    beside = (first as u64) << 32 | second as u64;
                }
                result
            }
            Op::Close { slot } => {
                let number = self.number(slot);
                self.before_close(number, sink);
                let result = self.call(Sysno::close, &[number as usize]);
                if result == 0 {
                    self.model.closed(number);
                }
                result
            }
            Op::Duplicate { slot, to, how } => self.duplicate(slot, to, how, sink)?,
            Op::Write { slot, value, len, at } => {
                let number = self.number(slot);
                let place = self.memory.place(at, 1);
                let readable = match at {
                    At::Good | At::ReadOnly => true,
                    At::Before(n) => n >= len,
                    _ => false,
                };
                // A page that cannot be written holds 0.
                let value = if at == At::ReadOnly { 0 } else { value };
                if readable && at != At::ReadOnly {
                    // SAFETY: the bytes are in the first page.
                    unsafe { std::ptr::copy_nonoverlapping([value; 32].as_ptr().cast(), place as *mut u8, len.into()) };
                }
                if self.model.kind(number) == Some(Kind::Counter) && len >= 8 {
                    if readable && self.model.write_blocks(number, value) {
                        return None;
                    }
                    if len != 8 || matches!(at, At::Null | At::Low | At::High) {
                        self.model.moves(number);
                    }
                }
                let is_stream = self.model.kind(number) == Some(Kind::Stream);
                if is_stream && !readable {
                    // It moves where there is a way to write.
                    self.settle(number, sink);
                }
                let result = self.call(Sysno::write, &[number as usize, place, len.into()]);
                if is_stream {
                    if result > 0 && self.model.wrote_to_stream(number, result as u64) {
                        self.settle(number, sink);
                    }
                } else if result >= 8 {
                    self.model.wrote(number, value);
                }
                result
            }
            Op::Read { slot, len, at } => {
                let number = self.number(slot);
                let place = self.memory.place(at, 1);
                let is_counter = matches!(self.model.kind(number), Some(Kind::Counter | Kind::Timer));
                if self.model.kind(number) == Some(Kind::Timer) && !self.model.can_set_timer(number) {
                    return None;
                }
                if is_counter && len >= 8 {
                    if self.model.read_blocks(number) {
                        return None;
                    }
                    if matches!(at, At::Null | At::Low | At::High) {
                        self.model.moves(number);
                    }
                }
                let is_stream = self.model.kind(number) == Some(Kind::Stream);
                let writable = match at {
                    At::Good => true,
                    At::Before(n) => n >= len,
                    _ => false,
                };
                if is_stream && !writable {
                    // It moves if there is something in it, or the place is nowhere.
                    self.settle(number, sink);
                }
                let result = self.call(Sysno::read, &[number as usize, place, len.into()]);
                if is_stream && at == At::Good && result > 0 {
                    // SAFETY: the bytes are in the first page.
                    let bytes = unsafe { std::slice::from_raw_parts(place as *const u8, result as usize) };
                    beside = bytes.iter().fold(result as u64, |sum, byte| sum.wrapping_mul(257) + u64::from(*byte));
                }
                // A buffer that could be there is found missing when the value has been taken.
                if is_counter && (result > 0 || result == -(libc::EFAULT as isize) && at != At::High) {
                    self.model.has_read(number);
                }
                if result == 8 && !is_stream {
                    beside = self.memory.get(place);
                }
                result
            }
            Op::WriteVector { slot, value } => {
                let number = self.number(slot);
                self.no_bell(number)?;
                if self.model.write_blocks(number, value) {
                    return None;
                }
                let vector = self.vector(value);
                let result = self.call(Sysno::writev, &[number as usize, vector, 1]);
                if result == 8 {
                    self.model.wrote(number, value);
                }
                self.settle(number, sink);
                result
            }
            Op::ReadVector { slot } => {
                let number = self.number(slot);
                self.no_bell(number)?;
                if self.model.read_blocks(number) {
                    return None;
                }
                let vector = self.vector(0);
                let result = self.call(Sysno::readv, &[number as usize, vector, 1]);
                if result == 8 {
                    self.model.has_read(number);
                    beside = self.memory.get(vector + 64);
                }
                self.settle(number, sink);
                result
            }
            Op::ReadAt { slot } => {
                let number = self.number(slot);
                self.no_bell(number)?;
                let result = self.call(Sysno::pread64, &[number as usize, self.memory.base, 8, 0]);
                self.settle(number, sink);
                result
            }
            Op::Ctl { set, op, target, events, data, at } => {
                let (set, target) = (self.number(set), self.number(target));
                if self.model.kind(target) == Some(Kind::Timer) && !self.model.can_set_timer(set) {
                    return None;
                }
                if op == EPOLL_CTL_ADD {
                    // What is not there as a set moves what is to be added, and what is not there to be added moves a set
                    // that others watch; doorbells do not.
                    self.no_bell(set)?;
                    if self.model.is_watched(set) {
                        self.no_bell(target)?;
                    }
                    if self.model.is_full(set) {
                        return None;
                    }
                }
                let events = self.model.asked(target, events);
                let event = epoll_event { events, u64: self.model.data(target, events, data) };
                beside = event.u64;
                let place = match at {
                    // A page that can be read only would do as well, if what is there could be told apart.
                    At::Good | At::ReadOnly => self.memory.put(2048, event),
                    At::Before(n) if usize::from(n) >= size_of::<epoll_event>() => {
                        let place = self.memory.place(at, 1);
                        self.memory.put(place - self.memory.base, event)
                    }
                    _ => self.memory.place(at, 1),
                };
                let readable = match at {
                    At::Good | At::ReadOnly => true,
                    At::Before(n) => usize::from(n) >= size_of::<epoll_event>(),
                    _ => false,
                };
                self.ctl(set, op, target, events, readable, place)
            }
            Op::Batch { set, stop, commands } => {
                let set = self.number(set);
                self.no_bell(set)?;
                let mut batch = commands.map(|command| {
                    let target = self.number(command.target);
                    let (events, data) = (self.model.asked(target, command.events), command.data);
                    world::Command::new(command.op, target, events, self.model.data(target, events, data))
                });
                for command in &batch {
                    if command.op == EPOLL_CTL_ADD {
                        if self.model.is_watched(set) {
                            self.no_bell(command.fd)?;
                        }
                        if self.model.is_full(set) {
                            return None;
                        }
                    }
                }
                self.world.batch(set, stop, &mut batch);
                for command in batch {
                    let (op, fd, events, result) = (command.op, command.fd, command.event.events, command.result);
                    if result != -libc::ECANCELED {
                        self.model.before_ctl(set, op, fd, events, true);
                    }
                    if result == 0 {
                        self.note_ctl(set, op, fd, events);
                    }
                    sink.outcome(
                        &Op::Ctl { set: 0, op, target: 0, events, data: 0, at: At::Good },
                        result as isize,
                        command.event.u64,
                    );
                }
                self.model.batch_ended();
                batch.iter().filter(|command| command.result == 0).count() as isize
            }
            Op::Ring { set, entries, polls } => {
                let set = self.number(set);
                self.no_bell(set)?;
                self.model.ringed(set, entries, polls);
                self.world.ring(set, entries.into(), polls);
                0
            }
            Op::Wait { set, room, patience, call, at } => {
                if at == At::High && is_right(room, patience, call) {
                    self.settle(self.number(set), sink);
                }
                let (result, order) = self.wait(self.number(set), room, patience, call, at);
                sink.outcome(op, result, 0);
                if result > 0 {
                    sink.events(order, &self.reports);
                }
                return Some(());
            }
            Op::Nonblocking { slot, on, ioctl } => {
                let number = self.number(slot);
                if matches!(self.model.kind(number), Some(Kind::Other | Kind::Stream)) {
                    return None;
                }
                let result = if ioctl {
                    let flag = self.memory.put(2048, c_int::from(on));
                    self.call(Sysno::ioctl, &[number as usize, libc::FIONBIO as usize, flag])
                } else {
                    let flags = if on { libc::O_NONBLOCK } else { 0 };
                    self.call(Sysno::fcntl, &[number as usize, libc::F_SETFL as usize, flags as usize])
                };
                if result == 0 {
                    self.model.set_nonblocking(number, on);
                }
                result
            }
            Op::Poll { slots, events } => {
                let fds = slots.map(|slot| libc::pollfd { fd: self.number(slot), events, revents: 0 });
                for fd in fds {
                    self.no_bell(fd.fd)?;
                    self.settle(fd.fd, sink);
                }
                let place = self.memory.put(2048, fds);
                let result = self.call(Sysno::poll, &[place, 2, 0]);
                let [first, second] = self.memory.get::<[libc::pollfd; 2]>(place).map(|fd| fd.revents as u16);
                beside = u64::from(first) << 16 | u64::from(second);
                result
            }
            Op::Select { slot } => {
                let number = self.number(slot);
                // One that is closed is EBADF only within the table's size, which doorbells enlarge (known difference 17).
                if !self.model.is_open(number) {
                    return None;
                }
                self.settle(number, sink);
                let mut set = [0_u64; 16];
                set[number as usize / 64] = 1 << (number % 64);
                let sets = [2048, 2304].map(|place| self.memory.put(place, set));
                let now = self.memory.put(2560, libc::timeval { tv_sec: 0, tv_usec: 0 });
                let result = self.call(Sysno::select, &[number as usize + 1, sets[0], sets[1], 0, now]);
                for set in sets {
                    let bits = self.memory.get::<[u64; 16]>(set);
                    beside = beside << 1 | u64::from(bits[number as usize / 64] != 0);
                }
                result
            }
            Op::Splice { from, to } => {
                let (from, to) = (self.number(from), self.number(to));
                self.no_bell(from)?;
                self.no_bell(to)?;
                if self.model.read_blocks(from) {
                    return None;
                }
                self.model.moves(from);
                self.model.moves(to);
                let arguments = [from as usize, 0, to as usize, 0, 8, libc::SPLICE_F_NONBLOCK as usize];
                let result = self.call(Sysno::splice, &arguments);
                if result == 8 {
                    self.model.has_read(from);
                }
                result
            }
            Op::Shutdown { slot, how } => {
                let number = self.number(slot);
                self.no_bell(number)?;
                if self.model.kind(number) == Some(Kind::Stream) {
                    self.model.moves(number);
                }
                self.call(Sysno::shutdown, &[number as usize, how as usize])
            }
            Op::Fork => {
                self.model.everything_moves();
                self.world.fork();
                0
            }
            Op::CloseAll => {
                self.close_all(sink);
                self.forget_slots();
                return Some(());
            }
            Op::Route { by_number } => {
                self.world.begin(by_number);
                return Some(());
            }
        };
        sink.outcome(op, result, beside);
        Some(())
    }

    /// Numbers from 400 on may be doorbells, which look closed to some calls and not to others (known difference 17).
    fn no_bell(&self, number: c_int) -> Option<()> {
        (!(400..1 << 20).contains(&number)).then_some(())
    }

    fn room_for(&self, n: u32) -> Option<()> {
        self.model.has_room(n).then_some(())
    }

    fn made(&mut self, result: isize, slot: u8, kind: Kind) {
        if result >= 0 {
            self.model.made(result as c_int, kind);
            self.set_slot(slot, result as c_int);
        }
    }

    fn vector(&self, value: u64) -> usize {
        let vector = 2048;
        let buffer = self.memory.put(vector + 64, value);
        self.memory.put(vector, libc::iovec { iov_base: buffer as *mut libc::c_void, iov_len: 8 })
    }

    /// Moves an object on all sides, by a poll, and arms anew what that may report twice: before a call whose result would
    /// show it, and after one that moves on some sides and not on others.
    fn settle(&mut self, number: c_int, sink: &mut impl Sink) {
        self.model.moves(number);
        let entry = libc::pollfd { fd: number, events: 0, revents: 0 };
        let place = self.memory.put(2560, entry);
        self.call(Sysno::poll, &[place, 1, 0]);
        self.rearm(sink);
    }

    fn ctl(&mut self, set: c_int, op: c_int, target: c_int, events: u32, readable: bool, place: usize) -> isize {
        self.model.before_ctl(set, op, target, events, readable);
        let result = self.call(Sysno::epoll_ctl, &[set as usize, op as usize, target as usize, place]);
        if result == 0 {
            self.note_ctl(set, op, target, events);
        }
        result
    }

    fn note_ctl(&mut self, set: c_int, op: c_int, target: c_int, events: u32) {
        match op {
            EPOLL_CTL_ADD => self.model.added(set, target, events),
            EPOLL_CTL_MOD => self.model.modified(set, target, events),
            _ => self.model.removed(set, target),
        }
    }

    /// Arms the watches anew whose edges a move may have doubled.
    fn rearm(&mut self, sink: &mut impl Sink) {
        while let Some((set, watch)) = self.model.next_to_rearm() {
            let event = epoll_event { events: watch.events, u64: self.model.data(watch.number, watch.events, 0xed9e) };
            let place = self.memory.put(2048, event);
            let ops: &[c_int] = if watch.is_exclusive() { &[EPOLL_CTL_DEL, EPOLL_CTL_ADD] } else { &[EPOLL_CTL_MOD] };
            for &op in ops {
                let result = self.ctl(set, op, watch.number, watch.events, true, place);
                let at = At::Good;
                let op = Op::Ctl { set: 0, op, target: 0, events: watch.events, data: 0, at };
                sink.outcome(&op, result, (set as u64) << 32 | watch.number as u64);
            }
        }
    }

    fn duplicate(&mut self, slot: u8, to: u8, how: Duplication, sink: &mut impl Sink) -> Option<isize> {
        let old = self.number(slot);
        let (number, new) = (old as usize, |number: c_int| number as usize);
        let onto = |new: c_int, flags: c_int| (old != new && flags & !libc::O_CLOEXEC == 0).then_some(new);
        let result = match how {
            Duplication::Lowest => {
                self.model.moves(old);
                self.call(Sysno::dup, &[number])
            }
            Duplication::From(least) | Duplication::CloexecFrom(least) => {
                self.model.moves(old);
                let command = if let Duplication::From(_) = how { libc::F_DUPFD } else { libc::F_DUPFD_CLOEXEC };
                self.call(Sysno::fcntl, &[number, command as usize, least.into()])
            }
            Duplication::Onto(to) => {
                let to = c_int::from(to);
                if self.is_reserved(to) {
                    return None;
                }
                self.before_onto(old, onto(to, 0), sink);
                self.call(Sysno::dup2, &[number, new(to)])
            }
            Duplication::OntoSlot(to) => {
                let to = self.number(to);
                if self.is_reserved(to) {
                    return None;
                }
                self.before_onto(old, onto(to, 0), sink);
                self.call(Sysno::dup2, &[number, new(to)])
            }
            Duplication::OntoSlotWith(to, flags) => {
                let to = self.number(to);
                if self.is_reserved(to) {
                    return None;
                }
                self.before_onto(old, onto(to, flags), sink);
                self.call(Sysno::dup3, &[number, new(to), flags as usize])
            }
            Duplication::Passed | Duplication::PassedAndClosed => {
                return self.pass(old, to, how == Duplication::PassedAndClosed, sink);
            }
        };
        if result >= 0 {
            if result as c_int != old {
                self.model.duplicated(old, result as c_int);
            }
            self.set_slot(to, result as c_int);
        }
        Some(result)
    }

    /// Numbers that a program must not take: the worker's own, and those that could be a doorbell's.
    fn is_reserved(&self, number: c_int) -> bool {
        (0..=2).contains(&number)
            || self.post.is_some_and(|post| post.contains(&number))
            || (400..1 << 20).contains(&number)
    }

    /// dup2(2) moves what it duplicates and what it replaces, if it does anything.
    fn before_onto(&mut self, old: c_int, new: Option<c_int>, sink: &mut impl Sink) {
        if let Some(new) = new
            && self.model.is_open(old)
        {
            self.before_close(new, sink);
            self.model.moves(old);
            self.model.moves(new);
        }
    }

    /// A close ends a watch in an io_uring also where another number stands for the same file (SEMANTICS.md, 71): then it is removed before.
    fn before_close(&mut self, number: c_int, sink: &mut impl Sink) {
        while let Some(set) = self.model.polls_one_of_several(number) {
            let result = self.ctl(set, EPOLL_CTL_DEL, number, 0, true, 0);
            let op = Op::Ctl { set: 0, op: EPOLL_CTL_DEL, target: 0, events: 0, data: 0, at: At::Good };
            sink.outcome(&op, result, (set as u64) << 32 | number as u64);
            if result != 0 {
                return;
            }
        }
    }

    /// Sends a descriptor to ourselves.
    fn pass(&mut self, old: c_int, to: u8, close: bool, sink: &mut impl Sink) -> Option<isize> {
        self.no_bell(old)?;
        let [sender, receiver] = match self.post {
            Some(post) => post,
            None => self.make_post(),
        };
        self.model.moves(old);
        // Laid out as the kernel wants them on 64 bits: header of 16 bytes, descriptor.
        let control = self
            .memory
            .put(2048, [20_u64, (libc::SCM_RIGHTS as u64) << 32 | libc::SOL_SOCKET as u64, old as u32 as u64]);
        let vector = self.vector_at(2304);
        // SAFETY: zeros are a message.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = vector as *mut libc::iovec;
        message.msg_iovlen = 1;
        message.msg_control = control as *mut libc::c_void;
        message.msg_controllen = 24;
        let message = self.memory.put(2560, message);
        let sent = self.call(Sysno::sendmsg, &[sender as usize, message, 0]);
        if sent < 0 {
            return Some(sent);
        }
        if close {
            self.rearm(sink);
            // The message is a descriptor too, for the model: it keeps the description open.
            self.model.duplicated(old, IN_FLIGHT);
            self.before_close(old, sink);
            let result = self.call(Sysno::close, &[old as usize]);
            self.model.closed(old);
            sink.outcome(&Op::CloseAll, result, old as u64);
        }
        let received = self.call(Sysno::recvmsg, &[receiver as usize, message, 0]);
        let number = self.memory.get::<[u64; 3]>(control)[2] as u32 as c_int;
        if received < 0 {
            return Some(received);
        }
        self.model.duplicated(if close { IN_FLIGHT } else { old }, number);
        self.model.closed(IN_FLIGHT);
        self.set_slot(to, number);
        Some(number as isize)
    }

    fn vector_at(&self, place: usize) -> usize {
        let buffer = self.memory.put(place + 64, b'x');
        self.memory.put(place, libc::iovec { iov_base: buffer as *mut libc::c_void, iov_len: 1 })
    }

    fn make_post(&mut self) -> [c_int; 2] {
        let pair = self.memory.put(2048, [-1, -1]);
        let kind = (libc::SOCK_STREAM | libc::SOCK_NONBLOCK) as usize;
        self.call(Sysno::socketpair, &[libc::AF_UNIX as usize, kind, 0, pair]);
        let pair: [c_int; 2] = self.memory.get(pair);
        // Up and out of the way, so that it does not matter when they were made.
        let up = pair.map(|fd| {
            let high = self.call(Sysno::fcntl, &[fd as usize, libc::F_DUPFD as usize, POST]) as c_int;
            self.call(Sysno::close, &[fd as usize]);
            high
        });
        self.post = Some(up);
        up
    }

    /// Puts `found` events behind the reports.
    fn report(&mut self, events: usize, found: isize) {
        for i in 0..found.max(0) as usize {
            let event: epoll_event = self.memory.get(events + i * size_of::<epoll_event>());
            self.reports.push(((event.u64, event.events), self.model.is_of_in_process(event.u64)));
        }
    }

    /// Waits on, without waiting; how many there are then.
    fn gather(&mut self, set: c_int, events: usize, room: i32, gathering: Gathering) -> isize {
        loop {
            let before = self.reports.len();
            let room = if gathering == Gathering::Count { room.min(GATHERED - before as i32) } else { room };
            if room == 0 {
                break;
            }
            let found = self.call(Sysno::epoll_wait, &[set as usize, events, room as usize, 0]);
            if found <= 0 {
                break;
            }
            self.report(events, found);
            if gathering == Gathering::News {
                let mut kept = before;
                for i in before..self.reports.len() {
                    let again =
                        Model::is_of_level(self.reports[i].0.0) && self.reports[..kept].contains(&self.reports[i]);
                    if !again {
                        self.reports.swap(kept, i);
                        kept += 1;
                    }
                }
                self.reports.truncate(kept);
                if kept == before || kept > MOST_GATHERED {
                    break;
                }
            }
        }
        self.reports.len() as isize
    }

    /// A wait; the events are in `reports`, in as canonical an order as is defined.
    fn wait(&mut self, set: c_int, room: i32, patience: Patience, call: WaitCall, at: At) -> (isize, Order) {
        let order = self.model.order(set);
        // Which events a small buffer gets, and which are looked at until one finds no memory, depends on the order of all.
        // A wait on a ring may give fewer events than are ready (SEMANTICS.md, 65), so several are made, on all sides.
        let gathering = if room > 0 { self.model.gathering(set) } else { Gathering::None };
        let at = match at {
            At::Before(n) if gathering != Gathering::None && n > 0 => At::Good,
            // What it had no memory to store goes behind what the next filling finds (SEMANTICS.md, 66); a bell alone finds no memory either (75).
            _ if room > 0 && (gathering == Gathering::Count || self.model.polls(set)) => At::Good,
            at => at,
        };
        let (room, at) = match (gathering, order) {
            (Gathering::Room, Order::Whole) => (room.max(ROOM), at),
            (Gathering::Count, _) => (room.min(GATHERED), at),
            (Gathering::None, Order::Whole) => (room, at),
            _ if room <= 0 => (room, at),
            _ if at == At::High => (room.max(ROOM), at),
            _ => (room.max(ROOM), At::Good),
        };
        let order = if gathering == Gathering::News { Order::None } else { order };
        let events = self.memory.place(at, size_of::<epoll_event>());
        let certain = self.model.is_certainly_ready(set);
        let (milliseconds, limit) = match patience {
            Patience::None => (0, Some(timespec { tv_sec: 0, tv_nsec: 0 })),
            Patience::Micros(micros) => {
                (c_int::from(micros.div_ceil(1000)), Some(timespec { tv_sec: 0, tv_nsec: i64::from(micros) * 1000 }))
            }
            Patience::ForEver if certain => (-1, None),
            Patience::ForEver => (0, Some(timespec { tv_sec: 0, tv_nsec: 0 })),
            Patience::Nonsense(seconds, nanos) => (0, Some(timespec { tv_sec: seconds.into(), tv_nsec: nanos })),
        };
        let mask = |mask| match mask {
            Mask::Null => 0,
            Mask::Empty => self.memory.put(3072, [0_u64; 16]),
            Mask::Nowhere => self.memory.place(At::Forbidden, 1),
        };
        let (number, limit, mask) = match call {
            WaitCall::Wait => (Sysno::epoll_wait, milliseconds as usize, 0),
            WaitCall::Pwait(how) => (Sysno::epoll_pwait, milliseconds as usize, mask(how)),
            WaitCall::Pwait2(how) => {
                let limit = limit.map_or(0, |limit| self.memory.put(2048, limit));
                (Sysno::epoll_pwait2, limit, mask(how))
            }
        };
        let result = self.call(number, &[set as usize, events, room as usize, limit, mask, 8]);
        self.reports.clear();
        self.report(events, result);
        let result = match gathering {
            Gathering::Count | Gathering::News if result > 0 => self.gather(set, events, room, gathering),
            _ => result,
        };
        match order {
            Order::Whole => {}
            // Stable.
            Order::Halves => self.reports.sort_by_key(|(_, in_process)| *in_process),
            Order::None => self.reports.sort_unstable(),
        }
        (result, order)
    }
}

/// Events of a set with a ring that are compared in order: more than there can be watches, so that each is looked at. (A ring is filled with what holds,
/// also beyond the room of a wait. The kernel does not look at what it has no room for; it keeps its place, whether it holds or not.)
const GATHERED: i32 = 30;
/// Where gathering ends that finds edges again and again.
const MOST_GATHERED: usize = 200;

/// Whether nothing but the buffer can be wrong with a wait.
fn is_right(room: i32, patience: Patience, call: WaitCall) -> bool {
    let time =
        !matches!(patience, Patience::Nonsense(seconds, nanos) if seconds < 0 || !(0..1_000_000_000).contains(&nanos));
    let call = match call {
        WaitCall::Wait => true,
        WaitCall::Pwait(mask) => mask != Mask::Nowhere,
        WaitCall::Pwait2(mask) => mask != Mask::Nowhere && time,
    };
    room > 0 && room <= i32::MAX / size_of::<epoll_event>() as i32 && call
}

/// Where the sockets for `SCM_RIGHTS` go.
const POST: usize = 380;
/// A number that stands for a message, in the model.
const IN_FLIGHT: c_int = 379;
