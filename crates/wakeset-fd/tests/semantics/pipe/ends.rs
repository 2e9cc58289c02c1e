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
