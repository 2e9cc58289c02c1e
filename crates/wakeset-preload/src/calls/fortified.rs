//! The checking forms that compilers call for `_FORTIFY_SOURCE` where they know the size of a
//! buffer: the plain call if it fits; if it does not, libc's own form reports the overflow and ends
//! the program. Forms that only migrate their descriptor are rows of the table.

use super::table::{poll, ppoll, read, recv, recvfrom};
use crate::real::real;
use core::ffi::{c_int, c_void};
use libc::{nfds_t, pollfd, sigset_t, size_t, sockaddr, socklen_t, ssize_t, timespec};

/// Defines the checking form of a call: its arguments, and whether they fit.
macro_rules! fortified {
    ($($checked:ident = $plain:ident($($passed:ident),*), if $fits:expr,
        ($($arg:ident: $type:ty),*) -> $ret:ty;)+) => {$(
        /// A call with a buffer whose size the compiler knew.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $checked($($arg: $type),*) -> $ret {
            type Checked = unsafe extern "C-unwind" fn($($type),*) -> $ret;
            // SAFETY: the same contract; libc's own form does not return.
            unsafe {
                match $fits {
                    true => $plain($($passed),*),
                    false => real!($checked: Checked)($($arg),*),
                }
            }
        }
    )+};
}

fn entries(bytes: size_t) -> nfds_t {
    (bytes / size_of::<pollfd>()) as nfds_t
}

fortified! {
    __read_chk = read(fd, buffer, len), if len <= size,
        (fd: c_int, buffer: *mut c_void, len: size_t, size: size_t) -> ssize_t;
    __recv_chk = recv(fd, buffer, len, flags), if len <= size,
        (fd: c_int, buffer: *mut c_void, len: size_t, size: size_t, flags: c_int) -> ssize_t;
    __recvfrom_chk = recvfrom(fd, buffer, len, flags, address, address_len), if len <= size,
        (fd: c_int, buffer: *mut c_void, len: size_t, size: size_t, flags: c_int,
            address: *mut sockaddr, address_len: *mut socklen_t) -> ssize_t;
    __poll_chk = poll(fds, n, timeout), if n <= entries(size),
        (fds: *mut pollfd, n: nfds_t, timeout: c_int, size: size_t) -> c_int;
    __ppoll_chk = ppoll(fds, n, timeout, mask), if n <= entries(size),
        (fds: *mut pollfd, n: nfds_t, timeout: *const timespec, mask: *const sigset_t,
            size: size_t) -> c_int;
}
