//! No descriptor starves another.

use super::*;

/// With `max` at a time, every one of `n` ready watches is served within `rounds` waits.
pub(super) fn everybody_is_served<B: Backend>(set: &Set<B>, n: usize, max: usize, rounds: usize) {
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
pub(super) fn rounds(n: usize, max: usize) -> usize {
    2 * n.div_ceil(max)
}

pub(super) fn many_counters_do_not_starve_a_pipe<B: Backend>() {
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

pub(super) fn many_pipes_do_not_starve_a_counter<B: Backend>() {
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

pub(super) fn a_busy_edge_does_not_starve_a_pipe<B: Backend>() {
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
