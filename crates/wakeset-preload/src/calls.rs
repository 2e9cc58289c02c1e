//! The calls: what happens to each before the kernel gets it, if the kernel gets it at all.
//!
//! [`table`] has a row for each call, [`row`] makes hooks and the decoder of `syscall()` from the
//! rows, and the other files have the bodies that rows name, by topic. Some bodies call the hook of
//! another row, as readv(2) of one buffer does with read(2): so [`table`] and the bodies import
//! each other.
//!
//! CONTRIBUTING.md says how to add a hook.

#[macro_use]
mod row;

mod create;
mod descriptor;
mod epoll;
mod fork;
mod fortified;
mod instruction;
mod leave;
mod lookup;
mod path;
mod poll;
mod process;
mod read_write;
mod room;
mod sandbox;
mod select;
mod socket;
mod syscall;
pub(crate) mod table;
pub(crate) mod uring;
mod variadic;

pub(crate) use instruction::{Why, is_moot, leave};
pub(crate) use row::Registers;
