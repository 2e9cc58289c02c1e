//! System calls that a program makes by instruction, past libc and our hooks.
//!
//! A look through the executable memory finds `syscall` instructions outside libc and the loader.
//! Where there are any, Syscall User Dispatch has the kernel raise SIGSYS for each system call that
//! comes from elsewhere than a range of addresses; where that cannot be had, every object is the
//! kernel's. `docs/design/instruction-calls.md` has the whole of it.
//!
//! | file | concept |
//! |---|---|
//! | `length` | how long an instruction is |
//! | `frames` | where functions begin, from an object's unwind table |
//! | `search` | the system call instructions in a piece of code |
//! | `objects` | the loaded objects, and which of them have such instructions |
//! | `file` | the same for an object that is not loaded yet |
//! | `range` | which addresses pass |
//! | `state` | whether dispatch is on, in the process and in a thread |
//! | `sites` | where a caught call is made in the instruction's place |

mod file;
mod frames;
mod length;
mod objects;
mod range;
mod search;
mod sites;
mod state;

pub(crate) use file::file_has_instruction;
pub(crate) use objects::Look;
pub(crate) use range::{Range, Shape};
pub(crate) use search::has_call;
pub(crate) use sites::site_of;
pub(crate) use state::{
    arm_thread, begin, disarm_thread, in_child, is_armed, is_left, is_on, is_too_often, leave,
    shape, stand_down, was_on, without_sigsys,
};
