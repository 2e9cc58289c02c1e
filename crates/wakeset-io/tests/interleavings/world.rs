//! A world at random: what one set watches, and the threads that feed it.

use fastrand::Rng;
use std::hint;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use wakeset_io::{
    Event, Events, Interest, Notifier, Poll, Ready, Receiver, Registered, Registration,
    SetReadiness, Token, channel,
};

/// What one thing in the set is, from the side of the loop.
enum Thing {
    /// Each message counts.
    Channel(Receiver<u8>, Registered),
    /// Each byte counts.
    Socket(Registered<UnixStream>),
    /// Each notification counts.
    Notifier(Notifier, Registered),
    /// Each message counts, of which the readiness is set by hand: after each message, by the
    /// producer, and taken back before the messages are taken.
    Queue {
        _registration: Registration,
        ready: SetReadiness,
        messages: Receiver<u8>,
        handle: Registered,
    },
}

/// The same from the side of a producer.
enum Feed {
    Channel(wakeset_io::Sender<u8>),
    Socket(UnixStream),
    Notifier(Notifier),
    Queue(SetReadiness, wakeset_io::Sender<u8>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Level,
    Edge,
    OneShot,
}

impl Mode {
    fn interest(self) -> Interest {
        match self {
            Self::Level => Interest::READABLE,
            Self::Edge => Interest::READABLE.edge(),
            Self::OneShot => Interest::READABLE.one_shot(),
        }
    }
}

/// A set's things, and how much of theirs has come.
pub struct World {
    /// `None` once the producer is gone and everything has come.
    things: Vec<Option<(Thing, Mode)>>,
    producers: Vec<JoinHandle<()>>,
    expected: u64,
    come: u64,
}

/// A pause that is drawn: none, a spin, a yield or a sleep.
pub fn pause(rng: &mut Rng) {
    match rng.u32(0..8) {
        0..3 => {}
        3..5 => (0..rng.u32(0..500)).for_each(|_| hint::spin_loop()),
        5..7 => thread::yield_now(),
        _ => thread::sleep(Duration::from_micros(rng.u64(1..150))),
    }
}

impl World {
    /// Registers one to six things, and begins to feed them.
    pub fn new(poll: &Poll, rng: &mut Rng) -> Self {
        let (mut things, mut feeds) = (Vec::new(), [Vec::new(), Vec::new()]);
        for place in 0..rng.usize(1..7) {
            let mode = [Mode::Level, Mode::Edge, Mode::OneShot][rng.usize(0..3)];
            let (token, interest) = (Token::from(place), mode.interest());
            let (thing, feed) = thing(poll, rng, token, interest);
            things.push(Some((thing, mode)));
            feeds[rng.usize(0..2)].push((feed, rng.u32(1..12)));
        }
        let expected = feeds.iter().flatten().map(|(_, count)| u64::from(*count)).sum();
        let producers = feeds.map(|feeds| {
            let rng = rng.fork();
            thread::spawn(move || produce(feeds, rng))
        });
        Self { things, producers: producers.into(), expected, come: 0 }
    }

    /// Whether everything has come.
    pub fn is_done(&self) -> bool {
        assert!(self.come <= self.expected, "more than there was");
        self.come == self.expected
    }

    /// Takes what the events tell of.
    pub fn handle(&mut self, events: &Events) {
        for event in events {
            self.come += self.take(event);
        }
    }

    fn take(&mut self, event: Event) -> u64 {
        let place = &mut self.things[event.token().0 as usize];
        // An event that was taken beside its hang-up.
        let Some((thing, mode)) = place else { return 0 };
        // By level and one shot, one at a time will do.
        let most = if *mode == Mode::Edge { usize::MAX } else { 1 };
        let taken = match thing {
            Thing::Channel(receiver, _) => receiver.try_iter().take(most).count() as u64,
            Thing::Notifier(notifier, _) => notifier.take(),
            Thing::Socket(socket) => drain(socket, most),
            Thing::Queue { ready, messages, .. } => {
                ready.set_readiness(Ready::NONE);
                messages.try_iter().count() as u64
            }
        };
        if taken == 0 && event.read_closed() {
            // A hang-up stays: who takes events until there are none ends the registration.
            *place = None;
        } else if *mode == Mode::OneShot {
            let (token, interest) = (event.token(), mode.interest());
            match thing {
                Thing::Socket(socket) => socket.modify(token, interest),
                Thing::Channel(_, handle) | Thing::Notifier(_, handle) => {
                    handle.modify(token, interest)
                }
                Thing::Queue { handle, .. } => handle.modify(token, interest),
            }
            .expect("armed again");
        }
        taken
    }

    /// When everything has come, there is nothing more to report.
    pub fn end(self, poll: &Poll) {
        self.producers.into_iter().for_each(|producer| producer.join().expect("a producer"));
        let mut events = Events::with_capacity(8);
        // A hang-up of a channel or a socket stays, and an edge may have been one too many.
        poll.wait(&mut events, Some(Duration::ZERO)).expect("a look");
        for event in &events {
            let Some((thing, mode)) = &self.things[event.token().0 as usize] else {
                panic!("an event of what has gone: {event:?}");
            };
            let left = match thing {
                Thing::Channel(receiver, _) => receiver.try_iter().count() as u64,
                Thing::Notifier(notifier, _) => notifier.take(),
                Thing::Socket(socket) => drain(socket, usize::MAX),
                Thing::Queue { messages, .. } => messages.try_iter().count() as u64,
            };
            assert_eq!(left, 0);
            let is_level = *mode == Mode::Level && !matches!(thing, Thing::Queue { .. });
            assert!(!is_level || !event.readable() || event.read_closed(), "{event:?}");
        }
    }
}

fn thing(poll: &Poll, rng: &mut Rng, token: Token, interest: Interest) -> (Thing, Feed) {
    match rng.u32(0..5) {
        0 => {
            let (sender, receiver) = channel(rng.usize(1..4)).expect("a channel");
            let handle = poll.register(&receiver, token, interest).expect("registered");
            (Thing::Channel(receiver, handle), Feed::Channel(sender))
        }
        1 | 2 => {
            let (there, here) = UnixStream::pair().expect("a pair");
            here.set_nonblocking(true).expect("non-blocking");
            let here = poll.register_fd(here, token, interest).expect("registered");
            (Thing::Socket(here), Feed::Socket(there))
        }
        3 => {
            let notifier = Notifier::new().expect("a notifier");
            let handle = poll.register(&notifier, token, interest).expect("registered");
            (Thing::Notifier(notifier.clone(), handle), Feed::Notifier(notifier))
        }
        _ => {
            let (_registration, ready) = Registration::new().expect("a registration");
            let (sender, messages) = channel(64).expect("a channel");
            let handle = poll.register(&_registration, token, interest).expect("registered");
            let feed = Feed::Queue(ready.clone(), sender);
            (Thing::Queue { _registration, ready, messages, handle }, feed)
        }
    }
}

/// Feeds at random until each has had its share.
fn produce(mut feeds: Vec<(Feed, u32)>, mut rng: Rng) {
    while !feeds.is_empty() {
        pause(&mut rng);
        let place = rng.usize(0..feeds.len());
        let (feed, left) = &mut feeds[place];
        match feed {
            Feed::Channel(sender) => sender.send(1).expect("a receiver"),
            Feed::Socket(socket) => socket.write_all(b"x").expect("a byte"),
            Feed::Notifier(notifier) => notifier.notify(),
            Feed::Queue(ready, sender) => {
                sender.try_send(1).expect("room");
                ready.set_readiness(Ready::READABLE);
            }
        }
        *left -= 1;
        if *left == 0 {
            feeds.swap_remove(place);
        }
    }
}

fn drain(mut socket: &UnixStream, most: usize) -> u64 {
    let mut bytes = 0;
    while bytes < most as u64 {
        match socket.read(&mut [0]) {
            Ok(1) => bytes += 1,
            Ok(_) => break,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => panic!("{error}"),
        }
    }
    bytes
}
