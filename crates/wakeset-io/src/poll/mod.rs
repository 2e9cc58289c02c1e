//! The set.

mod events;
mod nested;
mod registered;
mod set;

pub use events::{Event, Events, Iter};
pub use nested::Nested;
pub use registered::Registered;
pub use set::Poll;
