//! How a workload is measured and what is printed of it.
//!
//! Each point of a workload is measured in rounds, all sides in turn in each, so that whatever
//! else the machine does meanwhile meets all of them alike.

pub mod joined;
pub mod machine;
pub mod point;
pub mod processor;
pub mod progress;
pub mod report;
pub mod rounds;
pub mod spread;
