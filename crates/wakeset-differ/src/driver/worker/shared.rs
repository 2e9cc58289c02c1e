//! Objects that the threads of a worker share: what is put in comes out, once, and a thread that
//! sleeps for its turn is woken.

use crate::program::choices::Choices;
use crate::program::{Focus, Road};
use crate::world::{Sysno, World};
use libc::{c_int, epoll_event};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// The objects that hold something, in pairs of the number to put it in by and the one to take it
/// out by.
const HOLDERS: usize = 3;
const COUNTER: usize = 0;

/// The objects of a block. Their numbers are written while the threads wait for it to begin.
#[derive(Debug)]
pub(super) struct Shared {
    into: [AtomicI32; HOLDERS],
    out: [AtomicI32; HOLDERS],
    /// A set that watches what is taken out.
    set: AtomicI32,
    /// For each thread: an eventfd on which it sleeps for its turn, and a set that watches it.
    turns: Vec<[AtomicI32; 2]>,
    put: [AtomicU64; HOLDERS],
    taken: [AtomicU64; HOLDERS],
    /// Results that no order of the calls explains.
    odd: AtomicU64,
    /// Whether calls are also made by instruction.
    instructions: bool,
}

fn call<W: World>(world: &mut W, number: Sysno, arguments: &[usize]) -> isize {
    let mut all = [0; 6];
    all[..arguments.len()].copy_from_slice(arguments);
    // SAFETY: every caller passes addresses of values of its own, as long as the call wants them.
    unsafe { world.call(number, all) }
}

fn get(number: &AtomicI32) -> usize {
    number.load(Ordering::Relaxed) as usize
}

fn write<W: World>(world: &mut W, fd: usize, bytes: &[u8]) -> isize {
    call(world, Sysno::write, &[fd, bytes.as_ptr().expose_provenance(), bytes.len()])
}

fn read<W: World>(world: &mut W, fd: usize, bytes: &mut [u8]) -> isize {
    call(world, Sysno::read, &[fd, bytes.as_mut_ptr().expose_provenance(), bytes.len()])
}

fn watch<W: World>(world: &mut W, set: usize, fd: usize, data: u64) {
    let event = epoll_event { events: libc::EPOLLIN as u32, u64: data };
    let event = (&raw const event).expose_provenance();
    call(world, Sysno::epoll_ctl, &[set, libc::EPOLL_CTL_ADD as usize, fd, event]);
}

/// A wait on a set for one event: the result, and the event.
fn wait<W: World>(world: &mut W, set: usize, timeout: c_int) -> (isize, epoll_event) {
    let mut event = epoll_event { events: 0, u64: u64::MAX };
    let place = (&raw mut event).expose_provenance();
    (call(world, Sysno::epoll_wait, &[set, place, 1, timeout as usize]), event)
}

/// What bytes are worth.
fn worth(bytes: &[u8]) -> u64 {
    bytes.iter().map(|byte| u64::from(*byte)).sum()
}

fn is_none(result: isize) -> bool {
    result == -(libc::EAGAIN as isize)
}

impl Shared {
    pub fn new(threads: u32, focus: Focus) -> Self {
        let number = || AtomicI32::new(-1);
        Self {
            into: std::array::from_fn(|_| number()),
            out: std::array::from_fn(|_| number()),
            set: number(),
            turns: (0..threads).map(|_| [number(), number()]).collect(),
            put: std::array::from_fn(|_| AtomicU64::new(0)),
            taken: std::array::from_fn(|_| AtomicU64::new(0)),
            odd: AtomicU64::new(0),
            instructions: focus == Focus::Instructions,
        }
    }

    /// Any road; by instruction seldom, as programs do.
    fn road(&self, choices: &mut impl Choices) -> Road {
        if self.instructions && choices.once_in(64) {
            return Road::Instruction;
        }
        choices.one_of(Road::ALL)
    }

    /// Makes the objects of a block.
    pub fn make<W: World>(&self, world: &mut W) {
        let counter = call(world, Sysno::eventfd2, &[0, libc::EFD_NONBLOCK as usize]) as c_int;
        let mut ends = [[counter; 2], [-1; 2], [-1; 2]];
        let place = ends[1].as_mut_ptr().expose_provenance();
        call(world, Sysno::pipe2, &[place, libc::O_NONBLOCK as usize]);
        let place = ends[2].as_mut_ptr().expose_provenance();
        let kind = (libc::SOCK_STREAM | libc::SOCK_NONBLOCK) as usize;
        call(world, Sysno::socketpair, &[libc::AF_UNIX as usize, kind, 0, place]);
        let set = call(world, Sysno::epoll_create1, &[0]);
        self.set.store(set as c_int, Ordering::Relaxed);
        for (holder, [out, into]) in ends.into_iter().enumerate() {
            self.out[holder].store(out, Ordering::Relaxed);
            self.into[holder].store(into, Ordering::Relaxed);
            self.put[holder].store(0, Ordering::Relaxed);
            self.taken[holder].store(0, Ordering::Relaxed);
            watch(world, set as usize, out as usize, holder as u64);
        }
        // One thread may be several turns ahead of the next.
        let semaphore = [0, libc::EFD_SEMAPHORE as usize];
        for [turn, set] in &self.turns {
            turn.store(call(world, Sysno::eventfd2, &semaphore) as c_int, Ordering::Relaxed);
            set.store(call(world, Sysno::epoll_create1, &[0]) as c_int, Ordering::Relaxed);
            watch(world, get(set), get(turn), 0);
        }
    }

    /// Does something to them, by any road.
    pub fn act<W: World>(&self, world: &mut W, choices: &mut impl Choices) {
        world.take(self.road(choices));
        let holder = choices.below(HOLDERS as u32) as usize;
        match choices.below(16) {
            0..6 => self.put_in(world, holder, choices.bits()),
            6..12 => {
                self.take_out(world, holder);
            }
            12..15 => {
                let (n, event) = wait(world, get(&self.set), 0);
                let (bits, data) = (event.events, event.u64);
                let known = data < HOLDERS as u64 && bits == libc::EPOLLIN as u32;
                self.expect(n == 0 || n == 1 && known);
            }
            // A second number, and with it a migration.
            _ if choices.once_in(8) => {
                let second = call(world, Sysno::dup, &[get(&self.out[holder])]);
                self.expect(second >= 0 && call(world, Sysno::close, &[second as usize]) == 0);
            }
            _ => {}
        }
    }

    fn expect(&self, holds: bool) {
        self.odd.fetch_add(u64::from(!holds), Ordering::Relaxed);
    }

    fn put_in<W: World>(&self, world: &mut W, holder: usize, bits: u64) {
        let number = bits >> 8 & 0xff;
        let bytes = if holder == COUNTER { number } else { bits }.to_ne_bytes();
        let bytes = &bytes[..if holder == COUNTER { 8 } else { 1 + bits as usize % 8 }];
        // Before the write: another thread may take it out at once.
        let value = if holder == COUNTER { number } else { worth(bytes) };
        self.put[holder].fetch_add(value, Ordering::SeqCst);
        let result = write(world, get(&self.into[holder]), bytes);
        if result != bytes.len() as isize {
            self.put[holder].fetch_sub(value, Ordering::SeqCst);
            self.expect(is_none(result));
        }
    }

    /// Takes something out; whether there was something.
    fn take_out<W: World>(&self, world: &mut W, holder: usize) -> bool {
        let mut bytes = [0; 8];
        let result = read(world, get(&self.out[holder]), &mut bytes);
        let n = usize::try_from(result).unwrap_or(0).min(8);
        let number = u64::from_ne_bytes(bytes);
        let value = if holder == COUNTER { number } else { worth(&bytes[..n]) };
        self.taken[holder].fetch_add(value, Ordering::SeqCst);
        self.expect(is_none(result) || n == 8 || n > 0 && holder != COUNTER);
        n > 0
    }

    /// Gives the next thread its turn, and waits for its own: by a read that sleeps, or by a wait
    /// that does and a read. Returns how many calls that took.
    pub fn hand_on<W: World>(&self, world: &mut W, place: u32, choices: &mut impl Choices) -> u64 {
        let [next, _] = &self.turns[(place as usize + 1) % self.turns.len()];
        let [own, set] = &self.turns[place as usize];
        world.take(self.road(choices));
        self.expect(write(world, get(next), &1_u64.to_ne_bytes()) == 8);
        world.take(self.road(choices));
        let mut polled = libc::pollfd { fd: get(own) as c_int, events: libc::POLLIN, revents: 0 };
        match choices.below(16) {
            0..8 => {}
            8..15 => self.expect(wait(world, get(set), -1).0 == 1),
            _ => {
                let place = (&raw mut polled).expose_provenance();
                self.expect(call(world, Sysno::poll, &[place, 1, usize::MAX]) == 1);
            }
        }
        world.take(self.road(choices));
        self.expect(read(world, get(own), &mut [0; 8]) == 8);
        2
    }

    /// Ends the objects of a block: what is wrong, if anything is. The threads have stopped.
    pub fn end<W: World>(&self, world: &mut W) -> Option<String> {
        world.take(Road::Name);
        for holder in 0..HOLDERS {
            while self.take_out(world, holder) {}
        }
        let numbers = self.out.iter().chain(&self.into[1..]).chain([&self.set]);
        for number in numbers.chain(self.turns.iter().flatten()) {
            self.expect(call(world, Sysno::close, &[get(number)]) == 0);
        }
        let sums = |of: &[AtomicU64; HOLDERS]| of.each_ref().map(|sum| sum.load(Ordering::SeqCst));
        let (put, taken) = (sums(&self.put), sums(&self.taken));
        let odd = self.odd.swap(0, Ordering::Relaxed);
        (put != taken || odd != 0)
            .then(|| format!("put in {put:?}, taken out {taken:?}, {odd} odd results"))
    }
}
