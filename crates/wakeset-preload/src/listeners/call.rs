//! A program's call as a wait for listeners sees it: what it is about, and what can be asked of it.

use super::thread;
use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::ptr;
use core::time::Duration;
use syscalls::Errno;
use wakeset_fd::listeners::{self, MOST, Wanted, baton};
use wakeset_fd::user;

/// How a call is to go on.
pub(crate) enum Outcome {
    /// In the kernel, as the program made it.
    Unchanged,
    /// The call is over: how many are ready, or an error.
    Done(Result<usize, Errno>),
    /// In the kernel, with this much time: something keeps us from waiting.
    Rest(Option<Duration>),
}

/// What a wait is about.
pub(super) struct Descriptors {
    /// Only the first `len` are written: few calls name many, and after a sleep each line of the
    /// rest would come from memory.
    wanted: [MaybeUninit<Wanted>; MOST],
    len: usize,
    listeners: usize,
}

impl Descriptors {
    /// Of no descriptors.
    pub(super) const fn none() -> Self {
        Self { wanted: [const { MaybeUninit::uninit() }; MOST], len: 0, listeners: 0 }
    }

    /// Adds a descriptor and the events that are waited for; `false` if it is one too many. Only a
    /// descriptor that is waited on for connections and nothing else counts as a listener.
    pub(super) fn add(&mut self, fd: c_int, events: u32, may_be_listener: bool) -> bool {
        let listener = may_be_listener && listeners::is_listener(fd);
        if listener {
            // A second waiter ends what the first one has to itself.
            let _ = thread::is_only_waiter(fd);
        }
        let written = self.wanted.get_mut(..self.len).unwrap_or_default();
        // SAFETY: the first `len` are.
        let written = unsafe { written.assume_init_mut() };
        if let Some(same) = written.iter_mut().find(|wanted| wanted.fd == fd) {
            // The second time it is waited on for something that no listener has.
            same.events |= events;
            return same.listener == listener;
        }
        let Some(entry) = self.wanted.get_mut(self.len) else { return false };
        entry.write(Wanted { fd, events, listener });
        self.len += 1;
        self.listeners += usize::from(listener);
        true
    }

    pub(super) fn has_listeners(&self) -> bool {
        self.listeners > 0
    }

    pub(super) fn listeners(&self) -> impl Iterator<Item = &Wanted> {
        self.wanted().iter().filter(|wanted| wanted.listener)
    }

    /// The notes of the listeners among them.
    pub(super) fn notes(&self) -> baton::Notes {
        let note = |wanted: &Wanted| baton::note_of(listeners::inode(wanted.fd));
        self.listeners().fold(0, |notes, wanted| notes | note(wanted))
    }

    pub(super) fn wanted(&self) -> &[Wanted] {
        let written = self.wanted.get(..self.len).unwrap_or_default();
        // SAFETY: the first `len` are written.
        unsafe { written.assume_init_ref() }
    }
}

/// A program's call, as far as a wait needs it.
pub(super) trait Asked {
    /// Makes the call without time to sleep, under its mask.
    fn look(&mut self) -> Result<usize, Errno>;

    /// The call ends with EINTR.
    fn interrupted(&mut self);

    /// Whether the last [`look`](Self::look) found this listener ready.
    fn is_ready(&self, fd: c_int) -> bool;

    /// Flags of sigaction(2): a handler that was registered with one of them does not end the call.
    fn outlasts(&self) -> c_int {
        0
    }

    /// Writes the result of a call that finds connections on these listeners and nothing else;
    /// `None` if only a [`look`](Self::look) can.
    fn tell(&mut self, listeners: &[c_int]) -> Option<Result<usize, Errno>>;
}

/// No mask.
pub(super) const NO_MASK: *const u64 = ptr::null();

/// A copy of the program's mask, as far as the kernel looks at it.
///
/// # Errors
/// The memory is not there; the kernel knows.
pub(super) fn mask_of(mask: *const libc::sigset_t) -> Result<Option<u64>, ()> {
    if mask.is_null() {
        return Ok(None);
    }
    // SAFETY: any bits are a mask.
    unsafe { user::load(mask.cast()) }.map(Some).ok_or(())
}
