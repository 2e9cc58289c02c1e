//! Both worlds in one set, in random interleavings, by each adapter: nothing is lost.
//!
//! A seed makes a small world ([`world::World`]): channels, notifiers and hand-set readiness in
//! memory, and sockets of the kernel, in all modes, fed by threads that pause at random. The loop
//! that waits has a world of its own beside it: a socket, and in tokio and async-io a timer. A
//! round ends when everything has come, and fails if that takes longer than [`LIMIT`].
//!
//! `WAKESET_FUZZ_ROUNDS` sets the number of rounds of each adapter (1000), `WAKESET_SEED` the first
//! seed.
#![allow(missing_docs)]

mod world;

use fastrand::Rng;
use std::future::Future;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::pin::pin;
use std::task::Poll as Task;
use std::time::{Duration, Instant};
use std::{env, future, thread};
use wakeset_io::{Events, Poll};
use world::World;

/// Only a failing test waits that long for a round.
const LIMIT: Duration = Duration::from_secs(20);

/// How many bytes come by the loop's own socket.
const FOREIGN: usize = 8;

fn number(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |text| text.parse().expect(name))
}

/// Runs a body for each seed.
fn rounds(mut body: impl FnMut(&mut Rng)) {
    let (count, first) = (number("WAKESET_FUZZ_ROUNDS", 1000), number("WAKESET_SEED", 1));
    let begin = Instant::now();
    for seed in first..first + count {
        let told = Told(seed);
        body(&mut Rng::with_seed(seed));
        std::mem::forget(told);
    }
    println!("{count} rounds in {:?}", begin.elapsed());
}

/// Says which seed has failed.
struct Told(u64);

impl Drop for Told {
    fn drop(&mut self) {
        println!("failed: WAKESET_FUZZ_ROUNDS=1 WAKESET_SEED={}", self.0);
    }
}

/// What writes to the loop's own socket, with pauses.
fn feed(mut socket: UnixStream, mut rng: Rng) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        for _ in 0..FOREIGN {
            world::pause(&mut rng);
            socket.write_all(b"x").expect("a byte");
        }
    })
}

/// Whether the waits of a round spin; and sets for how long: as it pays, or a time that is drawn.
fn draw_spin(rng: &mut Rng) -> bool {
    if rng.bool() {
        wakeset::set_spin_limit(rng.bool().then(|| rng.u32(1..100)));
    }
    rng.bool()
}

fn events(rng: &mut Rng) -> Events {
    Events::with_capacity(rng.usize(1..6))
}

/// A wait that is not to take longer than the round.
fn until(end: Instant) -> Option<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    assert!(!left.is_zero(), "an event is lost");
    Some(left)
}

#[test]
fn of_a_loop_of_its_own() {
    rounds(|rng| {
        let poll = Poll::new().unwrap();
        let mut world = World::new(&poll, rng);
        let (end, mut events) = (Instant::now() + LIMIT, events(rng));
        while !world.is_done() {
            poll.wait(&mut events, until(end)).unwrap();
            world.handle(&events);
        }
        world.end(&poll);
    });
}

#[test]
fn of_mio() {
    const SET: mio::Token = mio::Token(0);
    const SOCKET: mio::Token = mio::Token(1);
    let mut outer = mio::Poll::new().unwrap();
    let mut outer_events = mio::Events::with_capacity(4);
    rounds(|rng| {
        let mut set = Poll::new().unwrap().into_nested().unwrap();
        let readable = mio::Interest::READABLE;
        let mut world = World::new(&set, rng);
        let registry = outer.registry().try_clone().unwrap();
        // Before or after the first event.
        world::pause(rng);
        registry.register(&mut set, SET, readable).unwrap();
        let spins = draw_spin(rng);
        let (there, here) = UnixStream::pair().unwrap();
        here.set_nonblocking(true).unwrap();
        let mut here = mio::net::UnixStream::from_std(here);
        registry.register(&mut here, SOCKET, readable).unwrap();
        let feeder = feed(there, rng.fork());
        let (end, mut events, mut bytes) = (Instant::now() + LIMIT, events(rng), 0);
        while !world.is_done() || bytes < FOREIGN {
            outer.poll(&mut outer_events, until(end)).unwrap();
            for event in &outer_events {
                match event.token() {
                    SET => loop {
                        until(end);
                        match spins {
                            true => set.wait_spinning(&mut events).unwrap(),
                            false => set.wait(&mut events, Some(Duration::ZERO)).unwrap(),
                        }
                        if events.is_empty() {
                            break;
                        }
                        world.handle(&events);
                    },
                    _ => bytes += drain(&mut here),
                }
            }
        }
        registry.deregister(&mut set).unwrap();
        registry.deregister(&mut here).unwrap();
        feeder.join().unwrap();
        world.end(&set);
    });
}

fn drain(socket: &mut impl Read) -> usize {
    let (mut buffer, mut bytes) = ([0; 4], 0);
    loop {
        match socket.read(&mut buffer) {
            Ok(n @ 1..) => bytes += n,
            Ok(_) => return bytes,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return bytes,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Runs both, as tasks of one future, until both have ended.
async fn both(first: impl Future<Output = ()>, second: impl Future<Output = ()>) {
    let (mut first, mut second) = (pin!(first), pin!(second));
    let (mut first_done, mut second_done) = (false, false);
    future::poll_fn(|context| {
        first_done = first_done || first.as_mut().poll(context).is_ready();
        second_done = second_done || second.as_mut().poll(context).is_ready();
        if first_done && second_done { Task::Ready(()) } else { Task::Pending }
    })
    .await;
}

#[test]
fn of_tokio() {
    use tokio::io::Interest;
    use tokio::runtime::Builder;
    let runtimes = [
        Builder::new_current_thread().enable_all().build().unwrap(),
        Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap(),
    ];
    rounds(|rng| {
        let runtime = &runtimes[rng.usize(0..2)];
        runtime.block_on(async {
            let poll = wakeset_io::tokio::AsyncPoll::new(Poll::new().unwrap()).unwrap();
            let poll = if draw_spin(rng) { poll.spinning() } else { poll };
            let mut world = World::new(&poll, rng);
            let (there, here) = UnixStream::pair().unwrap();
            here.set_nonblocking(true).unwrap();
            let here = tokio::net::UnixStream::from_std(here).unwrap();
            let feeder = feed(there, rng.fork());
            let mut events = events(rng);
            let ours = async {
                while !world.is_done() {
                    poll.wait(&mut events).await.unwrap();
                    world.handle(&events);
                }
            };
            let foreign = async {
                let mut bytes = 0;
                while bytes < FOREIGN {
                    tokio::time::sleep(Duration::from_micros(100)).await;
                    here.ready(Interest::READABLE).await.unwrap();
                    bytes += here.try_read(&mut [0; 4]).unwrap_or(0);
                }
            };
            tokio::time::timeout(LIMIT, both(ours, foreign)).await.expect("an event is lost");
            feeder.join().unwrap();
            world.end(&poll);
        });
    });
}

/// The same as tokio's timeout.
async fn within_limit(future: impl Future<Output = ()>) {
    let (mut future, mut limit) = (pin!(future), async_io::Timer::after(LIMIT));
    future::poll_fn(|context| {
        let task = future.as_mut().poll(context);
        let is_late = task.is_pending() && pin!(&mut limit).poll(context).is_ready();
        assert!(!is_late, "an event is lost");
        task
    })
    .await;
}

#[test]
fn of_async_io() {
    use async_io::{Async, Timer};
    rounds(|rng| {
        async_io::block_on(async {
            let poll = wakeset_io::async_io::AsyncPoll::new(Poll::new().unwrap()).unwrap();
            let poll = if draw_spin(rng) { poll.spinning() } else { poll };
            let mut world = World::new(&poll, rng);
            let (there, here) = UnixStream::pair().unwrap();
            let here = Async::new(here).unwrap();
            let feeder = feed(there, rng.fork());
            let mut events = events(rng);
            let ours = async {
                while !world.is_done() {
                    poll.wait(&mut events).await.unwrap();
                    world.handle(&events);
                }
            };
            let foreign = async {
                let mut bytes = 0;
                while bytes < FOREIGN {
                    Timer::after(Duration::from_micros(100)).await;
                    here.readable().await.unwrap();
                    bytes += here.get_ref().read(&mut [0; 4]).unwrap_or(0);
                }
            };
            within_limit(both(ours, foreign)).await;
            feeder.join().unwrap();
            world.end(&poll);
        });
    });
}

/// The streams give each event once, in both runtimes.
#[test]
fn of_streams() {
    use futures_core::Stream;
    use wakeset_io::{Interest, Token, channel};
    async fn all<S>(mut stream: S, mut take: impl FnMut() -> usize, most: usize)
    where
        S: Stream<Item = std::io::Result<wakeset_io::Event>> + Unpin,
    {
        let mut count = 0;
        while count < most {
            let mut next = pin!(future::poll_fn(|context| {
                std::pin::Pin::new(&mut stream).poll_next(context)
            }));
            let event = next.as_mut().await.expect("no end").unwrap();
            assert!(event.readable() && event.token() == Token(1));
            count += take();
        }
    }
    for tokio in [true, false] {
        let poll = Poll::new().unwrap();
        let (sender, receiver) = channel(3).unwrap();
        let _receiving = poll.register(&receiver, Token(1), Interest::READABLE.edge()).unwrap();
        let sending = thread::spawn(move || (0..500).for_each(|n| sender.send(n).unwrap()));
        let take = || receiver.try_iter().count();
        if tokio {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let poll = wakeset_io::tokio::AsyncPoll::new(poll).unwrap();
                tokio::time::timeout(LIMIT, all(poll.into_stream(2), take, 500)).await.unwrap();
            });
        } else {
            let poll = wakeset_io::async_io::AsyncPoll::new(poll).unwrap();
            async_io::block_on(all(poll.into_stream(2), take, 500));
        }
        sending.join().unwrap();
    }
}
