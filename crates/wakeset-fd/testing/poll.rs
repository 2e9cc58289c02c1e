//! How a thread sleeps in a poller is what it is in every build; the models play the calls.

#[path = "../src/poll/sleeper.rs"]
pub(crate) mod sleeper;
