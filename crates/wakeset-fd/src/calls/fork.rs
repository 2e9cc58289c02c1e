//! Forks. Parent and child share kernel objects and no memory, and the child begins anew with an
//! empty table. So everything migrates first, or what the child has migrates when it asks for it
//! (`deputy::forked`).

use super::deputy::forked::Keeping;
use super::deputy::{self, Child, Server};
use crate::kernel_half::listeners;
use crate::migrate;
use crate::objects::pipe;
use crate::stats::Stat;
use crate::sys::process;
pub use crate::sys::process::{is_foreign, see_children, share_for_good};
use crate::sys::signal_guard::{self, SignalGuard};
use crate::sys::vforked::Request;
use crate::table::process::{begin_anew, begin_anew_late, begin_anew_with, has_empty_table};
pub use crate::table::process::{may_make_objects, set_in_child};
use crate::table::{self, gate, hidden, inherited, lifecycle};
use core::mem::ManuallyDrop;
use core::ptr;

/// A fork under way: between [`prepare`] and [`Forking::in_parent`] or [`Forking::in_child`].
#[derive(Debug)]
#[must_use = "a prepared fork has to be finished on both sides"]
pub struct Forking {
    section: SignalGuard,
    migrations: ManuallyDrop<wakeset::ScanGuard<'static, ()>>,
    keeping: Option<Keeping>,
    /// No thread waits for this fork ([`gate::begin_fork`]).
    waits_alone: bool,
}

/// Whether this process has never had anything of ours. A fork of its only thread then has nothing
/// to do here on either side.
// A forked child brings in the pages of each function that it calls; so this is one with its
// callers.
#[inline]
pub fn owns_nothing() -> bool {
    process::has_no_owner() && !lifecycle::has_participants() && has_empty_table()
}

/// In the child of a fork that has not been prepared because the parent [owned
/// nothing](owns_nothing): forgets what the parent has made since.
#[inline]
pub fn begin_anew_unprepared() {
    if !owns_nothing() {
        begin_anew();
    }
}

/// Before a fork: migrates everything and lets nothing new in until it is over.
pub fn prepare() -> Forking {
    let section = SignalGuard::enter();
    migrate::everything(Stat::MigratedFork);
    Forking::begin(section, gate::hold_migrations(), None)
}

/// [`prepare`] for a fork whose child's calls are all seen, in a process whose end is seen: leaves
/// objects in process where that is possible, and has `server` answer the child. The caller tells
/// the child that [`Forking::with_child`] returns which it is.
pub fn prepare_to_keep(server: Server) -> Forking {
    // The memory may be that of a vfork(2) child's parent.
    if signal_guard::is_inside() || is_foreign() {
        return prepare();
    }
    let section = SignalGuard::enter();
    // What this process has from its own parent.
    inherited::settle();
    gate::close();
    let migrations = gate::hold_migrations();
    pipe::give_up_all_kept(Stat::MigratedFork);
    let keeping = deputy::forked::begin(server);
    if keeping.is_none() {
        migrate::several_held(&mut table::numbers(), Stat::MigratedFork);
    }
    Forking::begin(section, migrations, keeping)
}

impl Forking {
    fn begin(
        section: SignalGuard,
        migrations: wakeset::ScanGuard<'static, ()>,
        keeping: Option<Keeping>,
    ) -> Self {
        let waits_alone = keeping.is_none() && deputy::forked::are_refused();
        let migrations = if waits_alone { gate::begin_fork(migrations) } else { migrations };
        hidden::begin_fork();
        Self { section, migrations: ManuallyDrop::new(migrations), keeping, waits_alone }
    }

    /// After a fork, in the parent.
    pub fn in_parent(self) {
        let _ = self.with_child();
    }

    /// [`in_parent`](Self::in_parent) after [`prepare_to_keep`]: the child, if objects have stayed
    /// in process.
    pub fn with_child(self) -> Option<Child> {
        hidden::end_fork();
        let child = self.keeping.map(Keeping::in_parent);
        drop(ManuallyDrop::into_inner(self.migrations));
        if self.waits_alone {
            gate::end_fork();
        }
        migrate::open_gate();
        if let Some(child) = child {
            child.serve();
        }
        drop(self.section);
        child
    }

    /// After a fork, in the child.
    pub fn in_child(self) {
        match self.keeping {
            Some(keeping) => begin_anew_with(Some(keeping.childs_end())),
            None => begin_anew_late(),
        }
        drop(self.section);
    }
}

/// Before a clone(2) whose child has a copy of this memory and shares the descriptor table, once
/// everything has migrated for good: gives up what is hidden. The child knows those numbers as we
/// do, and what either closes or opens the other does not see.
pub fn before_sharing_numbers() {
    let _guard = SignalGuard::enter();
    let _migrating = gate::hold_migrations();
    listeners::close_private_sets();
    while let Some(doorbell) = table::take_spare_doorbell() {
        hidden::close(doorbell);
    }
    // What a call of a parent's thread still sleeps in stays, and is not the child's to close.
    hidden::share();
}

/// What a call of vfork(2) has kept in process, and the thread that migrates it for the child. What
/// fits into a register, null for nothing: the memory of the calling function is the child's.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Kept(*const Request);

/// Before a vfork(2). The child works on this memory with a descriptor table of its own. As soon as
/// another thread of the parent closes a number and uses it again, that means one thing here and
/// another there, and the child may be killed at any moment; so it touches nothing of ours.
///
/// Nothing new is let in until [`after_vfork`]. If all calls of the child are `seen`, what there is
/// stays, and a [deputy](deputy) migrates what the child names; else everything migrates.
pub fn before_vfork(seen: bool) -> Kept {
    process::begin_sharing();
    // In the child of a vfork there is nothing of ours that it could hand on.
    if may_make_objects() {
        // A child's child does not ask its parent's parent.
        inherited::settle();
        if let Some(kept) = seen.then(deputy::begin).flatten() {
            return Kept(kept.map_or(ptr::null(), ptr::from_ref));
        }
        migrate::everything(Stat::MigratedFork);
    }
    Kept(ptr::null())
}

/// After a vfork(2), in the parent.
///
/// # Safety
/// `kept` is what [`before_vfork`] has returned before this very call.
pub unsafe fn after_vfork(kept: Kept) {
    // SAFETY: null, or a request that is not over.
    if let Some(request) = unsafe { kept.0.as_ref() } {
        request.end();
    }
    if !is_foreign() {
        migrate::open_gate();
    }
    process::end_sharing();
}
