//! How what is in a pair gets into the kernel's.

use super::FdPipe;
use crate::migrate;
use crate::sys::births::Birth;
use crate::sys::complaint;
use crate::sys::path::Path;
use crate::sys::steps::step;
use crate::sys::{self, Errno};
use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::ptr;
use libc::{MSG_DONTWAIT, MSG_NOSIGNAL};
use wakeset::{LONGEST_WRITE, Piece, mutated};

/// Puts the bytes of a pipe into the kernel's, so that that counts them in the same way: pages
/// begin where they began, messages are as many, and a message of which a part has been read counts
/// for the whole.
///
/// The page to be written is not on the stack, which may be a small one. The migrations lock guards
/// it.
pub(super) struct Carrier {
    socket: bool,
    /// The next bytes belong to the message of which the page has the first ones.
    within: bool,
    /// The reading end, and the writing one.
    ends: [&'static FdPipe; 2],
    /// How much of the page there is.
    filled: usize,
    /// Of these, as many at the start are to be read at once.
    start: usize,
}

/// [`Carrier`]'s page.
struct Page(UnsafeCell<[u8; LONGEST_WRITE]>);
// SAFETY: whoever has a carrier holds the migrations lock.
unsafe impl Sync for Page {}
static PAGE: Page = Page(UnsafeCell::new([0; LONGEST_WRITE]));

impl Carrier {
    /// # Safety
    /// The caller holds the migrations lock as long as it has the carrier, and has no other.
    pub(super) unsafe fn new(socket: bool, ends: [&'static FdPipe; 2], start: usize) -> Self {
        let start = if socket || mutated!("pipe_carries_from_the_start") { 0 } else { start };
        Self { socket, within: false, ends, filled: start, start }
    }

    pub(super) fn carry(&mut self, piece: Piece<'_>) {
        match piece {
            Piece::Run(byte, n) => {
                for _ in 0..n {
                    self.put(&[byte], 0, true);
                }
            }
            Piece::Bytes { bytes, read, ends } => self.put(bytes, read, ends),
        }
    }

    /// Some bytes of a pipe; some of a message of a socket, in front of which `read` bytes stood.
    fn put(&mut self, bytes: &[u8], read: usize, ends: bool) {
        if self.socket && !core::mem::replace(&mut self.within, !ends) {
            (self.filled, self.start) = (read, read);
        }
        for byte in bytes {
            // SAFETY: by the contract of `new`, and gone before the page is used otherwise.
            if let Some(place) = unsafe { &mut *PAGE.0.get() }.get_mut(self.filled) {
                *place = *byte;
                self.filled += 1;
            }
            if self.filled == LONGEST_WRITE {
                self.flush();
            }
        }
        if self.socket && ends && !mutated!("socket_carries_one_message") {
            self.flush();
        }
    }

    #[inline]
    pub(super) fn flush(&mut self) {
        if self.filled != self.start {
            self.flush_page();
        }
        (self.filled, self.start) = (0, 0);
    }

    fn flush_page(&mut self) {
        let (filled, start) = (core::mem::take(&mut self.filled), core::mem::take(&mut self.start));
        let [reader, writer] = self.ends.map(|end| number_of(self.socket, end));
        if reader < 0 {
            // Nobody can read it.
            return;
        }
        step!(pipe_before_carry);
        let nowhere = ptr::null::<c_void>();
        let page = PAGE.0.get().cast::<u8>();
        let flags = MSG_DONTWAIT | MSG_NOSIGNAL;
        let sent = match self.socket {
            true => sys::raw!(sendto, writer, page, filled, flags, nowhere, 0),
            false if writer < 0 => write_by_name(reader, page, filled),
            false => sys::write(writer, page, filled),
        };
        if sent != Ok(filled) {
            complaint::of_bytes(writer.max(reader), sent.err());
        }
        if start != 0 {
            let _ = match self.socket {
                true => {
                    sys::raw!(recvfrom, reader, page, start, MSG_DONTWAIT, nowhere, nowhere)
                }
                false => sys::read(reader, page, start),
            };
        }
    }
}

/// The number of an end in the kernel; -1 if it has none.
pub(super) fn number_of(socket: bool, end: &FdPipe) -> c_int {
    if let Some(hidden) = end.kept.number() {
        return hidden;
    }
    let file_type = if socket { libc::S_IFSOCK } else { libc::S_IFIFO };
    migrate::mark_if_lost(&end.head, file_type);
    end.head.kernel_fd()
}

/// Writes to a pipe whose write end is closed: its other end has a name by which it can be opened.
fn write_by_name(reader: c_int, page: *const u8, len: usize) -> Result<usize, Errno> {
    let path = Path::of(format_args!("/proc/self/fd/{reader}")).ok_or(Errno::EINVAL)?;
    let flags = libc::O_WRONLY | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let _birth = Birth::begin();
    let writer = sys::raw!(open, path.as_ptr(), flags, 0)? as c_int;
    let written = sys::write(writer, page, len);
    let _ = sys::close(writer);
    written
}
