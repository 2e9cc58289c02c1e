//! The calls: what happens to each before the kernel gets it, if the kernel gets it at all.
//!
//! [`table`] has a row for each call, [`row`] makes hooks and the decoder of `syscall()` from the
//! rows, and the other files have the bodies that rows name, by topic. Some bodies call the hook of
//! another row, as readv(2) of one buffer does with read(2): so [`table`] and the bodies import
//! each other.
//!
//! To add a hook that only migrates, add a row; to add one that does more, write its body in the
//! file of its topic besides. Then write its entry in `tests/c/roads_calls.h` and run `cargo test
//! -p wakeset-preload` with `WAKESET_WRITE_DOCS=1`, which writes `docs/calls.md` anew.

#[macro_use]
mod row;

mod create;
mod descriptor;
mod epoll;
mod fork;
mod fortified;
mod instruction;
mod path;
mod poll;
mod process;
mod read_write;
mod select;
mod socket;
mod syscall;
pub(crate) mod table;
mod variadic;

pub(crate) use instruction::{Why, is_moot, leave, start};
pub(crate) use row::Registers;
