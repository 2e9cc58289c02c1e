//! Masks that the program passes, which leave SIGSYS out while the kernel reports system calls by
//! instruction with it: blocked, it would end the process.

use crate::dispatch;
use core::ffi::c_int;
use core::ptr;
use libc::sigset_t;
use wakeset_fd::user;

/// A mask as the kernel is to have it.
pub(crate) struct PassedMask {
    original: *const sigset_t,
    /// Where the program's will not do.
    copy: Option<sigset_t>,
}

impl PassedMask {
    /// For a mask of the program's.
    ///
    /// # Safety
    /// `mask` is null or as for sigprocmask(2).
    #[inline]
    pub(crate) unsafe fn of(mask: *const sigset_t) -> Self {
        let copy = if passes_unchanged(mask) {
            None
        } else {
            // SAFETY: the caller's contract.
            unsafe { copy_of(mask) }
        };
        Self { original: mask, copy }
    }

    /// What to pass on.
    #[inline]
    pub(crate) fn pointer(&self) -> *const sigset_t {
        self.copy.as_ref().map_or(self.original, ptr::from_ref)
    }
}

/// Whether a mask of the program's is passed on as it is.
#[inline(always)]
pub(crate) fn passes_unchanged(mask: *const sigset_t) -> bool {
    mask.is_null() || !dispatch::was_on()
}

/// A copy without SIGSYS; `None` where the mask cannot be read.
#[cold]
unsafe fn copy_of(mask: *const sigset_t) -> Option<sigset_t> {
    // SAFETY: any bits are a set; the kernel's is the first 8 bytes of glibc's.
    let word = unsafe { user::load(mask.cast::<u64>()) }?;
    // SAFETY: all-zero is a set.
    let mut copy: sigset_t = unsafe { core::mem::zeroed() };
    // SAFETY: as above.
    unsafe { (&raw mut copy).cast::<u64>().write(dispatch::without_sigsys(word)) };
    Some(copy)
}

/// sigprocmask(2) and pthread_sigmask(3).
///
/// # Safety
/// As those.
pub(crate) unsafe fn change_mask(
    how: c_int,
    set: *const sigset_t,
    old: *mut sigset_t,
    call: impl FnOnce(c_int, *const sigset_t, *mut sigset_t) -> c_int,
) -> c_int {
    if how == libc::SIG_UNBLOCK {
        return call(how, set, old);
    }
    // SAFETY: the caller's contract.
    let passed = unsafe { PassedMask::of(set) };
    call(how, passed.pointer(), old)
}

/// sigsuspend(2).
///
/// # Safety
/// As sigsuspend(2).
pub(crate) unsafe fn suspend(
    mask: *const sigset_t,
    call: impl FnOnce(*const sigset_t) -> c_int,
) -> c_int {
    // SAFETY: the caller's contract.
    let passed = unsafe { PassedMask::of(mask) };
    call(passed.pointer())
}
