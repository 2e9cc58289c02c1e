//! The sources that come with the engine: eventfd, timerfd and the pipe in user space.

pub(crate) mod counter;
pub(crate) mod pipe;
pub(crate) mod timer;
