//! Custom sources in sets that have descriptor numbers: those that a program implements, and those
//! of the engine's that it has opened without a number.
//!
//! [`add`], [`modify`] and [`remove`] are for an open source, a [`Description`] made for
//! [`engine`]. [`epoll_ctl`] is for a source that is kept by other means.
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
use wakeset::{Description, Engine, Error, Event, EventPoll, Events, Source};

/// What stands for the number that such a source does not have. The source's address tells one from
/// another.
const NO_NUMBER: c_int = -1;

/// The engine whose sets have numbers: sources are made for it. `None` when there is no memory for
/// it.
pub fn engine() -> Option<&'static Engine> {
    process::may_make_objects();
    engine::get()
}

/// Watches a custom source in the set `epfd`: `EPOLL_CTL_ADD` of epoll_ctl(2). The set does not
/// migrate any more.
///
/// # Errors
/// EBADF (also if the source was opened for another engine than [`engine`]), EEXIST, EINVAL,
/// ENOMEM, ENOSPC, ELOOP. EMFILE, ENFILE: the set has a kernel half and gets no doorbell.
/// EOPNOTSUPP: the set is [exported](crate::set::export), or was an epoll of the kernel's, and the
/// source is a timer, or a set, which may have one: another loop would not wake for its time.
pub fn add<S: Source + 'static>(
    epfd: c_int,
    source: &Description<S>,
    event: Event,
) -> Result<(), Errno> {
    change(epfd, Some(is_timed(&**source)), |set| set.add(NO_NUMBER, source, event))
}

/// Gives the watch of a custom source another event: `EPOLL_CTL_MOD` of epoll_ctl(2).
///
/// # Errors
/// EBADF, EINVAL, ENOENT.
pub fn modify<S: Source + 'static>(
    epfd: c_int,
    source: &Description<S>,
    event: Event,
) -> Result<(), Errno> {
    change(epfd, None, |set| set.modify(NO_NUMBER, source, event))
}

/// Removes the watch of a custom source: `EPOLL_CTL_DEL` of epoll_ctl(2).
///
/// # Errors
/// EBADF, EINVAL, ENOENT.
pub fn remove<S: Source + 'static>(epfd: c_int, source: &Description<S>) -> Result<(), Errno> {
    change(epfd, None, |set| set.remove(NO_NUMBER, source))
}

/// epoll_ctl(2) for a source without a number. For one in a [`Description`], [`add`],
/// [`modify`] and [`remove`] are safe.
///
/// # Errors
/// As epoll_ctl(2): EBADF, EEXIST, EFAULT, EINVAL, ENOENT, ENOMEM, ELOOP. EMFILE, ENFILE, ENOSPC:
/// the set has a kernel half and gets no doorbell. EOPNOTSUPP, as for [`add`].
///
/// # Safety
/// `source` was made for [`engine`], and stays where it is until
/// [`WaitQueue::close`](wakeset::WaitQueue::close) has been called on its queue and all calls of
/// this function with it have returned. `event` is valid, null, or not needed.
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
    // SAFETY: the caller's contract.
    let added = (op == EPOLL_CTL_ADD).then(|| is_timed(unsafe { &*source }));
    change(epfd, added, |set| match op {
        // SAFETY: the caller's contract.
        EPOLL_CTL_ADD => unsafe { set.add_source(NO_NUMBER, source, asked) },
        EPOLL_CTL_MOD => set.modify_source(NO_NUMBER, address, asked),
        _ => set.remove_source(NO_NUMBER, address),
    })
}

/// Whether time alone may make it ready.
fn is_timed(source: &dyn Source) -> bool {
    source.as_timed().is_some() || source.as_set().is_some()
}

/// Makes one change in the set `epfd`. `added` is for an addition: whether the source is timed.
fn change(
    epfd: c_int,
    added: Option<bool>,
    make: impl Fn(&EventPoll) -> Result<(), Error>,
) -> Result<(), Errno> {
    let (adds, adds_timed) = (added.is_some(), added == Some(true));
    if adds {
        // A set may be made of an epoll.
        process::may_make_objects();
    }
    loop {
        let _guard = SignalGuard::enter();
        // No migration while a source is added: a set that migrates must not have one.
        let migrations = adds.then(migrate::hold_migrations);
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
        if adds_timed && set.state.is_exported() {
            return Err(Errno::EOPNOTSUPP);
        }
        if adds && set.state.has_kernel() && !doorbell::install_held(&set)? {
            return Err(Errno::EMFILE);
        }
        let made = make(&set.set);
        if adds && made.is_ok() {
            set.state.fix();
            if adds_timed {
                set.state.note_timed();
            }
        }
        return match made {
            // The source is closed, or the set is another's by now.
            Err(Error::Closed) => Err(Errno::EBADF),
            made => made.map_err(|error| Errno::new(error.errno())),
        };
    }
}
