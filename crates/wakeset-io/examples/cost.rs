//! What a set costs in each loop: its own, mio's, tokio's and async-io's, and in these with waits
//! that spin.
//!
//! ```text
//! cargo run --release -p wakeset-io --example cost
//! ```
//!
//! Two things for each loop, in turn; the median of the rounds, with the lowest and the highest:
//!
//! - **stream**: a thread sends through a channel as fast as there is room, and the loop receives;
//!   nanoseconds a message.
//! - **hop**: a thread and the loop answer each other, each awake only when the other has sent;
//!   microseconds a round trip.
//!
//! A socket is in each set, so that all of them sleep in the kernel.

use std::io;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};
use wakeset_io::{Events, Interest, Poll, Receiver, Sender, Token, channel};

const ROUNDS: usize = 7;
const STREAM: u32 = 400_000;
const HOPS: u32 = 6_000;

/// What the loop does with what it is told of; whether it is done.
type Handle<'a> = &'a mut dyn FnMut() -> bool;

type Loop = fn(Poll, Handle) -> io::Result<()>;

fn of_its_own(poll: Poll, handle: Handle) -> io::Result<()> {
    let mut events = Events::with_capacity(64);
    loop {
        poll.wait(&mut events, None)?;
        if handle() {
            return Ok(());
        }
    }
}

fn of_mio<const SPINS: bool>(poll: Poll, handle: Handle) -> io::Result<()> {
    let (mut set, mut outer) = (poll.into_nested()?, mio::Poll::new()?);
    outer.registry().register(&mut set, mio::Token(0), mio::Interest::READABLE)?;
    let mut events = Events::with_capacity(64);
    let mut outer_events = mio::Events::with_capacity(4);
    loop {
        outer.poll(&mut outer_events, None)?;
        loop {
            match SPINS {
                true => set.wait_spinning(&mut events)?,
                false => set.wait(&mut events, Some(Duration::ZERO))?,
            }
            if events.is_empty() {
                break;
            }
            if handle() {
                return Ok(());
            }
        }
    }
}

fn of_tokio<const SPINS: bool>(poll: Poll, handle: Handle) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        let poll = wakeset_io::tokio::AsyncPoll::new(poll)?;
        let poll = if SPINS { poll.spinning() } else { poll };
        let mut events = Events::with_capacity(64);
        loop {
            poll.wait(&mut events).await?;
            if handle() {
                return Ok(());
            }
        }
    })
}

fn of_async_io<const SPINS: bool>(poll: Poll, handle: Handle) -> io::Result<()> {
    async_io::block_on(async {
        let poll = wakeset_io::async_io::AsyncPoll::new(poll)?;
        let poll = if SPINS { poll.spinning() } else { poll };
        let mut events = Events::with_capacity(64);
        loop {
            poll.wait(&mut events).await?;
            if handle() {
                return Ok(());
            }
        }
    })
}

/// A set with a socket, in which nothing happens, and a channel.
fn set(capacity: usize) -> io::Result<(Poll, Sender<u32>, Receiver<u32>, impl Sized)> {
    let poll = Poll::new()?;
    let (here, there) = UnixStream::pair()?;
    let here = poll.register_fd(here, Token(0), Interest::READABLE)?;
    let (sender, receiver) = channel(capacity)?;
    let receiving = poll.register(&receiver, Token(1), Interest::READABLE.edge())?;
    Ok((poll, sender, receiver, (here, there, receiving)))
}

fn stream(run: Loop) -> io::Result<f64> {
    let (poll, sender, receiver, _kept) = set(1024)?;
    let begin = Instant::now();
    let sending = thread::spawn(move || (0..STREAM).for_each(|n| sender.send(n).expect("a loop")));
    let mut received = 0;
    run(poll, &mut || {
        received += receiver.try_iter().count();
        received == STREAM as usize
    })?;
    sending.join().expect("the thread that sends");
    Ok(begin.elapsed().as_nanos() as f64 / f64::from(STREAM))
}

fn hop(run: Loop) -> io::Result<f64> {
    let (poll, sender, receiver, _kept) = set(1)?;
    let (answer, answers) = channel(1)?;
    let other = thread::spawn(move || {
        for number in 0..HOPS {
            sender.send(number).expect("the loop");
            answers.recv().expect("an answer");
        }
    });
    let begin = Instant::now();
    let mut hops = 0;
    run(poll, &mut || {
        for number in receiver.try_iter() {
            answer.send(number).expect("the thread");
            hops += 1;
        }
        hops == HOPS
    })?;
    other.join().expect("the thread");
    Ok(begin.elapsed().as_nanos() as f64 / 1000.0 / f64::from(HOPS))
}

fn main() -> io::Result<()> {
    let loops: [(&str, Loop); 7] = [
        ("its own", of_its_own),
        ("mio's", of_mio::<false>),
        ("mio's, spinning", of_mio::<true>),
        ("tokio's", of_tokio::<false>),
        ("tokio's, spinning", of_tokio::<true>),
        ("async-io's", of_async_io::<false>),
        ("async-io's, spinning", of_async_io::<true>),
    ];
    let mut figures = [const { (Vec::new(), Vec::new()) }; 7];
    for _ in 0..ROUNDS {
        for ((_, run), (streams, hops)) in loops.iter().zip(&mut figures) {
            streams.push(stream(*run)?);
            hops.push(hop(*run)?);
        }
    }
    println!("loop                  stream, ns a message           hop, µs a round trip");
    for ((name, _), (streams, hops)) in loops.iter().zip(&mut figures) {
        println!("{name:<21} {:<30} {}", spread(streams), spread(hops));
    }
    Ok(())
}

fn spread(figures: &mut [f64]) -> String {
    figures.sort_by(f64::total_cmp);
    let (low, middle, high) = (figures[0], figures[figures.len() / 2], figures[figures.len() - 1]);
    format!("{middle:.1} ({low:.1} to {high:.1})")
}
