//! What happens to the process as a whole: before main, around each fork, and what is counted.
//!
//! | file | concept |
//! |---|---|
//! | `statistics` | the page of counts for `wakeset run --stats` |
//! | `fork` | handlers around every fork |
//! | `start` | everything that is set up before it is needed |

pub(crate) mod fork;
pub(crate) mod start;
mod statistics;
