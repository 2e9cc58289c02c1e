//! What the kernel says about sockets, outside of an io_uring.

use crate::sys::socket_option;
use core::ffi::c_int;

/// Returns whether a descriptor is a socket that does not listen.
pub(crate) fn is_plain_socket(fd: c_int) -> bool {
    socket_option(fd, libc::SO_ACCEPTCONN) == Ok(0)
}

/// Returns whether the wake-ups of a socket say what it has become ready for. That is known of
/// streams only: a datagram for which its receiver has no room wakes its own sender, for room, and
/// a sender that tried again at each such hint would never stop.
pub(crate) fn wakes_for_cause(fd: c_int) -> bool {
    let known = matches!(
        socket_option(fd, libc::SO_DOMAIN),
        Ok(libc::AF_UNIX | libc::AF_INET | libc::AF_INET6)
    );
    known && socket_option(fd, libc::SO_TYPE) == Ok(libc::SOCK_STREAM)
}
