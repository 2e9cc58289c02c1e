//! System calls by instruction that the kernel has reported with SIGSYS.
//! `docs/design/instruction-calls.md` has the whole of it.
//!
//! | file | concept |
//! |---|---|
//! | `handler` | our handler of SIGSYS |
//! | `decide` | what becomes of a caught call |
//! | `masks` | calls about the signals that are blocked, and their handlers |

mod decide;
mod handler;
mod masks;
