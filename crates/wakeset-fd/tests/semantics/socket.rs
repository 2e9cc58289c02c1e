//! Pairs of stream sockets: socketpair(2), unix(7), send(2), recv(2).

mod closed;
mod messages;
mod shut;

use crate::backend::{Errno, Kernel, Streams, Wakeset};
use crate::objects::{
    ET, Fd, HUP, IN, ONESHOT, OUT, Pipe, RDHUP, RDNORM, Set, WRBAND, WRNORM, own_pair,
};
use crate::task::{Task, ended};
use closed::*;
use libc::{
    EAGAIN, ECONNRESET, EPIPE, MSG_DONTWAIT, MSG_NOSIGNAL, MSG_PEEK, MSG_WAITALL, SHUT_RD,
    SHUT_RDWR, SHUT_WR, SOCK_NONBLOCK, c_int,
};
use messages::*;
use shut::*;
use std::os::fd::AsRawFd;

on_both!(
    each_end_reads_what_the_other_writes,
    an_empty_one_would_block,
    messages_run_into_one_another,
    holds_as_many_messages_as_the_kernel_counts,
    writable_means_at_most_a_quarter,
    each_message_is_an_edge,
    each_message_read_is_an_edge_to_the_writer,
    a_wait_reports_both_directions,
    fionread_says_how_much_can_be_read,
    flags_are_for_one_call,
    several_buffers_are_one_message,
    several_buffers_are_filled_in_order,
    a_blocked_read_fills_several_buffers,
    recvmsg_says_what_came,
    buffers_that_are_not_there_take_nothing,
    odd_vectors_are_refused,
    a_look_takes_nothing,
    waitall_waits_for_all,
    half_of_it_can_be_shut,
    a_shut_end_reaches_a_watch,
    each_shutdown_is_an_edge_to_both,
    a_shut_end_refuses_messages,
    what_was_left_at_a_shutdown_moves,
    a_blocked_read_ends_with_a_shutdown,
    a_shut_end_can_be_closed,
    odd_shutdowns_are_refused,
    a_closed_end_leaves_what_it_wrote,
    what_was_not_read_resets_the_other_end,
    a_closed_end_reaches_a_watch,
    a_closed_end_refuses_messages,
    what_a_closed_end_wrote_moves,
    a_blocked_read_waits_for_a_write,
    a_blocked_message_waits_for_room,
    a_blocked_message_ends_with_the_other_end,
    a_blocked_read_ends_with_the_other_end,
    one_write_lets_one_reader_go,
    a_duplicate_is_the_same_socket,
    a_move_keeps_how_messages_count,
    long_messages_pass,
    a_oneshot_watch_reports_once,
    threads_wake_a_loop,
);

fn sockets<B: Streams>(flags: c_int) -> Pipe<B> {
    own_pair(B::socketpair(flags | libc::SOCK_CLOEXEC))
}

fn nonblocking<B: Streams>() -> Pipe<B> {
    sockets(SOCK_NONBLOCK)
}

fn send<B: Streams>(fd: &Fd<B>, bytes: &[u8], flags: c_int) -> Result<usize, Errno> {
    // SAFETY: bytes of that length.
    unsafe { B::send(fd.as_raw_fd(), bytes.as_ptr(), bytes.len(), flags | MSG_NOSIGNAL) }
}

fn recv<B: Streams>(fd: &Fd<B>, most: usize, flags: c_int) -> Result<Vec<u8>, Errno> {
    let mut bytes = vec![0; most];
    // SAFETY: room for so many.
    let n = unsafe { B::recv(fd.as_raw_fd(), bytes.as_mut_ptr(), most, flags) }?;
    bytes.truncate(n);
    Ok(bytes)
}

/// Sends messages of `len` bytes until one would block; returns the number of messages.
fn fill<B: Streams>(fd: &Fd<B>, len: usize) -> usize {
    let bytes = vec![7; len];
    (0..).find(|_| send(fd, &bytes, MSG_DONTWAIT) != Ok(len)).unwrap()
}

fn each_end_reads_what_the_other_writes<B: Streams>() {
    let (one, other) = nonblocking::<B>();
    assert_eq!(send(&one, b"to the other", 0), Ok(12));
    assert_eq!(other.write(b"x"), Ok(1));
    assert_eq!(other.write(b"x"), Ok(1));
    assert_eq!(recv(&one, 100, 0), Ok(b"xx".to_vec()));
    let mut bytes = [0; 20];
    assert_eq!(other.read(&mut bytes), Ok(12));
    assert_eq!(&bytes[..12], b"to the other");
}

fn an_empty_one_would_block<B: Streams>() {
    let (one, other) = nonblocking::<B>();
    assert_eq!(recv(&one, 1, 0), Err(EAGAIN));
    assert_eq!(recv(&one, 0, 0), Err(EAGAIN));
    assert_eq!(one.read(&mut []), Ok(0));
    assert_eq!(send(&one, b"", 0), Ok(0));
    assert_eq!(recv(&other, 1, 0), Err(EAGAIN));
}

fn messages_run_into_one_another<B: Streams>() {
    let (one, other) = nonblocking::<B>();
    for bytes in [&b"a"[..], b"a", b"bcd", b"a", b"efg"] {
        assert_eq!(send(&one, bytes, 0), Ok(bytes.len()));
    }
    assert_eq!(recv(&other, 3, 0), Ok(b"aab".to_vec()));
    assert_eq!(recv(&other, 100, 0), Ok(b"cdaefg".to_vec()));
}

fn holds_as_many_messages_as_the_kernel_counts<B: Streams>() {
    for len in [1, 8, 56, 57, 192, 193, 400] {
        let (one, other) = nonblocking::<B>();
        let most = fill(&one, len);
        assert_eq!(most, fill(&nonblocking::<Kernel>().0, len), "{len}");
        // A message counts until all of it has been read.
        if len > 1 {
            assert_eq!(recv(&other, len - 1, 0).map(|bytes| bytes.len()), Ok(len - 1));
            assert_eq!(send(&one, b"x", 0), Err(EAGAIN));
        }
        assert_eq!(recv(&other, 1, 0).map(|bytes| bytes.len()), Ok(1));
        assert_eq!(send(&one, b"x", 0), Ok(1));
        assert_eq!(recv(&other, 1_000_000, 0).map(|bytes| bytes.len()), Ok((most - 1) * len + 1));
    }
}

fn writable_means_at_most_a_quarter<B: Streams>() {
    for len in [1, 30] {
        let (set, (one, other)) = (Set::<B>::new(), nonblocking::<B>());
        set.add(&one, OUT, 1);
        let most = (0..)
            .find(|_| set.ready().is_empty() || send(&one, &vec![1; len], 0) != Ok(len))
            .unwrap();
        let expected = {
            let (set, (one, _other)) = (Set::<Kernel>::new(), nonblocking::<Kernel>());
            set.add(&one, OUT, 1);
            (0..)
                .find(|_| set.ready().is_empty() || send(&one, &vec![1; len], 0) != Ok(len))
                .unwrap()
        };
        assert_eq!(most, expected);
        // One byte less of the first message is not one message less.
        if len > 1 {
            assert_eq!(recv(&other, len - 1, 0).map(|bytes| bytes.len()), Ok(len - 1));
            assert_eq!(set.ready(), []);
        }
        assert_eq!(recv(&other, 1, 0).map(|bytes| bytes.len()), Ok(1));
        assert_eq!(set.ready(), [(1, OUT)]);
    }
}

fn each_message_is_an_edge<B: Streams>() {
    let (set, (one, other)) = (Set::<B>::new(), nonblocking::<B>());
    set.add(&other, IN | ET, 1);
    for bytes in [&b"x"[..], b"x", b"yz", b"x"] {
        assert_eq!(send(&one, bytes, 0), Ok(bytes.len()));
        assert_eq!(set.ready(), [(1, IN)]);
        assert_eq!(set.ready(), []);
    }
    assert_eq!(recv(&other, 1, 0), Ok(b"x".to_vec()));
    assert_eq!(set.ready(), []);
}

fn each_message_read_is_an_edge_to_the_writer<B: Streams>() {
    let (set, (one, other)) = (Set::<B>::new(), nonblocking::<B>());
    set.add(&one, OUT | ET, 1);
    assert_eq!(set.ready(), [(1, OUT)]);
    assert_eq!(send(&one, b"xy", 0), Ok(2));
    assert_eq!(set.ready(), []);
    assert_eq!(recv(&other, 1, 0), Ok(b"x".to_vec()));
    assert_eq!(set.ready(), []);
    assert_eq!(recv(&other, 1, 0), Ok(b"y".to_vec()));
    assert_eq!(set.ready(), [(1, OUT)]);
    // Above a quarter no watch is told.
    let most = fill(&one, 1);
    assert_eq!(set.ready(), []);
    let read = (0..most).find(|_| {
        recv(&other, 1, 0).unwrap();
        !set.ready().is_empty()
    });
    let expected = {
        let (set, (one, other)) = (Set::<Kernel>::new(), nonblocking::<Kernel>());
        set.add(&one, OUT | ET, 1);
        set.ready();
        let most = fill(&one, 1);
        (0..most).find(|_| {
            recv(&other, 1, 0).unwrap();
            !set.ready().is_empty()
        })
    };
    assert_eq!(read, expected);
}

fn a_wait_reports_both_directions<B: Streams>() {
    let (set, (one, other)) = (Set::<B>::new(), nonblocking::<B>());
    set.add(&one, IN | OUT | RDNORM | WRNORM | WRBAND | RDHUP, 1);
    assert_eq!(set.ready(), [(1, OUT | WRNORM | WRBAND)]);
    assert_eq!(send(&other, b"x", 0), Ok(1));
    assert_eq!(set.ready(), [(1, IN | OUT | RDNORM | WRNORM | WRBAND)]);
    // A message also tells watches that ask for urgent data; there is none.
    set.modify(&one, libc::EPOLLPRI as u32 | ET, 1);
    assert_eq!(send(&other, b"x", 0), Ok(1));
    assert_eq!(set.ready(), []);
}

fn fionread_says_how_much_can_be_read<B: Streams>() {
    let (one, other) = nonblocking::<B>();
    let there = || [B::bytes_in(one.as_raw_fd()), B::bytes_in(other.as_raw_fd())];
    assert_eq!(send(&one, b"abc", 0), Ok(3));
    assert_eq!(send(&one, b"d", 0), Ok(1));
    assert_eq!(there(), [Ok(0), Ok(4)]);
    assert_eq!(recv(&other, 2, 0), Ok(b"ab".to_vec()));
    assert_eq!(there(), [Ok(0), Ok(2)]);
}

fn flags_are_for_one_call<B: Streams>() {
    let (one, other) = sockets::<B>(0);
    assert_eq!(recv(&one, 1, MSG_DONTWAIT), Err(EAGAIN));
    let most = fill(&one, 1);
    assert_eq!(send(&one, b"x", MSG_DONTWAIT), Err(EAGAIN));
    assert_eq!(recv(&other, most, MSG_DONTWAIT).map(|bytes| bytes.len()), Ok(most));
}

fn a_look_takes_nothing<B: Streams>() {
    let (one, other) = nonblocking::<B>();
    assert_eq!(send(&one, b"ab", 0), Ok(2));
    assert_eq!(send(&one, b"c", 0), Ok(1));
    assert_eq!(recv(&other, 3, MSG_PEEK), Ok(b"abc".to_vec()));
    assert_eq!(recv(&other, 3, 0), Ok(b"abc".to_vec()));
}

fn waitall_waits_for_all<B: Streams>() {
    let (one, other) = sockets::<B>(0);
    assert_eq!(send(&one, b"ab", 0), Ok(2));
    let task = Task::asleep(move || recv(&other, 3, MSG_WAITALL));
    assert_eq!(send(&one, b"c", 0), Ok(1));
    assert_eq!(task.join(), Ok(b"abc".to_vec()));
}

fn a_closed_end_leaves_what_it_wrote<B: Streams>() {
    let (one, other) = nonblocking::<B>();
    assert_eq!(send(&one, b"abc", 0), Ok(3));
    drop(one);
    assert_eq!(recv(&other, 2, 0), Ok(b"ab".to_vec()));
    assert_eq!(recv(&other, 2, 0), Ok(b"c".to_vec()));
    assert_eq!(recv(&other, 2, 0), Ok(vec![]));
    assert_eq!(send(&other, b"x", 0), Err(EPIPE));
}

fn what_was_not_read_resets_the_other_end<B: Streams>() {
    let (one, other) = nonblocking::<B>();
    assert_eq!(send(&one, b"abc", 0), Ok(3));
    drop(other);
    assert_eq!(recv(&one, 1, 0), Err(ECONNRESET));
    assert_eq!(recv(&one, 1, 0), Ok(vec![]));
}

fn a_closed_end_reaches_a_watch<B: Streams>() {
    for mode in [0, ET, ONESHOT] {
        let (set, (one, other)) = (Set::<B>::new(), nonblocking::<B>());
        set.add(&one, IN | RDHUP | mode, 1);
        assert_eq!(set.ready(), []);
        let waiter = set.clone();
        let task = Task::asleep(move || waiter.wait(1, -1));
        drop(other);
        assert_eq!(task.join(), Ok(vec![(1, IN | RDHUP | HUP)]));
    }
}

fn a_blocked_read_waits_for_a_write<B: Streams>() {
    let (one, other) = sockets::<B>(0);
    let task = Task::asleep(move || recv(&other, 100, 0));
    assert_eq!(send(&one, b"several", 0), Ok(7));
    assert_eq!(task.join(), Ok(b"several".to_vec()));
}

fn a_blocked_read_ends_with_the_other_end<B: Streams>() {
    let (one, other) = sockets::<B>(0);
    let task = Task::asleep(move || recv(&other, 100, 0));
    drop(one);
    assert_eq!(task.join(), Ok(vec![]));
}

fn a_blocked_message_waits_for_room<B: Streams>() {
    let (one, other) = sockets::<B>(0);
    let most = fill(&one, 3);
    let tasks = [0, 1].map(|_| {
        let one = one.clone();
        Task::asleep(move || send(&one, b"abc", MSG_NOSIGNAL))
    });
    // A read may meet the senders that it has woken.
    let mut read = 0;
    while read < 3 * (most + 2) {
        read += recv(&other, 1_000_000, 0).unwrap().len();
    }
    for task in tasks {
        assert_eq!(task.join(), Ok(3));
    }
    assert_eq!(recv(&other, 100, MSG_DONTWAIT), Err(EAGAIN));
}

/// Not as a sender that comes later is told of it.
fn a_blocked_message_ends_with_the_other_end<B: Streams>() {
    for how in [None, Some(SHUT_RD), Some(SHUT_RDWR)] {
        let (one, other) = sockets::<B>(0);
        fill(&one, 3);
        let task = Task::asleep(move || send(&one, b"abc", 0));
        if let Some(how) = how {
            assert_eq!(B::shutdown(other.as_raw_fd(), how), Ok(()));
        } else {
            drop(other);
        }
        assert_eq!(task.join(), Err(if how.is_none() { ECONNRESET } else { EPIPE }));
    }
}

fn one_write_lets_one_reader_go<B: Streams>() {
    let (one, other) = sockets::<B>(0);
    let tasks: Vec<_> = (0..2)
        .map(|_| {
            let other = other.clone();
            Task::asleep(move || recv(&other, 2, 0))
        })
        .collect();
    assert_eq!(send(&one, b"x", 0), Ok(1));
    assert_eq!(ended(&tasks, 1), 1);
    assert_eq!(send(&one, b"x", 0), Ok(1));
    for task in tasks {
        assert_eq!(task.join(), Ok(b"x".to_vec()));
    }
}

fn a_duplicate_is_the_same_socket<B: Streams>() {
    let (one, other) = nonblocking::<B>();
    assert_eq!(send(&one, b"ab", 0), Ok(2));
    assert_eq!(send(&other, b"c", 0), Ok(1));
    let same = one.dup();
    drop(one);
    assert_eq!(recv(&same, 9, 0), Ok(b"c".to_vec()));
    assert_eq!(recv(&other, 9, 0), Ok(b"ab".to_vec()));
    assert_eq!(recv(&other, 9, 0), Err(EAGAIN));
}

fn a_move_keeps_how_messages_count<B: Streams>() {
    for (first, taken) in [(40, 39), (2, 0), (56, 1), (57, 1), (192, 0), (192, 100), (192, 191)] {
        let (one, other) = nonblocking::<B>();
        assert_eq!(send(&one, &vec![1; first], 0), Ok(first));
        assert_eq!(recv(&other, taken, 0).map(|bytes| bytes.len()).unwrap_or(0), taken);
        for _ in 0..20 {
            assert_eq!(send(&one, b"x", 0), Ok(1));
        }
        let _same = one.dup();
        let left = first - taken + 20;
        assert_eq!(B::bytes_in(other.as_raw_fd()), Ok(left as c_int));
        let most = fill(&nonblocking::<Kernel>().0, 1);
        assert_eq!(fill(&one, 1), most - 21);
        assert_eq!(recv(&other, 10_000, 0).map(|bytes| bytes.len()), Ok(left + most - 21));
    }
}

fn long_messages_pass<B: Streams>() {
    let (one, other) = nonblocking::<B>();
    assert_eq!(send(&one, b"a", 0), Ok(1));
    assert_eq!(send(&one, &[2; 20_000], 0), Ok(20_000));
    assert_eq!(recv(&other, 100_000, 0).map(|bytes| bytes.len()), Ok(20_001));
}

fn a_oneshot_watch_reports_once<B: Streams>() {
    let (set, (one, other)) = (Set::<B>::new(), nonblocking::<B>());
    set.add(&other, IN | ONESHOT, 1);
    assert_eq!(send(&one, b"x", 0), Ok(1));
    assert_eq!(set.ready(), [(1, IN)]);
    assert_eq!(send(&one, b"x", 0), Ok(1));
    assert_eq!(set.ready(), []);
    set.modify(&other, IN | OUT | ONESHOT, 2);
    assert_eq!(set.ready(), [(2, IN | OUT)]);
}

/// A loop that is woken as asyncio's loop is: by a byte for each thing to do, which may be dropped
/// when there is no room for it.
fn threads_wake_a_loop<B: Streams>() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    const EACH: usize = 5000;
    let (set, (one, other)) = (Set::<B>::new(), nonblocking::<B>());
    set.add(&one, IN, 1);
    let done = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..3)
        .map(|_| {
            let (other, done) = (other.clone(), Arc::clone(&done));
            Task::start(move || {
                for _ in 0..EACH {
                    done.fetch_add(1, Ordering::SeqCst);
                    assert!(matches!(send(&other, b"\0", 0), Ok(1) | Err(EAGAIN)));
                }
            })
        })
        .collect();
    let mut seen = 0;
    while seen < 3 * EACH {
        assert_eq!(set.next(), (1, IN));
        while recv(&one, 4096, 0).is_ok() {}
        seen = done.load(Ordering::SeqCst);
    }
    tasks.into_iter().for_each(Task::join);
}

/// A random walk on both worlds at once, which have to give the same results.
#[test]
fn both_worlds_agree() {
    let mut generator = fastrand::Rng::with_seed(1);
    let mut random = move |n: usize| generator.usize(..n);
    struct World<B: Streams> {
        set: Set<B>,
        ends: [Fd<B>; 2],
        same: Option<Fd<B>>,
    }
    impl<B: Streams> World<B> {
        fn new(events: u32) -> Self {
            let (set, (one, other)) = (Set::new(), nonblocking());
            set.add(&one, IN | OUT | events, 1);
            set.add(&other, IN | OUT | RDHUP | events, 2);
            Self { set, ends: [one, other], same: None }
        }

        fn step(&mut self, what: usize, end: usize, len: usize, byte: u8) -> String {
            match what {
                0..10 => format!("{:?}", send(&self.ends[end], &vec![byte; len], 0)),
                10..12 => {
                    let bytes: Vec<u8> = (0..len).map(|i| byte.wrapping_add(i as u8)).collect();
                    format!("{:?}", send(&self.ends[end], &bytes, 0))
                }
                12..17 => format!("{:?}", recv(&self.ends[end], len, 0)),
                17 => format!("{:?}", recv(&self.ends[end], 100_000, 0)),
                18 => format!("{:?}", B::bytes_in(self.ends[end].as_raw_fd())),
                19 => {
                    self.same = Some(self.ends[end].dup());
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
        // An edge may be reported twice when it migrates; then the round is over.
        let (events, moves) = if round % 2 == 0 { (ET, 0) } else { (0, round % 4 / 2) };
        let (mut kernel, mut wakeset) =
            (World::<Kernel>::new(events), World::<Wakeset>::new(events));
        let sizes: &[usize] =
            [&[1, 1, 1, 1, 2, 7][..], &[1, 8, 56, 192], &[1, 8, 57, 300, 4096]][random(3)];
        let mut told = Vec::new();
        for _ in 0..random(900) {
            let (end, len, byte) =
                (usize::from(random(5) == 0), sizes[random(sizes.len())], random(2) as u8);
            let what = match random(26) {
                19 if moves == 0 || random(20) != 0 => 21,
                what => what,
            };
            let [one, other] =
                [kernel.step(what, end, len, byte), wakeset.step(what, end, len, byte)];
            told.push((what, end, len, byte));
            assert_eq!(one, other, "round {round}: {told:?}");
            if events == ET && !wakeset_fd::descriptor::is_in_process(wakeset.ends[0].as_raw_fd()) {
                break;
            }
        }
    }
}
