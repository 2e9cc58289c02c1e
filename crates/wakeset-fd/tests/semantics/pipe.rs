//! Pipes: pipe(7) and pipe(2).

use crate::backend::{Kernel, Streams, Wakeset};
use crate::objects::{ERR, ET, EXCLUSIVE, Fd, HUP, IN, ONESHOT, OUT, Pipe, RDNORM, Set, WRNORM, own_pair};
use crate::signals;
use crate::task::{Task, ended};
use libc::{EAGAIN, EBADF, EFAULT, EINTR, EINVAL, EPIPE, O_NONBLOCK, c_int};
use std::os::fd::AsRawFd;
use std::ptr;

on_both!(
    bytes_come_out_in_order,
    an_empty_one_would_block,
    holds_65536_bytes_written_one_by_one,
    writable_means_a_free_page,
    a_short_write_goes_on_in_the_last_page_or_begins_another,
    a_long_write_takes_what_there_is_room_for,
    writes_up_to_pipe_buf_are_in_one_piece,
    each_write_is_an_edge,
    only_a_read_of_a_full_one_is_an_edge_to_the_writer,
    reports_what_it_was_asked_for,
    one_of_two_exclusive_sets_is_woken,
    a_oneshot_watch_reports_once,
    fionread_says_how_much_is_there,
    each_end_is_for_one_direction,
    unknown_flags_are_refused,
    the_last_writer_leaves_what_it_wrote_and_an_end,
    a_hang_up_reaches_a_watch,
    without_a_reader_a_write_fails,
    an_error_reaches_the_writers_watch,
    a_blocked_read_waits_for_a_write,
    a_blocked_read_ends_with_the_last_writer,
    a_blocked_write_waits_for_a_read,
    one_write_lets_one_reader_go,
    a_signal_interrupts_a_read,
    a_restarting_signal_does_not,
    nonblocking_can_be_turned_on_and_off,
    nothing_to_read_or_write_is_nothing,
    bad_addresses_are_efault,
    what_cannot_be_stored_stays,
    a_duplicate_is_the_same_pipe,
    a_move_keeps_how_pages_are_filled,
    a_waiter_hears_of_a_write_after_a_move,
    nothing_is_lost_between_threads,
    nothing_is_lost_while_it_moves,
    numbers_are_used_again,
);

fn pipe<B: Streams>(flags: c_int) -> Pipe<B> {
    own_pair(B::pipe2(flags | libc::O_CLOEXEC))
}

fn nonblocking<B: Streams>() -> Pipe<B> {
    pipe(O_NONBLOCK)
}

/// A read of up to `most` bytes.
fn read<B: Streams>(fd: &Fd<B>, most: usize) -> Result<Vec<u8>, c_int> {
    let mut bytes = vec![0; most];
    let n = fd.read(&mut bytes)?;
    bytes.truncate(n);
    Ok(bytes)
}

/// Writes of `len` bytes until one would block; how many.
fn fill<B: Streams>(writer: &Fd<B>, len: usize) -> usize {
    let bytes = vec![7; len];
    let mut written = 0;
    loop {
        match writer.write(&bytes) {
            Ok(n) => written += n,
            Err(error) => {
                assert_eq!(error, EAGAIN);
                return written;
            }
        }
    }
}

fn bytes_come_out_in_order<B: Streams>() {
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

fn an_empty_one_would_block<B: Streams>() {
    let (reader, writer) = nonblocking::<B>();
    assert_eq!(read(&reader, 1), Err(EAGAIN));
    assert_eq!(writer.write(b"x"), Ok(1));
    assert_eq!(read(&reader, 7), Ok(b"x".to_vec()));
    assert_eq!(read(&reader, 1), Err(EAGAIN));
}

fn holds_65536_bytes_written_one_by_one<B: Streams>() {
    let (reader, writer) = nonblocking::<B>();
    assert_eq!(fill(&writer, 1), 65536);
    assert_eq!(writer.write(b"y"), Err(EAGAIN));
    // Room comes by pages.
    assert_eq!(read(&reader, 4095).map(|bytes| bytes.len()), Ok(4095));
    assert_eq!(writer.write(b"x"), Err(EAGAIN));
    assert_eq!(read(&reader, 1).map(|bytes| bytes.len()), Ok(1));
    assert_eq!(fill(&writer, 1), 4096);
    assert_eq!(read(&reader, 100_000).map(|bytes| bytes.len()), Ok(65536));
    assert_eq!(read(&reader, 1), Err(EAGAIN));
}

fn writable_means_a_free_page<B: Streams>() {
    let (set, (reader, writer)) = (Set::<B>::new(), nonblocking::<B>());
    set.add(&writer, OUT, 1);
    for _ in 0..15 * 4096 {
        assert_eq!(writer.write(b"x"), Ok(1));
    }
    assert_eq!(set.ready(), [(1, OUT)]);
    // The last page has room, and the pipe is not writable all the same.
    assert_eq!(writer.write(b"x"), Ok(1));
    assert_eq!(set.ready(), []);
    assert_eq!(writer.write(b"x"), Ok(1));
    assert_eq!(read(&reader, 4095).map(|bytes| bytes.len()), Ok(4095));
    assert_eq!(set.ready(), []);
    assert_eq!(read(&reader, 1).map(|bytes| bytes.len()), Ok(1));
    assert_eq!(set.ready(), [(1, OUT)]);
}

/// In writes so short that an in-process pipe stays one.
fn write_in_parts<B: Streams>(writer: &Fd<B>, bytes: &[u8]) {
    assert!(bytes.chunks(512).all(|part| writer.write(part) == Ok(part.len())));
}

fn a_short_write_goes_on_in_the_last_page_or_begins_another<B: Streams>() {
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

fn a_long_write_takes_what_there_is_room_for<B: Streams>() {
    let (reader, writer) = nonblocking::<B>();
    assert_eq!(writer.write(b"x"), Ok(1));
    assert_eq!(writer.write(&[2; 70_000]), Ok(65536 - 4096 + 70_000 % 4096));
    assert_eq!(writer.write(b"x"), Err(EAGAIN));
    assert_eq!(read(&reader, 2), Ok(vec![b'x', 2]));
}

fn writes_up_to_pipe_buf_are_in_one_piece<B: Streams>() {
    // All in process, and mixed with what moves the pipe.
    in_one_piece::<B>([17, 100, 300, 512]);
    in_one_piece::<B>([17, 100, 1000, 4096]);
}

fn in_one_piece<B: Streams>(lens: [usize; 4]) {
    let (reader, writer) = pipe::<B>(0);
    const ROUNDS: usize = 200;
    let writers: Vec<_> = (0..lens.len())
        .map(|i| {
            let writer = writer.clone();
            Task::start(move || (0..ROUNDS).all(|_| writer.write(&vec![i as u8; lens[i]]) == Ok(lens[i])))
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

fn each_write_is_an_edge<B: Streams>() {
    let (set, (reader, writer)) = (Set::<B>::new(), nonblocking::<B>());
    set.add(&reader, IN | ET, 1);
    assert_eq!(set.ready(), []);
    for bytes in [&b"x"[..], b"x", b"y", b"long enough for two nodes of which each has room for fifty-six bytes"] {
        assert_eq!(writer.write(bytes), Ok(bytes.len()));
        assert_eq!(set.ready(), [(1, IN)]);
        assert_eq!(set.ready(), []);
    }
    // A read that leaves something is none.
    assert_eq!(read(&reader, 1), Ok(b"x".to_vec()));
    assert_eq!(set.ready(), []);
    assert!(read(&reader, 1000).is_ok());
    assert_eq!(set.ready(), []);
}

fn only_a_read_of_a_full_one_is_an_edge_to_the_writer<B: Streams>() {
    let (set, (reader, writer)) = (Set::<B>::new(), nonblocking::<B>());
    set.add(&writer, OUT | ET, 1);
    assert_eq!(set.ready(), [(1, OUT)]);
    assert_eq!(writer.write(b"xy"), Ok(2));
    assert_eq!(read(&reader, 1), Ok(b"x".to_vec()));
    assert_eq!(set.ready(), []);
    assert_eq!(fill(&writer, 1), 65535 - 1);
    assert_eq!(set.ready(), []);
    assert_eq!(read(&reader, 2000).map(|bytes| bytes.len()), Ok(2000));
    assert_eq!(set.ready(), []);
    assert_eq!(read(&reader, 2096).map(|bytes| bytes.len()), Ok(2096));
    assert_eq!(set.ready(), [(1, OUT)]);
    assert_eq!(read(&reader, 4096).map(|bytes| bytes.len()), Ok(4096));
    assert_eq!(set.ready(), []);
}

fn reports_what_it_was_asked_for<B: Streams>() {
    let (set, (reader, writer)) = (Set::<B>::new(), nonblocking::<B>());
    set.add(&reader, IN | OUT | RDNORM | WRNORM, 1);
    set.add(&writer, IN | OUT | RDNORM | WRNORM, 2);
    assert_eq!(set.ready(), [(2, OUT | WRNORM)]);
    assert_eq!(writer.write(b"x"), Ok(1));
    let mut ready = set.ready();
    ready.sort_unstable();
    assert_eq!(ready, [(1, IN | RDNORM), (2, OUT | WRNORM)]);
    set.modify(&reader, RDNORM | ET, 1);
    set.remove(&writer);
    assert_eq!(set.ready(), [(1, RDNORM)]);
    assert_eq!(writer.write(b"x"), Ok(1));
    assert_eq!(set.ready(), [(1, RDNORM)]);
    set.modify(&reader, OUT | ET, 1);
    assert_eq!(writer.write(b"x"), Ok(1));
    assert_eq!(set.ready(), []);
}

fn one_of_two_exclusive_sets_is_woken<B: Streams>() {
    let (sets, (reader, writer)) = ([Set::<B>::new(), Set::new()], nonblocking::<B>());
    let tasks: Vec<_> = (0..2)
        .map(|i| {
            sets[i].add(&reader, IN | EXCLUSIVE, i as u64);
            let set = sets[i].clone();
            Task::asleep(move || set.wait(1, -1))
        })
        .collect();
    assert_eq!(writer.write(b"x"), Ok(1));
    assert_eq!(ended(&tasks, 1), 1);
    assert_eq!(writer.write(b"x"), Ok(1));
    for task in tasks {
        assert_eq!(task.join().map(|events| events[0].1), Ok(IN));
    }
}

fn a_oneshot_watch_reports_once<B: Streams>() {
    let (set, (reader, writer)) = (Set::<B>::new(), nonblocking::<B>());
    set.add(&reader, IN | ONESHOT, 1);
    assert_eq!(writer.write(b"x"), Ok(1));
    assert_eq!(set.ready(), [(1, IN)]);
    assert_eq!(writer.write(b"x"), Ok(1));
    assert_eq!(set.ready(), []);
    set.modify(&reader, IN | ONESHOT, 2);
    assert_eq!(set.ready(), [(2, IN)]);
}

fn fionread_says_how_much_is_there<B: Streams>() {
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

fn each_end_is_for_one_direction<B: Streams>() {
    let (reader, writer) = nonblocking::<B>();
    assert_eq!(reader.write(b"x"), Err(EBADF));
    assert_eq!(read(&writer, 1), Err(EBADF));
    assert_eq!(writer.write(b"x"), Ok(1));
    assert_eq!(reader.write(b"xyz"), Err(EBADF));
    assert_eq!(read(&reader, 2), Ok(b"x".to_vec()));
}

fn unknown_flags_are_refused<B: Streams>() {
    for flags in [1, 2, libc::O_APPEND, -1] {
        assert_eq!(B::pipe2(flags), Err(EINVAL), "{flags:#x}");
    }
}

fn the_last_writer_leaves_what_it_wrote_and_an_end<B: Streams>() {
    let (reader, writer) = nonblocking::<B>();
    assert_eq!(writer.write(b"xyz"), Ok(3));
    drop(writer);
    assert_eq!(read(&reader, 2), Ok(b"xy".to_vec()));
    assert_eq!(B::bytes_in(reader.as_raw_fd()), Ok(1));
    assert_eq!(read(&reader, 2), Ok(b"z".to_vec()));
    assert_eq!(read(&reader, 2), Ok(vec![]));
    assert_eq!(read(&reader, 2), Ok(vec![]));
}

fn a_hang_up_reaches_a_watch<B: Streams>() {
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
    // It wakes who sleeps, in two sets as in one.
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

fn without_a_reader_a_write_fails<B: Streams>() {
    let (reader, writer) = nonblocking::<B>();
    assert_eq!(writer.write(b"x"), Ok(1));
    drop(reader);
    // SIGPIPE is ignored in this program.
    assert_eq!(writer.write(b"x"), Err(EPIPE));
    assert_eq!(writer.write(b""), Ok(0));
}

fn an_error_reaches_the_writers_watch<B: Streams>() {
    let (set, (reader, writer)) = (Set::<B>::new(), nonblocking::<B>());
    set.add(&writer, OUT | ET, 1);
    assert_eq!(set.ready(), [(1, OUT)]);
    drop(reader);
    assert_eq!(set.ready(), [(1, OUT | ERR)]);
    set.modify(&writer, 0, 2);
    assert_eq!(set.ready(), [(2, ERR)]);
}

fn a_blocked_read_waits_for_a_write<B: Streams>() {
    let (reader, writer) = pipe::<B>(0);
    for bytes in [&b"x"[..], b"several bytes"] {
        let reader = reader.clone();
        let task = Task::asleep(move || read(&reader, 100));
        assert_eq!(writer.write(bytes), Ok(bytes.len()));
        assert_eq!(task.join(), Ok(bytes.to_vec()));
    }
}

fn a_blocked_read_ends_with_the_last_writer<B: Streams>() {
    let (reader, writer) = pipe::<B>(0);
    let task = Task::asleep(move || read(&reader, 100));
    drop(writer);
    assert_eq!(task.join(), Ok(vec![]));
}

fn a_blocked_write_waits_for_a_read<B: Streams>() {
    let (reader, writer) = pipe::<B>(0);
    B::set_nonblocking(writer.as_raw_fd(), true).unwrap();
    assert_eq!(fill(&writer, 1), 65536);
    B::set_nonblocking(writer.as_raw_fd(), false).unwrap();
    let task = Task::asleep(move || writer.write(b"yz"));
    assert_eq!(read(&reader, 4096).map(|bytes| bytes.len()), Ok(4096));
    assert_eq!(task.join(), Ok(2));
    assert_eq!(read(&reader, 70_000).map(|bytes| bytes[61_438..].to_vec()), Ok(vec![7, 7, b'y', b'z']));
}

fn one_write_lets_one_reader_go<B: Streams>() {
    let (reader, writer) = pipe::<B>(0);
    let tasks: Vec<_> = (0..3)
        .map(|_| {
            let reader = reader.clone();
            Task::asleep(move || read(&reader, 2))
        })
        .collect();
    assert_eq!(writer.write(b"x"), Ok(1));
    assert_eq!(ended(&tasks, 1), 1);
    // What the first leaves is the next one's.
    assert_eq!(writer.write(b"xyz"), Ok(3));
    let mut read: Vec<_> = tasks.into_iter().map(|task| task.join().unwrap()).collect();
    read.sort_unstable();
    assert_eq!(read, [b"x".to_vec(), b"xy".to_vec(), b"z".to_vec()]);
}

fn a_signal_interrupts_a_read<B: Streams>() {
    signals::install();
    let (reader, writer) = pipe::<B>(0);
    let task = Task::asleep({
        let reader = reader.clone();
        move || read(&reader, 1)
    });
    while !task.has_ended() {
        task.signal(signals::PLAIN);
        task.until_asleep();
    }
    assert_eq!(task.join(), Err(EINTR));
    assert_eq!(writer.write(b"x"), Ok(1));
    assert_eq!(read(&reader, 1), Ok(b"x".to_vec()));
}

fn a_restarting_signal_does_not<B: Streams>() {
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

fn nonblocking_can_be_turned_on_and_off<B: Streams>() {
    let (reader, writer) = pipe::<B>(0);
    B::set_nonblocking(reader.as_raw_fd(), true).unwrap();
    assert_eq!(read(&reader, 1), Err(EAGAIN));
    B::set_nonblocking(reader.as_raw_fd(), false).unwrap();
    let task = Task::asleep(move || read(&reader, 1));
    assert_eq!(writer.write(b"x"), Ok(1));
    assert_eq!(task.join(), Ok(b"x".to_vec()));
}

fn nothing_to_read_or_write_is_nothing<B: Streams>() {
    let (reader, writer) = pipe::<B>(0);
    assert_eq!(writer.write(b""), Ok(0));
    assert_eq!(read(&reader, 0), Ok(vec![]));
    assert_eq!(writer.write(b"x"), Ok(1));
    assert_eq!(read(&reader, 0), Ok(vec![]));
    assert_eq!(read(&reader, 1), Ok(b"x".to_vec()));
}

fn bad_addresses_are_efault<B: Streams>() {
    let bad: *mut u8 = ptr::without_provenance_mut(8);
    for len in [1, 2, 100, 5000] {
        let (reader, writer) = nonblocking::<B>();
        // SAFETY: addresses that cannot be reached.
        unsafe {
            assert_eq!(B::write(writer.as_raw_fd(), bad, len), Err(EFAULT));
            assert_eq!(B::write(writer.as_raw_fd(), ptr::without_provenance(usize::MAX - 9), len), Err(EFAULT));
            assert_eq!(B::read(reader.as_raw_fd(), bad, len), Err(EAGAIN));
            assert_eq!(writer.write(b"xy"), Ok(2));
            assert_eq!(B::read(reader.as_raw_fd(), bad, len), Err(EFAULT));
        }
        assert_eq!(read(&reader, 3), Ok(b"xy".to_vec()));
    }
}

/// A page that can be read and written, and behind it one that cannot be reached.
fn edge_of_memory() -> *mut u8 {
    // SAFETY: fresh memory, of which the second page is given back.
    unsafe {
        let (all, private) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let place = libc::mmap(ptr::null_mut(), 8192, all, private, -1, 0);
        assert_ne!(place, libc::MAP_FAILED);
        assert_eq!(libc::mprotect(place.byte_add(4096), 4096, libc::PROT_NONE), 0);
        place.cast::<u8>().add(4096)
    }
}

fn what_cannot_be_stored_stays<B: Streams>() {
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

fn a_duplicate_is_the_same_pipe<B: Streams>() {
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

fn a_move_keeps_how_pages_are_filled<B: Streams>() {
    for (first, taken, second) in [(4095, 4094, 1), (3000, 2999, 700), (1, 0, 0), (4096, 4000, 96), (4090, 6, 6)] {
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

fn a_waiter_hears_of_a_write_after_a_move<B: Streams>() {
    let (set, (reader, writer)) = (Set::<B>::new(), nonblocking::<B>());
    set.add(&reader, IN | ET, 1);
    let waiter = set.clone();
    let task = Task::asleep(move || waiter.wait(4, -1));
    let same = writer.dup();
    assert_eq!(same.write(b"x"), Ok(1));
    assert_eq!(task.join(), Ok(vec![(1, IN)]));
    assert_eq!(read(&reader, 9), Ok(b"x".to_vec()));
}

/// Threads that write what says who wrote it, and a loop that reads it all.
fn pump<B: Streams>(events: u32, disturb: impl FnOnce(&Fd<B>, &Fd<B>)) {
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
        let from: Vec<u8> = bytes.iter().filter(|byte| usize::from(**byte) >> 4 == i).map(|byte| byte & 15).collect();
        let written: Vec<u8> = (0..EACH).flat_map(|n| vec![(n & 15) as u8; 1 + (n / 100 % 2) * (n % 3)]).collect();
        assert!(from == written, "what writer {i} wrote is not what was read of it");
    }
}

fn nothing_is_lost_between_threads<B: Streams>() {
    for events in [IN, IN | ET] {
        pump::<B>(events, |_, _| {});
    }
}

fn nothing_is_lost_while_it_moves<B: Streams>() {
    for (i, events) in [IN, IN | ET].into_iter().cycle().take(20).enumerate() {
        pump::<B>(events, |reader, writer| {
            std::thread::sleep(std::time::Duration::from_micros(i as u64 * 40));
            drop(if i % 4 < 2 { reader.dup() } else { writer.dup() });
        });
    }
}

fn numbers_are_used_again<B: Streams>() {
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

/// A random walk on both worlds at once: whatever one says, the other says as well.
#[test]
fn both_worlds_agree() {
    let mut seed = 0x853c_49e6_748f_ea9b_u64;
    let mut random = move |n: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % n
    };
    struct World<B: Streams> {
        set: Set<B>,
        reader: Fd<B>,
        writer: Fd<B>,
        same: Option<Fd<B>>,
    }
    impl<B: Streams> World<B> {
        fn new(events: u32) -> Self {
            let (set, (reader, writer)) = (Set::new(), nonblocking());
            set.add(&reader, IN | events, 1);
            set.add(&writer, OUT | events, 2);
            Self { set, reader, writer, same: None }
        }

        fn step(&mut self, what: usize, len: usize, byte: u8) -> String {
            match what {
                0..10 => format!("{:?}", self.writer.write(&vec![byte; len])),
                10..12 => {
                    let bytes: Vec<u8> = (0..len).map(|i| byte.wrapping_add(i as u8)).collect();
                    format!("{:?}", self.writer.write(&bytes))
                }
                12..18 => format!("{:?}", read(&self.reader, len)),
                18 => format!("{:?}", read(&self.reader, 100_000)),
                19 => format!("{:?}", B::bytes_in(self.reader.as_raw_fd())),
                20 => {
                    self.same = Some(self.writer.dup());
                    String::new()
                }
                _ => {
                    let mut ready = self.set.ready();
                    ready.sort_unstable();
                    format!("{ready:?}")
                }
            }
        }
    }
    for round in 0..300 {
        // An edge that moves may be told of twice: then the round is over.
        let (events, moves) = if round % 2 == 0 { (ET, 0) } else { (0, round % 4 / 2) };
        let (mut kernel, mut wakeset) = (World::<Kernel>::new(events), World::<Wakeset>::new(events));
        let sizes: &[usize] = [
            &[1, 1, 1, 1, 2, 7][..],
            &[8, 64, 512],
            &[1, 100, 512, 511],
            &[8, 64, 512, 4096],
            &[1, 8, 100, 1000, 3000, 5000],
            &[1, 4095, 4096, 2],
        ][random(6)];
        let mut told = Vec::new();
        for _ in 0..random(600) {
            let (len, byte) = (sizes[random(sizes.len())], random(2) as u8);
            let what = match random(26) {
                20 if moves == 0 || random(20) != 0 => 21,
                what => what,
            };
            let [one, other] = [kernel.step(what, len, byte), wakeset.step(what, len, byte)];
            told.push((what, len, byte));
            assert_eq!(one, other, "round {round}: {told:?}");
            if events == ET && !wakeset_fd::descriptor::is_in_process(wakeset.reader.as_raw_fd()) {
                break;
            }
        }
    }
}
