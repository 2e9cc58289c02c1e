//! Forks. Everything migrates first, so parent and child share kernel objects and no
//! memory; the child begins anew with an empty table.

use crate::migrate;
use crate::stats::Stat;
pub use crate::sys::process::is_foreign;
use crate::sys::signal_guard::SignalGuard;
use crate::table::gate;
use crate::table::process;
pub use crate::table::process::{may_make_objects, set_in_child};
use core::mem::ManuallyDrop;

/// A fork under way: between [`prepare`] and [`Forking::in_parent`] or [`Forking::in_child`].
#[derive(Debug)]
#[must_use = "a prepared fork has to be finished on both sides"]
pub struct Forking {
    section: SignalGuard,
    migrations: ManuallyDrop<wakeset::ScanGuard<'static, ()>>,
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
        process::begin_anew();
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
