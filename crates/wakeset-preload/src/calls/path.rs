//! Paths that are names of descriptors: `/dev/fd/3`, `/dev/stdin`, `/proc/self/fd/3`.

use super::socket;
use core::ffi::{c_char, c_int};
use core::ptr;
use wakeset_fd::stats::Stat;
use wakeset_fd::{descriptor, migrate, user};

/// Before a file is opened by name: a name of a descriptor is a second way to a pipe, so pipes
/// migrate.
///
/// # Safety
/// `path` is a C string, or the kernel will say EFAULT.
pub(super) unsafe fn before_open(path: *const c_char) {
    // SAFETY: the caller's contract.
    if descriptor::any() && unsafe { names_descriptor(path) } {
        migrate::pipes(Stat::MigratedUnmodelled);
    }
}

/// Before fanotify_mark(2), which marks the file of `directory` itself if `path` is null.
///
/// # Safety
/// As [`before_open`], of a path in a register.
pub(super) unsafe fn before_mark(directory: c_int, path: usize) {
    if path == 0 {
        socket::migrate_pair(directory);
    }
    // SAFETY: the caller's contract.
    unsafe { before_open(ptr::with_exposed_provenance(path)) }
}

/// After a stream was opened: its number is new. Returns the stream.
pub(super) fn after_open_stream(stream: usize) -> usize {
    if stream != 0 {
        // SAFETY: libc has just made it; the caller does not have it yet.
        let fd = unsafe { libc::fileno(ptr::with_exposed_provenance_mut(stream)) };
        migrate::number_is_new(fd);
    }
    stream
}

/// After a directory was opened, likewise.
pub(super) fn after_open_directory(directory: usize) -> usize {
    if directory != 0 {
        // SAFETY: as above.
        let fd = unsafe { libc::dirfd(ptr::with_exposed_provenance_mut(directory)) };
        migrate::number_is_new(fd);
    }
    directory
}

/// Whether a path may be a name of a descriptor.
///
/// # Safety
/// As [`before_open`].
pub(super) unsafe fn names_descriptor(path: *const c_char) -> bool {
    // Copied without what says nothing in a path: a second slash, and a component of one dot.
    let (mut name, mut len) = ([0_u8; 48], 0);
    for i in 0..libc::PATH_MAX as usize {
        // SAFETY: any byte is a part of a path.
        let byte = unsafe { user::load_u8(path.cast::<u8>().wrapping_add(i)) }.unwrap_or(0);
        if byte == b'/' && name[..len].ends_with(b"/.") {
            len -= 1;
        }
        if byte == 0 || len == name.len() {
            break;
        }
        if byte == b'/' && name[..len].ends_with(b"/") {
            continue;
        }
        name[len] = byte;
        len += 1;
        // The beginning of most names decides.
        if len == 6 && byte != b'.' && !name.starts_with(b"/dev/") && !name.starts_with(b"/proc/") {
            return false;
        }
    }
    let name = &name[..len];
    name.starts_with(b"/dev/fd/")
        || name.starts_with(b"/dev/std")
        || name.starts_with(b"/proc/") && name.windows(4).any(|part| part == b"/fd/")
}
