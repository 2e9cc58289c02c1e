//! Exported sets: their number tells of both halves to whoever polls it.

use crate::migrate;
use crate::set::create::check_epoll;
use crate::set::{FdSet, doorbell, polls};
use crate::stats::Stat;
use crate::sys::Errno;
use crate::sys::signal_guard::SignalGuard;
use crate::table::{self, Entry, Using};
use core::ffi::c_int;
use wakeset::Source;

/// Makes the number of a set one that any loop can poll, also one that knows nothing of us:
/// poll(2), select(2), another epoll, edge-triggered or not. From now on it is readable when a wait
/// would find something, in either half, until one has found nothing; it may be readable once more
/// than that. Each event costs a write(2) to the doorbell. All timers of the process are the
/// kernel's from now on: nobody minds the time here.
///
/// # Errors
/// EBADF, EINVAL: it is no epoll. EMFILE, ENFILE, ENOMEM, ENOSPC: no doorbell can be had.
/// EOPNOTSUPP: it has watched a [custom source](crate::custom::add) that is a timer, or a set.
pub fn export(epfd: c_int) -> Result<(), Errno> {
    loop {
        let entry = table::get(epfd);
        if matches!(entry, Entry::Doorbell) {
            return Err(Errno::EBADF);
        }
        // An epoll of the kernel's says what there is to say.
        let Some(set) = entry.downcast::<FdSet>() else { return check_epoll(epfd) };
        let _guard = SignalGuard::enter();
        let Some(set) = Using::begin(epfd, set) else { continue };
        let migrating = migrate::hold_migrations();
        if set.state.is_in_kernel() {
            drop(migrating);
            continue;
        }
        if set.state.is_timed() {
            return Err(Errno::EOPNOTSUPP);
        }
        if set.set.wait_queue().has_watches() {
            // A set around it knows its in-process half only: both go into the kernel, or that
            // watch does.
            migrate::fd_held(epfd, Stat::MigratedNestedKernel);
            return Ok(());
        }
        return export_held(&set);
    }
}

/// [`export`] for a caller that holds the migrations lock, of a set that no other watches. On an
/// error nothing is said of the in-process half until there is a doorbell.
pub(crate) fn export_held(set: &FdSet) -> Result<(), Errno> {
    migrate::leave_timers_held();
    polls::give_up_held(set);
    let installed = doorbell::install_held(set);
    if installed != Ok(true) && !set.state.is_fixed() {
        return Err(installed.err().unwrap_or(Errno::EMFILE));
    }
    if set.state.export() {
        // A permanent remote waiter, so every event rings the doorbell.
        set.set.enter_remote();
    }
    set.note_kernel_watch();
    if set.set.may_be_ready() {
        set.set.kick();
    }
    installed.and_then(|had| if had { Ok(()) } else { Err(Errno::EMFILE) })
}
