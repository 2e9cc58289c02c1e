//! Whether descriptors block, as far as it has to be known without asking the kernel each time.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering};
use syscalls::{Sysno, syscall};

/// Counts up when the flags of a descriptor have been set that may be a listener or a userfaultfd,
/// or the duplicate of one: which description they belong to is not asked.
static VERSION: AtomicU32 = AtomicU32::new(1);

/// After flags of such a descriptor were set: `O_NONBLOCK` may have come or gone.
pub(crate) fn forget() {
    VERSION.fetch_add(1, Ordering::SeqCst);
}

/// Changes when flags of a listener or of a userfaultfd may have changed.
pub(crate) fn version() -> u32 {
    VERSION.load(Ordering::SeqCst)
}

/// Whether `O_NONBLOCK` is set; `None` for a number that is not open.
pub(crate) fn is_nonblocking(fd: c_int) -> Option<bool> {
    // SAFETY: numbers only.
    let flags = unsafe { syscall!(Sysno::fcntl, fd, libc::F_GETFL, 0) }.ok()?;
    Some(flags as c_int & libc::O_NONBLOCK != 0)
}
