//! What `wakeset run --stats` shows, from the page that is counted in to the sums that are printed.
//!
//! Each process image has one [`Page`]. A page is plain memory without pointers, so it can be in a
//! mapping that several processes share; the counts there outlive `_exit`, `exec` and `SIGKILL`. A
//! reader copies its bytes, and parses them with [`Summary::parse`] and [`ListenerSummary::parse`].
//!
//! | file | what |
//! |---|---|
//! | `stat` | the list of what is counted, with its names |
//! | `tally` | what a thread counts on its fastest paths, in one instruction |
//! | `page` | the page: its layout, and how threads count in it |
//! | `listener` | the counts of listening sockets, in the page and in a summary |
//! | `set` | the counts of epoll sets, likewise |
//! | `migration` | the last migrations, likewise |
//! | `summary` | the sums over a page or over several |
//! | [`area`] | the memory of a run: a slot for each process image, used again when it has ended |
//! | [`count`] | the page that this process counts in, if it counts |

pub mod area;
pub mod count;
mod listener;
mod migration;
mod page;
mod set;
mod stat;
mod summary;
mod tally;

pub use listener::{ADDRESS_BYTES, LISTENERS, ListenerStat, ListenerSummary};
pub use migration::{MIGRATIONS, Migration, OBJECTS};
pub use page::{MAGIC, PAGE_BYTES, Page, SHARED_STRIPE, STRIPES, VERSION};
pub use set::{SETS, SetStat, SetSummary};
pub use stat::{NAMES, Stat};
pub use summary::Summary;
pub use tally::Tally;
