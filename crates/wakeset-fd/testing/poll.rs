//! How a thread sleeps in a poller is what it is in every build; the calls are played by the models.

#[path = "../src/poll/sleeper.rs"]
pub(crate) mod sleeper;
