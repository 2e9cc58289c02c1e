//! Everything is the kernel's, for good.

use crate::uffd;
use wakeset_fd::migrate;
use wakeset_fd::stats::Stat;

/// Migrates everything, for good.
pub(super) fn leave_to_kernel() {
    uffd::leave_to_kernel();
    migrate::everything_for_good(Stat::MigratedUnmodelled);
}
