//! Calls without which an object cannot live in process: they are tried, once, before the first
//! one. Where a filter (seccomp(2)) refuses them the objects are the kernel's from the start, and a
//! program gets the answers that it would get without us.

use super::{Errno, SIGSET_BYTES, raw};
use core::ptr;
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use libc::itimerspec;

/// Whether something is granted, asked once.
#[derive(Debug)]
struct Once(AtomicU8);

impl Once {
    const UNKNOWN: u8 = 0;
    const GRANTED: u8 = 1;
    const REFUSED: u8 = 2;

    const fn new() -> Self {
        Self(AtomicU8::new(Self::UNKNOWN))
    }

    #[inline(always)]
    fn or_ask(&self, ask: impl FnOnce() -> bool) -> bool {
        match self.0.load(Ordering::Relaxed) {
            Self::UNKNOWN => self.ask(ask),
            known => known == Self::GRANTED,
        }
    }

    #[cold]
    fn ask(&self, ask: impl FnOnce() -> bool) -> bool {
        let granted = ask();
        self.0.store(if granted { Self::GRANTED } else { Self::REFUSED }, Ordering::Relaxed);
        granted
    }
}

/// Whether threads can sleep and wake each other, signals wait, and a child be told from its
/// parent: futex(2), rt_sigprocmask(2), getpid(2).
pub(crate) fn for_objects() -> bool {
    static GRANTED: Once = Once::new();
    GRANTED.or_ask(|| {
        const WAKE_PRIVATE: usize = 129;
        let word = AtomicU32::new(0);
        let null = ptr::null::<u64>();
        raw!(futex, word.as_ptr(), WAKE_PRIVATE, 1, 0, 0, 0).is_ok()
            && raw!(rt_sigprocmask, libc::SIG_BLOCK, null, null, SIGSET_BYTES).is_ok()
            && super::getpid() != 0
    })
}

/// Whether a set can migrate: epoll_ctl(2).
pub(crate) fn for_sets() -> bool {
    static GRANTED: Once = Once::new();
    GRANTED.or_ask(|| {
        let event = ptr::null::<libc::epoll_event>();
        raw!(epoll_ctl, -1_isize, libc::EPOLL_CTL_DEL, -1_isize, event) == Err(Errno::EBADF)
    })
}

/// Whether a timer can migrate: timerfd_settime(2).
pub(crate) fn for_timers() -> bool {
    static GRANTED: Once = Once::new();
    GRANTED.or_ask(|| {
        let (new, old) = (ptr::null::<itimerspec>(), ptr::null::<itimerspec>());
        raw!(timerfd_settime, -1_isize, 0, new, old) == Err(Errno::EFAULT)
    })
}
