//! What goes in and what comes out: order, pages, writes in one piece.

use super::*;

pub(super) fn bytes_come_out_in_order<B: Streams>() {
    let (reader, writer) = nonblocking::<B>();
    for bytes in [&b"a"[..], b"a", b"a", b"bcd", b"eeee", b"f", b"f"] {
        assert_eq!(writer.write(bytes), Ok(bytes.len()));
    }
    assert_eq!(read(&reader, 4), Ok(b"aaab".to_vec()));
    assert_eq!(writer.write(&[b'g'; 100]), Ok(100));
    assert_eq!(read(&reader, 1), Ok(b"c".to_vec()));
    assert_eq!(read(&reader, 1000), Ok([&b"deeeeff"[..], &[b'g'; 100]].concat()));
    assert_eq!(read(&reader, 1), Err(EAGAIN));
}

pub(super) fn an_empty_one_would_block<B: Streams>() {
    let (reader, writer) = nonblocking::<B>();
    assert_eq!(read(&reader, 1), Err(EAGAIN));
    assert_eq!(writer.write(b"x"), Ok(1));
    assert_eq!(read(&reader, 7), Ok(b"x".to_vec()));
    assert_eq!(read(&reader, 1), Err(EAGAIN));
}

pub(super) fn holds_65536_bytes_written_one_by_one<B: Streams>() {
    let (reader, writer) = nonblocking::<B>();
    assert_eq!(fill(&writer, 1), 65536);
    assert_eq!(writer.write(b"y"), Err(EAGAIN));
    // Space becomes free by pages.
    assert_eq!(read(&reader, 4095).map(|bytes| bytes.len()), Ok(4095));
    assert_eq!(writer.write(b"x"), Err(EAGAIN));
    assert_eq!(read(&reader, 1).map(|bytes| bytes.len()), Ok(1));
    assert_eq!(fill(&writer, 1), 4096);
    assert_eq!(read(&reader, 100_000).map(|bytes| bytes.len()), Ok(65536));
    assert_eq!(read(&reader, 1), Err(EAGAIN));
}

/// A user with many pipes gets small ones, and the kernel says so only if it is asked.
pub(super) fn a_small_one_is_full_early<B: Streams>() {
    let (set, (reader, writer)) = (Set::<B>::new(), nonblocking::<B>());
    set.add(&writer, OUT, 1);
    // SAFETY: no memory of ours. Not through the backend: the kernel does this by itself.
    let size = unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETPIPE_SZ, 4096) };
    assert_eq!(size, 4096);
    assert_eq!(set.ready(), [(1, OUT)]);
    assert_eq!(read(&reader, 1), Err(EAGAIN));
    assert_eq!(fill(&writer, 1), 4096);
    assert_eq!(set.ready(), []);
    assert_eq!(read(&reader, 70_000).map(|bytes| bytes.len()), Ok(4096));
    assert_eq!(set.ready(), [(1, OUT)]);
}

pub(super) fn writable_means_a_free_page<B: Streams>() {
    let (set, (reader, writer)) = (Set::<B>::new(), nonblocking::<B>());
    set.add(&writer, OUT, 1);
    for _ in 0..15 * 4096 {
        assert_eq!(writer.write(b"x"), Ok(1));
    }
    assert_eq!(set.ready(), [(1, OUT)]);
    // The last page has free space, and the pipe is not writable all the same.
    assert_eq!(writer.write(b"x"), Ok(1));
    assert_eq!(set.ready(), []);
    assert_eq!(writer.write(b"x"), Ok(1));
    assert_eq!(read(&reader, 4095).map(|bytes| bytes.len()), Ok(4095));
    assert_eq!(set.ready(), []);
    assert_eq!(read(&reader, 1).map(|bytes| bytes.len()), Ok(1));
    assert_eq!(set.ready(), [(1, OUT)]);
}

/// Writes in parts so short that the pipe does not migrate.
pub(super) fn write_in_parts<B: Streams>(writer: &Fd<B>, bytes: &[u8]) {
    assert!(bytes.chunks(512).all(|part| writer.write(part) == Ok(part.len())));
}

pub(super) fn a_short_write_goes_on_in_the_last_page_or_begins_another<B: Streams>() {
    for len in [3, 8, 100, 1000, 2048, 3000, 4095, 4096] {
        let (reader, writer) = nonblocking::<B>();
        assert_eq!(fill(&writer, len), 16 * (4096 / len) * len, "{len}");
        assert_eq!(read(&reader, 4096).map(|bytes| bytes.len()), Ok(4096));
    }
    // 4,095 bytes of a page have been read: one more fits into it, two do not.
    let (reader, writer) = nonblocking::<B>();
    write_in_parts(&writer, &[1; 4095]);
    assert_eq!(read(&reader, 4094).map(|bytes| bytes.len()), Ok(4094));
    assert_eq!(fill(&writer, 2), 15 * 4096);
    assert_eq!(fill(&writer, 1), 0);
}

pub(super) fn a_long_write_takes_what_there_is_room_for<B: Streams>() {
    let (reader, writer) = nonblocking::<B>();
    assert_eq!(writer.write(b"x"), Ok(1));
    assert_eq!(writer.write(&[2; 70_000]), Ok(65536 - 4096 + 70_000 % 4096));
    assert_eq!(writer.write(b"x"), Err(EAGAIN));
    assert_eq!(read(&reader, 2), Ok(vec![b'x', 2]));
}

pub(super) fn writes_up_to_pipe_buf_are_in_one_piece<B: Streams>() {
    // All in process, and then mixed with writes that make the pipe migrate.
    in_one_piece::<B>([17, 100, 300, 512]);
    in_one_piece::<B>([17, 100, 1000, 4096]);
}

pub(super) fn in_one_piece<B: Streams>(lens: [usize; 4]) {
    let (reader, writer) = pipe::<B>(0);
    const ROUNDS: usize = 200;
    let writers: Vec<_> = (0..lens.len())
        .map(|i| {
            let writer = writer.clone();
            Task::start(move || {
                (0..ROUNDS).all(|_| writer.write(&vec![i as u8; lens[i]]) == Ok(lens[i]))
            })
        })
        .collect();
    let mut bytes = Vec::new();
    while bytes.len() < ROUNDS * lens.iter().sum::<usize>() {
        bytes.extend(read(&reader, 5000).unwrap());
    }
    assert!(writers.into_iter().all(Task::join));
    let mut rest = bytes.as_slice();
    while let Some(first) = rest.first() {
        let (write, behind) = rest.split_at(lens[usize::from(*first)]);
        assert!(write.iter().all(|byte| byte == first), "a write with another's bytes in it");
        rest = behind;
    }
}
