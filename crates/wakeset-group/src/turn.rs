//! The turn: of several threads that want to wait for the same thing, the one that does.
//!
//! Where the kernel wakes all who wait (a userfaultfd), only one thread of the process waits in the kernel, the one that has
//! the turn; the others sleep on a word of their own each. Who has got an event passes the turn to exactly one of
//! them and goes to work (leader and followers). An event costs two wake-ups, however many threads there are.
//!
//! | turn | means | left by |
//! |---|---|---|
//! | free | nobody is queued, nobody waits in the kernel | [`Turns::join`] |
//! | taken | a thread waits in the kernel, or is about to, or has been given the turn and not run yet | [`Turns::pass`], [`Turns::hold`] |
//! | in hand | a thread was told that there is an event (poll(2)) and has not taken it (read(2)): whoever looked now would be told of the same one | [`Turns::taken`], or a queued thread after a while ([`Turns::rescue`]) |
//!
//! Invariant: whenever somebody is queued, the turn is taken or in hand. So the only way to strand a thread is to lose the turn, and each
//! function here that gives it up hands it to somebody, or frees it with the queue empty, under one lock.
//!
//! | waiter's state | means | set by |
//! |---|---|---|
//! | `QUEUED` | in the queue | its thread |
//! | `GIVEN` | out of the queue, has the turn | who passes the turn |
//! | `OUT` | out of the queue, without the turn | its thread or its signal handler ([`Turns::leave`]), [`Turns::disband`] |
//!
//! No function sleeps but [`Waiter::sleep`]; they may be called from a signal handler if handlers are kept out of them meanwhile.

use crate::order::Order;
use crate::sync::{Futex, Ordering, Slept, mutant};
use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::ptr;
use libc::timespec;
use syscalls::{Sysno, syscall};
use wakeset::RawLock;

const OUT: u32 = 0;
const QUEUED: u32 = 1;
const GIVEN: u32 = 2;

/// Nobody has the turn.
const FREE: usize = 0;
/// A thread of ours has it. Anything else: it is in the hand of the thread of that name.
const TAKEN: usize = 1;

/// A thread's place in the queue. It stays where it is while it is queued.
#[derive(Debug)]
pub struct Waiter {
    state: Futex,
    links: UnsafeCell<Links>,
    /// An eventfd that does not block, to write to instead, for who sleeps in the kernel on other descriptors; -1 for none.
    baton: c_int,
    /// It sleeps without a limit, so it cannot rescue a turn that stays in a hand.
    patient: bool,
}

#[derive(Debug)]
struct Links {
    older: *const Waiter,
    newer: *const Waiter,
}

// SAFETY: the links are only touched under the lock of the group that the waiter is queued in.
unsafe impl Sync for Waiter {}
// SAFETY: as above.
unsafe impl Send for Waiter {}

/// How a sleep in the queue ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// The turn is this thread's.
    Given,
    /// The queue was disbanded, or a signal handler has taken the thread out of it.
    Out,
    /// The time is up. The thread is still queued, or has been given the turn since.
    TimedOut,
    /// A signal handler has run and the call is not to be resumed. The thread is still queued, or has been given the turn since.
    Interrupted,
}

impl Waiter {
    /// A place for a thread that sleeps in [`sleep`](Self::sleep) with a limit, or in the kernel on `baton`.
    #[must_use]
    pub fn new(baton: Option<c_int>) -> Self {
        let links = UnsafeCell::new(Links { older: ptr::null(), newer: ptr::null() });
        Self { state: Futex::new(OUT), links, baton: baton.unwrap_or(-1), patient: false }
    }

    /// A place for a thread that sleeps in [`sleep`](Self::sleep) without a limit.
    #[must_use]
    pub fn patient() -> Self {
        Self { patient: true, ..Self::new(None) }
    }

    /// Whether this thread has been given the turn.
    pub fn is_given(&self) -> bool {
        self.state.word().load(Ordering::Acquire) == GIVEN
    }

    /// Whether this thread is still in the queue.
    pub fn is_queued(&self) -> bool {
        self.state.word().load(Ordering::Acquire) == QUEUED
    }

    /// Sleeps until the thread is out of the queue, at most for `limit`.
    pub fn sleep(&self, limit: Option<&timespec>) -> Woken {
        loop {
            match self.state.word().load(Ordering::Acquire) {
                GIVEN => return Woken::Given,
                OUT => return Woken::Out,
                _ => {}
            }
            match self.state.sleep(QUEUED, limit) {
                // With a limit a stray wake would begin it anew: the caller knows how much is left.
                Slept::Woken if limit.is_some() && self.is_queued() => return Woken::TimedOut,
                Slept::Woken => {}
                Slept::TimedOut => return Woken::TimedOut,
                Slept::Interrupted => return Woken::Interrupted,
            }
        }
    }
}

/// Who is to be told that the turn is theirs, once the lock is free. Null: has been told.
#[must_use]
struct Next(*const Futex);

impl Next {
    fn wake(self) {
        if !self.0.is_null() {
            Futex::wake_at(self.0);
        }
    }
}

#[derive(Debug)]
struct Inner {
    turn: usize,
    oldest: *const Waiter,
    newest: *const Waiter,
    /// Queued waiters that are patient.
    patient: u32,
    /// Counts up whenever the turn changes: who has seen the same number for long has seen the same hand.
    stamp: u32,
    /// How often it went from one thread to another.
    handed_on: u64,
}

/// The threads that wait for one thing. All zeros is a free turn and an empty queue, so it may lie in memory that a fork wipes
/// (`MADV_WIPEONFORK`): in the child none of these threads exists.
#[derive(Debug)]
pub struct Turns {
    lock: RawLock,
    inner: UnsafeCell<Inner>,
}

// SAFETY: `inner` is only touched with the lock held; the waiters it leads to are out of the queue before they go.
unsafe impl Sync for Turns {}
// SAFETY: as above.
unsafe impl Send for Turns {}

impl Default for Turns {
    fn default() -> Self {
        Self::new()
    }
}

const fn nobody() -> Inner {
    Inner { turn: FREE, oldest: ptr::null(), newest: ptr::null(), patient: 0, stamp: 0, handed_on: 0 }
}

impl Turns {
    /// A free turn.
    #[cfg(not(loom))]
    #[must_use]
    pub const fn new() -> Self {
        Self { lock: RawLock::new(), inner: UnsafeCell::new(nobody()) }
    }

    /// A free turn.
    #[cfg(loom)]
    #[must_use]
    pub fn new() -> Self {
        Self { lock: RawLock::new(), inner: UnsafeCell::new(nobody()) }
    }

    fn with<T>(&self, f: impl FnOnce(&mut Inner) -> T) -> T {
        self.lock.lock();
        // SAFETY: the lock is ours.
        let result = f(unsafe { &mut *self.inner.get() });
        self.lock.unlock();
        result
    }

    /// Takes the turn if it is free, or in the hand of this thread (`me`, a number over 1 that no other thread has); else queues the thread.
    /// Whether it has the turn. A patient waiter takes a turn that is in anybody's hand.
    ///
    /// # Safety
    /// A queued waiter stays where it is until it is out of the queue.
    pub unsafe fn join(&self, waiter: &Waiter, me: usize) -> bool {
        self.with(|inner| {
            if matches!(inner.turn, FREE) || inner.turn == me || (inner.turn != TAKEN && waiter.patient) {
                inner.set(TAKEN);
                return true;
            }
            inner.push(waiter);
            false
        })
    }

    /// Gives the turn, which is the caller's, to a queued thread; frees it if there is none.
    pub fn pass(&self, order: Order) {
        let next = self.with(|inner| inner.pass(order));
        if mutant!("pass_without_wake") {
            return;
        }
        wake(next);
    }

    /// Keeps the turn, which is the caller's, in its hand: it was told of an event that it has not taken.
    pub fn hold(&self, me: usize, order: Order) {
        let next = self.with(|inner| {
            if inner.patient > 0 || mutant!("told_and_passed") {
                return inner.pass(order);
            }
            inner.set(me);
            None
        });
        wake(next);
    }

    /// An event was taken, or was found to be gone: a turn that is in a hand goes on to the next.
    pub fn taken(&self, order: Order) {
        let next = self.with(|inner| if matches!(inner.turn, FREE | TAKEN) { None } else { inner.pass(order) });
        wake(next);
    }

    /// Takes the thread out of the queue; passes the turn on if it has been given it.
    pub fn leave(&self, waiter: &Waiter, order: Order) {
        let next = self.with(|inner| {
            let state = waiter.state.word().load(Ordering::Relaxed);
            if state == QUEUED {
                inner.unlink(waiter);
            }
            waiter.state.word().store(OUT, Ordering::Relaxed);
            if mutant!("leave_with_turn") {
                return None;
            }
            if state == GIVEN { inner.pass(order) } else { None }
        });
        wake(next);
    }

    /// A number that changes whenever the turn does.
    pub fn stamp(&self) -> u32 {
        self.with(|inner| inner.stamp)
    }

    /// For a queued thread that has slept long enough: takes the turn if it is still in the hand that it was in at `stamp`. Whether it did.
    pub fn rescue(&self, waiter: &Waiter, stamp: u32) -> bool {
        self.with(|inner| {
            let stuck = !matches!(inner.turn, FREE | TAKEN) && inner.stamp == stamp;
            if !stuck || waiter.state.word().load(Ordering::Relaxed) != QUEUED {
                return false;
            }
            inner.unlink(waiter);
            waiter.state.word().store(OUT, Ordering::Relaxed);
            inner.set(TAKEN);
            true
        })
    }

    /// Sends everybody out of the queue.
    pub fn disband(&self) {
        loop {
            let next = self.with(|inner| inner.pop(Order::Fifo).map(|waiter| waiter.tell(OUT)));
            if next.is_none() {
                return;
            }
            if !mutant!("disband_without_wake") {
                wake(next);
            }
        }
    }

    /// Whether anybody is queued.
    pub fn has_queue(&self) -> bool {
        self.with(|inner| !inner.oldest.is_null())
    }

    /// How often the turn went from one thread to another.
    pub fn handed_on(&self) -> u64 {
        self.with(|inner| inner.handed_on)
    }
}

fn wake(next: Option<Next>) {
    if let Some(next) = next {
        next.wake();
    }
}

impl Waiter {
    /// Takes note, under the lock, that the waiter is out of the queue. From then on it may be gone at any time.
    fn tell(&self, state: u32) -> Next {
        let baton = self.baton;
        let next = Next(if baton < 0 { &raw const self.state } else { ptr::null() });
        self.state.word().store(state, Ordering::Release);
        if baton >= 0 {
            let one = 1_u64;
            // Under the lock, so that who takes the lock later knows that this is over: the number may be another's then.
            // SAFETY: eight bytes of ours. A full counter (EAGAIN) wakes as well.
            let _ = unsafe { syscall!(Sysno::write, baton, &raw const one, 8) };
        }
        next
    }
}

impl Inner {
    fn set(&mut self, turn: usize) {
        self.turn = turn;
        self.stamp = self.stamp.wrapping_add(1);
    }

    fn pass(&mut self, order: Order) -> Option<Next> {
        let next = self.pop(order).map(|waiter| waiter.tell(GIVEN));
        self.handed_on += u64::from(next.is_some());
        self.set(if next.is_some() { TAKEN } else { FREE });
        next
    }

    fn push(&mut self, waiter: &Waiter) {
        waiter.state.word().store(QUEUED, Ordering::Relaxed);
        // SAFETY: the lock is held, and queued waiters are where they were.
        unsafe {
            *waiter.links.get() = Links { older: self.newest, newer: ptr::null() };
            match self.newest.as_ref() {
                Some(newest) => (*newest.links.get()).newer = waiter,
                None => self.oldest = waiter,
            }
        }
        self.newest = waiter;
        self.patient += u32::from(waiter.patient);
    }

    fn pop(&mut self, order: Order) -> Option<&'static Waiter> {
        let chosen = match order {
            Order::Fifo | Order::Turns => self.oldest,
            Order::Lifo => self.newest,
        };
        // SAFETY: queued waiters are where they were, and stay there until they are told.
        let chosen = unsafe { chosen.as_ref() }?;
        self.unlink(chosen);
        Some(chosen)
    }

    fn unlink(&mut self, waiter: &Waiter) {
        // SAFETY: the lock is held, and queued waiters are where they were.
        unsafe {
            let Links { older, newer } = *waiter.links.get();
            match older.as_ref() {
                Some(older) => (*older.links.get()).newer = newer,
                None => self.oldest = newer,
            }
            match newer.as_ref() {
                Some(newer) => (*newer.links.get()).older = older,
                None => self.newest = older,
            }
        }
        self.patient -= u32::from(waiter.patient);
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::sync::{Arc, Condvar, Mutex};
    use loom::thread::{JoinHandle, spawn};
    use std::boxed::Box;
    use wakeset::explore;

    /// The turns, and the kernel's end: messages, and whoever has the turn asleep until there is one.
    struct World {
        turns: Turns,
        messages: Mutex<u32>,
        posted: Condvar,
    }

    impl World {
        fn new() -> Arc<Self> {
            Arc::new(World { turns: Turns::new(), messages: Mutex::new(0), posted: Condvar::new() })
        }

        fn post(&self) {
            *self.messages.lock().unwrap() += 1;
            self.posted.notify_all();
        }

        fn wait_for_message(&self) -> loom::sync::MutexGuard<'_, u32> {
            let mut messages = self.messages.lock().unwrap();
            while *messages == 0 {
                messages = self.posted.wait(messages).unwrap();
            }
            messages
        }

        fn until_read(&self) {
            let mut messages = self.messages.lock().unwrap();
            while *messages > 0 {
                messages = self.posted.wait(messages).unwrap();
            }
        }

        /// Takes one message as a blocking read does.
        fn read(&self) {
            let waiter = leak(Waiter::patient());
            // SAFETY: the waiter stays for ever.
            if !unsafe { self.turns.join(waiter, usize::MAX) } {
                assert_eq!(waiter.sleep(None), Woken::Given);
            }
            *self.wait_for_message() -= 1;
            self.turns.pass(Order::Fifo);
        }

        /// Takes one message as a poll and a read do.
        fn poll_and_read(&self, me: usize) {
            let waiter = leak(Waiter::new(None));
            // SAFETY: the waiter stays for ever.
            if !unsafe { self.turns.join(waiter, me) } {
                assert_eq!(waiter.sleep(None), Woken::Given);
            }
            drop(self.wait_for_message());
            self.turns.hold(me, Order::Fifo);
            let mut messages = self.messages.lock().unwrap();
            assert!(*messages > 0, "told of a message that another has taken");
            *messages -= 1;
            self.posted.notify_all();
            drop(messages);
            self.turns.taken(Order::Fifo);
        }

        /// Asks for the turn and goes away at once.
        fn give_up(&self) {
            let waiter = leak(Waiter::new(None));
            // SAFETY: the waiter stays for ever.
            if unsafe { self.turns.join(waiter, usize::MAX) } {
                self.turns.pass(Order::Fifo);
            } else {
                self.turns.leave(waiter, Order::Fifo);
            }
        }
    }

    /// Who passes the turn may wake a thread that has gone on: in a model its waiter must still be there.
    fn leak(waiter: Waiter) -> &'static Waiter {
        Box::leak(Box::new(waiter))
    }

    fn run(world: &Arc<World>, body: impl FnOnce(&World) + 'static) -> JoinHandle<()> {
        let world = Arc::clone(world);
        spawn(move || body(&world))
    }

    /// Catches a turn that is given before the sleeper can see it, and one that is lost between a pass and a join.
    #[test]
    fn each_message_is_read() {
        explore(3, || {
            let world = World::new();
            let other = run(&world, World::read);
            world.post();
            world.post();
            world.read();
            other.join().unwrap();
        });
    }

    /// Catches a thread that goes away with a turn that it has just been given.
    #[test]
    fn who_gives_up_strands_nobody() {
        explore(2, || {
            let world = World::new();
            let others = [run(&world, World::read), run(&world, World::give_up)];
            world.post();
            world.post();
            world.read();
            for other in others {
                other.join().unwrap();
            }
        });
    }

    /// Catches two threads that are told of one message, and a turn that stays in a hand that has read.
    #[test]
    fn a_message_is_told_to_one() {
        explore(2, || {
            let world = World::new();
            let others = [run(&world, |world| world.poll_and_read(2)), run(&world, |world| world.poll_and_read(3))];
            world.post();
            world.until_read();
            world.post();
            for other in others {
                other.join().unwrap();
            }
        });
    }

    /// Catches a disband that leaves a sleeper behind.
    #[test]
    fn a_disband_wakes_who_sleeps() {
        explore(3, || {
            let world = World::new();
            // SAFETY: the waiter stays for ever.
            assert!(unsafe { world.turns.join(leak(Waiter::patient()), usize::MAX) });
            let waiter = leak(Waiter::patient());
            // SAFETY: the waiter stays for ever.
            assert!(!unsafe { world.turns.join(waiter, usize::MAX) });
            let sleeper = spawn(move || assert_eq!(waiter.sleep(None), Woken::Out));
            world.turns.disband();
            sleeper.join().unwrap();
            assert!(!world.turns.has_queue());
        });
    }
}
