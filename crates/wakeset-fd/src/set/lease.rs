//! Leases and [`retire`], by descriptor: [`wakeset::Lease`] for the sets of the descriptor table.
//!
//! Both are exact for in-process descriptors. The kernel does not say to which thread it has
//! reported an event, so the removal of one of its descriptors, or of one that has migrated, is
//! [`Removal::Unknown`].

use crate::migrate;
use crate::set::complete;
use crate::set::{FdSet, Limit, Mask};
use crate::sys::signal_guard::SignalGuard;
use crate::sys::verdict::Verdict::Done;
use crate::sys::{self, Errno, SIGSET_BYTES};
use crate::table::object::Object;
use crate::table::{self, Entry, Using};
use core::ffi::c_int;
use core::fmt;
use core::ptr;
use libc::{EPOLL_CTL_DEL, EPOLL_CTL_MOD, epoll_event};
use wakeset::{Error, Event, Events, Timeout};

/// What one thread holds of the events that one set has reported. See [`wakeset::Lease`].
///
/// It keeps the set alive, as a wait does; drop it before the set's descriptor is closed, or at
/// the latest then.
pub struct Lease {
    // Dropped first: it borrows from the set that `set` keeps.
    lease: wakeset::Lease<'static>,
    set: Using<FdSet>,
    epfd: c_int,
}

/// Whether a thread still holds an event of a watch that has just been removed. See
/// [`wakeset::Removal`].
#[derive(Debug)]
#[must_use = "the answer says whether what the data stands for can be freed"]
pub enum Removal {
    /// No thread does: what its data stands for can be freed.
    Idle,
    /// These leases hold one; they can be waited for.
    InUse(LeaseHolders),
    /// The watch was one-shot, and its event was reported to a thread without a lease, whose next
    /// `EPOLL_CTL_MOD` fails with ENOENT.
    Disarmed,
    /// The set cannot tell.
    Unknown,
}

/// The leases that hold an event of a removed watch.
pub struct LeaseHolders {
    // Dropped first, as above.
    holders: wakeset::LeaseHolders<'static>,
    _set: Using<FdSet>,
}

/// The set that a descriptor stands for, if it is ours, with a use of it.
fn set_of(epfd: c_int) -> Option<(&'static FdSet, Using<FdSet>)> {
    let set = table::find::<FdSet>(epfd)?;
    Some((set, Using::begin(epfd, set)?))
}

/// The address by which sets know what a descriptor stands for, if it is ours and no set.
fn source_of(fd: c_int) -> Option<*const ()> {
    match table::get(fd) {
        Entry::Object(object) if object.kind() != table::SET => Some(ptr::from_ref(object).cast()),
        Entry::Object(_) | Entry::Kernel | Entry::Doorbell => None,
    }
}

impl Lease {
    /// Returns a lease for the set `epfd`, which holds no event yet.
    ///
    /// # Errors
    /// EBADF; EOPNOTSUPP if it is no set, or one that lives in the kernel; ENOMEM.
    pub fn new(epfd: c_int) -> Result<Self, Errno> {
        let _guard = SignalGuard::enter();
        let Some((slot, set)) = set_of(epfd) else {
            sys::fcntl(epfd, libc::F_GETFD, 0)?;
            return Err(if matches!(table::get(epfd), Entry::Doorbell) {
                Errno::EBADF
            } else {
                Errno::EOPNOTSUPP
            });
        };
        let lease = slot.set.lease().map_err(|error| Errno::new(error.errno()))?;
        Ok(Self { lease, set, epfd })
    }

    /// epoll_wait(2); this lease holds what it reports. Releases what the lease held before, also
    /// if the wait fails.
    ///
    /// # Errors
    /// As epoll_wait(2); EBADF also if the descriptor stands for another set by now.
    ///
    /// # Safety
    /// `events` has room for `maxevents` events.
    pub unsafe fn wait(
        &mut self,
        events: *mut epoll_event,
        maxevents: c_int,
        milliseconds: c_int,
    ) -> Result<c_int, Errno> {
        self.release();
        match table::get(self.epfd) {
            Entry::Object(object) if ptr::eq(object, self.set.head()) => {
                let (limit, mask) = (
                    Limit::Milliseconds(milliseconds),
                    Mask { set: ptr::null(), bytes: SIGSET_BYTES },
                );
                // SAFETY: the caller's contract.
                match unsafe {
                    crate::set::epoll_wait::epoll_wait_into(
                        Some(&self.lease),
                        self.epfd,
                        events,
                        maxevents,
                        limit,
                        mask,
                    )
                } {
                    Done(result) => result,
                    // SAFETY: the caller's contract. The set has migrated, or the answer is EINVAL
                    // or EFAULT.
                    _ => unsafe {
                        complete::epoll_wait(self.epfd, events, maxevents, milliseconds)
                    },
                }
            }
            Entry::Kernel if self.set.state.is_in_kernel() => {
                // SAFETY: the caller's contract.
                unsafe { complete::epoll_wait(self.epfd, events, maxevents, milliseconds) }
            }
            _ => Err(Errno::EBADF),
        }
    }

    /// Gives back all events of this set that the lease holds: this thread is done with them.
    pub fn release(&mut self) {
        let _guard = SignalGuard::enter();
        self.lease.release();
    }

    /// epoll_ctl(2) with `EPOLL_CTL_MOD`, which gives back the event of that watch.
    ///
    /// # Errors
    /// As epoll_ctl(2).
    pub fn modify(&mut self, fd: c_int, event: &epoll_event) -> Result<(), Errno> {
        let _guard = SignalGuard::enter();
        if let Some(source) = source_of(fd) {
            let asked = Event::new(Events::from_bits_retain(event.events), event.u64);
            match self.lease.modify_source(fd, source, asked) {
                // It may be migrating: the plain call knows.
                Err(Error::NotWatched) => {}
                result => return result.map_err(|error| Errno::new(error.errno())),
            }
        }
        // SAFETY: the event is there.
        unsafe { complete::epoll_ctl(self.epfd, EPOLL_CTL_MOD, fd, event) }
    }

    /// [`retire`] by a thread that may hold an event of the watch itself: only other leases count.
    ///
    /// # Errors
    /// As [`retire`].
    pub fn retire(&self, fd: c_int) -> Result<Removal, Errno> {
        remove(self.epfd, fd, Some(self))
    }
}

/// epoll_ctl(2) with `EPOLL_CTL_DEL` that says whether a lease still holds an event of the watch.
///
/// # Errors
/// As epoll_ctl(2).
#[doc(alias = "EPOLL_CTL_DISABLE")]
pub fn retire(epfd: c_int, fd: c_int) -> Result<Removal, Errno> {
    remove(epfd, fd, None)
}

fn remove(epfd: c_int, fd: c_int, but: Option<&Lease>) -> Result<Removal, Errno> {
    let guard = SignalGuard::enter();
    if let (Some((slot, using)), Some(source)) = (set_of(epfd), source_of(fd)) {
        let but = but.filter(|but| ptr::eq(slot, &*but.set)).map(|but| &but.lease);
        match slot.set.retire_source(fd, source, but) {
            Ok(wakeset::Removal::Idle) => return Ok(Removal::Idle),
            Ok(wakeset::Removal::InUse(holders)) => {
                return Ok(Removal::InUse(LeaseHolders { holders, _set: using }));
            }
            Ok(wakeset::Removal::Disarmed) => return Ok(Removal::Disarmed),
            Ok(wakeset::Removal::Unknown) => return Ok(Removal::Unknown),
            // It is migrating or has migrated: from then on only the kernel knows, and does not
            // say.
            Err(Error::NotWatched) => migrate::wait_for_migrations(),
            Err(error) => return Err(Errno::new(error.errno())),
        }
    }
    drop(guard);
    // SAFETY: a removal needs no event.
    unsafe { complete::epoll_ctl(epfd, EPOLL_CTL_DEL, fd, ptr::null()) }.map(|()| Removal::Unknown)
}

impl LeaseHolders {
    /// Whether none of them holds one any more. Once true, it stays true.
    pub fn have_released(&self) -> bool {
        let _guard = SignalGuard::enter();
        self.holders.have_released()
    }

    /// Waits until none of them holds one any more; `false` if `timeout` expires before.
    pub fn wait(&self, timeout: Timeout) -> bool {
        self.holders.wait(timeout)
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("epfd", &self.epfd)
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for LeaseHolders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.holders.fmt(f)
    }
}
