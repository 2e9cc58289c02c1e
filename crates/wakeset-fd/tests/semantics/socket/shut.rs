//! shutdown(2).

use super::*;
use libc::{EINVAL, ENOTSOCK};

pub(super) fn half_of_it_can_be_shut<B: Streams>() {
    let (one, other) = nonblocking::<B>();
    assert_eq!(send(&one, b"ab", 0), Ok(2));
    assert_eq!(send(&other, b"cd", 0), Ok(2));
    assert_eq!(B::shutdown(one.as_raw_fd(), SHUT_WR), Ok(()));
    assert_eq!(send(&one, b"x", 0), Err(EPIPE));
    assert_eq!(recv(&other, 9, 0), Ok(b"ab".to_vec()));
    assert_eq!(recv(&other, 9, 0), Ok(vec![]));
    assert_eq!(send(&other, b"e", 0), Ok(1));
    assert_eq!(recv(&one, 9, 0), Ok(b"cde".to_vec()));
    assert_eq!(B::shutdown(one.as_raw_fd(), SHUT_RD), Ok(()));
    assert_eq!(send(&other, b"x", 0), Err(EPIPE));
    assert_eq!(recv(&one, 9, 0), Ok(vec![]));
}

pub(super) fn a_shut_end_reaches_a_watch<B: Streams>() {
    for (how, at_one, at_other) in [
        (SHUT_WR, OUT, IN | OUT | RDHUP),
        (SHUT_RD, IN | OUT | RDHUP, OUT),
        (SHUT_RDWR, IN | OUT | RDHUP | HUP, IN | OUT | RDHUP | HUP),
    ] {
        for mode in [0, ET] {
            let (set, (one, other)) = (Set::<B>::new(), nonblocking::<B>());
            assert_eq!(B::shutdown(one.as_raw_fd(), how), Ok(()));
            set.add(&one, IN | OUT | RDHUP | mode, 1);
            set.add(&other, IN | OUT | RDHUP | mode, 2);
            assert_eq!(set.ready(), [(1, at_one), (2, at_other)]);
        }
    }
    let (set, (one, other)) = (Set::<B>::new(), nonblocking::<B>());
    set.add(&other, IN | RDHUP, 1);
    let waiter = set.clone();
    let task = Task::asleep(move || waiter.wait(1, -1));
    assert_eq!(B::shutdown(one.as_raw_fd(), SHUT_WR), Ok(()));
    assert_eq!(task.join(), Ok(vec![(1, IN | RDHUP)]));
}

const HOWS: [c_int; 3] = [SHUT_RD, SHUT_WR, SHUT_RDWR];

/// What the ends report: the one that shutdown(2) names, and the other.
fn told_of(how: c_int) -> [u32; 2] {
    match how {
        SHUT_RD => [IN | OUT | RDHUP, OUT],
        SHUT_WR => [OUT, IN | OUT | RDHUP],
        _ => [IN | OUT | RDHUP | HUP; 2],
    }
}

fn watched<B: Streams>(mode: u32) -> (Set<B>, Pipe<B>) {
    let (set, (one, other)) = (Set::<B>::new(), nonblocking::<B>());
    set.add(&one, IN | OUT | RDHUP | mode, 1);
    set.add(&other, IN | OUT | RDHUP | mode, 2);
    assert_eq!(set.ready(), [(1, OUT), (2, OUT)]);
    (set, (one, other))
}

/// Also the second one, which changes nothing.
pub(super) fn each_shutdown_is_an_edge_to_both<B: Streams>() {
    for how in HOWS {
        let (set, (one, other)) = watched::<B>(ET);
        let [at_one, at_other] = told_of(how);
        for _ in 0..2 {
            assert_eq!(set.ready(), []);
            assert_eq!(B::shutdown(one.as_raw_fd(), how), Ok(()));
            let mut ready = set.ready();
            ready.sort_unstable();
            assert_eq!(ready, [(1, at_one), (2, at_other)]);
        }
        drop(other);
    }
}

pub(super) fn a_shut_end_refuses_messages<B: Streams>() {
    // SIGPIPE is ignored in this program.
    for left in [&b""[..], b"ab", b"aa"] {
        for len in [1, 40, 300, 5000] {
            let (one, other) = sockets::<B>(0);
            assert_eq!(send(&one, left, 0), Ok(left.len()));
            assert_eq!(B::shutdown(other.as_raw_fd(), SHUT_RD), Ok(()));
            assert_eq!(send(&one, &vec![1; len], 0), Err(EPIPE));
            assert_eq!(one.write(b"x"), Err(EPIPE));
            assert_eq!(send(&one, b"", 0), Err(EPIPE));
            assert_eq!(recv(&other, 9, 0), Ok(left.to_vec()));
            assert_eq!(recv(&other, 9, 0), Ok(vec![]));
            assert_eq!(other.write(&vec![1; len]), Ok(len));
            assert_eq!(recv(&one, len, 0), Ok(vec![1; len]));
        }
    }
}

pub(super) fn what_was_left_at_a_shutdown_moves<B: Streams>() {
    let long: Vec<u8> = (0..150).collect();
    for how in HOWS {
        for taken in [0, 1, 60] {
            let (set, (one, other)) = watched::<B>(0);
            assert_eq!(send(&one, &long, 0), Ok(150));
            assert_eq!(send(&one, b"x", 0), Ok(1));
            assert_eq!(send(&other, b"yy", 0), Ok(2));
            assert_eq!(B::shutdown(one.as_raw_fd(), how), Ok(()));
            if taken != 0 {
                assert_eq!(recv(&other, taken, 0), Ok(long[..taken].to_vec()));
            }
            let _same = other.dup();
            let [at_one, at_other] = told_of(how);
            let mut ready = set.ready();
            ready.sort_unstable();
            assert_eq!(ready, [(1, at_one | IN), (2, at_other | IN)]);
            let end = |shuts: bool| if shuts { Ok(vec![]) } else { Err(EAGAIN) };
            assert_eq!(recv(&other, 999, 0), Ok([&long[taken..], b"x"].concat()));
            assert_eq!(recv(&other, 9, 0), end(how != SHUT_RD));
            assert_eq!(recv(&one, 9, 0), Ok(b"yy".to_vec()));
            assert_eq!(recv(&one, 9, 0), end(how != SHUT_WR));
            let sent = |shuts: bool| if shuts { Err(EPIPE) } else { Ok(1) };
            assert_eq!(send(&one, b"z", 0), sent(how != SHUT_RD));
            assert_eq!(send(&other, b"z", 0), sent(how != SHUT_WR));
        }
    }
}

pub(super) fn a_blocked_read_ends_with_a_shutdown<B: Streams>() {
    for (at, how) in [(0, SHUT_RD), (0, SHUT_RDWR), (1, SHUT_WR), (1, SHUT_RDWR)] {
        let (one, other) = sockets::<B>(0);
        let ends = [one.clone(), other];
        let tasks = [0, 1].map(|_| {
            let one = one.clone();
            Task::asleep(move || recv(&one, 9, 0))
        });
        assert_eq!(B::shutdown(ends[at].as_raw_fd(), how), Ok(()));
        for task in tasks {
            assert_eq!(task.join(), Ok(vec![]));
        }
    }
}

pub(super) fn a_shut_end_can_be_closed<B: Streams>() {
    for left in [&b""[..], b"abc", b"dd"] {
        for how in HOWS {
            let (set, (one, other)) = watched::<B>(0);
            assert_eq!(send(&one, left, 0), Ok(left.len()));
            assert_eq!(B::shutdown(one.as_raw_fd(), how), Ok(()));
            set.remove(&one);
            drop(one);
            assert_eq!(set.ready(), [(2, IN | OUT | RDHUP | HUP)]);
            assert_eq!(B::shutdown(other.as_raw_fd(), SHUT_WR), Ok(()));
            assert_eq!(send(&other, b"x", 0), Err(EPIPE));
            let left = if left.is_empty() { vec![] } else { left.to_vec() };
            assert_eq!(recv(&other, 9, 0), Ok(left));
            assert_eq!(recv(&other, 9, 0), Ok(vec![]));
        }
    }
    // What the end has not read itself.
    let (one, other) = nonblocking::<B>();
    assert_eq!(send(&other, b"abc", 0), Ok(3));
    assert_eq!(B::shutdown(one.as_raw_fd(), SHUT_RDWR), Ok(()));
    drop(one);
    assert_eq!(recv(&other, 9, 0), Err(ECONNRESET));
}

pub(super) fn odd_shutdowns_are_refused<B: Streams>() {
    let (one, other) = nonblocking::<B>();
    for how in [-1, 3, 99] {
        assert_eq!(B::shutdown(one.as_raw_fd(), how), Err(EINVAL));
    }
    assert_eq!(send(&one, b"x", 0), Ok(1));
    assert_eq!(send(&other, b"x", 0), Ok(1));
    let (reader, _writer) = own_pair::<B>(B::pipe2(libc::O_CLOEXEC));
    assert_eq!(B::shutdown(reader.as_raw_fd(), SHUT_RD), Err(ENOTSOCK));
}
