//! What pipes, sockets and other objects of the kernel report.

use super::*;

pub(super) fn hang_up_and_error_are_always_reported<B: Backend>() {
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

pub(super) fn sockets_report_as_ever<B: Backend>() {
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
    // SAFETY: a duplicate that nothing else owns.
    let stream = UnixStream::from(unsafe { OwnedFd::from_raw_fd(libc::dup(there.as_raw_fd())) });
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(ready(), [(1, IN), (2, IN | OUT | RDHUP)]);
    drop((stream, there));
    assert_eq!(ready(), [(1, IN), (2, IN | OUT | RDHUP | HUP)]);
    assert_eq!(ready(), [(1, IN)]);
}

/// The scenario by which epoll(7) distinguishes the two kinds of notification: 2 kB are written,
/// and 1 kB is read.
pub(super) fn half_a_pipe_read_is_a_level_and_no_edge<B: Backend>() {
    for (flags, then) in [(0, vec![(2, IN)]), (ET, vec![])] {
        let m = mixed::<B>(flags);
        assert_eq!(m.writer.write(&[0; 2048]), Ok(2048));
        assert_eq!(m.set.wait(4, LONG), Ok(vec![(2, IN)]));
        assert_eq!(m.reader.read(&mut [0; 1024]), Ok(1024));
        assert_eq!(m.set.wait(4, 5), Ok(then));
        // More data is news for both kinds.
        assert_eq!(m.writer.write(&[0; 1]), Ok(1));
        assert_eq!(m.set.wait(4, LONG), Ok(vec![(2, IN)]));
    }
}

pub(super) fn the_write_end_of_a_pipe_has_edges_of_its_own<B: Backend>() {
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
pub(super) fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (here, listener.accept().unwrap().0)
}

pub(super) fn urgent_data_is_an_exceptional_condition<B: Backend>() {
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

pub(super) fn data_is_no_edge_of_a_watch_for_the_end<B: Backend>() {
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

pub(super) fn hang_up_leaves_what_was_sent<B: Backend>() {
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

/// A set with a counter watches a timer, signals, a terminal, files of /proc, a process, inotify.
pub(super) fn whatever_can_be_polled_can_be_watched<B: Backend>() {
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

/// The loop of epoll(7): a listener with levels, connections with edges that are read until there
/// is nothing more. A counter beside them tells it to end.
pub(super) fn a_server_as_the_page_has_it<B: Backend>() {
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
                    _ => {
                        return connections.into_iter().map(|(_, total)| total).collect::<Vec<_>>();
                    }
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

/// A duplicate is a key of its own with a mask of its own: each number gets the events of the
/// socket that it asked for.
pub(super) fn the_same_pipe_under_two_numbers<B: Backend>() {
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
