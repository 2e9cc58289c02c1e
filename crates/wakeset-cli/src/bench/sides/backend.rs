//! What the workloads need of an epoll.

use std::io;
use std::time::Duration;

/// An implementation of epoll, eventfd and timerfd. Flags and event bits are those of epoll_ctl(2).
pub trait Backend: Sync {
    /// A set of watches; dropping it closes it.
    type Set: Send + Sync;
    /// A non-blocking counter as eventfd(2) makes it; dropping it closes the last reference, which
    /// takes its watches with it.
    type Counter: Send + Sync;
    /// A non-blocking timer on `CLOCK_MONOTONIC` as timerfd_create(2) makes it.
    type Timer: Send + Sync;
    /// An event as `wait` reports it.
    type Event: Copy;
    /// What fills an array of events before it is used.
    const NO_EVENT: Self::Event;

    fn create_set(&self) -> io::Result<Self::Set>;
    fn create_counter(&self) -> io::Result<Self::Counter>;
    fn create_timer(&self) -> io::Result<Self::Timer>;

    fn add(&self, set: &Self::Set, to: &Self::Counter, bits: u32, data: u64) -> io::Result<()>;
    fn modify(&self, set: &Self::Set, of: &Self::Counter, bits: u32, data: u64) -> io::Result<()>;
    fn remove(&self, set: &Self::Set, from: &Self::Counter) -> io::Result<()>;
    fn add_timer(&self, set: &Self::Set, to: &Self::Timer, bits: u32, data: u64) -> io::Result<()>;
    /// Adds a set to a set.
    fn add_set(&self, set: &Self::Set, inner: &Self::Set, bits: u32, data: u64) -> io::Result<()>;
    /// So many sets, each of which watches the next one for `IN`.
    fn create_chain(&self, length: usize) -> io::Result<Vec<Self::Set>> {
        let sets: Vec<_> = (0..length).map(|_| self.create_set()).collect::<io::Result<_>>()?;
        for pair in sets.windows(2) {
            self.add_set(&pair[0], &pair[1], IN, 0)?;
        }
        Ok(sets)
    }

    fn remove_set(&self, set: &Self::Set, inner: &Self::Set) -> io::Result<()>;

    /// Waits for at most `timeout`, which is whole milliseconds; 0 events when it is over.
    fn wait(
        &self,
        set: &Self::Set,
        events: &mut [Self::Event],
        timeout: Duration,
    ) -> io::Result<usize>;
    /// Prepares the set for [`take`](Self::take).
    fn make_ring(&self, _set: &Self::Set, _entries: usize) -> io::Result<()> {
        Ok(())
    }
    /// What is ready now, in the fastest way there is; 0 only if nothing is.
    fn take(&self, set: &Self::Set, events: &mut [Self::Event]) -> io::Result<usize> {
        self.wait(set, events, Duration::ZERO)
    }
    /// The data that an event's watch was added with.
    fn data(event: &Self::Event) -> u64;

    fn write(&self, counter: &Self::Counter, value: u64) -> io::Result<()>;
    /// Takes the counter's value; `None` if it is 0.
    fn read(&self, counter: &Self::Counter) -> io::Result<Option<u64>>;

    /// Sets a timer to expire once, after `time`.
    fn set_timer(&self, timer: &Self::Timer, time: Duration) -> io::Result<()>;
    /// Takes a timer's expirations; `None` if there are none.
    fn read_timer(&self, timer: &Self::Timer) -> io::Result<Option<u64>>;
}

pub const IN: u32 = libc::EPOLLIN as u32;
pub const ET: u32 = libc::EPOLLET as u32;
pub const ONESHOT: u32 = libc::EPOLLONESHOT as u32;

/// How long a wait that must end soon may take: after that a wake-up was lost.
pub const LOST: Duration = Duration::from_secs(5);

/// The error for what must not happen: it says what went missing.
pub fn lost(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("{what} (waited {LOST:?})"))
}
