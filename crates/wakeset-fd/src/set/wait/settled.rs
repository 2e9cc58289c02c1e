//! Whether a wait that has found nothing can be believed, while sets in its set migrate.

use crate::migrate;
use crate::set::FdSet;
use crate::sys::signal_guard::SignalGuard;
use core::sync::atomic::Ordering;
use wakeset::mutated;

/// What a set's [`unsettled`](FdSet::unsettled) was at the beginning of a check, unless a migration
/// was under way.
pub(crate) struct Settled(Option<u32>);

impl Settled {
    pub(crate) fn now(set: &FdSet) -> Self {
        Self(Some(set.unsettled.load(Ordering::SeqCst)).filter(|count| count.is_multiple_of(2)))
    }

    /// Waits for the migrations under way.
    pub(super) fn between_migrations(set: &FdSet) -> Self {
        let _guard = SignalGuard::enter();
        let _migrating = migrate::hold_migrations();
        Self(Some(set.unsettled.load(Ordering::SeqCst)))
    }

    /// Whether the check can be believed if it has found nothing.
    pub(crate) fn still(&self, set: &FdSet) -> bool {
        self.0 == Some(set.unsettled.load(Ordering::SeqCst)) || mutated!("looks_beside_moves")
    }
}
