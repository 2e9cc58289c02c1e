//! What happens to the process as a whole: before main, around each fork, and what is counted.
//!
//! | file | concept |
//! |---|---|
//! | `statistics` | the page of counts for `wakeset run --stats` |
//! | `fork` | handlers around every fork |
//! | `start` | everything that is set up before main |

pub(crate) mod fork;
mod start;
mod statistics;
