use super::*;
use core::ptr;

/// Against a list that is searched: random plans, changes of plans, removals.
#[test]
fn the_heap_gives_what_is_due_in_order() {
    let mut plans = Plans::new();
    let mut expected: Vec<(usize, u64)> = Vec::new();
    let watch = |n: usize| ptr::without_provenance_mut::<Watch>((n + 1) * 64);
    let mut random = 1_u64;
    let mut next = |most: u64| {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % most
    };
    for round in 0..20_000 {
        let n = next(100) as usize;
        let there = expected.iter().position(|(other, _)| *other == n);
        match (there, next(4)) {
            (None, _) => {
                plans.insert(watch(n)).unwrap();
                expected.push((n, NEVER));
            }
            (Some(i), 0) => {
                plans.remove(watch(n));
                expected.swap_remove(i);
            }
            (Some(i), _) => {
                let at = if next(8) == 0 { NEVER } else { round + next(50) };
                let node = plans.find(watch(n)).unwrap();
                plans.set(node, at);
                expected[i].1 = at;
            }
        }
        let first = expected.iter().map(|(_, at)| *at).min().unwrap_or(NEVER);
        assert_eq!(plans.first(), first);
        if first < round {
            let due = plans.take_due(round).unwrap();
            let i = expected.iter().position(|(n, at)| watch(*n) == due && *at == first).unwrap();
            expected[i].1 = NEVER;
        } else {
            assert!(first == round || plans.take_due(round).is_none());
        }
        let planned = expected.iter().filter(|(_, at)| *at != NEVER).count();
        assert_eq!((plans.heap.len(), plans.index.len()), (planned, expected.len()));
    }
}
