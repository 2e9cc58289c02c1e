use super::*;
use crate::table::alone::alone;
use crate::table::away;
use crate::table::away::tests::{eventfd, give_back, lend};
use libc::{AF_UNIX, O_CLOEXEC, O_NONBLOCK, SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_STREAM};

/// What no child has here.
const CHILD: u32 = 1 << 31;

/// Writes and reads as many bytes by one buffer; `None` where that is not read and written here.
fn transfer([reader, writer]: [c_int; 2], bytes: &mut [u8]) -> Option<[ssize_t; 2]> {
    let part = iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let answer = |verdict| answered(verdict, || -2);
    // SAFETY: the buffer is there.
    let write = |bytes: *mut c_void, n| answer(unsafe { io::write(writer, bytes.cast(), n) });
    // SAFETY: the same.
    let read = |bytes: *mut c_void, n| answer(unsafe { io::read(reader, bytes.cast(), n) });
    let written = vectored(writer, &raw const part, 1, write, || -2);
    let got = vectored(reader, &raw const part, 1, read, || -2);
    (written >= 0 && got >= 0).then_some([written, got])
}

/// Each was a doubt.
#[test]
fn what_is_read_and_written_by_one_buffer_comes_home() {
    let _alone = alone();
    let counter = eventfd(0, 0);
    let (mut pipe, mut sockets) = ([-1; 2], [-1; 2]);
    let kind = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
    // SAFETY: room for two, each.
    unsafe {
        crate::pipe2(pipe.as_mut_ptr(), O_NONBLOCK | O_CLOEXEC).unwrap();
        crate::socketpair(AF_UNIX, kind, 0, sockets.as_mut_ptr()).unwrap();
    }
    for (ends, len) in [([counter; 2], 8), (pipe, 2), (sockets, 2)] {
        let mut bytes = [1; 8];
        let mut is_done =
            || transfer(ends, bytes.get_mut(..len).unwrap()) == Some([len as ssize_t; 2]);
        lend(ends[0], CHILD);
        assert!(is_done() && ends.into_iter().all(away::is), "a child has it");
        give_back(CHILD);
        let is_here = || ends.into_iter().all(|fd| table::peek(fd).is_object());
        assert!((0..1000).any(|_| is_done() && is_here()));
        crate::close(ends[0]).unwrap();
        // An eventfd has one number, which may be another test's by now.
        if ends[0] != ends[1] {
            crate::close(ends[1]).unwrap();
        }
    }
}
