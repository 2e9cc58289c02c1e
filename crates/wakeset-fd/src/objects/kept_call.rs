//! How a call that slept in an object goes on in the kernel when a call by its number would not be
//! the same any more: the number has been closed, or stands for another file, or `O_NONBLOCK` has
//! been set. In Linux none of these reaches a call that sleeps.

use crate::migrate;
use crate::objects::migratable::Migratable;
use crate::objects::residence::{Residence, Whereabouts};
use crate::sys::refusable::refusable;
use crate::sys::signal_guard::SignalGuard;
use crate::sys::{self, Errno, cancel, handled, waits};
use crate::table::kept::KeptFile;
use crate::table::slot::end_use;
use crate::table::{SlotHead, Using};
use core::ffi::c_int;
use core::ptr;
use libc::{O_NONBLOCK, pollfd, timespec};
use wakeset::mutated;

/// How long a call sleeps for which the kernel reports room again and again that is not enough.
const NAP: timespec = timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// A call that goes on with the file it began with. It is still counted as a user of the object.
#[must_use]
pub(crate) struct Kept {
    head: &'static SlotHead,
    /// [`handled::not_restarting`] when it began.
    before: u32,
}

/// How a sleep has ended.
enum Woken {
    /// The call is worth another try.
    Ready,
    /// A handler has run after which Linux makes the call anew.
    Restarts,
    Fails(Errno),
}

/// Keeps the file of an object that has migrated from under a call that slept in it, if
/// `O_NONBLOCK` has been set meanwhile; whether there is a file now.
pub(super) fn keep_if_nonblocking<M: Migratable>(fd: c_int, object: &'static M) -> bool {
    let is_kernels = || object.residence().map(Residence::now) == Some(Whereabouts::InKernel);
    let flags = || refusable!(fcntl, fd, libc::F_GETFL, 0).unwrap_or(0) as c_int;
    if !is_kernels() || flags() & O_NONBLOCK == 0 || mutated!("sleeper_stops_blocking") {
        return false;
    }
    let Some(kept) = object.kept_file() else { return false };
    let _guard = SignalGuard::enter();
    let _migrating = migrate::hold_migrations();
    if kept.number().is_none() {
        // Else another call has kept it.
        kept.keep(fd);
    }
    kept.number().is_some()
}

impl Kept {
    /// `before`: [`handled::not_restarting`] when the call began.
    pub(super) fn new<M: Migratable>(using: Using<M>, before: u32) -> Self {
        Self { head: using.leave_counted(), before }
    }

    /// Makes the system call on the file, and blocks in it as it did, whether the file is
    /// `O_NONBLOCK` or not: `wanted` is what poll(2) says when there is something to do. Where the
    /// file could not be kept, or nothing could come of it, this sleeps until a signal comes, as
    /// the call would in Linux.
    ///
    /// It can be cancelled in there; the object and the file then stay as they are.
    pub(super) fn call<T>(
        self,
        wanted: i16,
        call: impl Fn(c_int) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let result = cancel::point(|| self.call_until_done(wanted, call));
        end_use(self.head.object());
        result
    }

    /// The number of its file.
    fn number(&self) -> Option<c_int> {
        let kept = self.head.object().kept().and_then(KeptFile::number);
        kept.or_else(|| self.head.has_several().then(|| self.head.fd()))
    }

    fn call_until_done<T>(
        &self,
        wanted: i16,
        call: impl Fn(c_int) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let mut any_before = None;
        let mut in_vain = false;
        loop {
            let Some(number) = self.number() else {
                sys::pause()?;
                continue;
            };
            match call(number) {
                Err(Errno::EAGAIN) => {}
                done => return done,
            }
            // From here on `O_NONBLOCK` is set, so that a call made anew would not block.
            let any_before = *any_before.get_or_insert_with(handled::any);
            // Room for some is not room enough for all that is added to an eventfd.
            let polled = if in_vain {
                None
            } else {
                Some(pollfd { fd: number, events: wanted, revents: 0 })
            };
            in_vain = !in_vain;
            match self.sleep(polled, any_before) {
                Woken::Ready => {}
                Woken::Restarts => return call(number),
                Woken::Fails(errno) => return Err(errno),
            }
        }
    }

    /// Sleeps until the kernel reports the entry, or for [`NAP`] without one. No handler that runs
    /// goes unnoticed: all signals are blocked but in the sleep.
    fn sleep(&self, entry: Option<pollfd>, any_before: u32) -> Woken {
        let mut entry = entry;
        let n = usize::from(entry.is_some());
        let limit = entry.is_none().then_some(&NAP);
        let place = entry.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
        let mask = sys::set_signal_mask(u64::MAX);
        let handled = handled::not_restarting() != self.before || handled::any() != any_before;
        let result = if handled {
            Err(Errno::EINTR)
        } else {
            // SAFETY: one entry or none, and a mask.
            unsafe { waits::ppoll(place, n, limit, (&raw const mask).cast()) }
        };
        sys::set_signal_mask(mask);
        match result {
            _ if handled::not_restarting() != self.before => Woken::Fails(Errno::EINTR),
            Ok(_) => Woken::Ready,
            // Without handlers that are counted nothing is known of them.
            Err(Errno::EINTR) if handled::any() != any_before => Woken::Restarts,
            Err(Errno::EINTR) => Woken::Fails(Errno::EINTR),
            // A filter refuses the call.
            Err(_) => Woken::Fails(Errno::EAGAIN),
        }
    }
}
