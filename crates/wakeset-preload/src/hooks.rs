//! The hooks, by what they are about.

mod descriptor;
mod epoll;
mod io;
mod poll;
mod process;
pub(crate) mod signal;
mod syscall;
mod unmodelled;
