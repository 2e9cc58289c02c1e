//! The word of a lock: FUTEX_LOCK_PI for the threads that lend their priority, and a turnstile for
//! the others.

use crate::sync::atomics::{AtomicU32, AtomicU64, Ordering};
use rustix::io::Errno;
use rustix::thread::futex::{self, Flags};

/// A lock's word. The low half names the holder as FUTEX_LOCK_PI has it, the high half is the
/// turnstile, where FUTEX_WAIT sleeps; the kernel sees each as a futex, we change them only
/// together.
#[derive(Debug)]
pub(crate) struct LockWord(AtomicU64);

impl LockWord {
    pub(crate) const fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }

    #[inline]
    pub(crate) fn word(&self) -> &AtomicU64 {
        &self.0
    }

    /// For the kernel only.
    fn half(&self, upper: bool) -> &AtomicU32 {
        let second = upper == cfg!(target_endian = "little");
        // SAFETY: one of the two aligned halves of a word that lives as long as `self`.
        unsafe { &*self.0.as_ptr().cast::<AtomicU32>().add(usize::from(second)) }
    }

    /// Sleeps until the kernel has made the lock the calling thread's; whether it has. Handlers
    /// run meanwhile.
    pub(crate) fn lock_in_kernel(&self, _me: u32) -> bool {
        loop {
            match futex::lock_pi(self.half(false), Flags::PRIVATE, None) {
                Ok(()) => return true,
                // The holder is just ending, or a handler has run.
                Err(Errno::AGAIN | Errno::INTR) => {}
                // No such call here, or a holder that is gone: what is left is to wait.
                Err(_) => return false,
            }
        }
    }

    /// Leases the lock to the kernel's sleeper of highest priority; frees it if there is none.
    pub(crate) fn unlock_in_kernel(&self) {
        if futex::unlock_pi(self.half(false), Flags::PRIVATE).is_err() {
            // A forked child that gives back what its parent took: the sleepers are the
            // parent's.
            self.0.fetch_and(!0xffff_ffff, Ordering::Release);
        }
    }

    /// Sleeps while the upper half is 1.
    pub(crate) fn sleep_at_turnstile(&self) {
        let _ = futex::wait(self.half(true), Flags::PRIVATE, 1, None);
    }

    pub(crate) fn wake_at_turnstile(&self) {
        let _ = futex::wake(self.half(true), Flags::PRIVATE, 1);
    }
}
