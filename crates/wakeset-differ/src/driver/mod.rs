//! The processes of a comparison: a worker for each side, and the driver that starts workers in
//! pairs, compares what they say, and finds the program when they disagree.

mod find;
mod limit;
mod roads;
mod run;
mod setup;
pub mod worker;

pub use find::{Found, differs, find, smallest};
pub use roads::folder as roads_folder;
pub use run::{Divergence, Extent, Pair, Summary, run};
pub use setup::Setup;
