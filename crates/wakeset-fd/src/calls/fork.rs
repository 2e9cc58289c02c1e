//! Forks. Everything migrates first, so parent and child share kernel objects and no
//! memory; the child begins anew with an empty table.

use crate::migrate;
use crate::stats::Stat;
use crate::sys::process;
pub use crate::sys::process::is_foreign;
use crate::sys::signal_guard::SignalGuard;
use crate::table::process::begin_anew;
pub use crate::table::process::may_make_objects;
use crate::table::{self, gate, lifecycle};
use core::mem::ManuallyDrop;

/// A fork under way: between [`prepare`] and [`Forking::in_parent`] or [`Forking::in_child`].
#[derive(Debug)]
#[must_use = "a prepared fork has to be finished on both sides"]
pub struct Forking {
    section: SignalGuard,
    migrations: ManuallyDrop<wakeset::ScanGuard<'static, ()>>,
}

/// Whether this process has never had anything of ours. A fork of its only thread then has nothing
/// to do here on either side.
pub fn owns_nothing() -> bool {
    process::has_no_owner() && !lifecycle::has_participants() && table::numbers().is_empty()
}

/// In the child of a fork that has not been prepared because the parent [owned
/// nothing](owns_nothing): forgets what the parent has made since.
pub fn begin_anew_unprepared() {
    if !owns_nothing() {
        begin_anew();
    }
}

/// Before a fork: migrates everything and lets nothing new in until it is over.
pub fn prepare() -> Forking {
    let section = SignalGuard::enter();
    migrate::everything(Stat::MovedFork);
    Forking { section, migrations: ManuallyDrop::new(gate::hold_migrations()) }
}

impl Forking {
    /// After a fork, in the parent.
    pub fn in_parent(self) {
        drop(ManuallyDrop::into_inner(self.migrations));
        migrate::open_gate();
        drop(self.section);
    }

    /// After a fork, in the child.
    pub fn in_child(self) {
        begin_anew();
        drop(self.section);
    }
}

/// Before a vfork(2): migrates everything and lets nothing new in until
/// [`after_vfork`]. The child works on this memory with a descriptor table of its own. As soon as
/// another thread of the parent closes a number and uses it again, that means one thing here and
/// another there, so the child must find nothing to migrate, and nothing that would have to be.
pub fn before_vfork() {
    // In the child of a vfork there is nothing of ours that it could hand on.
    if may_make_objects() {
        migrate::everything(Stat::MovedFork);
    }
}

/// After a vfork(2), in the parent.
pub fn after_vfork() {
    if !is_foreign() {
        migrate::open_gate();
    }
}
