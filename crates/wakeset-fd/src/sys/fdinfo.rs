//! What the kernel says of a descriptor in `/proc/self/fdinfo`.

use super::path::Path;
use super::refusable::refusable;
use core::ffi::c_int;

/// An eventfd, as it is at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Eventfd {
    /// No other eventfd has it at the same time.
    pub(crate) id: u32,
    pub(crate) count: u64,
    pub(crate) is_nonblocking: bool,
    pub(crate) is_semaphore: bool,
}

/// What is known of an eventfd. `None`: the number is none, or the kernel does not say all of it.
pub(crate) fn eventfd(fd: c_int) -> Option<Eventfd> {
    let path = Path::of(format_args!("/proc/self/fdinfo/{fd}"))?;
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    let file = refusable!(openat, libc::AT_FDCWD, path.as_ptr(), flags).ok()?;
    let mut text = [0_u8; 512];
    let len = refusable!(read, file, text.as_mut_ptr(), text.len());
    let _ = refusable!(close, file);
    parse(core::str::from_utf8(text.get(..len.ok()?)?).ok()?)
}

/// Whether a number is an epoll's.
pub(crate) fn is_epoll(fd: c_int) -> bool {
    const EPOLL: &[u8] = b"anon_inode:[eventpoll]";
    let Some(path) = Path::of(format_args!("/proc/self/fd/{fd}")) else { return false };
    let mut text = [0_u8; 64];
    let (at, buffer) = (libc::AT_FDCWD, text.as_mut_ptr());
    let len = refusable!(readlinkat, at, path.as_ptr(), buffer, text.len());
    len.is_ok_and(|len| text.get(..len) == Some(EPOLL))
}

fn parse(text: &str) -> Option<Eventfd> {
    let value = |name: &str| {
        let mut lines = text.lines().filter_map(|line| line.strip_prefix(name));
        lines.next().map(str::trim)
    };
    let flags = c_int::from_str_radix(value("flags:")?, 8).ok()?;
    Some(Eventfd {
        id: value("eventfd-id:")?.parse().ok()?,
        count: u64::from_str_radix(value("eventfd-count:")?, 16).ok()?,
        is_nonblocking: flags & libc::O_NONBLOCK != 0,
        is_semaphore: value("eventfd-semaphore:")? == "1",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys;

    #[test]
    fn an_eventfd_is_known() {
        let flags = libc::EFD_CLOEXEC | libc::EFD_NONBLOCK;
        let one = sys::eventfd(31, flags).expect("an eventfd");
        let other = sys::eventfd(0, libc::EFD_CLOEXEC).expect("an eventfd");
        let [known, another] = [one, other].map(|fd| eventfd(fd).expect("it is known"));
        assert_eq!((known.count, known.is_nonblocking), (31, true));
        assert_eq!((another.count, another.is_nonblocking), (0, false));
        assert_ne!(known.id, another.id);
        let set = sys::epoll_create1(libc::EPOLL_CLOEXEC).expect("an epoll");
        assert_eq!((eventfd(set), is_epoll(set), is_epoll(one)), (None, true, false));
        for fd in [one, other, set] {
            sys::close(fd).expect("it is open");
        }
        assert_eq!(eventfd(one), None);
    }

    #[test]
    fn what_older_kernels_do_not_say_is_not_guessed() {
        assert_eq!(parse("pos:\t0\nflags:\t02\neventfd-count:                5\n"), None);
    }
}
