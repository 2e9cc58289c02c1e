//! The calls that the tests are written over, made by the kernel and by Wakeset.
//!
//! The kernel's side goes through the C library's functions, not through raw system calls, so this
//! very program can also be run under `wakeset run`: its `kernel::` tests then judge the preload
//! library.

use libc::{c_int, c_uint, epoll_event, iovec, msghdr, timespec};
use std::convert::identity;

/// An errno.
pub type Errno = c_int;

/// A signal mask in the kernel's form: bit n-1 is signal n.
pub type KernelSigset = u64;

/// The calls of epoll(7) and eventfd(2), by descriptor number.
///
/// # Safety of the unsafe ones
/// Pointers are what the calls ask for, or inaccessible addresses, which lead to EFAULT.
pub trait Backend: Sized + Send + Sync + 'static {
    /// Whether a watch lives as long as the file, as epoll(7) says, even when its number has been
    /// closed.
    const WATCHES_FILES: bool = true;
    /// Whether an event of a kernel descriptor has all bits that are true, and not only those that
    /// have become true. In-process sources always tell all.
    const TELLS_ALL: bool = true;

    fn epoll_create1(flags: c_int) -> Result<c_int, Errno>;
    unsafe fn epoll_ctl(
        set: c_int,
        op: c_int,
        fd: c_int,
        event: *mut epoll_event,
    ) -> Result<(), Errno>;
    unsafe fn epoll_wait(
        set: c_int,
        events: *mut epoll_event,
        max: c_int,
        timeout: c_int,
    ) -> Result<c_int, Errno>;
    unsafe fn epoll_pwait2(
        set: c_int,
        events: *mut epoll_event,
        max: c_int,
        timeout: *const timespec,
        mask: *const KernelSigset,
    ) -> Result<c_int, Errno>;
    fn eventfd(initial: c_uint, flags: c_int) -> Result<c_int, Errno>;
    unsafe fn read(fd: c_int, buffer: *mut u8, len: usize) -> Result<usize, Errno>;
    unsafe fn write(fd: c_int, buffer: *const u8, len: usize) -> Result<usize, Errno>;
    fn close(fd: c_int) -> Result<(), Errno>;
    fn dup(fd: c_int) -> Result<c_int, Errno>;
    fn dup2(fd: c_int, to: c_int) -> Result<c_int, Errno>;
    /// fcntl(2) with F_SETFL: O_NONBLOCK or no flag.
    fn set_nonblocking(fd: c_int, nonblocking: bool) -> Result<(), Errno>;
    /// Leaves an object to the kernel, if it is not there.
    fn migrate(_: c_int) {}
}

/// The calls of pipe(7) and unix(7) streams.
///
/// # Safety of the unsafe ones
/// As for [`Backend`].
pub trait Streams: Backend {
    fn pipe2(flags: c_int) -> Result<[c_int; 2], Errno>;
    /// socketpair(2) of AF_UNIX streams.
    fn socketpair(flags: c_int) -> Result<[c_int; 2], Errno>;
    unsafe fn send(fd: c_int, buffer: *const u8, len: usize, flags: c_int) -> Result<usize, Errno>;
    unsafe fn recv(fd: c_int, buffer: *mut u8, len: usize, flags: c_int) -> Result<usize, Errno>;
    unsafe fn readv(fd: c_int, vectors: *const iovec, n: c_int) -> Result<usize, Errno>;
    unsafe fn writev(fd: c_int, vectors: *const iovec, n: c_int) -> Result<usize, Errno>;
    unsafe fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> Result<usize, Errno>;
    unsafe fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> Result<usize, Errno>;
    fn shutdown(fd: c_int, how: c_int) -> Result<(), Errno>;
    /// ioctl(2) with FIONREAD.
    fn bytes_in(fd: c_int) -> Result<c_int, Errno>;
}

/// `forward! { through CONVERT to WHERE: SIGNATURES }`: functions that make the same call
/// elsewhere, and whose result CONVERT makes what the signatures say.
macro_rules! forward {
    (through $convert:ident to $to:ident:) => {};
    (through $convert:ident to $to:ident:
        unsafe fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty; $($rest:tt)*
    ) => {
        unsafe fn $name($($argument: $type),*) -> $result {
            // SAFETY: the caller's contract.
            $convert(unsafe { $to::$name($($argument),*) })
        }
        forward! { through $convert to $to: $($rest)* }
    };
    (through $convert:ident to $to:ident:
        fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty; $($rest:tt)*
    ) => {
        fn $name($($argument: $type),*) -> $result {
            $convert($to::$name($($argument),*))
        }
        forward! { through $convert to $to: $($rest)* }
    };
}
#[allow(unused_imports, reason = "only some of the programs with these calls forward any")]
pub(crate) use forward;

/// The running kernel.
pub struct Kernel;

fn last_errno() -> Errno {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// The result of a libc function, or errno.
pub fn check(result: c_int) -> Result<c_int, Errno> {
    if result < 0 { Err(last_errno()) } else { Ok(result) }
}

fn check_size(result: isize) -> Result<usize, Errno> {
    usize::try_from(result).map_err(|_| last_errno())
}

unsafe extern "C" {
    /// Since glibc 2.35; the libc crate does not declare it.
    fn epoll_pwait2(
        set: c_int,
        events: *mut epoll_event,
        max: c_int,
        timeout: *const timespec,
        mask: *const libc::sigset_t,
    ) -> c_int;
}

impl Backend for Kernel {
    fn epoll_create1(flags: c_int) -> Result<c_int, Errno> {
        // SAFETY: no pointer is passed.
        check(unsafe { libc::epoll_create1(flags) })
    }

    unsafe fn epoll_ctl(
        set: c_int,
        op: c_int,
        fd: c_int,
        event: *mut epoll_event,
    ) -> Result<(), Errno> {
        // SAFETY: the caller's contract.
        check(unsafe { libc::epoll_ctl(set, op, fd, event) }).map(drop)
    }

    unsafe fn epoll_wait(
        set: c_int,
        events: *mut epoll_event,
        max: c_int,
        timeout: c_int,
    ) -> Result<c_int, Errno> {
        // SAFETY: the caller's contract.
        check(unsafe { libc::epoll_wait(set, events, max, timeout) })
    }

    unsafe fn epoll_pwait2(
        set: c_int,
        events: *mut epoll_event,
        max: c_int,
        timeout: *const timespec,
        mask: *const KernelSigset,
    ) -> Result<c_int, Errno> {
        // glibc's sigset_t begins with the kernel's, and is longer.
        let mut long = [0u64; size_of::<libc::sigset_t>() / 8];
        let mut long_mask = std::ptr::null();
        if !mask.is_null() {
            // SAFETY: the caller's contract.
            long[0] = unsafe { *mask };
            long_mask = long.as_ptr().cast();
        }
        // SAFETY: the caller's contract; `long` outlives the call.
        check(unsafe { epoll_pwait2(set, events, max, timeout, long_mask) })
    }

    fn eventfd(initial: c_uint, flags: c_int) -> Result<c_int, Errno> {
        // SAFETY: no pointer is passed.
        check(unsafe { libc::eventfd(initial, flags) })
    }

    unsafe fn read(fd: c_int, buffer: *mut u8, len: usize) -> Result<usize, Errno> {
        // SAFETY: the caller's contract.
        check_size(unsafe { libc::read(fd, buffer.cast(), len) })
    }

    unsafe fn write(fd: c_int, buffer: *const u8, len: usize) -> Result<usize, Errno> {
        // SAFETY: the caller's contract.
        check_size(unsafe { libc::write(fd, buffer.cast(), len) })
    }

    fn close(fd: c_int) -> Result<(), Errno> {
        // SAFETY: no pointer is passed, and the tests own the descriptors they close.
        check(unsafe { libc::close(fd) }).map(drop)
    }

    fn dup(fd: c_int) -> Result<c_int, Errno> {
        // SAFETY: no pointer is passed.
        check(unsafe { libc::dup(fd) })
    }

    fn dup2(fd: c_int, to: c_int) -> Result<c_int, Errno> {
        // SAFETY: no pointer is passed, and the tests own the descriptor that is replaced.
        check(unsafe { libc::dup2(fd, to) })
    }

    fn set_nonblocking(fd: c_int, nonblocking: bool) -> Result<(), Errno> {
        let flags = if nonblocking { libc::O_NONBLOCK } else { 0 };
        // SAFETY: no pointer is passed.
        check(unsafe { libc::fcntl(fd, libc::F_SETFL, flags) }).map(drop)
    }
}

impl Streams for Kernel {
    fn pipe2(flags: c_int) -> Result<[c_int; 2], Errno> {
        let mut fds = [-1; 2];
        // SAFETY: room for two.
        check(unsafe { libc::pipe2(fds.as_mut_ptr(), flags) }).map(|_| fds)
    }

    fn socketpair(flags: c_int) -> Result<[c_int; 2], Errno> {
        let mut fds = [-1; 2];
        // SAFETY: room for two.
        check(unsafe {
            libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM | flags, 0, fds.as_mut_ptr())
        })
        .map(|_| fds)
    }

    unsafe fn send(fd: c_int, buffer: *const u8, len: usize, flags: c_int) -> Result<usize, Errno> {
        // SAFETY: the caller's contract.
        check_size(unsafe { libc::send(fd, buffer.cast(), len, flags) })
    }

    unsafe fn recv(fd: c_int, buffer: *mut u8, len: usize, flags: c_int) -> Result<usize, Errno> {
        // SAFETY: the caller's contract.
        check_size(unsafe { libc::recv(fd, buffer.cast(), len, flags) })
    }

    unsafe fn readv(fd: c_int, vectors: *const iovec, n: c_int) -> Result<usize, Errno> {
        // SAFETY: the caller's contract.
        check_size(unsafe { libc::readv(fd, vectors, n) })
    }

    unsafe fn writev(fd: c_int, vectors: *const iovec, n: c_int) -> Result<usize, Errno> {
        // SAFETY: the caller's contract.
        check_size(unsafe { libc::writev(fd, vectors, n) })
    }

    unsafe fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> Result<usize, Errno> {
        // SAFETY: the caller's contract.
        check_size(unsafe { libc::sendmsg(fd, message, flags) })
    }

    unsafe fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> Result<usize, Errno> {
        // SAFETY: the caller's contract.
        check_size(unsafe { libc::recvmsg(fd, message, flags) })
    }

    fn shutdown(fd: c_int, how: c_int) -> Result<(), Errno> {
        // SAFETY: no pointer is passed.
        check(unsafe { libc::shutdown(fd, how) }).map(drop)
    }

    fn bytes_in(fd: c_int) -> Result<c_int, Errno> {
        let mut bytes = 0;
        // SAFETY: a place for an int.
        check(unsafe { libc::ioctl(fd, libc::FIONREAD, &raw mut bytes) }).map(|_| bytes)
    }
}

/// Wakeset, in this process.
pub struct Wakeset;

/// An errno as a number.
pub fn number<T>(result: Result<T, wakeset_fd::Errno>) -> Result<T, Errno> {
    result.map_err(|errno| errno.into_raw())
}

impl Backend for Wakeset {
    fn epoll_create1(flags: c_int) -> Result<c_int, Errno> {
        crate::faults::recover();
        number(wakeset_fd::epoll_create1(flags))
    }

    fn eventfd(initial: c_uint, flags: c_int) -> Result<c_int, Errno> {
        crate::faults::recover();
        number(wakeset_fd::eventfd(initial, flags))
    }

    fn migrate(fd: c_int) {
        let _ = wakeset_fd::migrate::release(fd);
    }

    fn dup2(fd: c_int, to: c_int) -> Result<c_int, Errno> {
        let verdict = wakeset_fd::duplicate::dup2(fd, to);
        // SAFETY: no pointer is passed, and the tests own the descriptor that is replaced.
        verdict
            .or_kernel(|| Ok(unsafe { libc::dup2(fd, to) }))
            .map_err(|errno| errno.into_raw())
            .and_then(check)
    }

    forward! { through number to wakeset_fd:
        unsafe fn epoll_ctl(
            set: c_int,
            op: c_int,
            fd: c_int,
            event: *mut epoll_event,
        ) -> Result<(), Errno>;
        unsafe fn epoll_wait(
            set: c_int,
            events: *mut epoll_event,
            max: c_int,
            timeout: c_int,
        ) -> Result<c_int, Errno>;
        unsafe fn epoll_pwait2(
            set: c_int,
            events: *mut epoll_event,
            max: c_int,
            timeout: *const timespec,
            mask: *const KernelSigset,
        ) -> Result<c_int, Errno>;
        unsafe fn read(fd: c_int, buffer: *mut u8, len: usize) -> Result<usize, Errno>;
        unsafe fn write(fd: c_int, buffer: *const u8, len: usize) -> Result<usize, Errno>;
        fn close(fd: c_int) -> Result<(), Errno>;
        fn dup(fd: c_int) -> Result<c_int, Errno>;
        fn set_nonblocking(fd: c_int, nonblocking: bool) -> Result<(), Errno>;
    }
}

impl Streams for Wakeset {
    fn pipe2(flags: c_int) -> Result<[c_int; 2], Errno> {
        crate::faults::recover();
        let mut fds = [-1; 2];
        // SAFETY: room for two.
        number(unsafe { wakeset_fd::pipe2(fds.as_mut_ptr(), flags) }).map(|()| fds)
    }

    fn socketpair(flags: c_int) -> Result<[c_int; 2], Errno> {
        crate::faults::recover();
        let mut fds = [-1; 2];
        // SAFETY: room for two.
        let made = unsafe {
            wakeset_fd::socketpair(libc::AF_UNIX, libc::SOCK_STREAM | flags, 0, fds.as_mut_ptr())
        };
        number(made).map(|()| fds)
    }

    unsafe fn readv(fd: c_int, vectors: *const iovec, n: c_int) -> Result<usize, Errno> {
        // SAFETY: the caller's contract.
        match unsafe { wakeset_fd::pipe::readv(fd, vectors, n) } {
            wakeset_fd::Verdict::Done(result) => number(result),
            // SAFETY: as above.
            wakeset_fd::Verdict::Kernel => unsafe { Kernel::readv(fd, vectors, n) },
        }
    }

    unsafe fn writev(fd: c_int, vectors: *const iovec, n: c_int) -> Result<usize, Errno> {
        // SAFETY: the caller's contract.
        match unsafe { wakeset_fd::pipe::writev(fd, vectors, n) } {
            wakeset_fd::Verdict::Done(result) => number(result),
            // SAFETY: as above.
            wakeset_fd::Verdict::Kernel => unsafe { Kernel::writev(fd, vectors, n) },
        }
    }

    unsafe fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> Result<usize, Errno> {
        // SAFETY: the caller's contract.
        match unsafe { wakeset_fd::pipe::sendmsg(fd, message, flags) } {
            wakeset_fd::Verdict::Done(result) => number(result),
            // SAFETY: as above.
            wakeset_fd::Verdict::Kernel => unsafe { Kernel::sendmsg(fd, message, flags) },
        }
    }

    unsafe fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> Result<usize, Errno> {
        // SAFETY: the caller's contract.
        match unsafe { wakeset_fd::pipe::recvmsg(fd, message, flags) } {
            wakeset_fd::Verdict::Done(result) => number(result),
            // SAFETY: as above.
            wakeset_fd::Verdict::Kernel => unsafe { Kernel::recvmsg(fd, message, flags) },
        }
    }

    forward! { through number to wakeset_fd:
        unsafe fn send(
            fd: c_int,
            buffer: *const u8,
            len: usize,
            flags: c_int,
        ) -> Result<usize, Errno>;
        unsafe fn recv(
            fd: c_int,
            buffer: *mut u8,
            len: usize,
            flags: c_int,
        ) -> Result<usize, Errno>;
        fn shutdown(fd: c_int, how: c_int) -> Result<(), Errno>;
        fn bytes_in(fd: c_int) -> Result<c_int, Errno>;
    }
}

/// Wakeset with an event ring in every set, made with `FLAGS`.
pub struct RingedWith<const FLAGS: c_int>;

pub type Ringed = RingedWith<0>;
/// Wakeset with sockets that stay the kernel's and are watched through an io_uring.
pub type Polled = RingedWith<{ wakeset_fd::RING_POLL }>;
pub type Hinted = RingedWith<{ wakeset_fd::RING_POLL | wakeset_fd::RING_HINTS }>;

/// The size of the rings: more than any test has ready at once, since one wait reports no more.
const SLOTS: usize = 1024;

impl<const FLAGS: c_int> Backend for RingedWith<FLAGS> {
    const WATCHES_FILES: bool = FLAGS & wakeset_fd::RING_POLL == 0;
    const TELLS_ALL: bool = FLAGS & wakeset_fd::RING_HINTS == 0;

    fn epoll_create1(flags: c_int) -> Result<c_int, Errno> {
        let set = Wakeset::epoll_create1(flags)?;
        assert_eq!(
            wakeset_fd::ring_setup_with(set, SLOTS, FLAGS),
            Ok(wakeset_fd::descriptor::is_in_process(set))
        );
        Ok(set)
    }

    fn migrate(fd: c_int) {
        Wakeset::migrate(fd);
    }

    forward! { through identity to Wakeset:
        unsafe fn epoll_ctl(
            set: c_int,
            op: c_int,
            fd: c_int,
            event: *mut epoll_event,
        ) -> Result<(), Errno>;
        unsafe fn epoll_wait(
            set: c_int,
            events: *mut epoll_event,
            max: c_int,
            timeout: c_int,
        ) -> Result<c_int, Errno>;
        unsafe fn epoll_pwait2(
            set: c_int,
            events: *mut epoll_event,
            max: c_int,
            timeout: *const timespec,
            mask: *const KernelSigset,
        ) -> Result<c_int, Errno>;
        fn eventfd(initial: c_uint, flags: c_int) -> Result<c_int, Errno>;
        unsafe fn read(fd: c_int, buffer: *mut u8, len: usize) -> Result<usize, Errno>;
        unsafe fn write(fd: c_int, buffer: *const u8, len: usize) -> Result<usize, Errno>;
        fn close(fd: c_int) -> Result<(), Errno>;
        fn dup(fd: c_int) -> Result<c_int, Errno>;
        fn dup2(fd: c_int, to: c_int) -> Result<c_int, Errno>;
        fn set_nonblocking(fd: c_int, nonblocking: bool) -> Result<(), Errno>;
    }
}

impl<const FLAGS: c_int> Streams for RingedWith<FLAGS> {
    fn socketpair(flags: c_int) -> Result<[c_int; 2], Errno> {
        if FLAGS == 0 { Wakeset::socketpair(flags) } else { Kernel::socketpair(flags) }
    }

    forward! { through identity to Wakeset:
        fn pipe2(flags: c_int) -> Result<[c_int; 2], Errno>;
        unsafe fn send(
            fd: c_int,
            buffer: *const u8,
            len: usize,
            flags: c_int,
        ) -> Result<usize, Errno>;
        unsafe fn recv(
            fd: c_int,
            buffer: *mut u8,
            len: usize,
            flags: c_int,
        ) -> Result<usize, Errno>;
        unsafe fn readv(fd: c_int, vectors: *const iovec, n: c_int) -> Result<usize, Errno>;
        unsafe fn writev(fd: c_int, vectors: *const iovec, n: c_int) -> Result<usize, Errno>;
        unsafe fn sendmsg(
            fd: c_int,
            message: *const msghdr,
            flags: c_int,
        ) -> Result<usize, Errno>;
        unsafe fn recvmsg(
            fd: c_int,
            message: *mut msghdr,
            flags: c_int,
        ) -> Result<usize, Errno>;
        fn shutdown(fd: c_int, how: c_int) -> Result<(), Errno>;
        fn bytes_in(fd: c_int) -> Result<c_int, Errno>;
    }
}
