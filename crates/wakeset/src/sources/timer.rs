//! The timer: timerfd(2) in user space, with exactly its behaviour, and without a timer of the
//! kernel's.
//!
//! Whether a timer has expired is a matter of the clock and of one pair of numbers: when it expires
//! (or, not read since, first expired) and its interval. Nothing happens at that moment; a set that
//! watches the timer has *planned* to look at it then (`set/deadlines/planning.rs`), and its waiter
//! sleeps until the earliest of its plans. A thread that sets a timer to an earlier time than was
//! planned tells the watches, on the wake path; one that sets it to a later time tells none.

use crate::error::Error;
use crate::events::Events;
use crate::sync::blocked::{ALL, Blocked, READERS};
use crate::sync::time::Deadline;
use crate::sync::{AtomicPair, AtomicU32, AtomicU64, Ordering};
use crate::wake::source::Source;
use crate::wake::timed::{NEVER, Timed};
use crate::wake::wait_queue::WaitQueue;
use bitflags::bitflags;
use core::time::Duration;

bitflags! {
    /// How a [`Timer`] behaves, with the values of `<sys/timerfd.h>` on x86-64.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct TimerFlags: u32 {
        /// `TFD_NONBLOCK`: a read that would block fails with EAGAIN.
        const NONBLOCK = 0o4000;
    }
}

/// What a timer is set to: `struct itimerspec`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[doc(alias = "itimerspec")]
pub struct TimerSpec {
    /// Until it expires, in nanoseconds; zero is never.
    pub value: Duration,
    /// From then on in this interval; zero is once.
    pub interval: Duration,
}

/// In place of a plan: several watches have one each.
const SHARED: u64 = u64::MAX - 1;
/// In place of a time of expiry: not set. The clock was never there.
const DISARMED: u64 = 0;
/// In place of a time of expiry: the state lives elsewhere. Later than the latest time there is.
const SEALED: u64 = u64::MAX;
/// The latest time there is, and the longest: Linux's KTIME_MAX.
const LATEST: u64 = i64::MAX as u64;
/// Seconds from here on are all taken for [`LATEST`].
const MOST_SECONDS: u64 = LATEST / 1_000_000_000;

/// Nanoseconds as Linux counts them.
fn nanos(time: Duration) -> u64 {
    if time.as_secs() >= MOST_SECONDS {
        LATEST
    } else {
        time.as_secs() * 1_000_000_000 + u64::from(time.subsec_nanos())
    }
}

fn now() -> u64 {
    Deadline::now().as_nanos()
}

/// When a timer expires and in which interval, in nanoseconds of the clock. Of several expirations
/// that have not been read, the first: how many there are, and when the next is, follows from the
/// clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub struct Expiry {
    /// [`DISARMED`], [`SEALED`], or when.
    pub next: u64,
    /// 0 for once.
    pub interval: u64,
}

impl Expiry {
    /// Of a timer that is not set.
    pub const DISARMED: Self = Self { next: DISARMED, interval: 0 };
    const SEALED: Self = Self { next: SEALED, interval: 0 };

    /// Of a timer that is set to this at `now`.
    pub fn after(spec: TimerSpec, now: u64) -> Self {
        let value = nanos(spec.value);
        let next = if value == 0 { DISARMED } else { value.saturating_add(now).min(LATEST) };
        Self { next, interval: nanos(spec.interval) }
    }

    /// Of a timer that is set to a point in time.
    pub fn at(at: Duration, interval: Duration) -> Self {
        Self { next: nanos(at), interval: nanos(interval) }
    }

    fn pair(self) -> (u64, u64) {
        (self.next, self.interval)
    }

    /// Whether it is set; not whether it has expired.
    pub fn is_armed(self) -> bool {
        self.next != DISARMED && self.next != SEALED
    }

    /// Whether it has expired by `now`.
    pub fn has_expired(self, now: u64) -> bool {
        self.is_armed() && self.next <= now
    }

    /// What it is set to once everything has been read that has expired by `now`.
    pub fn left_at(self, now: u64) -> Self {
        if self.has_expired(now) { self.after_read(now).1 } else { self }
    }

    /// What is read at `now`, after the time of `next`: the expirations, and what is left.
    fn after_read(self, now: u64) -> (u64, Self) {
        if self.interval == 0 {
            return (1, Self { next: DISARMED, interval: 0 });
        }
        let expirations =
            if mutated!("timer_counts_one") { 1 } else { (now - self.next) / self.interval + 1 };
        let next = self.next.saturating_add(expirations.saturating_mul(self.interval)).min(LATEST);
        let next = if mutated!("timer_expires_once") { DISARMED } else { next };
        (expirations, Self { next, interval: self.interval })
    }

    /// timerfd_gettime(2) at `now`.
    fn spec(self, now: u64) -> TimerSpec {
        let next = self.left_at(now).next;
        let value = if next == DISARMED { 0 } else { next.saturating_sub(now) };
        TimerSpec {
            value: Duration::from_nanos(value),
            interval: Duration::from_nanos(self.interval),
        }
    }
}

/// A timer on `CLOCK_MONOTONIC` that threads wait for and read expirations from: timerfd(2).
///
/// All methods may be called from any thread and from signal handlers. None enters the kernel
/// unless it blocks or a thread sleeps that it concerns; they read the clock, which takes no system
/// call where the vDSO can.
///
/// Of several sets that watch one timer with `EXCLUSIVE`, each is told of an expiration; Linux
/// tells one or more.
#[derive(Debug)]
#[doc(alias = "timerfd")]
#[cfg_attr(not(any(loom, shuttle)), repr(C, align(64)))]
pub struct Timer {
    /// An [`Expiry`].
    expiry: AtomicPair,
    /// When the only watch is looked at, whatever happens; [`NEVER`] if that is not certain, or
    /// [`SHARED`].
    planned: AtomicU64,
    /// [`TimerFlags`].
    flags: AtomicU32,
    /// Threads that sleep in a blocking read.
    blocked: Blocked,
    queue: WaitQueue,
}

impl Timer {
    /// A timer that is not set.
    #[doc(alias = "timerfd_create")]
    pub fn new(flags: TimerFlags) -> Self {
        Self {
            expiry: AtomicPair::new((DISARMED, 0)),
            planned: AtomicU64::new(NEVER),
            flags: AtomicU32::new(flags.bits()),
            blocked: Blocked::new(),
            queue: WaitQueue::new(),
        }
    }

    /// The flags it has now.
    pub fn flags(&self) -> TimerFlags {
        TimerFlags::from_bits_retain(self.flags.load(Ordering::Relaxed))
    }

    /// Turns `O_NONBLOCK` on or off, as fcntl(2) does for a timerfd.
    pub fn set_nonblocking(&self, nonblocking: bool) {
        let bit = TimerFlags::NONBLOCK.bits();
        if nonblocking {
            self.flags.fetch_or(bit, Ordering::Relaxed);
        } else {
            self.flags.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    /// Sets it to expire after `spec.value`, or not at all if that is zero: timerfd_settime(2).
    /// Expirations that have not been read are gone. What it was set to.
    ///
    /// # Errors
    /// [`Error::Sealed`].
    #[doc(alias = "timerfd_settime")]
    pub fn set(&self, spec: TimerSpec) -> Result<TimerSpec, Error> {
        if nanos(spec.value) == 0 && mutated!("timer_is_not_disarmed") {
            return self.get();
        }
        let now = now();
        self.set_expiry(Expiry::after(spec, now), now)
    }

    /// The same with a point in time, which may have passed: `TFD_TIMER_ABSTIME`. Zero is never.
    ///
    /// # Errors
    /// [`Error::Sealed`].
    #[doc(alias = "TFD_TIMER_ABSTIME")]
    pub fn set_at(&self, at: Duration, interval: Duration) -> Result<TimerSpec, Error> {
        self.set_expiry(Expiry::at(at, interval), now())
    }

    fn set_expiry(&self, expiry: Expiry, now: u64) -> Result<TimerSpec, Error> {
        let mut old = self.expiry();
        loop {
            if old == Expiry::SEALED {
                return Err(Error::Sealed);
            }
            match self.replace(old, expiry) {
                Ok(()) => break,
                Err(changed) => old = changed,
            }
        }
        if expiry.next != DISARMED {
            self.tell(expiry.next);
        }
        Ok(old.spec(now))
    }

    /// How long until it expires next, and its interval: timerfd_gettime(2).
    ///
    /// # Errors
    /// [`Error::Sealed`].
    #[doc(alias = "timerfd_gettime")]
    pub fn get(&self) -> Result<TimerSpec, Error> {
        let expiry = self.expiry();
        if expiry == Expiry::SEALED { Err(Error::Sealed) } else { Ok(expiry.spec(now())) }
    }

    /// Takes the number of expirations since it was set or read last: read(2) on a timerfd. Blocks
    /// until there is one, unless non-blocking.
    ///
    /// # Errors
    /// [`Error::WouldBlock`]; [`Error::Interrupted`] if a signal handler ran while it slept;
    /// [`Error::Sealed`].
    pub fn read(&self) -> Result<u64, Error> {
        match self.try_read() {
            Err(Error::WouldBlock) if !self.flags().contains(TimerFlags::NONBLOCK) => self.block(),
            done => done,
        }
    }

    /// [`read`](Self::read) into bytes, as read(2) does it: the number in native byte order in the
    /// first eight.
    ///
    /// # Errors
    /// [`Error::Invalid`] if `buffer` is shorter than 8 bytes; else as [`read`](Self::read).
    pub fn read_bytes(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let (first, _) = buffer.split_first_chunk_mut::<8>().ok_or(Error::Invalid)?;
        *first = self.read()?.to_ne_bytes();
        Ok(8)
    }

    /// [`read`](Self::read) that never blocks, whatever the flags say.
    ///
    /// # Errors
    /// As [`read`](Self::read), but for [`Error::Interrupted`].
    pub fn try_read(&self) -> Result<u64, Error> {
        let mut expiry = self.expiry();
        loop {
            if expiry == Expiry::SEALED {
                return Err(Error::Sealed);
            }
            if expiry.next == DISARMED {
                return Err(Error::WouldBlock);
            }
            let now = now();
            if !expiry.has_expired(now) {
                return Err(Error::WouldBlock);
            }
            let (expirations, left) = expiry.after_read(now);
            if mutated!("timer_read_takes_nothing") {
                return Ok(expirations);
            }
            match self.replace(expiry, left) {
                Ok(()) => {
                    if left.is_armed() {
                        self.tell(left.next);
                    }
                    return Ok(expirations);
                }
                Err(changed) => expiry = changed,
            }
        }
    }

    /// Takes the state out for good: from now on every operation fails with [`Error::Sealed`], at
    /// once, also in threads that are blocked. `None` if it was sealed already.
    #[doc(hidden)]
    pub fn seal(&self) -> Option<Expiry> {
        let expiry = self.seal_with(|_| {});
        self.wake_sealed();
        expiry
    }

    /// The first half of [`seal`](Self::seal), with the state shown to `carry` *before* the timer
    /// is sealed (and again if it changes until then), so that a thread that finds it sealed can
    /// know where its state is.
    #[doc(hidden)]
    pub fn seal_with(&self, mut carry: impl FnMut(Expiry)) -> Option<Expiry> {
        let mut expiry = self.expiry();
        loop {
            if expiry == Expiry::SEALED {
                return None;
            }
            carry(expiry);
            match self.replace(expiry, Expiry::SEALED) {
                Ok(()) => return Some(expiry),
                Err(_) if mutant!("timer_seal_without_compare") => {
                    self.expiry.store(Expiry::SEALED.pair());
                    return Some(expiry);
                }
                Err(changed) => expiry = changed,
            }
        }
    }

    /// The second half of [`seal`](Self::seal): wakes the readers that are blocked.
    #[doc(hidden)]
    pub fn wake_sealed(&self) {
        self.wake_blocked();
    }

    /// Begins another generation of a sealed timer, which is set to this.
    #[doc(hidden)]
    #[inline]
    pub fn unseal(&self, flags: TimerFlags, expiry: Expiry) {
        self.flags.store(flags.bits(), Ordering::Relaxed);
        self.planned.store(NEVER, Ordering::Release);
        self.expiry.store(expiry.pair());
        // Last: see `Counter::unseal`.
        self.queue.reopen();
    }

    /// The state.
    #[doc(hidden)]
    pub fn expiry(&self) -> Expiry {
        let (next, interval) = self.expiry.load();
        Expiry { next, interval }
    }

    fn replace(&self, old: Expiry, new: Expiry) -> Result<(), Expiry> {
        self.expiry
            .compare_exchange(old.pair(), new.pair())
            .map_err(|(next, interval)| Expiry { next, interval })
    }

    /// After it was set to `at`: wakes the readers that are blocked, and tells the watches if they
    /// might be looked at too late.
    fn tell(&self, at: u64) {
        self.wake_blocked();
        // A later plan than this pairs with the second look in `plan`.
        if self.planned.load(Ordering::SeqCst) > at && !mutated!("timer_set_earlier_tells_nobody") {
            self.queue.wake_at(at);
        }
    }

    fn next_look(&self) -> u64 {
        match self.expiry().next {
            DISARMED => NEVER,
            next => next,
        }
    }

    /// After a change: wakes every blocked reader, to look at the new time.
    fn wake_blocked(&self) {
        self.blocked.changed(false, ALL, READERS);
    }

    fn block(&self) -> Result<u64, Error> {
        let attempt = || self.try_read();
        self.blocked.block_with(
            || false,
            attempt,
            |futex, seen| {
                let at = Some(self.next_look()).filter(|at| *at != NEVER);
                futex.sleep(seen, at.map(Deadline::from_nanos), READERS)
            },
        )
    }
}

impl Source for Timer {
    /// `IN` when it has expired and that has not been read.
    #[inline]
    fn poll(&self) -> Events {
        let expiry = self.expiry();
        if expiry.is_armed() && expiry.next <= now() { Events::IN } else { Events::empty() }
    }

    fn wait_queue(&self) -> &WaitQueue {
        &self.queue
    }

    fn as_timed(&self) -> Option<&dyn Timed> {
        Some(self)
    }
}

impl Timed for Timer {
    /// What a set that looks at the only watch, or at one of several, has to plan: when. It holds
    /// its scan lock.
    fn plan(&self) -> u64 {
        let mut at = self.next_look();
        loop {
            let publish = |planned: u64| (planned != SHARED && planned != at).then_some(at);
            let _ = self.planned.fetch_update(Ordering::SeqCst, Ordering::SeqCst, publish);
            if mutant!("plan_without_look") {
                return at;
            }
            // A publish-then-check without a barrier of its own: the plan and the time are SeqCst
            // here and in `tell`, and in the models the time is behind a lock.
            let earlier = self.next_look();
            if earlier >= at {
                return at;
            }
            at = earlier;
        }
    }

    /// A plan has been carried out or dropped: the thread that sets the timer next has to tell.
    fn drop_plan(&self) {
        let publish = |planned: u64| (planned != SHARED && planned != NEVER).then_some(NEVER);
        let _ = self.planned.fetch_update(Ordering::SeqCst, Ordering::SeqCst, publish);
    }

    /// A watch has been put into this place of the queue.
    fn note_watch(&self, slot: u32) {
        if slot == 0 {
            self.drop_plan();
        } else {
            self.planned.swap(SHARED, Ordering::SeqCst);
        }
    }
}
