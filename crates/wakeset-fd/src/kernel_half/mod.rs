//! What a set watches in the kernel: the listeners among it, and the io_urings that serve it. And
//! the program's own io_urings.

mod kernel_epoll;
pub mod listeners;
pub mod program_rings;
pub(crate) mod uring;

pub(crate) use kernel_epoll::KernelEpoll;
