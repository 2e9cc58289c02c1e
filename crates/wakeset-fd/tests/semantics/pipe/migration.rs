//! Pipes that migrate into the kernel, and numbers that are used again.

use super::*;

pub(super) fn a_move_keeps_how_pages_are_filled<B: Streams>() {
    for (first, taken, second) in
        [(4095, 4094, 1), (3000, 2999, 700), (1, 0, 0), (4096, 4000, 96), (4090, 6, 6)]
    {
        for byte in [7, 8] {
            let (reader, writer) = nonblocking::<B>();
            write_in_parts(&writer, &vec![7; first]);
            assert_eq!(read(&reader, taken).map(|bytes| bytes.len()), Ok(taken));
            write_in_parts(&writer, &vec![byte; second]);
            let _same = reader.dup();
            let there = first - taken + second;
            assert_eq!(B::bytes_in(reader.as_raw_fd()), Ok(there as c_int));
            let expected = {
                let (reader, writer) = nonblocking::<Kernel>();
                writer.write(&vec![7; first]).unwrap();
                read(&reader, taken).unwrap();
                writer.write(&vec![byte; second]).unwrap();
                fill(&writer, 3)
            };
            assert_eq!(fill(&writer, 3), expected, "{first} {taken} {second}");
            assert_eq!(read(&reader, 70_000).map(|bytes| bytes.len()), Ok(there + expected));
        }
    }
}

pub(super) fn a_waiter_hears_of_a_write_after_a_move<B: Streams>() {
    let (set, (reader, writer)) = (Set::<B>::new(), nonblocking::<B>());
    set.add(&reader, IN | ET, 1);
    let waiter = set.clone();
    let task = Task::asleep(move || waiter.wait(4, -1));
    let same = writer.dup();
    assert_eq!(same.write(b"x"), Ok(1));
    assert_eq!(task.join(), Ok(vec![(1, IN)]));
    assert_eq!(read(&reader, 9), Ok(b"x".to_vec()));
}

/// Threads write values that name the writer, and a loop reads them all.
pub(super) fn pump<B: Streams>(events: u32, disturb: impl FnOnce(&Fd<B>, &Fd<B>)) {
    const WRITERS: usize = 3;
    const EACH: usize = 3000;
    let (set, (reader, writer)) = (Set::<B>::new(), nonblocking::<B>());
    set.add(&reader, events, 1);
    let tasks: Vec<_> = (0..WRITERS)
        .map(|i| {
            let writer = writer.clone();
            Task::start(move || {
                for n in 0..EACH {
                    let bytes = vec![(i << 4) as u8 | (n & 15) as u8; 1 + (n / 100 % 2) * (n % 3)];
                    while let Err(error) = writer.write(&bytes) {
                        assert_eq!(error, EAGAIN);
                        std::thread::yield_now();
                    }
                }
            })
        })
        .collect();
    let expected: usize = (0..EACH).map(|n| 1 + (n / 100 % 2) * (n % 3)).sum::<usize>() * WRITERS;
    let loop_set = set.clone();
    let loop_reader = reader.clone();
    let reading = Task::start(move || {
        let mut bytes = Vec::new();
        while bytes.len() < expected {
            assert_eq!(loop_set.next(), (1, IN));
            loop {
                match read(&loop_reader, 50) {
                    Ok(more) => bytes.extend(more),
                    Err(error) => {
                        assert_eq!(error, EAGAIN);
                        break;
                    }
                }
            }
        }
        bytes
    });
    disturb(&reader, &writer);
    tasks.into_iter().for_each(Task::join);
    let bytes = reading.join();
    for i in 0..WRITERS {
        let from: Vec<u8> = bytes
            .iter()
            .filter(|byte| usize::from(**byte) >> 4 == i)
            .map(|byte| byte & 15)
            .collect();
        let written: Vec<u8> =
            (0..EACH).flat_map(|n| vec![(n & 15) as u8; 1 + (n / 100 % 2) * (n % 3)]).collect();
        assert!(from == written, "what writer {i} wrote is not what was read of it");
    }
}

pub(super) fn nothing_is_lost_between_threads<B: Streams>() {
    for events in [IN, IN | ET] {
        pump::<B>(events, |_, _| {});
    }
}

pub(super) fn nothing_is_lost_while_it_moves<B: Streams>() {
    for (i, events) in [IN, IN | ET].into_iter().cycle().take(20).enumerate() {
        pump::<B>(events, |reader, writer| {
            std::thread::sleep(std::time::Duration::from_micros(i as u64 * 40));
            drop(if i % 4 < 2 { reader.dup() } else { writer.dup() });
        });
    }
}

pub(super) fn numbers_are_used_again<B: Streams>() {
    let set = Set::<B>::new();
    for i in 0..200 {
        let (reader, writer) = nonblocking::<B>();
        let kept = (i % 3 == 0).then(nonblocking::<B>);
        set.add(&reader, IN, i);
        assert_eq!(writer.write(b"xy"), Ok(2));
        assert_eq!(set.ready(), [(i, IN)]);
        if i % 2 == 0 {
            drop(reader);
        } else {
            drop(writer);
            assert_eq!(set.ready(), [(i, IN | HUP)]);
        }
        drop(kept);
    }
    assert_eq!(set.ready(), []);
}
