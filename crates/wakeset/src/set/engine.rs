//! The engine: what sets and sources of one world share. Memory that stays in place, limits, and
//! the lock that only nesting takes.

use crate::error::Error;
use crate::memory::counted::Counted;
use crate::set::base::shared::Shared;
use core::fmt;

/// The world in which sets and sources meet. Cheap to clone; clones are the same engine.
///
/// A program needs one. Several are independent: a set of one cannot watch a source of another
/// (EBADF). The memory of watches is kept for new watches and returned when the engine and all that
/// was made with it are gone.
#[derive(Clone)]
pub struct Engine {
    hold: Hold,
}

/// How a handle keeps the engine's memory in place.
#[derive(Clone)]
enum Hold {
    /// One of many; the last one frees it.
    Counted(Counted<Shared>),
    /// It stays for good.
    Leaked(&'static Shared),
}

fn shared_with(limit: usize) -> Result<Counted<Shared>, Error> {
    // SAFETY: all of it is written.
    unsafe { Counted::try_new_in_place(|place| Shared::write_new(place, limit)) }
}

impl Engine {
    /// An engine with no limit on watches.
    pub fn new() -> Self {
        Self::with_watch_limit(usize::MAX)
    }

    /// An engine whose sets hold at most `limit` watches together; one more fails with ENOSPC, as
    /// `/proc/sys/fs/epoll/max_user_watches` makes it in Linux.
    pub fn with_watch_limit(limit: usize) -> Self {
        Self { hold: Hold::Counted(Counted::or_end(shared_with(limit))) }
    }

    /// The fallible form of [`new`](Self::new), which ends the process when there is no memory, as
    /// `Box::new` does.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn try_new() -> Result<Self, Error> {
        Self::try_with_watch_limit(usize::MAX)
    }

    /// The fallible form of [`with_watch_limit`](Self::with_watch_limit).
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn try_with_watch_limit(limit: usize) -> Result<Self, Error> {
        Ok(Self { hold: Hold::Counted(shared_with(limit)?) })
    }

    /// The same engine, kept for the life of the process.
    ///
    /// Every [`Description`](crate::Description) and set holds its engine. With an engine that may
    /// go, that is a count which all threads share, and opening and closing sources at a high
    /// rate on several threads makes them contend for it; with one that stays, they share
    /// nothing.
    pub fn leak(self) -> Self {
        match self.hold {
            Hold::Counted(shared) => Self { hold: Hold::Leaked(shared.leak()) },
            Hold::Leaked(_) => self,
        }
    }

    #[inline]
    pub(crate) fn shared(&self) -> &Shared {
        match &self.hold {
            Hold::Counted(shared) => shared,
            Hold::Leaked(shared) => shared,
        }
    }

    /// How many watches are not free: 0 when its sets are closed, or one is lost for good.
    #[cfg(any(loom, shuttle))]
    #[doc(hidden)]
    pub fn watches_out(&self) -> usize {
        self.shared().watches.out()
    }

    /// Whether both are the same engine.
    pub fn is(&self, other: &Engine) -> bool {
        core::ptr::eq(self.shared(), other.shared())
    }
}

impl Default for Engine {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("watch_limit", &self.shared().watch_limit)
            .finish_non_exhaustive()
    }
}
