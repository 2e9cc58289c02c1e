//! Wakeset by safe code: sockets, channels and sources of your own in one set, with tokens.
//!
//! [`Poll`] is the set. It watches descriptors ([`Poll::register_fd`]) and what lives in memory
//! ([`Poll::register`]): the ends of a bounded [`channel`], a [`Notifier`], a [`Registration`]
//! whose readiness the program sets itself, and everything that implements [`Watch`]. Events come
//! as epoll(7) reports them: level- or edge-triggered, one-shot, exclusive ([`Interest`]).
//!
//! What comes from memory costs no system call while the waiter is awake.
//!
//! ```
//! use std::thread;
//! use wakeset_io::{Events, Interest, Poll, Token};
//!
//! let poll = Poll::new()?;
//! let (sender, receiver) = wakeset_io::channel(8)?;
//! let _registered = poll.register(&receiver, Token(7), Interest::READABLE)?;
//!
//! let producer = thread::spawn(move || (0..100).try_for_each(|number| sender.send(number)));
//! let mut events = Events::with_capacity(16);
//! let mut sum = 0;
//! 'all: loop {
//!     poll.wait(&mut events, None)?;
//!     for event in &events {
//!         assert_eq!(event.token(), Token(7));
//!         sum += receiver.try_iter().sum::<i32>();
//!         if event.hangup() {
//!             break 'all;
//!         }
//!     }
//! }
//! assert_eq!(sum, 4950);
//! producer.join().unwrap().unwrap();
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # Beside another loop
//! [`Poll::into_nested`] makes a set that another loop can watch. Features, off by default:
//!
//! | feature | gives |
//! |---|---|
//! | `mio` | `mio::event::Source` for [`Nested`] |
//! | `tokio` | `tokio::AsyncPoll`, over `tokio::io::unix::AsyncFd` |
//! | `async-io` | `async_io::AsyncPoll`, over `async_io::Async` |
//! | `futures-core` | the streams of events of these two |
//!
//! # Rooms
//! `token`, `ready` (readiness and interest), `sync` (the lock), `sources` (what lives in memory),
//! `engine` (the process's, and their constructors), `poll` (the set), `adapters` (other loops). A
//! room imports only from those before it.
//!
//! # Where it runs
//! Linux on x86-64. There is no unsafe code in this crate.

#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]
#![cfg_attr(
    loom,
    allow(dead_code, missing_debug_implementations, reason = "there only the sources run")
)]

#[cfg(not(loom))]
mod adapters;
#[cfg(not(loom))]
mod engine;
#[cfg(not(loom))]
mod poll;
mod ready;
mod sources;
mod sync;
mod token;

#[cfg(all(not(loom), feature = "async-io"))]
pub use adapters::async_io;
#[cfg(all(not(loom), feature = "tokio"))]
pub use adapters::tokio;
#[cfg(not(loom))]
pub use engine::{channel, engine};
#[cfg(not(loom))]
pub use poll::{Event, Events, Iter, Nested, Poll, Registered};
pub use ready::{Interest, Ready};
pub use sources::Watch;
pub use sources::channel::{Receiver, Sender};
pub use sources::notifier::Notifier;
pub use sources::registration::{Registration, SetReadiness};
pub use token::Token;

/// The code that these pages show is compiled and run.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../README.md")]
    struct Readme;

    #[doc = include_str!("../../../docs/guide-rust.md")]
    struct Guide;
}
