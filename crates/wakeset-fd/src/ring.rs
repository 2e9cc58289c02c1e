//! Event rings by descriptor number: a set's in-process events taken without its lock, by any number of threads at once.
//!
//! A set that has been given a ring takes from it in every wait; the calls and what they report stay the same. What is ready in the kernel half
//! still comes from epoll_wait(2). An io_uring poll in its place would hold the watched file open: close(2) would no longer end a connection,
//! nor take the watch away.

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
        let Some(set) = Using::begin(epfd, set) else { continue };
        return match set.set.make_ring(entries) {
            Ok(_) => Ok(true),
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
