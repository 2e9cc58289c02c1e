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
