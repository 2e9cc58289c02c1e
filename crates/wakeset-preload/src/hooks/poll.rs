//! poll and select. An eventfd or set that is polled becomes the kernel's: these calls wait in the kernel, on all descriptors
//! at once, and must find the state there. A wait on a listening socket takes its turn ([`listener`]).

use super::listener::{self, Asked, Descriptors, NO_MASK, Outcome};
use super::uffd;
use crate::outcome::returned;
use crate::real::real;
use core::ffi::c_int;
use core::ptr;
use core::time::Duration;
use libc::{
    EPOLLIN, EPOLLOUT, EPOLLPRI, EPOLLRDBAND, EPOLLRDNORM, EPOLLWRBAND, EPOLLWRNORM, POLLIN, POLLOUT, POLLPRI,
    POLLRDBAND, POLLRDHUP, POLLRDNORM, POLLWRBAND, POLLWRNORM, fd_set, nfds_t, pollfd, sigset_t, timespec, timeval,
};
use syscalls::{Errno, Sysno, syscall};
use wakeset_fd::listeners::MOST;
use wakeset_fd::stats::Stat;
use wakeset_fd::{descriptor, escape, listeners, user};

/// Moves what an array of pollfd names.
///
/// # Safety
/// `fds` is valid for `n` entries, or the kernel will say EFAULT.
pub(super) unsafe fn before_poll(fds: *const pollfd, n: nfds_t) {
    if !descriptor::any() {
        return;
    }
    for i in 0..n as usize {
        // SAFETY: any bits are a pollfd.
        let Some(entry) = (unsafe { user::load(fds.wrapping_add(i)) }) else { return };
        escape::fd(entry.fd, Stat::MovedPoll);
    }
}

/// Moves what up to three fd_sets name.
///
/// # Safety
/// Each set is null or valid for `n` bits.
pub(super) unsafe fn before_select(n: c_int, sets: [*const fd_set; 3]) {
    if !descriptor::any() {
        return;
    }
    for set in sets {
        if set.is_null() {
            continue;
        }
        for word in 0..(n.max(0) as usize).div_ceil(64) {
            // SAFETY: any bits are a word of a set.
            let Some(mut bits) = (unsafe { user::load(set.cast::<u64>().wrapping_add(word)) }) else { return };
            while bits != 0 {
                escape::fd((word * 64) as c_int + bits.trailing_zeros() as c_int, Stat::MovedPoll);
                bits &= bits - 1;
            }
        }
    }
}

/// The limit of ppoll(2) and pselect(2). `Err`: an invalid one, or none at all to speak of; the kernel knows.
fn limit_of(timeout: *const timespec) -> Result<Option<Duration>, ()> {
    if timeout.is_null() {
        return Ok(None);
    }
    // SAFETY: any bits are a timespec.
    let timespec { tv_sec, tv_nsec } = unsafe { user::load(timeout) }.ok_or(())?;
    match (u64::try_from(tv_sec), u32::try_from(tv_nsec)) {
        (Ok(seconds), Ok(nanos @ 0..=999_999_999)) if seconds > 0 || nanos > 0 => {
            Ok(Some(Duration::new(seconds, nanos)))
        }
        _ => Err(()),
    }
}

/// A copy of the program's mask, the kernel's part of it.
fn mask_of(mask: *const sigset_t) -> Result<Option<u64>, ()> {
    if mask.is_null() {
        return Ok(None);
    }
    // SAFETY: any bits are a mask.
    unsafe { user::load(mask.cast()) }.map(Some).ok_or(())
}

fn milliseconds_of(limit: Option<Duration>) -> c_int {
    limit.map_or(-1, |limit| c_int::try_from(limit.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX))
}

fn timespec_of(limit: Duration) -> timespec {
    timespec { tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX), tv_nsec: i64::from(limit.subsec_nanos()) }
}

/// What may be asked of a listener that waits its turn. It never has urgent data, nor a half that is shut; a call that
/// asks whether one can write to it is the kernel's.
const OF_A_LISTENER: i16 = POLLIN | POLLRDNORM | POLLRDBAND | POLLPRI | POLLRDHUP;
/// What poll(2) looks at; other bits are ignored. The last is POLLMSG.
const ASKED: i16 = OF_A_LISTENER | POLLOUT | POLLWRNORM | POLLWRBAND | 0x400;

/// poll(2) with a listener among the descriptors.
///
/// # Safety
/// As ppoll(2).
unsafe fn poll_in_turn(fds: *mut pollfd, n: nfds_t, limit: Option<Duration>, mask: *const sigset_t) -> Outcome {
    let Some(order) = listeners::order() else { return Outcome::Unchanged };
    if n > MOST as nfds_t {
        return Outcome::Unchanged;
    }
    // SAFETY: any bits are a pollfd.
    let entry = |i: usize| unsafe { user::load(fds.wrapping_add(i)) };
    let mut descriptors = Descriptors::none();
    for i in 0..n as usize {
        let Some(pollfd { fd, events, .. }) = entry(i) else { return Outcome::Unchanged };
        let asked = events & ASKED;
        let may_be_listener = asked & (POLLIN | POLLRDNORM) != 0 && asked & !OF_A_LISTENER == 0;
        if fd >= 0 && !descriptors.add(fd, asked as u16 as u32, may_be_listener) {
            return Outcome::Unchanged;
        }
    }
    let Ok(mask) = mask_of(mask) else { return Outcome::Unchanged };
    if !descriptors.has_listeners() {
        return Outcome::Unchanged;
    }
    let mask = mask.as_ref().map_or(NO_MASK, ptr::from_ref);
    listener::wait(&descriptors, order, limit, mask, &mut Polled { fds, n: n as usize, mask })
}

/// A call of poll(2). Its memory is as that says.
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
        let mut no_time = timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the caller's contract, and our own copies.
        unsafe { syscall!(Sysno::ppoll, self.fds, self.n, &raw mut no_time, self.mask, 8) }
    }

    fn interrupted(&mut self) {
        // Linux has looked, and found nothing.
        let _ = self.tell(&[]);
    }

    fn is_ready(&self, fd: c_int) -> bool {
        self.entries().filter_map(|(_, entry)| entry).any(|entry| entry.fd == fd && entry.revents != 0)
    }

    fn tell(&mut self, listeners: &[c_int]) -> Option<Result<usize, Errno>> {
        let mut found = 0;
        for (place, entry) in self.entries() {
            let mut entry = entry?;
            let ready = listeners.contains(&entry.fd);
            entry.revents = if ready { entry.events & (POLLIN | POLLRDNORM) } else { 0 };
            found += usize::from(entry.revents != 0);
            // SAFETY: as large, and without padding.
            let word = unsafe { core::mem::transmute::<pollfd, u64>(entry) };
            // SAFETY: the caller's memory, if it is there.
            if !unsafe { user::store_u64(place.cast(), word) } {
                return Some(Err(Errno::EFAULT));
            }
        }
        Some(Ok(found))
    }
}

/// As many descriptors as an fd_set has.
const SET_WORDS: usize = libc::FD_SETSIZE / 64;

/// The first `words` of up to three fd_sets, and which of them are there.
struct Sets {
    places: [*mut u64; 3],
    words: usize,
    asked: [[u64; SET_WORDS]; 3],
    found: [[u64; SET_WORDS]; 3],
}

impl Sets {
    /// # Safety
    /// As select(2).
    unsafe fn load(n: c_int, places: [*mut fd_set; 3]) -> Option<Self> {
        let words = usize::try_from(n).ok()?.div_ceil(64);
        let places = places.map(|place| place.cast::<u64>());
        let mut asked = [[0; SET_WORDS]; 3];
        for (place, asked) in places.iter().zip(&mut asked).filter(|(place, _)| !place.is_null()) {
            for (word, asked) in asked.get_mut(..words)?.iter_mut().enumerate() {
                // SAFETY: any bits are a word.
                *asked = unsafe { user::load(place.wrapping_add(word))? };
            }
        }
        Some(Self { places, words, asked, found: [[0; SET_WORDS]; 3] })
    }

    /// Writes back what was found.
    ///
    /// # Safety
    /// As select(2).
    unsafe fn store(&self) -> bool {
        self.places.iter().zip(&self.found).filter(|(place, _)| !place.is_null()).all(|(place, found)| {
            let mut words = found.iter().take(self.words).enumerate();
            // SAFETY: the caller's memory, if it is there.
            words.all(|(word, found)| unsafe { user::store_u64(place.wrapping_add(word), *found) })
        })
    }

    fn has(sets: &[u64; SET_WORDS], fd: c_int) -> bool {
        sets.get(fd as usize / 64).is_some_and(|word| word >> (fd % 64) & 1 != 0)
    }
}

/// select(2) with a listener among the descriptors.
///
/// # Safety
/// As pselect(2).
unsafe fn select_in_turn(
    n: c_int,
    places: [*mut fd_set; 3],
    limit: Option<Duration>,
    mask: *const sigset_t,
) -> Outcome {
    let Some(order) = listeners::order() else { return Outcome::Unchanged };
    // SAFETY: the caller's contract.
    let Some(sets) = (unsafe { Sets::load(n, places) }) else { return Outcome::Unchanged };
    let mut descriptors = Descriptors::none();
    for fd in 0..n {
        let [read, write, except] = sets.asked.each_ref().map(|asked| Sets::has(asked, fd));
        if !(read || write || except) {
            continue;
        }
        let bits = |is: bool, bits: c_int| if is { bits as u32 } else { 0 };
        let events = bits(read, EPOLLIN | EPOLLRDNORM | EPOLLRDBAND)
            | bits(write, EPOLLOUT | EPOLLWRNORM | EPOLLWRBAND)
            | bits(except, EPOLLPRI);
        if !descriptors.add(fd, events, read && !write) {
            return Outcome::Unchanged;
        }
    }
    let Ok(mask) = mask_of(mask) else { return Outcome::Unchanged };
    if !descriptors.has_listeners() {
        return Outcome::Unchanged;
    }
    let mask = mask.as_ref().map_or(NO_MASK, ptr::from_ref);
    let mut selected = Selected { n, sets, mask };
    let outcome = listener::wait(&descriptors, order, limit, mask, &mut selected);
    // SAFETY: the caller's contract.
    if matches!(outcome, Outcome::Done(Ok(_))) && !unsafe { selected.sets.store() } {
        return Outcome::Done(Err(Errno::EFAULT));
    }
    outcome
}

/// A call of select(2).
struct Selected {
    n: c_int,
    sets: Sets,
    mask: *const u64,
}

impl Asked for Selected {
    fn look(&mut self) -> Result<usize, Errno> {
        let sets = &mut self.sets;
        sets.found = sets.asked;
        let places = sets.places;
        let mut place = sets.found.iter_mut().zip(places).map(|(set, place)| match place.is_null() {
            true => ptr::null_mut(),
            false => set.as_mut_ptr(),
        });
        let mut next = || place.next().unwrap_or(ptr::null_mut());
        let (read, write, except) = (next(), next(), next());
        let mut no_time = timespec { tv_sec: 0, tv_nsec: 0 };
        // The kernel wants the mask and its size behind one pointer.
        let masked = [self.mask.addr(), 8];
        // SAFETY: our own copies.
        unsafe { syscall!(Sysno::pselect6, self.n, read, write, except, &raw mut no_time, &raw const masked) }
    }

    fn interrupted(&mut self) {
        // The sets stay what they were.
    }

    fn is_ready(&self, fd: c_int) -> bool {
        self.sets.found.iter().any(|found| Sets::has(found, fd))
    }

    fn tell(&mut self, listeners: &[c_int]) -> Option<Result<usize, Errno>> {
        self.sets.found = [[0; SET_WORDS]; 3];
        let read = self.sets.found.first_mut()?;
        for fd in listeners {
            *read.get_mut(*fd as usize / 64)? |= 1 << (fd % 64);
        }
        Some(Ok(listeners.len()))
    }
}

type Poll = unsafe extern "C-unwind" fn(*mut pollfd, nfds_t, c_int) -> c_int;
type Ppoll = unsafe extern "C-unwind" fn(*mut pollfd, nfds_t, *const timespec, *const sigset_t) -> c_int;
type Select = unsafe extern "C-unwind" fn(c_int, *mut fd_set, *mut fd_set, *mut fd_set, *mut timeval) -> c_int;

/// poll(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn poll(fds: *mut pollfd, n: nfds_t, timeout: c_int) -> c_int {
    let real = real!(poll: Poll);
    // SAFETY: the caller's contract, here and below.
    unsafe {
        before_poll(fds, n);
        if let Some(result) = uffd::poll_for(fds, n, timeout, &mut |limit| real(fds, n, limit)) {
            return result;
        }
        if timeout == 0 {
            return real(fds, n, timeout);
        }
        let limit = u64::try_from(timeout).ok().map(Duration::from_millis);
        match poll_in_turn(fds, n, limit, ptr::null()) {
            Outcome::Unchanged => real(fds, n, timeout),
            Outcome::Done(result) => returned(result) as c_int,
            Outcome::Rest(limit) => real(fds, n, milliseconds_of(limit)),
        }
    }
}

/// glibc's other name for poll(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __poll(fds: *mut pollfd, n: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: the same contract.
    unsafe { poll(fds, n, timeout) }
}

/// poll(2) with `_FORTIFY_SOURCE`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __poll_chk(fds: *mut pollfd, n: nfds_t, timeout: c_int, room: usize) -> c_int {
    type Checked = unsafe extern "C-unwind" fn(*mut pollfd, nfds_t, c_int, usize) -> c_int;
    // SAFETY: the caller's contract; libc reports the overflow and ends the program.
    unsafe {
        match n <= (room / size_of::<pollfd>()) as nfds_t {
            true => poll(fds, n, timeout),
            false => real!(__poll_chk: Checked)(fds, n, timeout, room),
        }
    }
}

/// ppoll(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ppoll(
    fds: *mut pollfd,
    n: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let real = real!(ppoll: Ppoll);
    // SAFETY: the caller's contract, here and below.
    unsafe {
        before_poll(fds, n);
        if let Some(result) = uffd::poll_until(fds, n, timeout, mask, &mut |limit| real(fds, n, limit, mask)) {
            return result;
        }
        let Ok(limit) = limit_of(timeout) else { return real(fds, n, timeout, mask) };
        match poll_in_turn(fds, n, limit, mask) {
            Outcome::Unchanged => real(fds, n, timeout, mask),
            Outcome::Done(result) => returned(result) as c_int,
            Outcome::Rest(limit) => {
                let limit = limit.map(timespec_of);
                real(fds, n, limit.as_ref().map_or(ptr::null(), ptr::from_ref), mask)
            }
        }
    }
}

/// ppoll(2) with `_FORTIFY_SOURCE`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __ppoll_chk(
    fds: *mut pollfd,
    n: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    room: usize,
) -> c_int {
    type Checked = unsafe extern "C-unwind" fn(*mut pollfd, nfds_t, *const timespec, *const sigset_t, usize) -> c_int;
    // SAFETY: the caller's contract; libc reports the overflow and ends the program.
    unsafe {
        match n <= (room / size_of::<pollfd>()) as nfds_t {
            true => ppoll(fds, n, timeout, mask),
            false => real!(__ppoll_chk: Checked)(fds, n, timeout, mask, room),
        }
    }
}

/// select(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn select(
    n: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    let real = real!(select: Select);
    // SAFETY: the caller's contract, here and below.
    unsafe {
        before_select(n, [read, write, except]);
        let Ok(limit) = limit_of_timeval(timeout) else { return real(n, read, write, except, timeout) };
        let deadline = wakeset::Deadline::of(wakeset::Timeout::from(limit));
        let write_left = || {
            if let Some(deadline) = deadline.filter(|_| !timeout.is_null()) {
                let left = timeval_of(deadline.remaining());
                let place = timeout.cast::<u64>();
                let _ = user::store_u64(place, left.tv_sec as u64)
                    && user::store_u64(place.wrapping_add(1), left.tv_usec as u64);
            }
        };
        match select_in_turn(n, [read, write, except], limit, ptr::null()) {
            Outcome::Unchanged => real(n, read, write, except, timeout),
            Outcome::Done(result) => {
                write_left();
                returned(result) as c_int
            }
            Outcome::Rest(limit) => {
                let mut limit = limit.map(timeval_of);
                let result = real(n, read, write, except, limit.as_mut().map_or(ptr::null_mut(), ptr::from_mut));
                write_left();
                result
            }
        }
    }
}

/// The limit of select(2); `Err` as for [`limit_of`].
fn limit_of_timeval(timeout: *const timeval) -> Result<Option<Duration>, ()> {
    if timeout.is_null() {
        return Ok(None);
    }
    // SAFETY: any bits are a timeval.
    let timeval { tv_sec, tv_usec } = unsafe { user::load(timeout) }.ok_or(())?;
    match (u64::try_from(tv_sec), u32::try_from(tv_usec)) {
        (Ok(seconds), Ok(micros @ 0..=999_999)) if seconds > 0 || micros > 0 => {
            Ok(Some(Duration::new(seconds, micros * 1000)))
        }
        _ => Err(()),
    }
}

fn timeval_of(left: Duration) -> timeval {
    timeval { tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX), tv_usec: i64::from(left.subsec_micros()) }
}

/// glibc's other name for select(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __select(
    n: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    // SAFETY: the same contract.
    unsafe { select(n, read, write, except, timeout) }
}

/// pselect(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pselect(
    n: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    type Pselect = unsafe extern "C-unwind" fn(
        c_int,
        *mut fd_set,
        *mut fd_set,
        *mut fd_set,
        *const timespec,
        *const sigset_t,
    ) -> c_int;
    let real = real!(pselect: Pselect);
    // SAFETY: the caller's contract, here and below.
    unsafe {
        before_select(n, [read, write, except]);
        let Ok(limit) = limit_of(timeout) else { return real(n, read, write, except, timeout, mask) };
        match select_in_turn(n, [read, write, except], limit, mask) {
            Outcome::Unchanged => real(n, read, write, except, timeout, mask),
            Outcome::Done(result) => returned(result) as c_int,
            Outcome::Rest(limit) => {
                let limit = limit.map(timespec_of);
                real(n, read, write, except, limit.as_ref().map_or(ptr::null(), ptr::from_ref), mask)
            }
        }
    }
}
