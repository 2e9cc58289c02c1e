//! The way home: a call that finds its object away brings it home, or is made on the kernel object
//! and counted there. `docs/design/home.md` has why that is exact.

use crate::objects::counter;
use crate::sys::Errno;
use crate::sys::cancel;
use crate::sys::process::is_owner;
use crate::sys::signal_guard::{self, SignalGuard};
use crate::sys::steps::step;
use crate::sys::verdict::Verdict;
use crate::table::away::{self, Begun};
use crate::table::gate;
use core::ffi::c_int;

/// A read or a write of an object that is away. `None`: it has come home, or is just coming; look
/// the number up again.
pub(crate) fn call<T>(fd: c_int, call: impl FnOnce() -> Result<T, Errno>) -> Option<Verdict<T>> {
    if away::may_return(fd) && come(fd) {
        return None;
    }
    let begun = away::begin_call(fd);
    step!(call_away_begun);
    match begun {
        Begun::Again => None,
        Begun::Left => Some(Verdict::Kernel),
        Begun::Counted => {
            // As any call on a kernel object.
            let result = cancel::point(call);
            away::end_call(fd);
            Some(Verdict::Done(result))
        }
    }
}

/// Brings an object home, if nothing is in the way.
#[cold]
fn come(fd: c_int) -> bool {
    if signal_guard::is_inside() || !is_owner() {
        return false;
    }
    let _guard = SignalGuard::enter();
    let _migrating = gate::hold_migrations();
    // A fork or a vfork(2) waits for us, or its child has the number already.
    gate::is_open() && away::bring_home(fd, |eventfd| counter::come_home(fd, eventfd))
}
