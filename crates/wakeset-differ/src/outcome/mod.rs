//! What becomes of the outcomes that an interpreter reports.
//!
//! | file | what it makes of them |
//! |---|---|
//! | `digest` | one word for many programs, to compare two sides cheaply |
//! | `census`, `coverage` | the same, and a table of what was done how often |
//! | `trace` | everything about one program |
//! | `listing` | a text that sets the traces of two sides side by side |
//! | `body` | a regression test |

mod body;
mod census;
mod coverage;
mod digest;
mod listing;
mod names;
mod trace;

pub use body::body;
pub use census::Census;
pub use coverage::Coverage;
pub use digest::Digest;
pub use listing::listing;
pub use trace::{Step, Trace};
