//! Removals that tell, by number: [`wakeset::Hand`] for the sets of the descriptor table.
//!
//! Exact for in-process descriptors. The kernel does not say to whom it has reported an event, so the removal of one of its descriptors, or of
//! one that has moved there, is [`Told::Unknown`].

use crate::calls;
use crate::escape;
use crate::section::Section;
use crate::set::{self, FdSet, Limit, Mask};
use crate::sys::{self, Errno, SIGSET_BYTES};
use crate::table::{self, Entry, Using};
use crate::verdict::Verdict::Done;
use core::ffi::c_int;
use core::fmt;
use core::ptr;
use libc::{EPOLL_CTL_DEL, EPOLL_CTL_MOD, epoll_event};
use wakeset::{Error, Event, Events, Timeout};

/// A thread's hand for the events of one set. See [`wakeset::Hand`].
///
/// It keeps the set alive, as a wait does; drop it before the set's number is closed, or at the latest then.
pub struct Hand {
    // Dropped first: it borrows from the set that `set` keeps.
    hand: wakeset::Hand<'static>,
    set: Using<FdSet>,
    epfd: c_int,
}

/// Where an event is of a watch that has just been removed. See [`wakeset::Told`].
#[derive(Debug)]
#[must_use = "the answer says whether what the data stands for can be freed"]
pub enum Told {
    /// In nobody's hands.
    Free,
    /// In hands that can be waited for.
    InHand(Holders),
    /// One-shot, and reported to a thread without a hand, whose next `EPOLL_CTL_MOD` fails with ENOENT.
    Disarmed,
    /// It cannot be said.
    Unknown,
}

/// The hands that have an event of a removed watch.
pub struct Holders {
    // Dropped first, as above.
    holders: wakeset::Holders<'static>,
    _set: Using<FdSet>,
}

/// The set that a number stands for, if it is ours, with a use of it.
fn set_of(epfd: c_int) -> Option<(&'static FdSet, Using<FdSet>)> {
    match table::get(epfd) {
        Entry::Set(set) => Some((set, Using::begin(epfd, set)?)),
        _ => None,
    }
}

/// The address by which sets know what a number stands for, if it is ours and no set.
fn source_of(fd: c_int) -> Option<*const ()> {
    match table::get(fd) {
        Entry::Counter(counter) => Some(ptr::from_ref(counter).cast()),
        Entry::Timer(timer) => Some(ptr::from_ref(timer).cast()),
        Entry::Pipe(end) => Some(ptr::from_ref(end).cast()),
        Entry::Set(_) | Entry::Kernel | Entry::Bell => None,
    }
}

impl Hand {
    /// A hand for the set `epfd`.
    ///
    /// # Errors
    /// EBADF; EOPNOTSUPP if it is no set, or one that lives in the kernel; ENOMEM.
    pub fn new(epfd: c_int) -> Result<Self, Errno> {
        let _section = Section::enter();
        let Some((slot, set)) = set_of(epfd) else {
            sys::fcntl(epfd, libc::F_GETFD, 0)?;
            return Err(if matches!(table::get(epfd), Entry::Bell) { Errno::EBADF } else { Errno::EOPNOTSUPP });
        };
        let hand = slot.set.hand().map_err(|error| Errno::new(error.errno()))?;
        Ok(Self { hand, set, epfd })
    }

    /// epoll_wait(2), with what is reported in this hand. Puts down what was in it before, also if it fails.
    ///
    /// # Errors
    /// As epoll_wait(2); EBADF also if the number stands for another set by now.
    ///
    /// # Safety
    /// `events` has room for `room` events.
    pub unsafe fn wait(&mut self, events: *mut epoll_event, room: c_int, milliseconds: c_int) -> Result<c_int, Errno> {
        self.put_down();
        match table::get(self.epfd) {
            Entry::Set(set) if ptr::eq(set, &*self.set) => {
                let (limit, mask) = (Limit::Milliseconds(milliseconds), Mask { set: ptr::null(), bytes: SIGSET_BYTES });
                // SAFETY: the caller's contract.
                match unsafe { set::epoll_wait_into(Some(&self.hand), self.epfd, events, room, limit, mask) } {
                    Done(result) => result,
                    // SAFETY: the caller's contract. It has moved, or says EINVAL or EFAULT.
                    _ => unsafe { calls::epoll_wait(self.epfd, events, room, milliseconds) },
                }
            }
            Entry::Kernel if self.set.in_kernel.load(core::sync::atomic::Ordering::SeqCst) => {
                // SAFETY: the caller's contract.
                unsafe { calls::epoll_wait(self.epfd, events, room, milliseconds) }
            }
            _ => Err(Errno::EBADF),
        }
    }

    /// Says that this thread is done with all its events of this set.
    pub fn put_down(&mut self) {
        let _section = Section::enter();
        self.hand.put_down();
    }

    /// epoll_ctl(2) with `EPOLL_CTL_MOD`, which gives back the event of that watch.
    ///
    /// # Errors
    /// As epoll_ctl(2).
    pub fn modify(&mut self, fd: c_int, event: &epoll_event) -> Result<(), Errno> {
        let _section = Section::enter();
        if let Some(source) = source_of(fd) {
            let asked = Event::new(Events::from_bits_retain(event.events), event.u64);
            match self.hand.modify_source(fd, source, asked) {
                // It may be moving: the plain call knows.
                Err(Error::NotWatched) => {}
                result => return result.map_err(|error| Errno::new(error.errno())),
            }
        }
        // SAFETY: the event is there.
        unsafe { calls::epoll_ctl(self.epfd, EPOLL_CTL_MOD, fd, event) }
    }

    /// [`remove_telling`] by a thread that may have an event of the watch itself: only other hands count.
    ///
    /// # Errors
    /// As [`remove_telling`].
    pub fn remove_telling(&self, fd: c_int) -> Result<Told, Errno> {
        remove(self.epfd, fd, Some(self))
    }
}

/// epoll_ctl(2) with `EPOLL_CTL_DEL` that says whether an event of the watch is in somebody's hands.
///
/// # Errors
/// As epoll_ctl(2).
#[doc(alias = "EPOLL_CTL_DISABLE")]
pub fn remove_telling(epfd: c_int, fd: c_int) -> Result<Told, Errno> {
    remove(epfd, fd, None)
}

fn remove(epfd: c_int, fd: c_int, but: Option<&Hand>) -> Result<Told, Errno> {
    let section = Section::enter();
    if let (Some((slot, using)), Some(source)) = (set_of(epfd), source_of(fd)) {
        let but = but.filter(|hand| ptr::eq(slot, &*hand.set)).map(|hand| &hand.hand);
        match slot.set.remove_source_telling(fd, source, but) {
            Ok(wakeset::Told::Free) => return Ok(Told::Free),
            Ok(wakeset::Told::InHand(holders)) => return Ok(Told::InHand(Holders { holders, _set: using })),
            Ok(wakeset::Told::Disarmed) => return Ok(Told::Disarmed),
            Ok(wakeset::Told::Unknown) => return Ok(Told::Unknown),
            // It is moving, or has moved: from then on only the kernel knows, and does not say.
            Err(Error::NotWatched) => escape::wait_for_moves(),
            Err(error) => return Err(Errno::new(error.errno())),
        }
    }
    drop(section);
    // SAFETY: a removal needs no event.
    unsafe { calls::epoll_ctl(epfd, EPOLL_CTL_DEL, fd, ptr::null()) }.map(|()| Told::Unknown)
}

impl Holders {
    /// Whether none has one any more. Once yes, it stays so.
    pub fn are_done(&self) -> bool {
        let _section = Section::enter();
        self.holders.are_done()
    }

    /// Waits until none has one any more; `false` if the time is up before.
    pub fn wait(&self, timeout: Timeout) -> bool {
        self.holders.wait(timeout)
    }
}

impl fmt::Debug for Hand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hand").field("epfd", &self.epfd).field("hand", &self.hand).finish_non_exhaustive()
    }
}

impl fmt::Debug for Holders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.holders.fmt(f)
    }
}
