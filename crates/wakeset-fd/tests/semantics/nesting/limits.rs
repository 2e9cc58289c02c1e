//! Circles, depth, and the number of paths.

use super::*;

pub(super) fn a_set_does_not_watch_itself<B: Backend>() {
    let set = Set::<B>::new();
    assert_eq!(set.try_add(&set, IN, 1), Err(EINVAL));
    assert_eq!(set.try_modify(&set, IN, 1), Err(EINVAL));
    assert_eq!(set.try_remove(&set), Err(EINVAL));
    // Under another number it is still the same set.
    let same = set.dup();
    assert_eq!(set.try_add(&same, IN, 1), Err(EINVAL));
}

pub(super) fn a_circle_is_refused<B: Backend>() {
    let sets: [Set<B>; 4] = std::array::from_fn(|_| Set::new());
    sets[0].add(&sets[1], IN, 1);
    assert_eq!(sets[1].try_add(&sets[0], IN, 1), Err(ELOOP));
    sets[1].add(&sets[2], IN, 1);
    assert_eq!(sets[2].try_add(&sets[0], IN, 1), Err(ELOOP));
    assert_eq!(sets[2].try_add(&sets[1], IN | ET, 1), Err(ELOOP));
    sets[2].add(&sets[3], IN, 1);
    assert_eq!(sets[3].try_add(&sets[0], IN, 1), Err(ELOOP));
    // Two paths down to the same set are not a circle.
    sets[0].add(&sets[2], IN, 1);
    sets[0].add(&sets[3], IN, 1);
    sets[0].remove(&sets[1]);
    sets[1].add(&sets[0], IN, 1);
}

pub(super) fn a_refused_set_is_not_watched<B: Backend>() {
    let (one, other, counter) = (Set::<B>::new(), Set::new(), Counter::new(1));
    one.add(&other, IN, 1);
    assert_eq!(other.try_add(&one, IN, 2), Err(ELOOP));
    assert_eq!(other.try_remove(&one), Err(ENOENT));
    one.add(&counter, IN, 3);
    assert_eq!(other.ready(), []);
}

pub(super) fn chain<B: Backend>(n: usize) -> Vec<Set<B>> {
    let sets: Vec<Set<B>> = (0..n).map(|_| Set::new()).collect();
    for pair in sets.windows(2) {
        pair[0].add(&pair[1], IN, 1);
    }
    sets
}

pub(super) fn five_deep_and_no_deeper_from_below<B: Backend>() {
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

pub(super) fn five_deep_and_no_deeper_from_above<B: Backend>() {
    let sets = chain::<B>(5);
    assert_eq!(sets[4].try_add(&Set::<B>::new(), IN, 1), Err(ELOOP));
    let counter = Counter::new(1);
    sets[4].add(&counter, IN, 1);
    assert_eq!(sets[0].ready(), [(1, IN)]);
}

pub(super) fn five_deep_and_no_deeper_in_the_middle<B: Backend>() {
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

pub(super) fn adding_a_nested_set_twice_exists<B: Backend>() {
    let (outer, inner) = (Set::<B>::new(), Set::new());
    outer.add(&inner, IN, 1);
    assert_eq!(outer.try_add(&inner, IN, 1), Err(EEXIST));
    let same = inner.dup();
    outer.add(&same, IN, 2);
    assert_eq!(outer.try_add(&same, IN, 1), Err(EEXIST));
}

/// The kernel has a limit of 1000 for this too, and does not apply it.
pub(super) fn any_number_of_sets_may_watch_a_source<B: Backend>() {
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
pub(super) fn paths<B: Backend>(steps: usize, most: usize) -> usize {
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

pub(super) fn five_hundred_paths_of_one_step<B: Backend>() {
    assert_eq!(paths::<B>(1, 502), 500);
}

pub(super) fn a_hundred_paths_of_two_steps<B: Backend>() {
    assert_eq!(paths::<B>(2, 102), 100);
}

pub(super) fn fifty_paths_of_three_steps<B: Backend>() {
    assert_eq!(paths::<B>(3, 52), 50);
}

pub(super) fn ten_paths_of_four_steps<B: Backend>() {
    assert_eq!(paths::<B>(4, 12), 10);
}

/// 10 sets over one, and 10 over each of those: all 100 paths of two steps.
pub(super) fn paths_branch<B: Backend>() {
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
    // Paths of one step have their own limit.
    one_more.add(&below, IN, 2);
}

pub(super) fn a_leaf_that_comes_later_counts_too<B: Backend>() {
    raise_descriptor_limit();
    let sets = chain::<B>(4);
    let outer: Vec<Set<B>> = (0..11).map(|_| Set::new()).collect();
    for set in &outer {
        set.add(&sets[0], IN, 1);
    }
    let counter = Counter::new(1);
    assert_eq!(sets[3].try_add(&counter, IN, 1), Err(EINVAL));
    assert_eq!(sets[3].try_remove(&counter), Err(ENOENT));
    // One level up there are fewer steps to the top, and more paths are allowed.
    sets[2].add(&counter, IN, 1);
    assert_eq!(outer[0].ready(), [(1, IN)]);
}

pub(super) fn a_path_that_is_gone_makes_room<B: Backend>() {
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
