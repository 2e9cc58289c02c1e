//! Event rings by descriptor number: a set's in-process events taken without its lock, by any number of threads at once.
//!
//! A set that has been given a ring takes from it in every wait; the calls and what they report stay the same. What is ready in the kernel half
//! still comes from epoll_wait(2), unless the program asks for an io_uring ([`polls`]) and undertakes what that needs: it holds the watched file
//! open, so a close(2) that we do not see would neither end a connection nor take the watch away.

use crate::polls;
use crate::section::Section;
use crate::sys::{self, Errno};
use crate::table::{self, Entry, Using};
use crate::user;
use core::ffi::c_int;
use libc::epoll_event;
use wakeset::EventRing;

/// The smallest page there is.
const PAGE: usize = 4096;

/// Gives the set an event ring of `entries` slots, rounded up to a power of two, unless it has one. Whether it has one then: not if it is
/// the kernel's, whose waits go there as ever.
///
/// From then on [`epoll_wait`](crate::epoll_wait) and its kin take in-process events from the ring: up to as many as it has slots in one call,
/// the same events as without it, and with a time limit of 0, or while there are any, without a system call or a lock that the threads of the set
/// share. An event goes in and comes out under the rules of its watch; a removal waits for who is taking events at that moment.
///
/// # Errors
/// EBADF for a number that is not open; EINVAL for one that is no set, and unless `entries` is from 1 to 2^20; ENOMEM.
pub fn ring_setup(epfd: c_int, entries: usize) -> Result<bool, Errno> {
    ring_setup_with(epfd, entries, 0)
}

/// Flag of [`ring_setup_with`]: watch sockets through an io_uring.
pub const RING_POLL: c_int = 1;

/// Flag of [`ring_setup_with`], beside [`RING_POLL`]: an edge is a hint.
pub const RING_HINTS: c_int = 2;

/// [`ring_setup`] with flags.
///
/// With [`RING_POLL`] sockets that are added from now on are watched through an io_uring, where that is allowed, so that a wait takes what hundreds of them have in two system
/// calls, and none if there is nothing. It reports the same events. That an io_uring holds a watched file open makes two conditions:
///
/// - a watched number is closed by [`close`](crate::close), or the C library's under the preload library, or replaced by a call that comes
///   by here, or its watch is removed before. Until then neither the connection nor the watch ends;
/// - closing a number ends its watch, also where another number stands for the same file. Linux keeps it as long as that.
///
/// The io_uring serves the thread that makes this call. When another waits in the set or changes it, closes a watched number, or forks, or the set is
/// duplicated, put into another or handed out, what it watches goes to the set's kernel epoll, for good; that takes some tens of
/// milliseconds if it is another thread's doing, and may end a system call of this thread with EINTR. So does a close of each set from the
/// seventeenth on that a thread has.
///
/// `EPOLLONESHOT`, `EPOLLEXCLUSIVE` and `EPOLLWAKEUP`, listeners, what is no socket, and more watches than `entries` (64 to 4,096) are the kernel epoll's
/// as before. Needs Linux 6.1; elsewhere, and where io_uring is not allowed, everything is.
///
/// With [`RING_HINTS`] as well, an edge (`EPOLLET`) that comes of data or of room for data is reported as the io_uring tells it, without a look at the socket, which is what
/// most of a wait's time goes to. Then an event says that a socket has become readable or writable since the last one, not that it still is, and only which of the two
/// it has become. Sockets have to be non-blocking, and to be read and written until EAGAIN, which now and then comes at once. This is for streams (`AF_INET`, `AF_INET6`,
/// `AF_UNIX`) until they have come to an end or an error; all events from there on, levels, other sockets, and watches for `EPOLLPRI`, `EPOLLRDBAND` or `EPOLLWRBAND` are
/// exact.
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
            Entry::Set(set) => set,
            Entry::Counter(_) | Entry::Timer(_) | Entry::Pipe(_) => return Err(Errno::EINVAL),
            Entry::Bell => return Err(Errno::EBADF),
            Entry::Kernel => {
                sys::fcntl(epfd, libc::F_GETFD, 0)?;
                return Ok(false);
            }
        };
        let _section = Section::enter();
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

/// Takes up to `room` events to `place` and behind it; how many. `None` where that memory is not there, or not all: then the ordinary way has to
/// find out what fits.
pub(crate) fn take(ring: EventRing<'_>, place: *mut epoll_event, room: usize) -> Option<usize> {
    let room = room.min(ring.capacity());
    if room == 0 {
        return Some(0);
    }
    // An event that has been taken is nobody else's any more, so there must be memory for it before.
    let last = place.wrapping_add(room - 1);
    let mut looked_at = place;
    loop {
        // SAFETY: any bits are an event, and what is stored is what was there.
        if !unsafe { user::load(looked_at).is_some_and(|event| user::store_event(looked_at, event)) } {
            return None;
        }
        if looked_at == last {
            break;
        }
        looked_at = looked_at.wrapping_add(PAGE / size_of::<epoll_event>()).min(last);
    }
    let mut place = place;
    let taken = ring.take_with(room, |event| {
        let event = epoll_event { events: event.events.bits(), u64: event.data };
        // SAFETY: the caller gives the memory. If it has gone in this very moment, so has the event.
        let _ = unsafe { user::store_event(place, event) };
        place = place.wrapping_add(1);
    });
    Some(taken)
}
