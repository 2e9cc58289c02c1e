//! What a set reports of an end.

use super::*;

pub(super) fn each_write_is_an_edge<B: Streams>() {
    let (set, (reader, writer)) = (Set::<B>::new(), nonblocking::<B>());
    set.add(&reader, IN | ET, 1);
    assert_eq!(set.ready(), []);
    for bytes in [
        &b"x"[..],
        b"x",
        b"y",
        b"long enough for two nodes of which each has room for fifty-six bytes",
    ] {
        assert_eq!(writer.write(bytes), Ok(bytes.len()));
        assert_eq!(set.ready(), [(1, IN)]);
        assert_eq!(set.ready(), []);
    }
    // A read that leaves something is not an edge.
    assert_eq!(read(&reader, 1), Ok(b"x".to_vec()));
    assert_eq!(set.ready(), []);
    assert!(read(&reader, 1000).is_ok());
    assert_eq!(set.ready(), []);
}

pub(super) fn only_a_read_of_a_full_one_is_an_edge_to_the_writer<B: Streams>() {
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

pub(super) fn reports_what_it_was_asked_for<B: Streams>() {
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

pub(super) fn one_of_two_exclusive_sets_is_woken<B: Streams>() {
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

pub(super) fn a_oneshot_watch_reports_once<B: Streams>() {
    let (set, (reader, writer)) = (Set::<B>::new(), nonblocking::<B>());
    set.add(&reader, IN | ONESHOT, 1);
    assert_eq!(writer.write(b"x"), Ok(1));
    assert_eq!(set.ready(), [(1, IN)]);
    assert_eq!(writer.write(b"x"), Ok(1));
    assert_eq!(set.ready(), []);
    set.modify(&reader, IN | ONESHOT, 2);
    assert_eq!(set.ready(), [(2, IN)]);
}
