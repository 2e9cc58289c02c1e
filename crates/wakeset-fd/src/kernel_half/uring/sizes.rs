//! How much the io_urings are made for. The models have sizes of their own.

/// Sets that can have polls at a time. Further sets are served by their kernel epoll.
pub(crate) const POLLED_SETS: usize = 64;

/// Io_urings without polls that can wait for the next set of their thread. A further one is closed.
pub(crate) const KEPT_POLL_URINGS: usize = 16;

/// Threads that can have an io_uring for batches at a time. Further threads make single calls.
pub(crate) const KEPT_COMMAND_URINGS: usize = 16;

/// Descriptors below this number can be polled.
pub(crate) const POLLED_FDS: usize = 1 << 20;
