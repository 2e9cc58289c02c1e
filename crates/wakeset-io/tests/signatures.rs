//! The public functions and their types: a change that breaks programs does not compile here. What
//! is added is added here too.
#![allow(missing_docs)]
#![allow(clippy::type_complexity)]

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{RecvError, RecvTimeoutError, SendError, TryRecvError, TrySendError};
use std::task::{Context, Poll as Task};
use std::time::Duration;
use wakeset_io::{
    Event, Events, Interest, Iter, Nested, Notifier, Poll, Ready, Receiver, Registered,
    Registration, Sender, SetReadiness, Token, Watch, channel, engine,
};

#[test]
fn of_the_set() {
    let _: fn() -> io::Result<Poll> = Poll::new;
    let _: fn(&Poll, UnixStream, Token, Interest) -> io::Result<Registered<UnixStream>> =
        Poll::register_fd::<UnixStream>;
    let _: fn(&Poll, &Notifier, Token, Interest) -> io::Result<Registered<()>> =
        Poll::register::<Notifier>;
    let _: fn(&Poll, &mut Events, Option<Duration>) -> io::Result<()> = Poll::wait;
    let _: fn(Poll) -> io::Result<Nested> = Poll::into_nested;
    let _: fn(&Registered<u8>, Token, Interest) -> io::Result<()> = Registered::modify;
    let _: fn(Registered<u8>) -> u8 = Registered::into_inner;
    let _: fn(&Nested) -> &Poll = |nested| nested;
    let _: fn(&Nested, &mut Events) -> io::Result<()> = Nested::wait_spinning;
    fn is_descriptor<T: AsFd + AsRawFd + mio::event::Source>() {}
    is_descriptor::<Nested>();
}

#[test]
fn of_events() {
    let _: fn(usize) -> Events = Events::with_capacity;
    let _: [fn(&Events) -> usize; 2] = [Events::capacity, Events::len];
    let _: fn(&Events) -> bool = Events::is_empty;
    let _: fn(&Events, usize) -> Option<Event> = Events::get;
    let _: fn(&mut Events) = Events::clear;
    let _: for<'a> fn(&'a Events) -> Iter<'a> = Events::iter;
    let _: fn(Event) -> Token = Event::token;
    let _: fn(Event) -> Ready = Event::ready;
    let _: [fn(Event) -> bool; 6] = [
        Event::readable,
        Event::writable,
        Event::priority,
        Event::error,
        Event::hangup,
        Event::read_closed,
    ];
    let _: [Ready; 7] = [
        Ready::NONE,
        Ready::READABLE,
        Ready::WRITABLE,
        Ready::PRIORITY,
        Ready::READ_CLOSED,
        Ready::ERROR,
        Ready::HANGUP,
    ];
    let _: [fn(Ready, Ready) -> bool; 2] = [Ready::contains, Ready::intersects];
    let _: fn(Ready) -> bool = Ready::is_empty;
    let _: fn(Ready, Ready) -> Ready = Ready::union;
    let _: fn(Ready) -> wakeset::Events = Ready::events;
    let _: fn(wakeset::Events) -> Ready = Ready::of;
    let _: [Interest; 5] = [
        Interest::NONE,
        Interest::READABLE,
        Interest::WRITABLE,
        Interest::PRIORITY,
        Interest::READ_CLOSED,
    ];
    let _: [fn(Interest) -> Interest; 3] =
        [Interest::edge, Interest::one_shot, Interest::exclusive];
    let _: fn(Interest, Interest) -> Interest = Interest::union;
    let _: fn(Interest) -> wakeset::Events = Interest::events;
    let _: (u64, Token) = (Token(1).0, Token::from(1_usize));
    assert_eq!(Ready::READABLE | Ready::HANGUP, Ready::READABLE.union(Ready::HANGUP));
    assert_eq!((Ready::READABLE | Ready::HANGUP) - Ready::HANGUP, Ready::READABLE);
    assert_eq!((Ready::READABLE | Ready::HANGUP) & Ready::HANGUP, Ready::HANGUP);
}

#[test]
fn of_sources() {
    let _: fn() -> io::Result<&'static wakeset::Engine> = engine;
    let _: fn(usize) -> io::Result<(Sender<u8>, Receiver<u8>)> = channel;
    let _: fn(&Sender<u8>, u8) -> Result<(), SendError<u8>> = Sender::send;
    let _: fn(&Sender<u8>, u8) -> Result<(), TrySendError<u8>> = Sender::try_send;
    let _: fn(&Receiver<u8>) -> Result<u8, RecvError> = Receiver::recv;
    let _: fn(&Receiver<u8>) -> Result<u8, TryRecvError> = Receiver::try_recv;
    let _: fn(&Receiver<u8>, Duration) -> Result<u8, RecvTimeoutError> = Receiver::recv_timeout;
    let _: fn(&Receiver<u8>) -> Option<u8> = |receiver| receiver.try_iter().next();
    let _: fn() -> io::Result<Notifier> = Notifier::new;
    let _: fn(&Notifier) = Notifier::notify;
    let _: fn(&Notifier) -> u64 = Notifier::take;
    let _: fn() -> io::Result<(Registration, SetReadiness)> = Registration::new;
    let _: fn(&SetReadiness, Ready) = SetReadiness::set_readiness;
    let _: fn(&SetReadiness) -> Ready = SetReadiness::readiness;
    fn is_watched<W: Watch>() {}
    is_watched::<Sender<u8>>();
    is_watched::<Receiver<u8>>();
    is_watched::<Notifier>();
    is_watched::<Registration>();
    is_watched::<wakeset::Description<wakeset::Counter>>();
    fn is_cloned<T: Clone>() {}
    is_cloned::<Sender<Box<dyn Send>>>();
    is_cloned::<Receiver<Box<dyn Send>>>();
    is_cloned::<Notifier>();
    is_cloned::<SetReadiness>();
}

/// Both adapters have the same functions.
macro_rules! adapter {
    ($test:ident, $adapter:ident) => {
        #[test]
        fn $test() {
            use wakeset_io::$adapter::{AsyncPoll, EventStream};
            fn is_stream<S: futures_core::Stream<Item = io::Result<Event>> + Unpin>() {}
            let _: fn(Poll) -> io::Result<AsyncPoll> = AsyncPoll::new;
            let _: fn(AsyncPoll) -> AsyncPoll = AsyncPoll::spinning;
            let _: fn(&AsyncPoll, &mut Context<'_>, &mut Events) -> Task<io::Result<()>> =
                AsyncPoll::poll_wait;
            let _: fn(AsyncPoll, usize) -> EventStream = AsyncPoll::into_stream;
            let _: fn(&EventStream) -> &Poll = EventStream::set;
            let _: fn(&AsyncPoll) -> &Poll = |poll| poll;
            let _ = async |poll: AsyncPoll, events: &mut Events| -> io::Result<()> {
                poll.wait(events).await
            };
            is_stream::<EventStream>();
        }
    };
}

adapter!(of_tokio, tokio);
adapter!(of_async_io, async_io);
