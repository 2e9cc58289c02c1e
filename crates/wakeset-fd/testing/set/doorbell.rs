//! The doorbell: always there.

use crate::rooms::kernel;
use crate::set::FdSet;
use crate::sys::Errno;
use core::ffi::c_int;
use libc::epoll_event;

pub(crate) fn install(_: &FdSet) -> Result<bool, Errno> {
    Ok(true)
}

pub(crate) fn install_held(_: &FdSet) -> Result<bool, Errno> {
    Ok(true)
}

pub(crate) fn has_ever_been_in(_: &FdSet) -> bool {
    true
}

pub(crate) fn cookie(_: &FdSet) -> u64 {
    kernel::BELL_DATA
}

/// # Safety
/// There are `found` events.
pub(crate) unsafe fn take_out(
    events: *mut epoll_event,
    found: c_int,
    is_bell: impl Fn(u64) -> bool,
) -> c_int {
    let mut kept = 0;
    for i in 0..found as usize {
        // SAFETY: the caller's contract.
        let event = unsafe { events.add(i).read_unaligned() };
        if !is_bell(event.u64) {
            // SAFETY: as above.
            unsafe { events.add(kept).write_unaligned(event) };
            kept += 1;
        }
    }
    kept as c_int
}
