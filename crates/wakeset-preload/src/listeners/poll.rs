//! poll(2) with listeners among the descriptors.

use super::call::{Asked, Descriptors, NO_MASK, Outcome, mask_of};
use super::thread;
use super::wait::wait;
use core::ffi::c_int;
use core::ptr;
use core::time::Duration;
use libc::{
    POLLIN, POLLOUT, POLLPRI, POLLRDBAND, POLLRDHUP, POLLRDNORM, POLLWRBAND, POLLWRNORM, nfds_t,
    pollfd, sigset_t, timespec,
};
use syscalls::Errno;
use wakeset_fd::listeners::{self, MOST};
use wakeset_fd::{user, waits};

/// What a call that takes its turn may ask about a listener, which never has urgent data nor a
/// half that is shut. A call that asks whether the listener is writable is the kernel's.
const OF_A_LISTENER: i16 = POLLIN | POLLRDNORM | POLLRDBAND | POLLPRI | POLLRDHUP;
/// The bits that poll(2) looks at; it ignores others. The last is `POLLMSG`.
const ASKED: i16 = OF_A_LISTENER | POLLOUT | POLLWRNORM | POLLWRBAND | 0x400;

/// poll(2) or ppoll(2) with a limit that is not zero, if it may be about a listener.
///
/// # Safety
/// As ppoll(2).
pub(crate) unsafe fn poll(
    fds: *mut pollfd,
    n: nfds_t,
    limit: Option<Duration>,
    mask: *const sigset_t,
) -> Outcome {
    if listeners::order().is_none() {
        return Outcome::Unchanged;
    }
    if n > MOST as nfds_t {
        return Outcome::Unchanged;
    }
    let is_listener = |i: usize| {
        // SAFETY: any bits are a pollfd.
        unsafe { user::load(fds.wrapping_add(i)) }.is_some_and(|pollfd { fd, events, .. }| {
            fd >= 0 && may_be_listener(events) && listeners::is_listener(fd)
        })
    };
    if !(0..n as usize).any(is_listener) {
        return Outcome::Unchanged;
    }
    // SAFETY: the caller's contract.
    unsafe { poll_in_turn(fds, n as usize, limit, mask) }
}

/// Whether an entry with these events is waited on for connections and nothing else, if it is a
/// listener's.
fn may_be_listener(events: i16) -> bool {
    events & (POLLIN | POLLRDNORM) != 0 && events & ASKED & !OF_A_LISTENER == 0
}

/// [`poll`] of what has a listener among it. Only this takes much stack: a handler may come at any
/// moment, and the thread may have a small one.
///
/// # Safety
/// As ppoll(2).
#[inline(never)]
unsafe fn poll_in_turn(
    fds: *mut pollfd,
    n: usize,
    limit: Option<Duration>,
    mask: *const sigset_t,
) -> Outcome {
    // SAFETY: any bits are a pollfd.
    let entry = |i: usize| unsafe { user::load(fds.wrapping_add(i)) };
    let mut descriptors = Descriptors::none();
    for i in 0..n {
        let Some(pollfd { fd, events, .. }) = entry(i) else { return Outcome::Unchanged };
        let asked = (events & ASKED) as u16 as u32;
        if fd >= 0 && !descriptors.add(fd, asked, may_be_listener(events)) {
            return Outcome::Unchanged;
        }
    }
    let Ok(mask) = mask_of(mask) else { return Outcome::Unchanged };
    if !descriptors.has_listeners() {
        return Outcome::Unchanged;
    }
    let Some(order) = thread::order() else { return Outcome::Unchanged };
    let mask = mask.as_ref().map_or(NO_MASK, ptr::from_ref);
    wait(&descriptors, order, limit, mask, &mut Polled { fds, n, mask })
}

/// A call of poll(2) or ppoll(2) as a wait. Its memory is the program's.
struct Polled {
    fds: *mut pollfd,
    n: usize,
    mask: *const u64,
}

impl Polled {
    fn entries(&self) -> impl Iterator<Item = (*mut pollfd, Option<pollfd>)> {
        let places = (0..self.n).map(|i| self.fds.wrapping_add(i));
        // SAFETY: any bits are a pollfd.
        places.map(|place| (place, unsafe { user::load(place.cast_const()) }))
    }
}

impl Asked for Polled {
    fn look(&mut self) -> Result<usize, Errno> {
        let no_time = timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the caller's contract.
        unsafe { waits::ppoll(self.fds, self.n, Some(&no_time), self.mask.cast()) }
    }

    fn interrupted(&mut self) {
        // Linux has checked every descriptor by then, and found nothing.
        let _ = self.tell(&[]);
    }

    fn is_ready(&self, fd: c_int) -> bool {
        self.entries()
            .filter_map(|(_, entry)| entry)
            .any(|entry| entry.fd == fd && entry.revents != 0)
    }

    fn tell(&mut self, listeners: &[c_int]) -> Option<Result<usize, Errno>> {
        let mut found = 0;
        for (place, entry) in self.entries() {
            let mut entry = entry?;
            let ready = listeners.contains(&entry.fd);
            entry.revents = if ready { entry.events & (POLLIN | POLLRDNORM) } else { 0 };
            found += usize::from(entry.revents != 0);
            // SAFETY: both have the same size, and a pollfd has no padding.
            let word = unsafe { core::mem::transmute::<pollfd, u64>(entry) };
            // SAFETY: the caller's memory, if it is there.
            if !unsafe { user::store_u64(place.cast(), word) } {
                return Some(Err(Errno::EFAULT));
            }
        }
        Some(Ok(found))
    }
}
