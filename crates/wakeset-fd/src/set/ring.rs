//! Event rings by descriptor number: a set's in-process events taken without its lock, by any
//! number of threads at once.
//!
//! Every wait in a set that has been given an event ring takes from the ring; the calls and what
//! they report stay the same. What is ready in the kernel half still comes from epoll_wait(2),
//! unless the program asks for an io_uring ([`polls`]) and undertakes what that needs. An io_uring
//! holds the watched file open, so a close(2) that this crate does not see would neither end a
//! connection nor take the watch away.

use crate::set::FdSet;
use crate::set::polls;
use crate::sys::signal_guard::SignalGuard;
use crate::sys::user;
use crate::sys::{self, Errno};
use crate::table::{self, Entry, Using};
use core::ffi::c_int;
use libc::epoll_event;
use wakeset::EventRing;

/// The smallest page there is.
const PAGE: usize = 4096;

/// Gives the set an event ring of `entries` slots, rounded up to a power of two, unless it has one.
/// Returns whether it has one then: a set that lives in the kernel gets none, and its waits go
/// there as before.
///
/// From then on [`epoll_wait`](crate::epoll_wait) and its kin take in-process events from the ring.
/// One call takes at most as many events as the ring has slots, and they are the same events as
/// without a ring. With a time limit of 0, or while there are events, the call makes no system call
/// and takes no lock that the threads of the set share. An event goes in and comes out under the
/// rules of its watch. A removal waits for threads that are taking events at that moment.
///
/// # Errors
/// EBADF: the number is not open. EINVAL: it is no set, or `entries` is not from 1 to 2^20. ENOMEM.
pub fn ring_setup(epfd: c_int, entries: usize) -> Result<bool, Errno> {
    ring_setup_with(epfd, entries, 0)
}

/// Flag of [`ring_setup_with`]: watch sockets through an io_uring.
pub const RING_POLL: c_int = 1;

/// Flag of [`ring_setup_with`], together with [`RING_POLL`]: an edge is a hint.
pub const RING_HINTS: c_int = 2;

/// [`ring_setup`] with flags.
///
/// With [`RING_POLL`] sockets that are added from now on are watched through an io_uring, where
/// that is allowed. A wait then takes what hundreds of them have in two system calls, and makes
/// none if there is nothing. It reports the same events. An io_uring holds a watched file open, and
/// that sets two conditions:
///
/// - Before a watched number is closed its watch is removed; or the number is closed by
///   [`close`](crate::close), by the C library's under the preload library, or by a call of this
///   crate that replaces it. Until then neither the connection nor the watch ends.
/// - Closing a number ends its watch, also where another number stands for the same file. Linux
///   keeps the watch as long as there is such a number.
///
/// The io_uring serves the thread that makes this call. When another thread waits in the set or
/// changes it, closes a watched number, or forks, or when the set is duplicated, put into another
/// or exported, what the io_uring watches goes to the set's kernel epoll, for good. If another
/// thread causes that, it takes some tens of milliseconds, and may end a system call of this thread
/// with EINTR. So may a close of each set from the seventeenth on that a thread has.
///
/// The kernel epoll serves as before what the io_uring does not: watches for `EPOLLONESHOT`,
/// `EPOLLEXCLUSIVE` and `EPOLLWAKEUP`, listeners, descriptors that are no sockets, and more watches
/// than `entries` (64 to 4,096). This needs Linux 6.1; elsewhere, and where io_uring is not
/// allowed, the kernel epoll serves everything.
///
/// With [`RING_HINTS`] as well, an edge (`EPOLLET`) that comes of data or of room for data is
/// reported as the io_uring names it, without asking about the socket, which takes most of a wait's
/// time. Then an event says that a socket has become readable or writable since the last one, not
/// that it still is, and it says only which of the two the socket has become. Sockets have to be
/// non-blocking, and to be read and written until EAGAIN, which now and then comes at once. This
/// holds for streams (`AF_INET`, `AF_INET6`, `AF_UNIX`) until they have come to an end or an error.
/// All events from there on, levels, other sockets, and watches for `EPOLLPRI`, `EPOLLRDBAND` or
/// `EPOLLWRBAND` are exact.
///
/// The flags of the last call before the first socket is added are the ones that count.
///
/// # Errors
/// As [`ring_setup`]; EINVAL for other flags, and for [`RING_HINTS`] alone.
pub fn ring_setup_with(epfd: c_int, entries: usize, flags: c_int) -> Result<bool, Errno> {
    if flags & !(RING_POLL | RING_HINTS) != 0 || flags == RING_HINTS {
        return Err(Errno::EINVAL);
    }
    loop {
        let set = match table::get(epfd) {
            Entry::Object(object) => object.downcast::<FdSet>().ok_or(Errno::EINVAL)?,
            Entry::Doorbell => return Err(Errno::EBADF),
            Entry::Kernel => {
                sys::fcntl(epfd, libc::F_GETFD, 0)?;
                return Ok(false);
            }
        };
        let _guard = SignalGuard::enter();
        let Some(using) = Using::begin(epfd, set) else { continue };
        return match using.set.make_ring(entries) {
            Ok(_) => {
                if flags & RING_POLL != 0 {
                    polls::ask_for(&using, entries, flags & RING_HINTS != 0);
                }
                Ok(true)
            }
            Err(error) => Err(Errno::new(error.errno())),
        };
    }
}

/// Takes up to `maxevents` events to `events`, and returns how many. `None` where that memory is
/// not mapped, or not all of it: then the ordinary wait has to find out how much fits.
pub(crate) fn take(
    ring: EventRing<'_>,
    events: *mut epoll_event,
    maxevents: usize,
) -> Option<usize> {
    let maxevents = maxevents.min(ring.capacity());
    if maxevents == 0 {
        return Some(0);
    }
    // An event that has been taken is in no other list, so there must be memory for it before.
    if !is_writable(events, events.wrapping_add(maxevents - 1)) {
        return None;
    }
    let mut next = events;
    let taken = ring.take_with(maxevents, |event| {
        let event = epoll_event { events: event.events.bits(), u64: event.data };
        // SAFETY: the caller gives the memory. If the program unmaps it in this very moment, the
        // event is lost with it.
        let _ = unsafe { user::store_event(next, event) };
        next = next.wrapping_add(1);
    });
    Some(taken)
}

/// Returns whether events can be stored from `first` to `last`. What is there stays.
fn is_writable(first: *mut epoll_event, last: *mut epoll_event) -> bool {
    let mut checked = first;
    loop {
        // SAFETY: any bits are an event, and what is stored is what was there.
        if !unsafe { user::load(checked).is_some_and(|event| user::store_event(checked, event)) } {
            return false;
        }
        if checked == last {
            return true;
        }
        checked = checked.wrapping_add(PAGE / size_of::<epoll_event>()).min(last);
    }
}
