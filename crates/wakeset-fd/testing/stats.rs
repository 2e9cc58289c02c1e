//! The page is what it is in every build; nothing is counted.

#[path = "../src/stats/listener.rs"]
mod listener;
#[path = "../src/stats/migration.rs"]
mod migration;
#[path = "../src/stats/page.rs"]
mod page;
#[path = "../src/stats/set.rs"]
mod set;
#[path = "../src/stats/stat.rs"]
mod stat;
#[path = "../src/stats/summary.rs"]
mod summary;
#[path = "../src/stats/tally.rs"]
mod tally;

pub use listener::{ADDRESS_BYTES, LISTENERS, ListenerStat, ListenerSummary};
pub use migration::{MIGRATIONS, Migration, OBJECTS};
pub use page::{MAGIC, PAGE_BYTES, Page, SHARED_STRIPE, STRIPES, VERSION};
pub use set::{SETS, SetStat, SetSummary};
pub use stat::{NAMES, Stat};
pub use summary::Summary;
pub use tally::Tally;

pub(crate) mod count {
    use crate::stats::Stat;

    pub(crate) fn count(_: Stat, _: usize) {}

    pub(crate) fn is_on() -> bool {
        false
    }

    #[derive(Debug)]
    pub(crate) struct SetPlace;

    pub(crate) fn count_wake(_: &SetPlace, _: u32, _: bool) {}
}
