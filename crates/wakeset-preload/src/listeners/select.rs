//! select(2) with listeners among the descriptors.

use super::call::{Asked, Descriptors, NO_MASK, Outcome, mask_of};
use super::thread;
use super::wait::wait;
use core::ffi::c_int;
use core::ptr;
use core::time::Duration;
use libc::{
    EPOLLIN, EPOLLOUT, EPOLLPRI, EPOLLRDBAND, EPOLLRDNORM, EPOLLWRBAND, EPOLLWRNORM, fd_set,
    sigset_t, timespec,
};
use syscalls::{Errno, Sysno, syscall};
use wakeset_fd::{listeners, poll as in_process, user, waits};

/// The words of an fd_set.
const SET_WORDS: usize = libc::FD_SETSIZE / 64;
/// The numbers of the first.
const FEW: c_int = 64;

/// The first `words` of up to three fd_sets of at most `MOST`: what is waited for, and what was
/// found. A null pointer stands for a set that is not there.
struct Sets<const MOST: usize> {
    places: [*mut u64; 3],
    words: usize,
    asked: [[u64; MOST]; 3],
    found: [[u64; MOST]; 3],
}

impl<const MOST: usize> Sets<MOST> {
    /// Of no descriptors.
    fn new(places: [*mut fd_set; 3]) -> Self {
        let places = places.map(|place| place.cast::<u64>());
        Self { places, words: 0, asked: [[0; MOST]; 3], found: [[0; MOST]; 3] }
    }

    /// Fills in what is waited for; `None` if that cannot be. In place, because the stack may be
    /// too small for a copy.
    ///
    /// # Safety
    /// As select(2).
    unsafe fn read(&mut self, n: c_int) -> Option<()> {
        self.words = usize::try_from(n).ok()?.div_ceil(64);
        let sets = self.places.iter().zip(&mut self.asked);
        for (place, asked) in sets.filter(|(place, _)| !place.is_null()) {
            for (word, asked) in asked.get_mut(..self.words)?.iter_mut().enumerate() {
                // SAFETY: any bits are a word.
                *asked = unsafe { user::load(place.wrapping_add(word))? };
            }
        }
        Some(())
    }

    /// Writes back what was found.
    ///
    /// # Safety
    /// As select(2).
    unsafe fn store(&self) -> bool {
        self.places.iter().zip(&self.found).filter(|(place, _)| !place.is_null()).all(
            |(place, found)| {
                let mut words = found.iter().take(self.words).enumerate();
                // SAFETY: the caller's memory, if it is there.
                words.all(|(word, found)| unsafe {
                    user::store_u64(place.wrapping_add(word), *found)
                })
            },
        )
    }

    fn has(sets: &[u64; MOST], fd: c_int) -> bool {
        sets.get(fd as usize / 64).is_some_and(|word| word >> (fd % 64) & 1 != 0)
    }
}

/// select(2) or pselect(2) with a limit that is not zero, if it may be about a listener.
///
/// # Safety
/// As pselect(2).
pub(crate) unsafe fn select(
    n: c_int,
    places: [*mut fd_set; 3],
    limit: Option<Duration>,
    mask: *const sigset_t,
) -> Outcome {
    if listeners::order().is_none() {
        return Outcome::Unchanged;
    }
    let most = n.min(libc::FD_SETSIZE as c_int);
    // SAFETY: the caller's contract.
    if !unsafe { in_process::set_has(most, places[0], listeners::is_listener) } {
        return Outcome::Unchanged;
    }
    // SAFETY: as above.
    unsafe {
        // Most servers have low numbers, and what is not there need not be cleared for each call.
        match n {
            ..=FEW => select_in_turn::<1>(n, places, limit, mask),
            _ => select_in_turn::<SET_WORDS>(n, places, limit, mask),
        }
    }
}

/// [`select`] of what has a listener among it. Only this takes much stack: a handler may come at
/// any moment, and the thread may have a small one.
///
/// # Safety
/// As pselect(2).
#[inline(never)]
unsafe fn select_in_turn<const MOST: usize>(
    n: c_int,
    places: [*mut fd_set; 3],
    limit: Option<Duration>,
    mask: *const sigset_t,
) -> Outcome {
    let mut selected = Selected::<MOST> { n, sets: Sets::new(places), mask: NO_MASK };
    // SAFETY: the caller's contract.
    if unsafe { selected.sets.read(n) }.is_none() {
        return Outcome::Unchanged;
    }
    let mut descriptors = Descriptors::none();
    for fd in 0..n {
        let [read, write, except] =
            selected.sets.asked.each_ref().map(|asked| Sets::<MOST>::has(asked, fd));
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
    let Some(order) = thread::order() else { return Outcome::Unchanged };
    selected.mask = mask.as_ref().map_or(NO_MASK, ptr::from_ref);
    let outcome = wait(&descriptors, order, limit, selected.mask, &mut selected);
    // SAFETY: the caller's contract.
    if matches!(outcome, Outcome::Done(Ok(_))) && !unsafe { selected.sets.store() } {
        return Outcome::Done(Err(Errno::EFAULT));
    }
    outcome
}

/// A call of select(2) or pselect(2) as a wait.
struct Selected<const MOST: usize> {
    n: c_int,
    sets: Sets<MOST>,
    mask: *const u64,
}

impl<const MOST: usize> Asked for Selected<MOST> {
    fn look(&mut self) -> Result<usize, Errno> {
        let sets = &mut self.sets;
        sets.found = sets.asked;
        let places = sets.places;
        let mut place =
            sets.found.iter_mut().zip(places).map(|(set, place)| match place.is_null() {
                true => ptr::null_mut(),
                false => set.as_mut_ptr(),
            });
        let mut next = || place.next().unwrap_or(ptr::null_mut());
        let (read, write, except) = (next(), next(), next());
        let mut no_time = timespec { tv_sec: 0, tv_nsec: 0 };
        // The kernel wants the mask and its size behind one pointer.
        let masked = [self.mask.addr(), 8];
        let (n, limit, masked) = (self.n, &raw mut no_time, &raw const masked);
        // SAFETY: our own copies.
        match unsafe { syscall!(Sysno::pselect6, n, read, write, except, limit, masked) } {
            // A filter may know only the older call, which has no mask. Zero is zero in its units.
            Err(error) if waits::is_refusal(error) && self.mask.is_null() => {
                // SAFETY: as above.
                unsafe { syscall!(Sysno::select, n, read, write, except, limit) }
            }
            result => result,
        }
    }

    fn interrupted(&mut self) {
        // Linux leaves the sets as they were.
    }

    fn is_ready(&self, fd: c_int) -> bool {
        self.sets.found.iter().any(|found| Sets::<MOST>::has(found, fd))
    }

    fn tell(&mut self, listeners: &[c_int]) -> Option<Result<usize, Errno>> {
        self.sets.found = [[0; MOST]; 3];
        let read = self.sets.found.first_mut()?;
        for fd in listeners {
            *read.get_mut(*fd as usize / 64)? |= 1 << (fd % 64);
        }
        Some(Ok(listeners.len()))
    }
}
