//! What is reported, and what wakes a sleeper.

use super::*;

pub(super) fn both_kinds_are_reported<B: Backend>() {
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

pub(super) fn both_kinds_at_once<B: Backend>() {
    for _ in 0..50 {
        let m = mixed::<B>(ET);
        m.fill_pipe();
        m.counter.write(1);
        assert_eq!(m.ready(), [(1, IN), (2, IN)]);
        assert_eq!(m.ready(), []);
    }
}

/// A thread sleeps with each kind of limit, and is woken by each kind of descriptor.
pub(super) fn woken_by_either<B: Backend>(
    wait: impl Fn(&Set<B>) -> Vec<(u64, u32)> + Send + Clone + 'static,
) {
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

pub(super) fn a_sleeper_is_woken_by_either<B: Backend>() {
    woken_by_either::<B>(|set| set.wait(4, -1).unwrap());
    woken_by_either::<B>(|set| set.wait_masked(None, None).unwrap());
}

pub(super) fn a_sleeper_with_a_limit_is_woken_by_either<B: Backend>() {
    woken_by_either::<B>(|set| set.wait(4, LONG).unwrap());
    woken_by_either::<B>(|set| set.wait_masked(Some(Duration::from_secs(30)), Some(0)).unwrap());
}

pub(super) fn a_first_pipe_may_come_while_somebody_sleeps<B: Backend>() {
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

pub(super) fn a_first_counter_may_come_while_somebody_sleeps<B: Backend>() {
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

pub(super) fn edges_of_both_kinds<B: Backend>() {
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

pub(super) fn oneshots_of_both_kinds<B: Backend>() {
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

pub(super) fn changes_of_both_kinds<B: Backend>() {
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

/// Neither is ready when it is asked for.
pub(super) fn a_change_hears_of_what_it_asks_for<B: Backend>() {
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

pub(super) fn removing_one_kind_leaves_the_other<B: Backend>() {
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

pub(super) fn room_for_one_at_a_time_serves_both<B: Backend>() {
    let m = mixed::<B>(ONESHOT);
    m.counter.write(1);
    m.fill_pipe();
    let mut got = [m.set.next(), m.set.next()];
    got.sort_unstable();
    assert_eq!(got, [(1, IN), (2, IN)]);
    assert_eq!(m.ready(), []);
}
