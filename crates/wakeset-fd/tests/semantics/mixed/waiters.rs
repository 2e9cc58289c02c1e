//! Several waiters, several sets, and much traffic.

use super::*;

pub(super) fn one_edge_of_either_kind_wakes_one_waiter<B: Backend>() {
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

pub(super) fn exclusive_pipes<B: Backend>() {
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

/// A set with an exclusive watch on the counter, and with a socket; the socket's other end.
fn exclusive<B: Backend>(counter: &Counter<B>, data: u64) -> (Set<B>, Fd<B>, Fd<B>) {
    let (set, (socket, peer)) = (Set::new(), socket_pair());
    set.add(counter, IN | EXCLUSIVE, data);
    set.add(&socket, IN, 9);
    // An io_uring is this thread's, and the first wait of another one gives it up, for which it
    // sleeps as well.
    let first = set.clone();
    assert_eq!(Task::start(move || first.wait(1, 0).unwrap()).join(), []);
    (set, socket, peer)
}

fn waiter<B: Backend>(set: &Set<B>, max: usize) -> Task<Vec<Report>> {
    let set = set.clone();
    Task::asleep(move || set.wait(max, LONG).unwrap())
}

pub(super) fn one_of_three_exclusive_sets_is_woken<B: Backend>() {
    for max in [1, 4] {
        let counter = Counter::<B>::new(0);
        let sets: Vec<_> = (0..3).map(|data| exclusive(&counter, data)).collect();
        let tasks: Vec<_> = sets.iter().map(|(set, ..)| waiter(set, max)).collect();
        counter.write(1);
        let woken = ended(&tasks, 1);
        assert!((1..3).contains(&woken), "{woken} of 3 woken");
        for (data, task) in tasks.into_iter().enumerate() {
            while !task.has_ended() {
                counter.write(1);
                std::thread::sleep(Duration::from_micros(200));
            }
            assert_eq!(task.join(), [(data as u64, IN)]);
        }
    }
}

pub(super) fn a_waiter_woken_by_a_socket_does_not_take_the_wake<B: Backend>() {
    for _ in 0..10 {
        let counter = Counter::<B>::new(0);
        let (first, _socket, peer) = exclusive(&counter, 1);
        let second = Set::new();
        second.add(&counter, IN | EXCLUSIVE, 2);
        let tasks = [waiter(&first, 1), waiter(&second, 4)];
        assert_eq!(peer.write(b"x"), Ok(1));
        counter.write(1);
        let [first, second] = tasks;
        assert_eq!(first.join(), [(9, IN)]);
        assert_eq!(second.join(), [(2, IN)]);
    }
}

pub(super) fn a_mixed_set_in_a_set<B: Backend>() {
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

pub(super) fn a_set_of_pipes_only<B: Backend>() {
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
    // Wakeset does not know this descriptor; its bytes go through the kernel.
    assert_eq!(pipes[0].0.read(&mut [0; 8]), Ok(1));
    assert_eq!(pipes[0].0.read(&mut [0; 8]), Err(libc::EAGAIN));
}

pub(super) fn traffic_of_both_kinds_is_complete<B: Backend>() {
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
