//! The hooks, by what they are about.

mod descriptor;
mod epoll;
mod io;
pub(crate) mod listener;
mod pipe;
mod poll;
mod process;
pub(crate) mod signal;
mod syscall;
pub(crate) mod uffd;
mod unmodelled;
