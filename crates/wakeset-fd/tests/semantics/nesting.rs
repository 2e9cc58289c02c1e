//! Sets in sets: a set is readable while something in it is ready.

use crate::backend::Backend;
use crate::objects::{
    Counter, Descriptor, ET, Fd, IN, LONG, ONESHOT, OUT, RDNORM, Set, WRNORM, pipe, raise_descriptor_limit,
};
use crate::task::Task;
use libc::{EEXIST, EINVAL, ELOOP, ENOENT};

on_both!(
    a_set_is_readable_while_something_in_it_is_ready,
    a_set_is_never_writable,
    looking_at_the_outer_set_takes_nothing_from_the_inner_one,
    what_is_drained_meanwhile_is_not_reported,
    an_outer_edge_for_every_write,
    an_inner_edge_taken_by_somebody_else_is_gone,
    an_outer_oneshot_reports_once,
    an_add_below_reaches_the_top,
    a_modify_below_reaches_the_top,
    a_ready_set_can_be_added,
    three_levels_down_level_triggered,
    three_levels_down_edge_triggered,
    three_levels_down_in_every_mixture,
    a_sleeper_at_the_top_is_woken,
    the_same_source_on_two_levels,
    one_set_in_two_outer_sets,
    of_two_sets_the_newest_watch_is_told_first,
    a_removed_inner_set_is_silent,
    a_kernel_descriptor_below,
    a_set_does_not_watch_itself,
    a_circle_is_refused,
    a_refused_set_is_not_watched,
    five_deep_and_no_deeper_from_below,
    five_deep_and_no_deeper_from_above,
    five_deep_and_no_deeper_in_the_middle,
    adding_a_nested_set_twice_exists,
    any_number_of_sets_may_watch_a_source,
    five_hundred_paths_of_one_step,
    a_hundred_paths_of_two_steps,
    fifty_paths_of_three_steps,
    ten_paths_of_four_steps,
    paths_branch,
    a_leaf_that_comes_later_counts_too,
    a_path_that_is_gone_makes_room,
);

fn a_set_is_readable_while_something_in_it_is_ready<B: Backend>() {
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

fn a_set_is_never_writable<B: Backend>() {
    let (outer, inner, counter) = (Set::<B>::new(), Set::new(), Counter::new(1));
    inner.add(&counter, IN | OUT, 1);
    outer.add(&inner, OUT | WRNORM, 2);
    assert_eq!(outer.ready(), []);
    outer.modify(&inner, IN | OUT | RDNORM | WRNORM, 2);
    assert_eq!(outer.ready(), [(2, IN | RDNORM)]);
}

fn looking_at_the_outer_set_takes_nothing_from_the_inner_one<B: Backend>() {
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

fn what_is_drained_meanwhile_is_not_reported<B: Backend>() {
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

/// Even though the inner watch is on its ready list all the time.
fn an_outer_edge_for_every_write<B: Backend>() {
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

fn an_inner_edge_taken_by_somebody_else_is_gone<B: Backend>() {
    let (outer, inner, counter) = (Set::<B>::new(), Set::new(), Counter::new(0));
    inner.add(&counter, IN | ET, 1);
    outer.add(&inner, IN | ET, 2);
    counter.write(1);
    assert_eq!(inner.ready(), [(1, IN)]);
    assert_eq!(outer.ready(), []);
    counter.write(1);
    assert_eq!(outer.ready(), [(2, IN)]);
}

fn an_outer_oneshot_reports_once<B: Backend>() {
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

fn an_add_below_reaches_the_top<B: Backend>() {
    for flags in [0, ET] {
        let (outer, inner, counter) = (Set::<B>::new(), Set::new(), Counter::new(1));
        outer.add(&inner, IN | flags, 2);
        assert_eq!(outer.ready(), []);
        inner.add(&counter, IN, 1);
        assert_eq!(outer.ready(), [(2, IN)]);
    }
}

fn a_modify_below_reaches_the_top<B: Backend>() {
    for flags in [0, ET] {
        let (outer, inner, counter) = (Set::<B>::new(), Set::new(), Counter::new(1));
        inner.add(&counter, 0, 1);
        outer.add(&inner, IN | flags, 2);
        assert_eq!(outer.ready(), []);
        inner.modify(&counter, IN, 1);
        assert_eq!(outer.ready(), [(2, IN)]);
    }
}

fn a_ready_set_can_be_added<B: Backend>() {
    let (outer, inner, counter) = (Set::<B>::new(), Set::new(), Counter::new(1));
    inner.add(&counter, IN, 1);
    outer.add(&inner, IN | ET, 2);
    assert_eq!(outer.ready(), [(2, IN)]);
    assert_eq!(outer.ready(), []);
}

/// Sets, each watching the one before, the first watching `source`; data is the level.
fn tower<B: Backend, const N: usize>(source: &impl Descriptor<B>, flags: [u32; N]) -> [Set<B>; N] {
    let sets: [Set<B>; N] = std::array::from_fn(|_| Set::new());
    sets[0].add(source, IN | flags[0], 0);
    for level in 1..N {
        sets[level].add(&sets[level - 1], IN | flags[level], level as u64);
    }
    sets
}

fn three_levels_down_level_triggered<B: Backend>() {
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

fn three_levels_down_edge_triggered<B: Backend>() {
    let counter = Counter::<B>::new(0);
    let sets = tower(&counter, [ET; 4]);
    for _ in 0..3 {
        counter.write(1);
        for level in [3, 2, 1, 0] {
            assert_eq!(sets[level].ready(), [(level as u64, IN)]);
            assert_eq!(sets[level].ready(), []);
        }
    }
    // From below: each look takes the reason for the report above it.
    counter.write(1);
    assert_eq!(sets[0].ready(), [(0, IN)]);
    for set in &sets[1..] {
        assert_eq!(set.ready(), []);
    }
}

fn three_levels_down_in_every_mixture<B: Backend>() {
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

fn a_sleeper_at_the_top_is_woken<B: Backend>() {
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

fn the_same_source_on_two_levels<B: Backend>() {
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

fn one_set_in_two_outer_sets<B: Backend>() {
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
fn of_two_sets_the_newest_watch_is_told_first<B: Backend>() {
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

fn a_removed_inner_set_is_silent<B: Backend>() {
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

fn a_kernel_descriptor_below<B: Backend>() {
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

fn a_set_does_not_watch_itself<B: Backend>() {
    let set = Set::<B>::new();
    assert_eq!(set.try_add(&set, IN, 1), Err(EINVAL));
    assert_eq!(set.try_modify(&set, IN, 1), Err(EINVAL));
    assert_eq!(set.try_remove(&set), Err(EINVAL));
    // Under another number it is still itself.
    let same = set.dup();
    assert_eq!(set.try_add(&same, IN, 1), Err(EINVAL));
}

fn a_circle_is_refused<B: Backend>() {
    let sets: [Set<B>; 4] = std::array::from_fn(|_| Set::new());
    sets[0].add(&sets[1], IN, 1);
    assert_eq!(sets[1].try_add(&sets[0], IN, 1), Err(ELOOP));
    sets[1].add(&sets[2], IN, 1);
    assert_eq!(sets[2].try_add(&sets[0], IN, 1), Err(ELOOP));
    assert_eq!(sets[2].try_add(&sets[1], IN | ET, 1), Err(ELOOP));
    sets[2].add(&sets[3], IN, 1);
    assert_eq!(sets[3].try_add(&sets[0], IN, 1), Err(ELOOP));
    // Two ways down to the same set are no circle.
    sets[0].add(&sets[2], IN, 1);
    sets[0].add(&sets[3], IN, 1);
    sets[0].remove(&sets[1]);
    sets[1].add(&sets[0], IN, 1);
}

fn a_refused_set_is_not_watched<B: Backend>() {
    let (one, other, counter) = (Set::<B>::new(), Set::new(), Counter::new(1));
    one.add(&other, IN, 1);
    assert_eq!(other.try_add(&one, IN, 2), Err(ELOOP));
    assert_eq!(other.try_remove(&one), Err(ENOENT));
    one.add(&counter, IN, 3);
    assert_eq!(other.ready(), []);
}

fn chain<B: Backend>(n: usize) -> Vec<Set<B>> {
    let sets: Vec<Set<B>> = (0..n).map(|_| Set::new()).collect();
    for pair in sets.windows(2) {
        pair[0].add(&pair[1], IN, 1);
    }
    sets
}

fn five_deep_and_no_deeper_from_below<B: Backend>() {
    let sets: Vec<Set<B>> = (0..6).map(|_| Set::new()).collect();
    for outer in 1..5 {
        sets[outer].add(&sets[outer - 1], IN, 1);
    }
    assert_eq!(sets[5].try_add(&sets[4], IN, 1), Err(ELOOP));
    // A source below the last one is not a level.
    let counter = Counter::new(1);
    sets[0].add(&counter, IN, 1);
    assert_eq!(sets[4].ready(), [(1, IN)]);
}

fn five_deep_and_no_deeper_from_above<B: Backend>() {
    let sets = chain::<B>(5);
    assert_eq!(sets[4].try_add(&Set::<B>::new(), IN, 1), Err(ELOOP));
    let counter = Counter::new(1);
    sets[4].add(&counter, IN, 1);
    assert_eq!(sets[0].ready(), [(1, IN)]);
}

fn five_deep_and_no_deeper_in_the_middle<B: Backend>() {
    for upper in 1..6 {
        let (above, below) = (chain::<B>(upper), chain::<B>(6 - upper));
        let joined = above.last().unwrap().try_add(&below[0], IN, 1);
        assert_eq!(joined, Err(ELOOP), "{upper} above, {} below", 6 - upper);
    }
    for upper in 1..5 {
        let (above, below) = (chain::<B>(upper), chain::<B>(5 - upper));
        let joined = above.last().unwrap().try_add(&below[0], IN, 1);
        assert_eq!(joined, Ok(()), "{upper} above, {} below", 5 - upper);
    }
}

fn adding_a_nested_set_twice_exists<B: Backend>() {
    let (outer, inner) = (Set::<B>::new(), Set::new());
    outer.add(&inner, IN, 1);
    assert_eq!(outer.try_add(&inner, IN, 1), Err(EEXIST));
    let same = inner.dup();
    outer.add(&same, IN, 2);
    assert_eq!(outer.try_add(&same, IN, 1), Err(EEXIST));
}

/// The kernel has a limit of 1000 for this too, and does not apply it.
fn any_number_of_sets_may_watch_a_source<B: Backend>() {
    raise_descriptor_limit();
    let counter = Counter::<B>::new(0);
    let sets: Vec<Set<B>> = (0..1100)
        .map(|data| {
            let set = Set::new();
            set.add(&counter, IN, data);
            set
        })
        .collect();
    counter.write(1);
    assert_eq!(sets[0].ready(), [(0, IN)]);
    assert_eq!(sets[1099].ready(), [(1099, IN)]);
}

/// How many sets may watch the top of a chain of `steps` sets over one counter, up to `most`.
fn paths<B: Backend>(steps: usize, most: usize) -> usize {
    raise_descriptor_limit();
    let counter = Counter::<B>::new(0);
    let chain = chain::<B>(steps);
    chain[steps - 1].add(&counter, IN, 0);
    let outer: Vec<Set<B>> = (0..most).map(|_| Set::new()).collect();
    let watching = outer.iter().take_while(|set| match set.try_add(&chain[0], IN, 1) {
        Ok(()) => true,
        Err(errno) => {
            assert_eq!(errno, EINVAL);
            assert_eq!(set.try_remove(&chain[0]), Err(ENOENT));
            false
        }
    });
    let watching = watching.count();
    counter.write(1);
    assert_eq!(outer[watching - 1].ready(), [(1, IN)]);
    watching
}

fn five_hundred_paths_of_one_step<B: Backend>() {
    assert_eq!(paths::<B>(1, 502), 500);
}

fn a_hundred_paths_of_two_steps<B: Backend>() {
    assert_eq!(paths::<B>(2, 102), 100);
}

fn fifty_paths_of_three_steps<B: Backend>() {
    assert_eq!(paths::<B>(3, 52), 50);
}

fn ten_paths_of_four_steps<B: Backend>() {
    assert_eq!(paths::<B>(4, 12), 10);
}

/// 10 sets over one, and 10 over each of those: all 100 ways of two steps.
fn paths_branch<B: Backend>() {
    raise_descriptor_limit();
    let (counter, below) = (Counter::<B>::new(0), Set::<B>::new());
    below.add(&counter, IN, 0);
    let middle: Vec<Set<B>> = (0..10).map(|_| Set::new()).collect();
    let top: Vec<Set<B>> = (0..10).map(|_| Set::new()).collect();
    for middle in &middle {
        middle.add(&below, IN, 1);
        for top in &top {
            top.add(middle, IN, 2);
        }
    }
    let one_more = Set::new();
    assert_eq!(one_more.try_add(&middle[0], IN, 2), Err(EINVAL));
    // Ways of one step have their own limit.
    one_more.add(&below, IN, 2);
}

fn a_leaf_that_comes_later_counts_too<B: Backend>() {
    raise_descriptor_limit();
    let sets = chain::<B>(4);
    let outer: Vec<Set<B>> = (0..11).map(|_| Set::new()).collect();
    for set in &outer {
        set.add(&sets[0], IN, 1);
    }
    let counter = Counter::new(1);
    assert_eq!(sets[3].try_add(&counter, IN, 1), Err(EINVAL));
    assert_eq!(sets[3].try_remove(&counter), Err(ENOENT));
    // One level up there are fewer steps to the top, and room for more ways.
    sets[2].add(&counter, IN, 1);
    assert_eq!(outer[0].ready(), [(1, IN)]);
}

fn a_path_that_is_gone_makes_room<B: Backend>() {
    let counter = Counter::<B>::new(0);
    let sets = chain::<B>(4);
    sets[3].add(&counter, IN, 0);
    let mut outer: Vec<Set<B>> = (0..11).map(|_| Set::new()).collect();
    for set in &outer[..10] {
        set.add(&sets[0], IN, 1);
    }
    assert_eq!(outer[10].try_add(&sets[0], IN, 1), Err(EINVAL));
    outer[3].remove(&sets[0]);
    outer[10].add(&sets[0], IN, 1);
    assert_eq!(outer[3].try_add(&sets[0], IN, 1), Err(EINVAL));
    drop(outer.remove(5));
    outer[3].add(&sets[0], IN, 1);
}
