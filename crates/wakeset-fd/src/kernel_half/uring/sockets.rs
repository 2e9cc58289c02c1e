//! What the kernel says about sockets, outside of an io_uring.

use crate::sys;
use core::ffi::c_int;

/// Returns whether a descriptor is a socket that does not listen.
pub(crate) fn is_plain_socket(fd: c_int) -> bool {
    socket_option(fd, libc::SO_ACCEPTCONN) == Some(0)
}

/// Returns whether the wake-ups of a socket say what it has become ready for. That is known of
/// streams only: a datagram for which its receiver has no room wakes its own sender, for room, and
/// a sender that tried again at each such hint would never stop.
pub(crate) fn wakes_for_cause(fd: c_int) -> bool {
    let known = matches!(
        socket_option(fd, libc::SO_DOMAIN),
        Some(libc::AF_UNIX | libc::AF_INET | libc::AF_INET6)
    );
    known && socket_option(fd, libc::SO_TYPE) == Some(libc::SOCK_STREAM)
}

/// An option at the level `SOL_SOCKET`; `None` if the descriptor is no socket.
fn socket_option(fd: c_int, option: c_int) -> Option<c_int> {
    let (mut value, mut len) = (0_i32, size_of::<c_int>() as u32);
    sys::raw!(getsockopt, fd, libc::SOL_SOCKET, option, &raw mut value, &raw mut len).ok()?;
    Some(value)
}
