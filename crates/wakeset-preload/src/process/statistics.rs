//! The process's page of counts for `wakeset run --stats`; see [`wakeset_fd::stats`].

use crate::environment;
use core::ffi::CStr;
use core::fmt::Write;
use syscalls::{Sysno, syscall};
use wakeset_fd::count;
use wakeset_fd::stats::{DIR_VARIABLE, PAGE_BYTES, Page};

/// A path on the stack: no hook may allocate with libc, and this runs before anything else does.
struct Path {
    bytes: [u8; 512],
    len: usize,
}

impl Write for Path {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        // The last byte stays 0, to end the C string.
        let end = self.len + text.len();
        let place =
            self.bytes.get_mut(self.len..end).filter(|_| end < 512).ok_or(core::fmt::Error)?;
        place.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

/// Begins to count in a page of this process's own, if `wakeset run --stats` asked for it. To be
/// called before main, and in a forked child.
pub(crate) fn start() {
    count::set_page(None);
    let mut variable = [0_u8; 64];
    if let Some(place) = variable.get_mut(..DIR_VARIABLE.len()) {
        place.copy_from_slice(DIR_VARIABLE.as_bytes());
    }
    let Ok(variable) = CStr::from_bytes_until_nul(&variable) else { return };
    let Some(directory) = environment::get(variable) else { return };
    let Ok(directory) = directory.to_str() else { return };
    if let Some(page) = make_page(directory) {
        count::set_page(Some(page));
    }
}

fn make_page(directory: &str) -> Option<&'static Page> {
    // SAFETY: has no arguments.
    let pid = unsafe { syscall!(Sysno::getpid) }.ok()?;
    // A process that execs has more than one.
    for n in 0..1000 {
        let mut path = Path { bytes: [0; 512], len: 0 };
        write!(path, "{directory}/{pid}.{n}").ok()?;
        let flags =
            libc::O_CREAT | libc::O_EXCL | libc::O_RDWR | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        // SAFETY: `path` ends with a 0 byte.
        let opened = unsafe { syscall!(Sysno::open, path.bytes.as_ptr(), flags, 0o600) };
        let fd = match opened {
            Ok(fd) => fd,
            Err(syscalls::Errno::EEXIST) => continue,
            Err(_) => return None,
        };
        // SAFETY: our own descriptor and a fresh mapping of it.
        let mapped = unsafe {
            let sized = syscall!(Sysno::ftruncate, fd, PAGE_BYTES);
            let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
            let mapped =
                sized.and_then(|_| syscall!(Sysno::mmap, 0, PAGE_BYTES, protection, flags, fd, 0));
            let _ = syscall!(Sysno::close, fd);
            mapped
        };
        // SAFETY: a zeroed mapping of the page's size that is never unmapped.
        let page = unsafe { Page::page_at(mapped.ok()? as *const u8) };
        let mut name = [0_u8; 16];
        // SAFETY: PR_GET_NAME writes at most 16 bytes.
        let _ = unsafe { syscall!(Sysno::prctl, libc::PR_GET_NAME, name.as_mut_ptr()) };
        page.start(pid as u32, &name);
        return Some(page);
    }
    None
}
