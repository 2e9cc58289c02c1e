//! The objects of the process that are not sets: eventfds, timerfds, pipes and socket pairs.
//!
//! What they have in common is in `migratable` and `residence`: where an object's state is, how it
//! leaves for the kernel object of the same number, and how an operation waits and finds out.

pub mod counter;
pub(crate) mod home;
pub(crate) mod migratable;
pub mod pipe;
mod residence;
pub mod timer;
