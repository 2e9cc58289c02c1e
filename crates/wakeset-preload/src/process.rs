//! What happens to the process as a whole: before main, around each fork, and what is counted.
//!
//! | file | concept |
//! |---|---|
//! | `statistics` | the area and the page that `wakeset run --stats` has us count in |
//! | `fork` | handlers around every fork |
//! | `end` | the end, also by `_exit`, of which libraries do not hear |
//! | `start` | everything that is set up before it is needed |
//! | `filter` | what a seccomp filter of the program's would do to our own calls |

pub(crate) mod end;
pub(crate) mod filter;
pub(crate) mod fork;
pub(crate) mod start;
pub(crate) mod statistics;
