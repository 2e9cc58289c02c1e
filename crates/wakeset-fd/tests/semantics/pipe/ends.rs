//! What the end of one side does to the other.

use super::*;

pub(super) fn the_last_writer_leaves_what_it_wrote_and_an_end<B: Streams>() {
    let (reader, writer) = nonblocking::<B>();
    assert_eq!(writer.write(b"xyz"), Ok(3));
    drop(writer);
    assert_eq!(read(&reader, 2), Ok(b"xy".to_vec()));
    assert_eq!(B::bytes_in(reader.as_raw_fd()), Ok(1));
    assert_eq!(read(&reader, 2), Ok(b"z".to_vec()));
    assert_eq!(read(&reader, 2), Ok(vec![]));
    assert_eq!(read(&reader, 2), Ok(vec![]));
}

pub(super) fn a_hang_up_reaches_a_watch<B: Streams>() {
    for (written, events) in [(&b""[..], HUP), (b"xyz", IN | HUP)] {
        for mode in [0, ET, ONESHOT, EXCLUSIVE] {
            let (set, (reader, writer)) = (Set::<B>::new(), nonblocking::<B>());
            set.add(&reader, IN | mode, 1);
            if !written.is_empty() {
                assert_eq!(writer.write(written), Ok(written.len()));
            }
            let waiter = set.clone();
            drop(writer);
            assert_eq!(waiter.ready(), [(1, events)], "{mode:#x}");
        }
    }
    // The hang-up wakes sleepers in two sets as in one.
    let (sets, (reader, writer)) = ([Set::<B>::new(), Set::new()], nonblocking::<B>());
    let tasks = sets.map(|set| {
        set.add(&reader, IN | EXCLUSIVE, 1);
        Task::asleep(move || set.wait(1, -1))
    });
    drop(writer);
    for task in tasks {
        assert_eq!(task.join(), Ok(vec![(1, HUP)]));
    }
}

pub(super) fn without_a_reader_a_write_fails<B: Streams>() {
    let (reader, writer) = nonblocking::<B>();
    assert_eq!(writer.write(b"x"), Ok(1));
    drop(reader);
    // SIGPIPE is ignored in this program.
    assert_eq!(writer.write(b"x"), Err(EPIPE));
    assert_eq!(writer.write(b""), Ok(0));
}

pub(super) fn an_error_reaches_the_writers_watch<B: Streams>() {
    let (set, (reader, writer)) = (Set::<B>::new(), nonblocking::<B>());
    set.add(&writer, OUT | ET, 1);
    assert_eq!(set.ready(), [(1, OUT)]);
    drop(reader);
    assert_eq!(set.ready(), [(1, OUT | ERR)]);
    set.modify(&writer, 0, 2);
    assert_eq!(set.ready(), [(2, ERR)]);
}

pub(super) fn without_a_reader_an_empty_one_is_broken<B: Streams>() {
    for flags in [0, O_NONBLOCK] {
        let (set, (reader, writer)) = (Set::<B>::new(), pipe::<B>(flags));
        set.add(&writer, OUT | ET, 1);
        assert_eq!(set.ready(), [(1, OUT)]);
        drop(reader);
        assert_eq!(set.ready(), [(1, OUT | ERR)]);
        // SIGPIPE is ignored in this program.
        for bytes in [&[1; 1][..], &[1; 60], &[1; 400], &[1; 5000]] {
            assert_eq!(writer.write(bytes), Err(EPIPE));
        }
        assert_eq!(writer.write(b""), Ok(0));
        assert_eq!(B::bytes_in(writer.as_raw_fd()), Ok(0));
        set.modify(&writer, 0, 2);
        assert_eq!(set.ready(), [(2, ERR)]);
    }
}

pub(super) fn a_watch_that_comes_late_is_told_of_the_end<B: Streams>() {
    for mode in [0, ET, ONESHOT, EXCLUSIVE] {
        let (set, (reader, writer)) = (Set::<B>::new(), pipe::<B>(0));
        drop(writer);
        set.add(&reader, IN | mode, 1);
        assert_eq!(set.ready(), [(1, HUP)]);
        assert_eq!(read(&reader, 5), Ok(vec![]));
        assert_eq!(set.ready().is_empty(), mode & (ET | ONESHOT) != 0);
        let (set, (reader, writer)) = (Set::<B>::new(), pipe::<B>(0));
        drop(reader);
        set.add(&writer, IN | OUT | mode, 1);
        assert_eq!(set.ready(), [(1, OUT | ERR)]);
    }
}

pub(super) fn what_is_left_at_an_end_moves_with_it<B: Streams>() {
    for (first, second) in [(&b"aaaa"[..], &b"aa"[..]), (b"abcd", b"ef"), (b"aaaa", b"bc")] {
        let (set, (reader, writer)) = (Set::<B>::new(), nonblocking::<B>());
        set.add(&reader, IN, 1);
        assert_eq!(writer.write(first), Ok(4));
        assert_eq!(writer.write(second), Ok(2));
        assert_eq!(read(&reader, 3), Ok(first[..3].to_vec()));
        drop(writer);
        assert_eq!(set.ready(), [(1, IN | HUP)]);
        let same = reader.dup();
        assert_eq!(set.ready(), [(1, IN | HUP)]);
        assert_eq!(B::bytes_in(same.as_raw_fd()), Ok(3));
        assert_eq!(read(&same, 9), Ok([&first[3..], second].concat()));
        assert_eq!(read(&reader, 9), Ok(vec![]));
        assert_eq!(set.ready(), [(1, HUP)]);
    }
}

pub(super) fn the_number_of_a_closed_end_is_another_pipes<B: Streams>() {
    for round in 0..50 {
        let (one, other) = (nonblocking::<B>(), nonblocking::<B>());
        let (reader, writer) = one;
        assert_eq!(writer.write(b"left"), Ok(4));
        let left = if round % 2 == 0 {
            drop(writer);
            let (next, next_writer) = nonblocking::<B>();
            assert_eq!(next_writer.write(b"next"), Ok(4));
            assert_eq!(read(&reader, 9), Ok(b"left".to_vec()));
            assert_eq!(read(&reader, 9), Ok(vec![]));
            assert_eq!(read(&next, 9), Ok(b"next".to_vec()));
            assert_eq!(read(&next, 9), Err(EAGAIN));
            reader
        } else {
            assert_eq!(read(&reader, 9), Ok(b"left".to_vec()));
            drop(reader);
            let (next, next_writer) = nonblocking::<B>();
            assert_eq!(writer.write(b"x"), Err(EPIPE));
            assert_eq!(next_writer.write(b"next"), Ok(4));
            assert_eq!(read(&next, 9), Ok(b"next".to_vec()));
            writer
        };
        drop(other);
        drop(left);
    }
}

pub(super) fn writable_without_a_reader_means_a_free_page<B: Streams>() {
    let (set, (reader, writer)) = (Set::<B>::new(), nonblocking::<B>());
    set.add(&writer, OUT, 1);
    fill(&writer, 1);
    assert_eq!(set.ready(), []);
    drop(reader);
    assert_eq!(set.ready(), [(1, ERR)]);
    assert_eq!(B::bytes_in(writer.as_raw_fd()), Ok(65_536));
}
