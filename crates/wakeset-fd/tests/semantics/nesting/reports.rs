//! What an outer set reports.

use super::*;

pub(super) fn a_set_is_readable_while_something_in_it_is_ready<B: Backend>() {
    let (outer, inner, counter) = (Set::<B>::new(), Set::new(), Counter::new(0));
    inner.add(&counter, IN, 1);
    outer.add(&inner, IN, 2);
    assert_eq!(outer.ready(), []);
    counter.write(1);
    assert_eq!(outer.ready(), [(2, IN)]);
    assert_eq!(outer.ready(), [(2, IN)]);
    assert_eq!(inner.ready(), [(1, IN)]);
    counter.drain();
    assert_eq!(outer.ready(), []);
    assert_eq!(inner.ready(), []);
}

pub(super) fn a_set_is_never_writable<B: Backend>() {
    let (outer, inner, counter) = (Set::<B>::new(), Set::new(), Counter::new(1));
    inner.add(&counter, IN | OUT, 1);
    outer.add(&inner, OUT | WRNORM, 2);
    assert_eq!(outer.ready(), []);
    outer.modify(&inner, IN | OUT | RDNORM | WRNORM, 2);
    assert_eq!(outer.ready(), [(2, IN | RDNORM)]);
}

pub(super) fn looking_at_the_outer_set_takes_nothing_from_the_inner_one<B: Backend>() {
    let (outer, inner, counter) = (Set::<B>::new(), Set::new(), Counter::new(0));
    inner.add(&counter, IN | ET, 1);
    outer.add(&inner, IN, 2);
    counter.write(1);
    for _ in 0..3 {
        assert_eq!(outer.ready(), [(2, IN)]);
    }
    assert_eq!(inner.ready(), [(1, IN)]);
    assert_eq!(inner.ready(), []);
    assert_eq!(outer.ready(), []);
    counter.write(1);
    assert_eq!(outer.ready(), [(2, IN)]);
}

pub(super) fn what_is_drained_meanwhile_is_not_reported<B: Backend>() {
    for flags in [0, ET] {
        let (outer, inner, counter) = (Set::<B>::new(), Set::new(), Counter::new(0));
        inner.add(&counter, IN | flags, 1);
        outer.add(&inner, IN | flags, 2);
        counter.write(1);
        counter.drain();
        assert_eq!(outer.ready(), []);
        counter.write(1);
        assert_eq!(outer.ready(), [(2, IN)]);
        assert_eq!(inner.ready(), [(1, IN)]);
    }
}

/// The outer edge comes even though the inner watch is on its ready list all the time.
pub(super) fn an_outer_edge_for_every_write<B: Backend>() {
    for flags in [0, ET] {
        let (outer, inner, counter) = (Set::<B>::new(), Set::new(), Counter::new(0));
        inner.add(&counter, IN | flags, 1);
        outer.add(&inner, IN | ET, 2);
        for _ in 0..3 {
            counter.write(1);
            assert_eq!(outer.ready(), [(2, IN)]);
            assert_eq!(outer.ready(), []);
        }
        assert_eq!(inner.ready(), [(1, IN)]);
    }
}

pub(super) fn an_inner_edge_taken_by_somebody_else_is_gone<B: Backend>() {
    let (outer, inner, counter) = (Set::<B>::new(), Set::new(), Counter::new(0));
    inner.add(&counter, IN | ET, 1);
    outer.add(&inner, IN | ET, 2);
    counter.write(1);
    assert_eq!(inner.ready(), [(1, IN)]);
    assert_eq!(outer.ready(), []);
    counter.write(1);
    assert_eq!(outer.ready(), [(2, IN)]);
}

pub(super) fn an_outer_oneshot_reports_once<B: Backend>() {
    let (outer, inner, counter) = (Set::<B>::new(), Set::new(), Counter::new(0));
    inner.add(&counter, IN, 1);
    outer.add(&inner, IN | ONESHOT, 2);
    counter.write(1);
    assert_eq!(outer.ready(), [(2, IN)]);
    counter.write(1);
    assert_eq!(outer.ready(), []);
    outer.modify(&inner, IN | ONESHOT, 3);
    assert_eq!(outer.ready(), [(3, IN)]);
}

pub(super) fn an_add_below_reaches_the_top<B: Backend>() {
    for flags in [0, ET] {
        let (outer, inner, counter) = (Set::<B>::new(), Set::new(), Counter::new(1));
        outer.add(&inner, IN | flags, 2);
        assert_eq!(outer.ready(), []);
        inner.add(&counter, IN, 1);
        assert_eq!(outer.ready(), [(2, IN)]);
    }
}

pub(super) fn a_modify_below_reaches_the_top<B: Backend>() {
    for flags in [0, ET] {
        let (outer, inner, counter) = (Set::<B>::new(), Set::new(), Counter::new(1));
        inner.add(&counter, 0, 1);
        outer.add(&inner, IN | flags, 2);
        assert_eq!(outer.ready(), []);
        inner.modify(&counter, IN, 1);
        assert_eq!(outer.ready(), [(2, IN)]);
    }
}

pub(super) fn a_ready_set_can_be_added<B: Backend>() {
    let (outer, inner, counter) = (Set::<B>::new(), Set::new(), Counter::new(1));
    inner.add(&counter, IN, 1);
    outer.add(&inner, IN | ET, 2);
    assert_eq!(outer.ready(), [(2, IN)]);
    assert_eq!(outer.ready(), []);
}

/// Sets of which the first watches `source` and each other one the set before it. The data is the
/// level.
pub(super) fn tower<B: Backend, const N: usize>(
    source: &impl Descriptor<B>,
    flags: [u32; N],
) -> [Set<B>; N] {
    let sets: [Set<B>; N] = std::array::from_fn(|_| Set::new());
    sets[0].add(source, IN | flags[0], 0);
    for level in 1..N {
        sets[level].add(&sets[level - 1], IN | flags[level], level as u64);
    }
    sets
}

pub(super) fn three_levels_down_level_triggered<B: Backend>() {
    let counter = Counter::<B>::new(0);
    let sets = tower(&counter, [0; 4]);
    assert_eq!(sets[3].ready(), []);
    counter.write(1);
    for _ in 0..2 {
        assert_eq!(sets[3].ready(), [(3, IN)]);
        assert_eq!(sets[2].ready(), [(2, IN)]);
        assert_eq!(sets[1].ready(), [(1, IN)]);
        assert_eq!(sets[0].ready(), [(0, IN)]);
    }
    counter.drain();
    for set in &sets {
        assert_eq!(set.ready(), []);
    }
    counter.write(1);
    assert_eq!(sets[3].ready(), [(3, IN)]);
}

pub(super) fn three_levels_down_edge_triggered<B: Backend>() {
    let counter = Counter::<B>::new(0);
    let sets = tower(&counter, [ET; 4]);
    for _ in 0..3 {
        counter.write(1);
        for level in [3, 2, 1, 0] {
            assert_eq!(sets[level].ready(), [(level as u64, IN)]);
            assert_eq!(sets[level].ready(), []);
        }
    }
    // From below: each wait takes away the reason for the report above it.
    counter.write(1);
    assert_eq!(sets[0].ready(), [(0, IN)]);
    for set in &sets[1..] {
        assert_eq!(set.ready(), []);
    }
}

pub(super) fn three_levels_down_in_every_mixture<B: Backend>() {
    for mixture in 0..16u32 {
        let flags: [u32; 4] = std::array::from_fn(|i| if mixture >> i & 1 != 0 { ET } else { 0 });
        let counter = Counter::<B>::new(0);
        let sets = tower(&counter, flags);
        for write in 0..3 {
            counter.write(1);
            assert_eq!(sets[3].ready(), [(3, IN)], "{flags:x?}, write {write}");
            let again = if flags[3] == ET { vec![] } else { vec![(3, IN)] };
            assert_eq!(sets[3].ready(), again, "{flags:x?}, write {write}");
        }
        counter.drain();
        assert_eq!(sets[3].ready(), [], "{flags:x?}, drained");
        counter.write(1);
        assert_eq!(sets[3].ready(), [(3, IN)], "{flags:x?}, refilled");
    }
}

pub(super) fn a_sleeper_at_the_top_is_woken<B: Backend>() {
    for flags in [[0; 4], [ET; 4], [ET, 0, ET, 0], [0, ET, 0, ET]] {
        let counter = Counter::<B>::new(0);
        let sets = tower(&counter, flags);
        for _ in 0..20 {
            let top = sets[3].clone();
            let task = Task::asleep(move || top.wait(4, LONG));
            counter.write(1);
            assert_eq!(task.join(), Ok(vec![(3, IN)]), "{flags:x?}");
            counter.drain();
        }
    }
}

pub(super) fn the_same_source_on_two_levels<B: Backend>() {
    let (outer, inner, counter) = (Set::<B>::new(), Set::new(), Counter::new(0));
    inner.add(&counter, IN, 1);
    outer.add(&inner, IN, 2);
    outer.add(&counter, IN, 3);
    counter.write(1);
    let mut both = outer.ready();
    both.sort_unstable();
    assert_eq!(both, [(2, IN), (3, IN)]);
    counter.drain();
    assert_eq!(outer.ready(), []);
}

pub(super) fn one_set_in_two_outer_sets<B: Backend>() {
    let (one, other, inner, counter) = (Set::<B>::new(), Set::new(), Set::new(), Counter::new(0));
    inner.add(&counter, IN, 1);
    one.add(&inner, IN | ET, 2);
    other.add(&inner, IN, 3);
    counter.write(1);
    assert_eq!(one.ready(), [(2, IN)]);
    assert_eq!(one.ready(), []);
    assert_eq!(other.ready(), [(3, IN)]);
    counter.write(1);
    assert_eq!(one.ready(), [(2, IN)]);
}

/// The order of a source's wait queue, seen through two sets that watch it.
pub(super) fn of_two_sets_the_newest_watch_is_told_first<B: Backend>() {
    let (outer, counter) = (Set::<B>::new(), Counter::new(0));
    let inner: [Set<B>; 3] = std::array::from_fn(|_| Set::new());
    for (i, inner) in inner.iter().enumerate() {
        outer.add(inner, IN | ET, i as u64);
    }
    for i in [1, 0, 2] {
        inner[i].add(&counter, IN | ET, 9);
    }
    counter.write(1);
    assert_eq!(outer.ready(), [(2, IN), (0, IN), (1, IN)]);
    inner[0].remove(&counter);
    inner[0].add(&counter, IN | ET, 9);
    assert_eq!(outer.ready(), [(0, IN)]);
    counter.write(1);
    assert_eq!(outer.ready(), [(0, IN), (2, IN), (1, IN)]);
}

pub(super) fn a_removed_inner_set_is_silent<B: Backend>() {
    let (outer, inner, counter) = (Set::<B>::new(), Set::new(), Counter::new(0));
    inner.add(&counter, IN, 1);
    outer.add(&inner, IN, 2);
    counter.write(1);
    outer.remove(&inner);
    assert_eq!(outer.ready(), []);
    assert_eq!(outer.try_remove(&inner), Err(ENOENT));
    counter.write(1);
    assert_eq!(outer.ready(), []);
    assert_eq!(inner.ready(), [(1, IN)]);
}

pub(super) fn a_kernel_descriptor_below<B: Backend>() {
    for flags in [[0; 3], [ET; 3]] {
        let (reader, writer): (Fd<B>, Fd<B>) = pipe();
        let sets = tower(&reader, flags);
        for _ in 0..3 {
            assert_eq!(sets[2].ready(), []);
            let top = sets[2].clone();
            let task = Task::asleep(move || top.wait(4, LONG));
            writer.write(b"x").unwrap();
            assert_eq!(task.join(), Ok(vec![(2, IN)]), "{flags:x?}");
            assert_eq!(sets[1].ready(), [(1, IN)]);
            assert_eq!(sets[0].ready(), [(0, IN)]);
            assert_eq!(reader.read(&mut [0; 8]), Ok(1));
        }
    }
}
