//! Sources of the program's own in sets that have descriptor numbers.
//!
//! The kernel cannot poll such a source, so a set that has had one never moves there: it is
//! *fixed*. What it watches may move, into its kernel half; sets around it watch its number, which
//! is [handed out](crate::set::export) when they need it; a second descriptor of it is
//! refused (EBUSY). A forked child has no use for it and should close it: the child has the kernel
//! half only, and shares that with the parent.

use crate::migrate;
use crate::set::FdSet;
use crate::set::create::{adopt_held, check_epoll};
use crate::set::doorbell;
use crate::sys::Errno;
use crate::sys::signal_guard::SignalGuard;
use crate::sys::user;
use crate::table::engine;
use crate::table::process;
use crate::table::{self, Entry, Using};
use core::ffi::c_int;
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, epoll_event};
use wakeset::{Engine, Error, Event, Events, Source};

/// What stands for the number that such a source does not have. The source's address tells one from
/// another.
const NO_NUMBER: c_int = -1;

/// The engine whose sets have numbers: sources are made for it. `None` when there is no memory for
/// it.
pub fn engine() -> Option<&'static Engine> {
    process::may_make_objects();
    engine::get()
}

/// epoll_ctl(2) for a source without a number.
///
/// # Errors
/// As epoll_ctl(2): EBADF, EEXIST, EFAULT, EINVAL, ENOENT, ENOMEM, ELOOP. EMFILE, ENFILE, ENOSPC:
/// the set has a kernel half and gets no bell.
///
/// # Safety
/// `source` was made for [`engine`], and stays where it is until
/// [`WaitQueue::close`](wakeset::WaitQueue::close) has been called on its queue. `event` is
/// valid, null, or not needed.
pub unsafe fn epoll_ctl(
    epfd: c_int,
    op: c_int,
    source: *const dyn Source,
    event: *const epoll_event,
) -> Result<(), Errno> {
    let asked = match op {
        EPOLL_CTL_ADD | EPOLL_CTL_MOD => {
            // SAFETY: any bits are an event.
            let event = (!event.is_null())
                .then(|| unsafe { user::load(event) })
                .flatten()
                .ok_or(Errno::EFAULT)?;
            Event::new(Events::from_bits_retain(event.events), event.u64)
        }
        EPOLL_CTL_DEL => Event::default(),
        _ => return Err(Errno::EINVAL),
    };
    let address = source.cast::<()>();
    loop {
        let _guard = SignalGuard::enter();
        // No move while a source is added: a set that moves must not have one.
        let migrations = (op == EPOLL_CTL_ADD).then(migrate::hold_migrations);
        let set = match table::get(epfd) {
            Entry::Object(object) => object.downcast::<FdSet>().ok_or(Errno::EINVAL)?,
            Entry::Kernel if migrations.is_some() => {
                adopt_held(epfd)?;
                continue;
            }
            Entry::Kernel => return check_epoll(epfd).and(Err(Errno::ENOENT)),
            Entry::Doorbell => return Err(Errno::EBADF),
        };
        let Some(set) = Using::begin(epfd, set) else { continue };
        let result = match op {
            EPOLL_CTL_ADD => {
                if set.state.has_kernel() && !doorbell::install_held(&set)? {
                    return Err(Errno::EMFILE);
                }
                // SAFETY: the caller's contract.
                let added = unsafe { set.set.add_source(NO_NUMBER, source, asked) };
                if added.is_ok() {
                    set.state.fix();
                }
                added
            }
            EPOLL_CTL_MOD => set.set.modify_source(NO_NUMBER, address, asked),
            _ => set.set.remove_source(NO_NUMBER, address),
        };
        return match result {
            // The source is closed, or the set is another's by now.
            Err(Error::Closed) => Err(Errno::EBADF),
            result => result.map_err(|error| Errno::new(error.errno())),
        };
    }
}
