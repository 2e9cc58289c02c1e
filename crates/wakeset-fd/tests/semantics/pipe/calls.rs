//! Single calls: arguments, addresses, duplicates.

use super::*;

pub(super) fn fionread_says_how_much_is_there<B: Streams>() {
    let (reader, writer) = nonblocking::<B>();
    let there = || [B::bytes_in(reader.as_raw_fd()), B::bytes_in(writer.as_raw_fd())];
    assert_eq!(there(), [Ok(0), Ok(0)]);
    assert_eq!(writer.write(b"xx"), Ok(2));
    assert_eq!(writer.write(b"yz"), Ok(2));
    assert_eq!(there(), [Ok(4), Ok(4)]);
    assert_eq!(read(&reader, 3).map(|bytes| bytes.len()), Ok(3));
    assert_eq!(there(), [Ok(1), Ok(1)]);
    let same = reader.dup();
    assert_eq!([there()[0], there()[1], B::bytes_in(same.as_raw_fd())], [Ok(1); 3]);
}

pub(super) fn each_end_is_for_one_direction<B: Streams>() {
    let (reader, writer) = nonblocking::<B>();
    assert_eq!(reader.write(b"x"), Err(EBADF));
    assert_eq!(read(&writer, 1), Err(EBADF));
    assert_eq!(writer.write(b"x"), Ok(1));
    assert_eq!(reader.write(b"xyz"), Err(EBADF));
    assert_eq!(read(&reader, 2), Ok(b"x".to_vec()));
}

pub(super) fn unknown_flags_are_refused<B: Streams>() {
    for flags in [1, 2, libc::O_APPEND, -1] {
        assert_eq!(B::pipe2(flags), Err(EINVAL), "{flags:#x}");
    }
}

pub(super) fn nonblocking_can_be_turned_on_and_off<B: Streams>() {
    let (reader, writer) = pipe::<B>(0);
    B::set_nonblocking(reader.as_raw_fd(), true).unwrap();
    assert_eq!(read(&reader, 1), Err(EAGAIN));
    B::set_nonblocking(reader.as_raw_fd(), false).unwrap();
    let task = Task::asleep(move || read(&reader, 1));
    assert_eq!(writer.write(b"x"), Ok(1));
    assert_eq!(task.join(), Ok(b"x".to_vec()));
}

pub(super) fn nothing_to_read_or_write_is_nothing<B: Streams>() {
    let (reader, writer) = pipe::<B>(0);
    assert_eq!(writer.write(b""), Ok(0));
    assert_eq!(read(&reader, 0), Ok(vec![]));
    assert_eq!(writer.write(b"x"), Ok(1));
    assert_eq!(read(&reader, 0), Ok(vec![]));
    assert_eq!(read(&reader, 1), Ok(b"x".to_vec()));
}

pub(super) fn bad_addresses_are_efault<B: Streams>() {
    let bad: *mut u8 = ptr::without_provenance_mut(8);
    for len in [1, 2, 100, 5000] {
        let (reader, writer) = nonblocking::<B>();
        // SAFETY: addresses that cannot be reached.
        unsafe {
            assert_eq!(B::write(writer.as_raw_fd(), bad, len), Err(EFAULT));
            assert_eq!(
                B::write(writer.as_raw_fd(), ptr::without_provenance(usize::MAX - 9), len),
                Err(EFAULT)
            );
            assert_eq!(B::read(reader.as_raw_fd(), bad, len), Err(EAGAIN));
            assert_eq!(writer.write(b"xy"), Ok(2));
            assert_eq!(B::read(reader.as_raw_fd(), bad, len), Err(EFAULT));
        }
        assert_eq!(read(&reader, 3), Ok(b"xy".to_vec()));
    }
}

/// The end of a page that can be read and written; the next page is inaccessible.
pub(super) fn edge_of_memory() -> *mut u8 {
    // SAFETY: fresh memory, of which the second page is given back.
    unsafe {
        let (all, private) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let place = libc::mmap(ptr::null_mut(), 8192, all, private, -1, 0);
        assert_ne!(place, libc::MAP_FAILED);
        assert_eq!(libc::mprotect(place.byte_add(4096), 4096, libc::PROT_NONE), 0);
        place.cast::<u8>().add(4096)
    }
}

pub(super) fn what_cannot_be_stored_stays<B: Streams>() {
    for bytes in [&b"xxxx"[..], b"wxyz"] {
        let (reader, writer) = nonblocking::<B>();
        let edge = edge_of_memory();
        assert_eq!(writer.write(bytes), Ok(4));
        // SAFETY: partly out of reach.
        unsafe {
            assert_eq!(B::read(reader.as_raw_fd(), edge.sub(2), 4), Err(EFAULT));
            assert_eq!(B::read(reader.as_raw_fd(), edge.sub(2), 2), Ok(2));
            assert_eq!(read(&reader, 9), Ok(bytes[2..].to_vec()));
            edge.sub(2).copy_from(bytes.as_ptr(), 2);
            assert_eq!(B::write(writer.as_raw_fd(), edge.sub(2), 4), Err(EFAULT));
        }
        assert_eq!(read(&reader, 9), Err(EAGAIN));
    }
}

pub(super) fn a_duplicate_is_the_same_pipe<B: Streams>() {
    let (reader, writer) = nonblocking::<B>();
    assert_eq!(writer.write(b"aab"), Ok(3));
    let same = writer.dup();
    assert_eq!(same.write(b"c"), Ok(1));
    drop(writer);
    assert_eq!(read(&reader, 9), Ok(b"aabc".to_vec()));
    assert_eq!(read(&reader, 9), Err(EAGAIN));
    drop(same);
    assert_eq!(read(&reader, 9), Ok(vec![]));
}
