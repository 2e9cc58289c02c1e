//! Nothing migrates.

pub(crate) use crate::table::gate::{hold_migrations, wait_for_migrations};
