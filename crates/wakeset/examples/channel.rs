//! A source of your own: a bounded channel, and sets that serve a thousand of them.
//!
//! ```text
//! cargo run --release -p wakeset --example channel
//! ```
//!
//! To be watched by a set, a thing needs two answers, which make it a [`Source`]: what it is ready
//! for *now* ([`poll`](Source::poll)), and which [`WaitQueue`] it wakes. It keeps one promise:
//! after each change that may have made it ready, it wakes that queue. Level- and edge-triggered
//! watches, ONESHOT, EXCLUSIVE, nesting and waiting threads then work as they do for any descriptor
//! in epoll(7).
//!
//! Below, four producers send through a thousand small channels to one consumer. Nobody blocks on a
//! single channel and nobody spins: the consumer waits until *any* has a message (`IN`), each
//! producer until any of its own has room (`OUT`).

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};
use std::thread;
use wakeset::{Description, Engine, Error, Event, EventPoll, Events, Source, Timeout, WaitQueue};

/// A first-in first-out channel that holds a limited number of messages.
struct Channel<T> {
    messages: Mutex<VecDeque<T>>,
    capacity: usize,
    watches: WaitQueue,
}

impl<T> Channel<T> {
    fn new(capacity: usize) -> Self {
        let messages = Mutex::new(VecDeque::with_capacity(capacity));
        Self { messages, capacity, watches: WaitQueue::new() }
    }

    /// Puts a message in, or hands it back if there is no room.
    fn send(&self, message: T) -> Result<(), T> {
        let mut messages = self.lock();
        if messages.len() == self.capacity {
            return Err(message);
        }
        messages.push_back(message);
        // The change first, then the wake: whoever it wakes finds the message there.
        drop(messages);
        self.watches.wake(Events::IN);
        Ok(())
    }

    /// Takes the oldest message out, if there is one.
    fn receive(&self) -> Option<T> {
        let message = self.lock().pop_front()?;
        self.watches.wake(Events::OUT);
        Some(message)
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<T>> {
        self.messages.lock().expect("no holder panics")
    }
}

impl<T: Send> Source for Channel<T> {
    fn poll(&self) -> Events {
        let messages = self.lock();
        let mut ready = Events::empty();
        ready.set(Events::IN, !messages.is_empty());
        ready.set(Events::OUT, messages.len() < self.capacity);
        ready
    }

    fn wait_queue(&self) -> &WaitQueue {
        &self.watches
    }
}

// That was the source. From here on it is used.

const CHANNELS: usize = 1000;
const CAPACITY: usize = 4;
const MESSAGES: u32 = 100;
const PRODUCERS: usize = 4;

/// Sends 0, 1, 2 … through each channel as fast as there is room.
fn produce(engine: &Engine, channels: &[Description<Channel<u32>>]) -> Result<(), Error> {
    let room = EventPoll::new(engine)?;
    for (i, channel) in channels.iter().enumerate() {
        room.add(i as i32, channel, Event::new(Events::OUT, i as u64))?;
    }
    let mut next = vec![0; channels.len()];
    let mut events = [Event::default(); 64];
    while !room.is_empty() {
        let n = room.wait(&mut events, Timeout::Never)?;
        for i in events[..n].iter().map(|event| event.data as usize) {
            while next[i] < MESSAGES && channels[i].send(next[i]).is_ok() {
                next[i] += 1;
            }
            if next[i] == MESSAGES {
                room.remove(i as i32, &channels[i])?;
            }
        }
    }
    Ok(())
}

/// Receives everything, and checks that each channel kept its order; how many waits that took.
fn consume(engine: &Engine, channels: &[Description<Channel<u32>>]) -> Result<usize, Error> {
    let set = EventPoll::new(engine)?;
    for (i, channel) in channels.iter().enumerate() {
        // Edge-triggered: one report for each arrival, so each report empties the channel.
        set.add(i as i32, channel, Event::new(Events::IN | Events::ET, i as u64))?;
    }
    let mut expected = vec![0; channels.len()];
    let mut events = [Event::default(); 64];
    let (mut received, mut waits) = (0, 0);
    while received < channels.len() * MESSAGES as usize {
        let n = set.wait(&mut events, Timeout::Never)?;
        waits += 1;
        for i in events[..n].iter().map(|event| event.data as usize) {
            while let Some(message) = channels[i].receive() {
                assert_eq!(message, expected[i], "channel {i} lost its order");
                expected[i] += 1;
                received += 1;
            }
        }
    }
    Ok(waits)
}

/// Runs the producers and the consumer, and says what went through.
///
/// # Errors
/// [`Error::NoMemory`], if there is none.
pub fn main() -> Result<(), Error> {
    let engine = Engine::new();
    let channels: Vec<_> =
        (0..CHANNELS).map(|_| Description::new(&engine, Channel::new(CAPACITY))).collect();

    let waits = thread::scope(|scope| {
        let shares = channels.chunks(CHANNELS.div_ceil(PRODUCERS));
        let producers: Vec<_> =
            shares.map(|share| scope.spawn(|| produce(&engine, share))).collect();
        let waits = consume(&engine, &channels)?;
        for producer in producers {
            producer.join().expect("a producer panicked")?;
        }
        Ok::<_, Error>(waits)
    })?;

    let messages = CHANNELS * MESSAGES as usize;
    println!(
        "{messages} messages from {PRODUCERS} threads through {CHANNELS} channels: \
         each in order, none lost, {waits} waits"
    );
    Ok(())
}
