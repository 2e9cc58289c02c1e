//! A select over a thousand channels: one thread receives from whichever has something, and ends
//! when the last sender of each is gone.
//!
//! ```text
//! cargo run -p wakeset-io --example select
//! ```
//!
//! A wait costs what is ready, not how many channels there are.

use std::io;
use std::thread;
use wakeset_io::{Events, Interest, Poll, Token, channel};

const CHANNELS: usize = 1000;
const MESSAGES: u32 = 50;
const THREADS: usize = 4;

/// Sends through all channels from some threads, and receives in this one.
///
/// # Errors
/// `OutOfMemory`.
pub fn main() -> io::Result<()> {
    let poll = Poll::new()?;
    let (mut senders, mut receivers) = (Vec::new(), Vec::new());
    for place in 0..CHANNELS {
        let (sender, receiver) = channel(4)?;
        let handle = poll.register(&receiver, Token::from(place), Interest::READABLE.edge())?;
        senders.push(sender);
        receivers.push(Some((receiver, handle, 0)));
    }
    let mut threads = Vec::new();
    while !senders.is_empty() {
        let share = senders.split_off(senders.len().saturating_sub(CHANNELS / THREADS));
        threads.push(thread::spawn(move || {
            for number in 0..MESSAGES {
                share.iter().for_each(|sender| sender.send(number).expect("a receiver"));
            }
        }));
    }

    let (mut open, mut received, mut waits) = (CHANNELS, 0, 0);
    let mut events = Events::with_capacity(256);
    while open > 0 {
        poll.wait(&mut events, None)?;
        waits += 1;
        for event in &events {
            let place = &mut receivers[event.token().0 as usize];
            let Some((receiver, _, expected)) = place else { continue };
            for number in receiver.try_iter() {
                assert_eq!(number, *expected, "in order");
                *expected += 1;
                received += 1;
            }
            if event.hangup() {
                // The senders are gone, and what they have sent has been received.
                assert_eq!(*expected, MESSAGES);
                *place = None;
                open -= 1;
            }
        }
    }
    threads.into_iter().for_each(|thread| thread.join().expect("a thread panicked"));
    println!("{received} messages through {CHANNELS} channels, in order, in {waits} waits");
    Ok(())
}
