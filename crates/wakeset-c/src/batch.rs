//! Several changes of a set in one call.

use crate::outcome::{fail, returned};
use core::ffi::c_int;
use core::slice;
use libc::{size_t, ssize_t};
use wakeset_fd::Command;

/// Makes `n` changes; how many succeeded. `Command` is `struct ws_epoll_ctl_cmd`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_epoll_ctl_batch(
    epfd: c_int,
    flags: c_int,
    cmds: *mut Command,
    n: size_t,
) -> ssize_t {
    if n > isize::MAX as usize / size_of::<Command>() {
        return fail(libc::EINVAL);
    }
    let commands = match (cmds.is_null(), n) {
        (_, 0) => &mut [][..],
        (true, _) => return fail(libc::EFAULT),
        // SAFETY: the caller gives `n` commands, of which any bits are one.
        (false, _) => unsafe { slice::from_raw_parts_mut(cmds, n) },
    };
    returned(wakeset_fd::epoll_ctl_batch(epfd, flags, commands))
}
