//! What kind of file a number stands for, as `/proc` has it.

use super::path::Path;
use super::refusable::refusable;
use core::ffi::c_int;

/// Whether a number is an epoll's.
pub(crate) fn is_epoll(fd: c_int) -> bool {
    const EPOLL: &[u8] = b"anon_inode:[eventpoll]";
    let Some(path) = Path::of(format_args!("/proc/self/fd/{fd}")) else { return false };
    let mut text = [0_u8; 64];
    let (at, buffer) = (libc::AT_FDCWD, text.as_mut_ptr());
    let len = refusable!(readlinkat, at, path.as_ptr(), buffer, text.len());
    len.is_ok_and(|len| text.get(..len) == Some(EPOLL))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys;

    #[test]
    fn an_epoll_is_known() {
        let eventfd = sys::eventfd(0, libc::EFD_CLOEXEC).expect("an eventfd");
        let set = sys::epoll_create1(libc::EPOLL_CLOEXEC).expect("an epoll");
        assert!(is_epoll(set) && !is_epoll(eventfd));
        [set, eventfd].into_iter().for_each(|fd| sys::close(fd).expect("it is open"));
        assert!(!is_epoll(set));
    }
}
