//! Calls that sleep.

use super::*;

pub(super) fn a_blocked_read_waits_for_a_write<B: Streams>() {
    let (reader, writer) = pipe::<B>(0);
    for bytes in [&b"x"[..], b"several bytes"] {
        let reader = reader.clone();
        let task = Task::asleep(move || read(&reader, 100));
        assert_eq!(writer.write(bytes), Ok(bytes.len()));
        assert_eq!(task.join(), Ok(bytes.to_vec()));
    }
}

pub(super) fn a_blocked_read_ends_with_the_last_writer<B: Streams>() {
    let (reader, writer) = pipe::<B>(0);
    let task = Task::asleep(move || read(&reader, 100));
    drop(writer);
    assert_eq!(task.join(), Ok(vec![]));
}

pub(super) fn a_blocked_write_waits_for_a_read<B: Streams>() {
    let (reader, writer) = pipe::<B>(0);
    B::set_nonblocking(writer.as_raw_fd(), true).unwrap();
    assert_eq!(fill(&writer, 1), 65536);
    B::set_nonblocking(writer.as_raw_fd(), false).unwrap();
    let task = Task::asleep(move || writer.write(b"yz"));
    assert_eq!(read(&reader, 4096).map(|bytes| bytes.len()), Ok(4096));
    assert_eq!(task.join(), Ok(2));
    assert_eq!(
        read(&reader, 70_000).map(|bytes| bytes[61_438..].to_vec()),
        Ok(vec![7, 7, b'y', b'z'])
    );
}

/// A pipe that is full: the next write waits.
fn full<B: Streams>() -> Pipe<B> {
    let (reader, writer) = pipe::<B>(0);
    B::set_nonblocking(writer.as_raw_fd(), true).unwrap();
    assert_eq!(fill(&writer, 1), 65536);
    B::set_nonblocking(writer.as_raw_fd(), false).unwrap();
    (reader, writer)
}

pub(super) fn one_page_lets_one_writer_go<B: Streams>() {
    let (reader, writer) = full::<B>();
    let tasks: Vec<_> = (0..3)
        .map(|_| {
            let writer = writer.clone();
            Task::asleep(move || writer.write(&[1; 512]))
        })
        .collect();
    assert_eq!(read(&reader, 4096).map(|bytes| bytes.len()), Ok(4096));
    assert_eq!(ended(&tasks, 1), 1);
    // Room for both, made by one read.
    assert_eq!(read(&reader, 8192).map(|bytes| bytes.len()), Ok(8192));
    for task in tasks {
        assert_eq!(task.join(), Ok(512));
    }
    let left = 65536 - 3 * 4096;
    let bytes = read(&reader, 70_000).unwrap();
    assert!(bytes.len() == left + 3 * 512 && bytes[left..].iter().all(|byte| *byte == 1));
}

pub(super) fn a_signal_interrupts_a_write<B: Streams>() {
    signals::install();
    let (reader, writer) = full::<B>();
    let task = Task::asleep({
        let writer = writer.clone();
        move || writer.write(b"y")
    });
    assert_eq!(task.interrupt(signals::PLAIN), Err(EINTR));
    assert_eq!(read(&reader, 70_000), Ok(vec![7; 65536]));
    assert_eq!(writer.write(b"x"), Ok(1));
}

pub(super) fn a_restarting_signal_does_not_end_a_write<B: Streams>() {
    signals::install();
    let (reader, writer) = full::<B>();
    let task = Task::asleep(move || (writer.write(b"xy"), signals::handled()));
    for _ in 0..20 {
        task.signal(signals::RESTARTING);
        task.until_asleep();
    }
    assert_eq!(read(&reader, 70_000), Ok(vec![7; 65536]));
    let (written, handled) = task.join();
    assert_eq!(written, Ok(2));
    assert!(handled > 0);
    assert_eq!(read(&reader, 9), Ok(b"xy".to_vec()));
}

pub(super) fn a_blocked_write_ends_with_the_last_reader<B: Streams>() {
    let (reader, writer) = full::<B>();
    let task = Task::asleep(move || writer.write(b"xy"));
    drop(reader);
    // SIGPIPE is ignored in this program.
    assert_eq!(task.join(), Err(EPIPE));
}

/// Each writer fills the pipe and waits, so that no edge and no wake may be lost on either side.
pub(super) fn writers_that_wait_lose_nothing<B: Streams>() {
    const EACH: usize = 40_000;
    let (reader, writer) = pipe::<B>(0);
    B::set_nonblocking(reader.as_raw_fd(), true).unwrap();
    let set = Set::<B>::new();
    set.add(&reader, IN | ET, 1);
    let tasks: Vec<_> = (0..3_u8)
        .map(|who| {
            let writer = writer.clone();
            Task::start(move || (0..EACH / 4).all(|_| writer.write(&[who; 4]) == Ok(4)))
        })
        .collect();
    let mut bytes = Vec::new();
    while bytes.len() < 3 * EACH {
        assert_eq!(set.next().0, 1);
        while let Ok(more) = read(&reader, 3000) {
            bytes.extend(more);
        }
    }
    assert!(tasks.into_iter().all(Task::join));
    assert!(bytes.chunks(4).all(|part| part == [part[0]; 4]));
    assert!((0..3).all(|who| bytes.iter().filter(|byte| **byte == who).count() == EACH));
}

pub(super) fn one_write_lets_one_reader_go<B: Streams>() {
    let (reader, writer) = pipe::<B>(0);
    let tasks: Vec<_> = (0..3)
        .map(|_| {
            let reader = reader.clone();
            Task::asleep(move || read(&reader, 2))
        })
        .collect();
    assert_eq!(writer.write(b"x"), Ok(1));
    assert_eq!(ended(&tasks, 1), 1);
    // The next reader gets what the first one leaves.
    assert_eq!(writer.write(b"xyz"), Ok(3));
    let mut read: Vec<_> = tasks.into_iter().map(|task| task.join().unwrap()).collect();
    read.sort_unstable();
    assert_eq!(read, [b"x".to_vec(), b"xy".to_vec(), b"z".to_vec()]);
}

pub(super) fn a_signal_interrupts_a_read<B: Streams>() {
    signals::install();
    let (reader, writer) = pipe::<B>(0);
    let task = Task::asleep({
        let reader = reader.clone();
        move || read(&reader, 1)
    });
    assert_eq!(task.interrupt(signals::PLAIN), Err(EINTR));
    assert_eq!(writer.write(b"x"), Ok(1));
    assert_eq!(read(&reader, 1), Ok(b"x".to_vec()));
}

pub(super) fn a_restarting_signal_does_not<B: Streams>() {
    signals::install();
    let (reader, writer) = pipe::<B>(0);
    let task = Task::asleep(move || (read(&reader, 1), signals::handled()));
    for _ in 0..20 {
        task.signal(signals::RESTARTING);
        task.until_asleep();
    }
    assert_eq!(writer.write(b"x"), Ok(1));
    let (read, handled) = task.join();
    assert_eq!(read, Ok(b"x".to_vec()));
    assert!(handled > 0);
}
