//! What the played kernel says about sockets.

use crate::rooms::kernel::KERNEL_FILE;
use core::ffi::c_int;

pub(crate) fn is_plain_socket(fd: c_int) -> bool {
    fd != KERNEL_FILE
}

pub(crate) fn wakes_for_cause(_: c_int) -> bool {
    true
}
