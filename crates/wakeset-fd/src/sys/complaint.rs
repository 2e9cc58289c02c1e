//! What must not be passed over in silence: what a migration cannot do, and why a program is left
//! to the kernel.

use crate::sys::{self, Errno};
use core::ffi::c_int;

/// The one thing that can go wrong in a migration: the kernel has no memory, or no watches left,
/// for what the program was already granted. It must not go unnoticed.
#[cold]
pub(crate) fn of_watch(epfd: c_int, fd: c_int, error: Errno) {
    let errno = error.into_raw();
    say(format_args!(
        "wakeset: epoll set {epfd} lost its watch on descriptor {fd}: \
         the kernel refused it (errno {errno})"
    ));
}

/// The same for what was in a pipe.
#[cold]
pub(crate) fn of_bytes(fd: c_int, error: Option<Errno>) {
    let errno = error.map_or(0, Errno::into_raw);
    say(format_args!(
        "wakeset: descriptor {fd} lost bytes on their way into the kernel (errno {errno})"
    ));
}

/// The same for a timer: the kernel's has not been set, and does not expire.
#[cold]
pub(crate) fn of_timer(fd: c_int, error: Errno) {
    let errno = error.into_raw();
    say(format_args!("wakeset: timer {fd} was not set on its way into the kernel (errno {errno})"));
}

/// Writes a line to stderr.
pub fn say(what: core::fmt::Arguments<'_>) {
    use core::fmt::Write;
    struct Stderr;
    impl Write for Stderr {
        fn write_str(&mut self, text: &str) -> core::fmt::Result {
            let _ = sys::write(2, text.as_ptr(), text.len());
            Ok(())
        }
    }
    let _ = writeln!(Stderr, "{what}");
}
