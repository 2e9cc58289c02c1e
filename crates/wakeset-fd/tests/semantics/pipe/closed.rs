//! Reads that sleep when their number is closed, or becomes another file's. read(2) keeps the file
//! it began with.

use super::*;
use crate::backend::Errno;
use std::time::Duration;

/// Both ends of a pipe or socket pair, by number: each is closed once, and by hand.
type Ends = [c_int; 2];

fn both_kinds<B: Streams>() -> [Ends; 2] {
    [B::pipe2(libc::O_CLOEXEC).unwrap(), B::socketpair(libc::SOCK_CLOEXEC).unwrap()]
}

fn read_number<B: Streams>(fd: c_int) -> Result<Vec<u8>, Errno> {
    let mut bytes = [0; 100];
    // SAFETY: the buffer is `bytes`.
    let n = unsafe { B::read(fd, bytes.as_mut_ptr(), bytes.len()) }?;
    Ok(bytes[..n].to_vec())
}

fn write_number<B: Streams>(fd: c_int, bytes: &[u8]) -> Result<usize, Errno> {
    // SAFETY: the buffer is `bytes`.
    unsafe { B::write(fd, bytes.as_ptr(), bytes.len()) }
}

fn asleep_in<B: Streams>(fd: c_int) -> Task<Result<Vec<u8>, Errno>> {
    Task::asleep(move || read_number::<B>(fd))
}

pub(super) fn a_read_ends_with_both_ends<B: Streams>() {
    for [reader, writer] in both_kinds::<B>() {
        let tasks = [asleep_in::<B>(reader), asleep_in::<B>(reader)];
        B::close(reader).unwrap();
        B::close(writer).unwrap();
        for task in tasks {
            assert_eq!(task.join(), Ok(vec![]));
        }
    }
}

pub(super) fn a_read_goes_on_after_its_number_is_closed<B: Streams>() {
    // SIGPIPE is ignored in this program.
    for [reader, writer] in both_kinds::<B>() {
        let task = asleep_in::<B>(reader);
        B::close(reader).unwrap();
        assert_eq!(write_number::<B>(writer, b"xyz"), Ok(3));
        assert_eq!(task.join(), Ok(b"xyz".to_vec()));
        // The file went with the read.
        assert_eq!(write_number::<B>(writer, b"x"), Err(EPIPE));
        B::close(writer).unwrap();
    }
}

pub(super) fn a_write_goes_on_after_its_number_is_closed<B: Streams>() {
    for [reader, writer] in both_kinds::<B>() {
        B::set_nonblocking(writer, true).unwrap();
        while write_number::<B>(writer, &[1; 2]).is_ok() {}
        B::set_nonblocking(writer, false).unwrap();
        let task = Task::asleep(move || write_number::<B>(writer, b"xyz"));
        B::close(writer).unwrap();
        let mut read = Vec::new();
        while !read.ends_with(b"xyz") {
            read.extend(read_number::<B>(reader).unwrap());
        }
        assert_eq!(task.join(), Ok(3));
        // The file went with the write.
        assert_eq!(read_number::<B>(reader), Ok(vec![]));
        B::close(reader).unwrap();
    }
}

pub(super) fn a_read_goes_on_when_its_number_is_another_file<B: Streams>() {
    for ([reader, writer], [other, its_writer]) in
        both_kinds::<B>().into_iter().zip(both_kinds::<B>())
    {
        let task = asleep_in::<B>(reader);
        B::dup2(other, reader).unwrap();
        assert_eq!(write_number::<B>(its_writer, b"not this"), Ok(8));
        assert_eq!(write_number::<B>(writer, b"this"), Ok(4));
        assert_eq!(task.join(), Ok(b"this".to_vec()));
        assert_eq!(read_number::<B>(reader), Ok(b"not this".to_vec()));
        for fd in [reader, writer, other, its_writer] {
            B::close(fd).unwrap();
        }
    }
}

pub(super) fn an_eventfds_read_leaves_the_next_file_alone<B: Streams>() {
    let eventfd = |value| B::eventfd(value, libc::EFD_CLOEXEC).unwrap();
    signals::install();
    let (fd, other) = (eventfd(0), eventfd(5));
    let task = asleep_in::<B>(fd);
    B::dup2(other, fd).unwrap();
    // Nobody can write to what it sleeps in.
    std::thread::sleep(Duration::from_millis(50));
    assert!(!task.has_ended());
    assert_eq!(read_number::<B>(fd), Ok(5_u64.to_ne_bytes().to_vec()));
    assert_eq!(task.interrupt(signals::PLAIN), Err(EINTR));
    B::close(fd).unwrap();
    B::close(other).unwrap();
}
