//! Sets that watch counters and the kernel's descriptors together.

use crate::backend::Backend;
use crate::objects::{
    Counter, ERR, ET, EXCLUSIVE, Fd, HUP, IN, LONG, ONESHOT, OUT, PRI, RDHUP, Set, pipe, socket_pair,
};
use crate::task::{Task, ended};
use libc::EINVAL;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

on_both!(
    both_kinds_are_reported,
    both_kinds_at_once,
    a_sleeper_is_woken_by_either,
    a_sleeper_with_a_limit_is_woken_by_either,
    a_first_pipe_may_come_while_somebody_sleeps,
    a_first_counter_may_come_while_somebody_sleeps,
    edges_of_both_kinds,
    oneshots_of_both_kinds,
    changes_of_both_kinds,
    a_change_hears_of_what_it_asks_for,
    removing_one_kind_leaves_the_other,
    room_for_one_at_a_time_serves_both,
    many_counters_do_not_starve_a_pipe,
    many_pipes_do_not_starve_a_counter,
    a_busy_edge_does_not_starve_a_pipe,
    hang_up_and_error_are_always_reported,
    sockets_report_as_ever,
    one_edge_of_either_kind_wakes_one_waiter,
    exclusive_pipes,
    a_mixed_set_in_a_set,
    a_set_of_pipes_only,
    traffic_of_both_kinds_is_complete,
    half_a_pipe_read_is_a_level_and_no_edge,
    the_write_end_of_a_pipe_has_edges_of_its_own,
    urgent_data_is_an_exceptional_condition,
    data_is_no_edge_of_a_watch_for_the_end,
    hang_up_leaves_what_was_sent,
    whatever_can_be_polled_can_be_watched,
    a_server_as_the_page_has_it,
    the_same_pipe_under_two_numbers,
);

/// A set with a counter (data 1) and a pipe's read end (data 2).
struct Mixed<B: Backend> {
    set: Set<B>,
    counter: Counter<B>,
    reader: Fd<B>,
    writer: Fd<B>,
}

fn mixed<B: Backend>(flags: u32) -> Mixed<B> {
    let (set, counter) = (Set::new(), Counter::new(0));
    let (reader, writer) = pipe();
    set.add(&counter, IN | flags, 1);
    set.add(&reader, IN | flags, 2);
    Mixed { set, counter, reader, writer }
}

impl<B: Backend> Mixed<B> {
    /// What is ready, in order of data: across the two kinds no order is promised.
    #[track_caller]
    fn ready(&self) -> Vec<(u64, u32)> {
        let mut got = self.set.ready();
        got.sort_unstable();
        got
    }

    fn fill_pipe(&self) {
        assert_eq!(self.writer.write(b"x"), Ok(1));
    }

    fn drain_pipe(&self) {
        while self.reader.read(&mut [0; 64]).is_ok_and(|n| n > 0) {}
    }
}

fn both_kinds_are_reported<B: Backend>() {
    let m = mixed::<B>(0);
    assert_eq!(m.ready(), []);
    m.counter.write(1);
    assert_eq!(m.ready(), [(1, IN)]);
    m.fill_pipe();
    assert_eq!(m.ready(), [(1, IN), (2, IN)]);
    assert_eq!(m.ready(), [(1, IN), (2, IN)]);
    m.counter.drain();
    assert_eq!(m.ready(), [(2, IN)]);
    m.drain_pipe();
    assert_eq!(m.ready(), []);
}

fn both_kinds_at_once<B: Backend>() {
    for _ in 0..50 {
        let m = mixed::<B>(ET);
        m.fill_pipe();
        m.counter.write(1);
        assert_eq!(m.ready(), [(1, IN), (2, IN)]);
        assert_eq!(m.ready(), []);
    }
}

/// Sleeps with each limit, and is woken by each kind.
fn woken_by_either<B: Backend>(wait: impl Fn(&Set<B>) -> Vec<(u64, u32)> + Send + Clone + 'static) {
    for flags in [0, ET] {
        let m = mixed::<B>(flags);
        for turn in 0..30 {
            let (set, wait) = (m.set.clone(), wait.clone());
            let task = Task::asleep(move || wait(&set));
            if turn % 2 == 0 {
                m.counter.write(1);
                assert_eq!(task.join(), [(1, IN)]);
                m.counter.drain();
            } else {
                m.fill_pipe();
                assert_eq!(task.join(), [(2, IN)]);
                m.drain_pipe();
            }
            assert_eq!(m.ready(), []);
        }
    }
}

fn a_sleeper_is_woken_by_either<B: Backend>() {
    woken_by_either::<B>(|set| set.wait(4, -1).unwrap());
    woken_by_either::<B>(|set| set.wait_masked(None, None).unwrap());
}

fn a_sleeper_with_a_limit_is_woken_by_either<B: Backend>() {
    woken_by_either::<B>(|set| set.wait(4, LONG).unwrap());
    woken_by_either::<B>(|set| set.wait_masked(Some(Duration::from_secs(30)), Some(0)).unwrap());
}

fn a_first_pipe_may_come_while_somebody_sleeps<B: Backend>() {
    for ready_before in [false, true] {
        let (set, counter) = (Set::<B>::new(), Counter::new(0));
        let (reader, writer) = pipe::<B>();
        set.add(&counter, IN, 1);
        let waiting = set.clone();
        let task = Task::asleep(move || waiting.wait(4, LONG).unwrap());
        if ready_before {
            writer.write(b"x").unwrap();
        }
        set.add(&reader, IN, 2);
        if !ready_before {
            task.until_asleep();
            writer.write(b"x").unwrap();
        }
        assert_eq!(task.join(), [(2, IN)]);
    }
}

fn a_first_counter_may_come_while_somebody_sleeps<B: Backend>() {
    for ready_before in [false, true] {
        let (set, counter) = (Set::<B>::new(), Counter::new(u32::from(ready_before)));
        let (reader, _writer) = pipe::<B>();
        set.add(&reader, IN, 2);
        let waiting = set.clone();
        let task = Task::asleep(move || waiting.wait(4, LONG).unwrap());
        set.add(&counter, IN, 1);
        if !ready_before {
            task.until_asleep();
            counter.write(1);
        }
        assert_eq!(task.join(), [(1, IN)]);
    }
}

fn edges_of_both_kinds<B: Backend>() {
    let m = mixed::<B>(ET);
    for _ in 0..3 {
        m.counter.write(1);
        assert_eq!(m.ready(), [(1, IN)]);
        assert_eq!(m.ready(), []);
        m.fill_pipe();
        assert_eq!(m.ready(), [(2, IN)]);
        assert_eq!(m.ready(), []);
    }
}

fn oneshots_of_both_kinds<B: Backend>() {
    let m = mixed::<B>(ONESHOT);
    m.counter.write(1);
    m.fill_pipe();
    assert_eq!(m.ready(), [(1, IN), (2, IN)]);
    m.counter.write(1);
    m.fill_pipe();
    assert_eq!(m.ready(), []);
    m.set.modify(&m.counter, IN | ONESHOT, 3);
    m.set.modify(&m.reader, IN | ONESHOT, 4);
    assert_eq!(m.ready(), [(3, IN), (4, IN)]);
    assert_eq!(m.ready(), []);
}

fn changes_of_both_kinds<B: Backend>() {
    let m = mixed::<B>(0);
    m.counter.write(1);
    m.fill_pipe();
    m.set.modify(&m.counter, OUT, 5);
    m.set.modify(&m.reader, 0, 6);
    assert_eq!(m.ready(), [(5, OUT)]);
    m.set.modify(&m.counter, 0, 5);
    m.set.modify(&m.reader, IN, u64::MAX);
    assert_eq!(m.ready(), [(u64::MAX, IN)]);
}

/// Neither holds when it is asked for.
fn a_change_hears_of_what_it_asks_for<B: Backend>() {
    for flags in [0, ET, ONESHOT] {
        let (set, (here, there)) = (Set::<B>::new(), socket_pair::<B>());
        while here.write(&[0; 4096]).is_ok() {}
        set.add(&here, IN | flags, 1);
        set.modify(&here, OUT | flags, 2);
        assert_eq!(set.ready(), []);
        while there.read(&mut [0; 4096]).is_ok() {}
        assert_eq!(set.wait(4, LONG), Ok(vec![(2, OUT)]));
        set.modify(&here, IN | flags, 3);
        assert_eq!(set.ready(), []);
        there.write(b"x").unwrap();
        assert_eq!(set.wait(4, LONG), Ok(vec![(3, IN)]));
    }
}

fn removing_one_kind_leaves_the_other<B: Backend>() {
    let m = mixed::<B>(0);
    m.counter.write(1);
    m.fill_pipe();
    m.set.remove(&m.reader);
    assert_eq!(m.ready(), [(1, IN)]);
    m.set.add(&m.reader, IN, 2);
    m.set.remove(&m.counter);
    assert_eq!(m.ready(), [(2, IN)]);
    m.set.remove(&m.reader);
    assert_eq!(m.ready(), []);
    m.set.add(&m.counter, IN, 3);
    assert_eq!(m.ready(), [(3, IN)]);
}

fn room_for_one_at_a_time_serves_both<B: Backend>() {
    let m = mixed::<B>(ONESHOT);
    m.counter.write(1);
    m.fill_pipe();
    let mut got = [m.set.next(), m.set.next()];
    got.sort_unstable();
    assert_eq!(got, [(1, IN), (2, IN)]);
    assert_eq!(m.ready(), []);
}

/// With `max` at a time, every one of `n` ready watches is served within `rounds` waits.
fn everybody_is_served<B: Backend>(set: &Set<B>, n: usize, max: usize, rounds: usize) {
    let mut served = vec![false; n];
    for _ in 0..rounds {
        for (data, _) in set.wait(max, 0).unwrap() {
            served[data as usize] = true;
        }
    }
    assert!(served.iter().all(|served| *served), "{served:?} after {rounds} waits for {max}");
}

/// The kernel needs as many waits as there are watches over `max`; Wakeset promises twice that
/// for sets of both kinds.
fn rounds(n: usize, max: usize) -> usize {
    2 * n.div_ceil(max)
}

fn many_counters_do_not_starve_a_pipe<B: Backend>() {
    for max in [1, 3, 64] {
        let set = Set::<B>::new();
        let counters: Vec<Counter<B>> = (0..40).map(|_| Counter::new(1)).collect();
        for (data, counter) in counters.iter().enumerate() {
            set.add(counter, IN, data as u64);
        }
        let (reader, writer) = pipe::<B>();
        set.add(&reader, IN, 40);
        writer.write(b"x").unwrap();
        for _ in 0..3 {
            everybody_is_served(&set, 41, max, rounds(41, max));
        }
    }
}

fn many_pipes_do_not_starve_a_counter<B: Backend>() {
    for max in [1, 3, 64] {
        let set = Set::<B>::new();
        let pipes: Vec<_> = (0..40).map(|_| pipe::<B>()).collect();
        for (data, (reader, writer)) in pipes.iter().enumerate() {
            set.add(reader, IN, data as u64);
            writer.write(b"x").unwrap();
        }
        let counter = Counter::new(1);
        set.add(&counter, IN, 40);
        for _ in 0..3 {
            everybody_is_served(&set, 41, max, rounds(41, max));
        }
    }
}

fn a_busy_edge_does_not_starve_a_pipe<B: Backend>() {
    let m = mixed::<B>(ET);
    for _ in 0..50 {
        m.fill_pipe();
        let mut waits = 0;
        loop {
            m.counter.write(1);
            waits += 1;
            if m.set.next().0 == 2 {
                break;
            }
            assert!(waits <= 4, "the pipe is not served");
        }
        m.drain_pipe();
    }
}

fn hang_up_and_error_are_always_reported<B: Backend>() {
    let m = mixed::<B>(0);
    let Mixed { set, reader, writer, .. } = &m;
    set.modify(reader, 0, 2);
    set.add(writer, 0, 3);
    assert_eq!(m.ready(), []);
    let number = writer.as_raw_fd();
    let other_end = reader.dup();
    drop(other_end);
    let Mixed { set, reader, writer, counter } = m;
    counter.write(1);
    drop(writer);
    let mut got = set.ready();
    got.sort_unstable();
    assert_eq!(got, [(1, IN), (2, HUP)], "{number} is closed");
    let (reader_2, writer_2) = pipe::<B>();
    set.add(&writer_2, 0, 4);
    drop((reader, reader_2));
    let mut got = set.ready();
    got.sort_unstable();
    assert_eq!(got, [(1, IN), (4, ERR)]);
}

fn sockets_report_as_ever<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::new(1));
    let (here, there) = socket_pair::<B>();
    set.add(&counter, IN, 1);
    set.add(&here, IN | OUT | RDHUP | ET, 2);
    let ready = || {
        let mut got = set.ready();
        got.sort_unstable();
        got
    };
    assert_eq!(ready(), [(1, IN), (2, OUT)]);
    assert_eq!(ready(), [(1, IN)]);
    there.write(b"x").unwrap();
    assert_eq!(ready(), [(1, IN), (2, if B::TELLS_ALL { IN | OUT } else { IN })]);
    // SAFETY: a duplicate that belongs to nobody else.
    let stream = UnixStream::from(unsafe { OwnedFd::from_raw_fd(libc::dup(there.as_raw_fd())) });
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(ready(), [(1, IN), (2, IN | OUT | RDHUP)]);
    drop((stream, there));
    assert_eq!(ready(), [(1, IN), (2, IN | OUT | RDHUP | HUP)]);
    assert_eq!(ready(), [(1, IN)]);
}

fn one_edge_of_either_kind_wakes_one_waiter<B: Backend>() {
    let m = mixed::<B>(ET);
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let set = m.set.clone();
            Task::asleep(move || set.wait(4, LONG).unwrap())
        })
        .collect();
    m.counter.write(1);
    assert_eq!(ended(&tasks, 1), 1);
    m.fill_pipe();
    assert_eq!(ended(&tasks, 2), 2);
    m.counter.write(1);
    assert_eq!(ended(&tasks, 3), 3);
    m.fill_pipe();
    let mut got: Vec<_> = tasks.into_iter().flat_map(Task::join).collect();
    got.sort_unstable();
    assert_eq!(got, [(1, IN), (1, IN), (2, IN), (2, IN)]);
    assert_eq!(m.ready(), []);
}

fn exclusive_pipes<B: Backend>() {
    let (reader, writer) = pipe::<B>();
    let counter = Counter::<B>::new(0);
    let sets: Vec<Set<B>> = (0..3)
        .map(|data| {
            let set = Set::new();
            set.add(&counter, IN, 9);
            set.add(&reader, IN | EXCLUSIVE, data);
            assert_eq!(set.try_modify(&reader, IN, data), Err(EINVAL));
            set
        })
        .collect();
    let tasks: Vec<_> = sets
        .iter()
        .map(|set| {
            let set = set.clone();
            Task::asleep(move || set.wait(4, LONG).unwrap())
        })
        .collect();
    writer.write(b"x").unwrap();
    assert!((1..3).contains(&ended(&tasks, 1)));
    counter.write(1);
    for (data, task) in tasks.into_iter().enumerate() {
        let got = task.join();
        assert!(!got.is_empty());
        assert!(got.iter().all(|report| [(9, IN), (data as u64, IN)].contains(report)), "{got:?}");
    }
}

fn a_mixed_set_in_a_set<B: Backend>() {
    for flags in [0, ET] {
        let m = mixed::<B>(flags);
        let outer = Set::<B>::new();
        outer.add(&m.set, IN | flags, 3);
        let own = Counter::new(0);
        outer.add(&own, IN | flags, 4);
        for turn in 0..6 {
            assert_eq!(outer.ready(), []);
            let waiting = outer.clone();
            let task = Task::asleep(move || waiting.wait(4, LONG).unwrap());
            match turn % 3 {
                0 => m.counter.write(1),
                1 => m.fill_pipe(),
                _ => own.write(1),
            }
            let data = if turn % 3 == 2 { 4 } else { 3 };
            assert_eq!(task.join(), [(data, IN)]);
            assert_eq!(m.ready().len(), usize::from(turn % 3 < 2));
            m.counter.drain();
            m.drain_pipe();
            own.drain();
        }
    }
}

fn a_set_of_pipes_only<B: Backend>() {
    let set = Set::<B>::new();
    let pipes: [_; 3] = std::array::from_fn(|data| {
        let (reader, writer) = pipe::<B>();
        set.add(&reader, IN, data as u64);
        (reader, writer)
    });
    for (_, writer) in &pipes {
        writer.write(b"x").unwrap();
    }
    assert_eq!(set.wait(2, 0).unwrap(), [(0, IN), (1, IN)]);
    assert_eq!(set.wait(2, 0).unwrap(), [(2, IN), (0, IN)]);
    assert_eq!(set.wait(2, LONG).unwrap(), [(1, IN), (2, IN)]);
    // Bytes through a descriptor that Wakeset does not know are the kernel's business.
    assert_eq!(pipes[0].0.read(&mut [0; 8]), Ok(1));
    assert_eq!(pipes[0].0.read(&mut [0; 8]), Err(libc::EAGAIN));
}

fn traffic_of_both_kinds_is_complete<B: Backend>() {
    const UNITS: u64 = 3_000;
    for flags in [0, ET] {
        let m = mixed::<B>(flags);
        let counter = m.counter.clone();
        let add = Task::start(move || (0..UNITS).for_each(|_| counter.write(1)));
        let writer = m.writer.clone();
        let send = Task::start(move || {
            for _ in 0..UNITS {
                while writer.write(b"x").is_err() {
                    std::thread::yield_now();
                }
            }
        });
        let (mut added, mut sent) = (0, 0);
        while added < UNITS || sent < UNITS {
            let got = m.set.wait(1, LONG).unwrap();
            match got[..] {
                [(1, IN)] => added += m.counter.try_read().unwrap_or(0),
                [(2, IN)] => {
                    while let Ok(n) = m.reader.read(&mut [0; 256]) {
                        sent += n as u64;
                    }
                }
                _ => panic!("{got:?} after {added} and {sent}"),
            }
        }
        assert_eq!((added, sent), (UNITS, UNITS));
        add.join();
        send.join();
        assert_eq!(m.ready(), []);
    }
}

/// The scenario that epoll(7) tells the two kinds of notification apart by: 2 kB written, one of them read.
fn half_a_pipe_read_is_a_level_and_no_edge<B: Backend>() {
    for (flags, then) in [(0, vec![(2, IN)]), (ET, vec![])] {
        let m = mixed::<B>(flags);
        assert_eq!(m.writer.write(&[0; 2048]), Ok(2048));
        assert_eq!(m.set.wait(4, LONG), Ok(vec![(2, IN)]));
        assert_eq!(m.reader.read(&mut [0; 1024]), Ok(1024));
        assert_eq!(m.set.wait(4, 5), Ok(then));
        // More of it is news in both.
        assert_eq!(m.writer.write(&[0; 1]), Ok(1));
        assert_eq!(m.set.wait(4, LONG), Ok(vec![(2, IN)]));
    }
}

fn the_write_end_of_a_pipe_has_edges_of_its_own<B: Backend>() {
    let (set, counter, (reader, writer)) = (Set::<B>::new(), Counter::new(0), pipe());
    set.add(&writer, OUT | ET, 1);
    set.add(&counter, IN | ET, 2);
    assert_eq!(set.ready(), [(1, OUT)]);
    while writer.write(&[0; 4096]).is_ok() {}
    assert_eq!(set.ready(), []);
    while reader.read(&mut [0; 65536]).is_ok_and(|n| n > 0) {}
    assert_eq!(set.ready(), [(1, OUT)]);
    assert_eq!(set.ready(), []);
}

/// A connected pair of TCP sockets.
fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (here, listener.accept().unwrap().0)
}

fn urgent_data_is_an_exceptional_condition<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::new(0));
    let (here, there) = tcp_pair();
    set.add(&here.as_raw_fd(), PRI, 1);
    set.add(&counter, IN | PRI | RDHUP, 2);
    assert_eq!(set.ready(), []);
    // SAFETY: one byte of a buffer of one.
    assert_eq!(unsafe { libc::send(there.as_raw_fd(), b"!".as_ptr().cast(), 1, libc::MSG_OOB) }, 1);
    assert_eq!(set.wait(4, LONG), Ok(vec![(1, PRI)]));
    counter.write(1);
    let mut got = set.ready();
    got.sort_unstable();
    assert_eq!(got, [(1, PRI), (2, IN)]);
}

fn data_is_no_edge_of_a_watch_for_the_end<B: Backend>() {
    let set = Set::<B>::new();
    let (here, mut there) = tcp_pair();
    here.shutdown(std::net::Shutdown::Read).unwrap();
    set.add(&here.as_raw_fd(), RDHUP | ET, 1);
    assert_eq!(set.ready(), [(1, RDHUP)]);
    there.write_all(b"unread").unwrap();
    assert_eq!(set.ready(), []);
    there.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(set.wait(4, LONG), Ok(vec![(1, RDHUP)]));
}

fn hang_up_leaves_what_was_sent<B: Backend>() {
    let (set, counter, (reader, writer)) = (Set::<B>::new(), Counter::new(0), pipe());
    set.add(&reader, IN, 1);
    set.add(&counter, IN, 2);
    assert_eq!(writer.write(b"last"), Ok(4));
    drop(writer);
    assert_eq!(set.ready(), [(1, IN | HUP)]);
    assert_eq!(reader.read(&mut [0; 16]), Ok(4));
    assert_eq!(set.ready(), [(1, HUP)]);
    assert_eq!(reader.read(&mut [0; 16]), Ok(0));
}

/// Beside a counter: a timer, signals, a terminal, files of /proc, a process, inotify.
fn whatever_can_be_polled_can_be_watched<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::new(1));
    set.add(&counter, IN, 0);
    let soon = libc::itimerspec {
        it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 },
        it_value: libc::timespec { tv_sec: 0, tv_nsec: 1 },
    };
    let mounts = std::fs::File::open("/proc/self/mounts").unwrap();
    // SAFETY: valid arguments; each new descriptor is owned here.
    let (timer, signals, watches, terminal) = unsafe {
        let mut mask = std::mem::zeroed();
        libc::sigemptyset(&mut mask);
        let timer = libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC);
        assert_eq!(libc::timerfd_settime(timer, 0, &soon, std::ptr::null_mut()), 0);
        (
            Fd::<B>::own(timer),
            Fd::<B>::own(libc::signalfd(-1, &mask, libc::SFD_CLOEXEC)),
            Fd::<B>::own(libc::inotify_init1(libc::IN_CLOEXEC)),
            Fd::<B>::own(libc::posix_openpt(libc::O_RDWR | libc::O_CLOEXEC)),
        )
    };
    set.add(&timer, IN, 1);
    set.add(&signals, IN, 2);
    set.add(&watches, IN, 3);
    set.add(&mounts.as_raw_fd(), PRI, 4);
    if terminal.as_raw_fd() >= 0 {
        set.add(&terminal, IN, 5);
    }
    let mut got = set.ready();
    while !got.iter().any(|(data, _)| *data == 1) {
        got = set.wait(8, LONG).unwrap();
    }
    got.sort_unstable();
    assert_eq!(got, [(0, IN), (1, IN)]);
}

/// The loop of epoll(7): a listener with levels, connections with edges that are read until there is nothing more. A counter
/// beside them tells it to end.
fn a_server_as_the_page_has_it<B: Backend>() {
    const CLIENTS: u64 = 4;
    const SENT: usize = 40_000;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    let (set, stop) = (Set::<B>::new(), Counter::new(0));
    set.add(&listener.as_raw_fd(), IN, u64::MAX);
    set.add(&stop, IN, u64::MAX - 1);
    let server = Task::start(move || {
        let mut connections: Vec<(TcpStream, usize)> = Vec::new();
        loop {
            for (data, events) in set.wait(10, LONG).unwrap() {
                match data {
                    u64::MAX => {
                        let (connection, _) = listener.accept().unwrap();
                        connection.set_nonblocking(true).unwrap();
                        set.add(&connection.as_raw_fd(), IN | ET, connections.len() as u64);
                        connections.push((connection, 0));
                    }
                    0..CLIENTS => {
                        let (connection, total) = &mut connections[data as usize];
                        assert!(events & IN != 0);
                        while let Ok(n @ 1..) = connection.read(&mut [0; 1000]) {
                            *total += n;
                        }
                    }
                    _ => return connections.into_iter().map(|(_, total)| total).collect::<Vec<_>>(),
                }
                let all = |(_, total): &(TcpStream, usize)| *total == SENT;
                if connections.len() as u64 == CLIENTS && connections.iter().all(all) {
                    stop.write(1);
                }
            }
        }
    });
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            Task::start(move || {
                let mut stream = TcpStream::connect(address).unwrap();
                for _ in 0..SENT / 1000 {
                    stream.write_all(&[1; 1000]).unwrap();
                }
                // Until the server closes it.
                let _ = stream.read(&mut [0]);
            })
        })
        .collect();
    assert_eq!(server.join(), [SENT; CLIENTS as usize]);
    clients.into_iter().for_each(Task::join);
}

/// A duplicate is a key of its own, with a mask of its own: of the events of one socket each number gets those it asked for.
fn the_same_pipe_under_two_numbers<B: Backend>() {
    let (set, counter, (here, there)) = (Set::<B>::new(), Counter::new(0), socket_pair());
    let same = here.dup();
    set.add(&counter, IN, 0);
    set.add(&here, IN, 1);
    set.add(&same, OUT, 2);
    assert_eq!(set.ready(), [(2, OUT)]);
    there.write(b"x").unwrap();
    let mut got = set.ready();
    got.sort_unstable();
    assert_eq!(got, [(1, IN), (2, OUT)]);
    drop(here);
    let mut got = set.ready();
    got.sort_unstable();
    let rest = if B::WATCHES_FILES { &[(1, IN), (2, OUT)][..] } else { &[(2, OUT)] };
    assert_eq!(got, rest, "the description is still open");
    drop(same);
    assert_eq!(set.ready(), []);
}
