//! Sets with `RING_HINTS`, which report what a completion says without a poll.

use super::*;
use std::mem::MaybeUninit;

#[test]
fn hints_need_polls() {
    let _alone = alone();
    let set = wakeset_fd::epoll_create1(libc::EPOLL_CLOEXEC).expect("a set");
    for flags in [wakeset_fd::RING_HINTS, 4, -1] {
        assert_eq!(
            wakeset_fd::ring_setup_with(set, 64, flags),
            Err(wakeset_fd::Errno::EINVAL),
            "{flags}"
        );
    }
    assert_eq!(wakeset_fd::close(set), Ok(()));
}

/// The purpose of the flag, and its price.
#[test]
fn a_hint_is_told_without_a_look() {
    let _alone = alone();
    if !has_polls() {
        return;
    }
    for (hints, expected) in [(false, vec![]), (true, vec![(7, IN)])] {
        let set = if hints { Set::with_hints() } else { Set::new(64) };
        let (one, mut other) = pair();
        set.add(&one, IN | RDHUP | ET, 7);
        assert_eq!(set.ready(), []);
        other.write_all(b"xyz").unwrap();
        assert_eq!(set.ready(), [(7, IN)], "hints: {hints}");
        assert_eq!(set.ready(), [], "hints: {hints}");
        other.write_all(b"xyz").unwrap();
        // All six bytes are read before the second edge is reported.
        assert_eq!(drain(&one), 6);
        assert_eq!(set.ready(), expected);
        assert_eq!(set.ready(), [], "hints: {hints}");
        set.close();
        close(one);
    }
}

#[test]
fn hints_are_edges_of_data_and_nothing_else() {
    let _alone = alone();
    let set = Set::with_hints();
    let ((level, mut its_peer), (added, mut another), (urgent, mut third)) =
        (pair(), pair(), pair());
    set.add(&level, IN, 1);
    set.add(&urgent, IN | PRI | ET, 5);
    assert_eq!(set.ready(), []);
    third.write_all(b"x").unwrap();
    assert_eq!(set.ready(), [(5, IN)]);
    // Nothing has told of this one.
    another.write_all(b"x").unwrap();
    drain(&added);
    set.add(&added, IN | RDHUP | ET, 2);
    its_peer.write_all(b"x").unwrap();
    drain(&level);
    assert_eq!(set.ready(), []);
    its_peer.write_all(b"x").unwrap();
    for _ in 0..3 {
        assert_eq!(set.ready(), [(1, IN)]);
    }
    drain(&level);
    assert_eq!(set.ready(), []);
    // What was said was said to other questions.
    another.write_all(b"x").unwrap();
    assert_eq!(set.control(EPOLL_CTL_MOD, added.as_raw_fd(), OUT | ET, 3), Ok(()));
    assert_eq!(set.ready(), [(3, OUT)]);
    assert_eq!(set.control(EPOLL_CTL_MOD, added.as_raw_fd(), IN | RDHUP | ET, 4), Ok(()));
    assert_eq!(set.ready(), [(4, IN)]);
    // An end is told with all that is so.
    drop(another);
    assert_eq!(set.ready(), [(4, IN | RDHUP | HUP)]);
    assert_eq!(set.ready(), []);
    set.close();
    [added, level, urgent].into_iter().for_each(close);
}

#[test]
fn a_hint_of_one_number_is_not_the_next_ones() {
    let _alone = alone();
    let set = Set::with_hints();
    for round in 0..100 {
        let (one, mut other) = pair();
        set.add(&one, IN | ET, 1);
        assert_eq!(set.ready(), []);
        other.write_all(b"x").unwrap();
        let number = one.as_raw_fd();
        if round % 2 == 0 {
            assert_eq!(set.control(EPOLL_CTL_DEL, number, 0, 0), Ok(()));
        } else {
            close(one.try_clone().unwrap());
        }
        close(one);
        let (one, _other) = pair();
        set.add(&one, IN | ET, 2);
        assert_eq!(set.ready(), [], "{round}");
        close(one);
    }
    set.close();
}

/// A datagram that its receiver has no room for wakes its sender for room each time: one that tried
/// again at each hint never stopped.
#[test]
fn a_datagram_in_vain_is_no_room() {
    let _alone = alone();
    let set = Set::with_hints();
    let dir = std::env::temp_dir().join(format!("wakeset-polls-{}", std::process::id()));
    let receiver = UnixDatagram::bind(&dir).expect("a bound socket");
    let sender = UnixDatagram::unbound().unwrap();
    sender.connect(&dir).unwrap();
    std::fs::remove_file(&dir).unwrap();
    sender.set_nonblocking(true).unwrap();
    set.add(&sender, IN | OUT | ET, 1);
    assert_eq!(set.ready(), [(1, OUT)]);
    while sender.send(&[0; 2000]).is_ok() {}
    assert_eq!(set.ready(), []);
    for _ in 0..10 {
        assert!(sender.send(&[0; 2000]).is_err());
        assert_eq!(set.ready(), []);
    }
    set.close();
    assert_eq!(wakeset_fd::close(sender.into_raw_fd()), Ok(()));
    drop(receiver);
}

/// Writes until the socket is full and stays so: its peer has acknowledged all that was under way,
/// and has no room. How many bytes it took. (For a time alone, a busy machine may have written less
/// than that, and then nothing makes room later.)
fn fill(mut one: &TcpStream) -> usize {
    let mut sent = 0;
    loop {
        let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
        let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
        // SAFETY: room for as much; any bits are a `tcp_info`.
        let under_way = unsafe {
            let (fd, to) = (one.as_raw_fd(), info.as_mut_ptr().cast());
            let done = libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, to, &raw mut len);
            assert_eq!(done, 0);
            info.assume_init().tcpi_unacked
        };
        let before = sent;
        while let Ok(n) = one.write(&[0; 4096]) {
            sent += n;
        }
        if under_way == 0 && sent == before {
            return sent;
        }
        std::thread::yield_now();
    }
}

/// An end is part of every later event; and what a wake-up for room names beside it is nothing that
/// TCP ever says.
#[test]
fn hints_after_an_end_tell_it() {
    let _alone = alone();
    let set = Set::with_hints();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    for also in [0, WRBAND] {
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut other, _) = listener.accept().unwrap();
        one.set_nonblocking(true).unwrap();
        set.add(&one, IN | OUT | RDHUP | ET | also, 1);
        assert_eq!(set.ready(), [(1, OUT)]);
        let mut drain = |n| other.read_exact(&mut vec![0; n]).unwrap();
        let mut sent = fill(&one);
        let _ = set.ready();
        drain(sent);
        if also != 0 {
            assert_eq!(set.wait(8, LONG), [(1, OUT)]);
            sent = fill(&one);
            let _ = set.ready();
            drain(sent);
        }
        sent = fill(&one);
        let _ = set.ready();
        other.shutdown(std::net::Shutdown::Write).unwrap();
        // Each wake-up is an edge, and there may be several, of one change too.
        let next = || {
            let events = set.wait(8, LONG);
            assert_eq!(events.len(), 1, "{events:?}");
            events[0].1
        };
        let mut event = next();
        while event == OUT {
            event = next();
        }
        assert_eq!(event & !OUT, IN | RDHUP);
        other.read_exact(&mut vec![0; sent]).unwrap();
        let mut event = next();
        while event == IN | RDHUP {
            event = next();
        }
        assert_eq!(event, IN | OUT | RDHUP);
        close_tcp(one);
    }
    set.close();
}

pub(super) fn close_tcp(stream: TcpStream) {
    assert_eq!(wakeset_fd::close(stream.into_raw_fd()), Ok(()));
}

/// Everything that is sent is read by a reader that drains what it is told of, even if another is
/// faster.
#[test]
fn hints_lose_nothing() {
    const PAIRS: usize = 16;
    const ROUNDS: usize = 3000;
    let _alone = alone();
    let set = Set::with_hints();
    let pairs: Vec<_> = (0..PAIRS).map(|_| pair()).collect();
    for (i, (one, _)) in pairs.iter().enumerate() {
        set.add(one, IN | ET, i as u64);
    }
    let (ones, others): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    let (received, done) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..ROUNDS {
                let mut other = &others[round * 7 % PAIRS];
                other.write_all(b"x").unwrap();
                // Each byte has been read before the pair comes again, so each is an edge of its
                // own that may not be lost.
                while received.load(Ordering::SeqCst) + PAIRS / 2 <= round {
                    if done.load(Ordering::SeqCst) {
                        return;
                    }
                    std::thread::yield_now();
                }
            }
        });
        scope.spawn(|| {
            // Reads behind the set's back.
            while !done.load(Ordering::SeqCst) {
                received.fetch_add(drain(&ones[3]), Ordering::SeqCst);
                std::thread::yield_now();
            }
        });
        let _done = Ending(&done);
        while received.load(Ordering::SeqCst) < ROUNDS {
            for (which, events) in set.wait(4, LONG) {
                assert_eq!(events, IN);
                received.fetch_add(drain(&ones[which as usize]), Ordering::SeqCst);
            }
        }
    });
    set.close();
}
