use super::*;

struct Node(AtomicPtr<Node>);
impl Pooled for Node {
    fn vacant() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }
    fn link(&self) -> &AtomicPtr<Self> {
        &self.0
    }
}

fn count(mut node: *mut Node) -> (usize, *mut Node) {
    let (mut n, mut last) = (0, node);
    while !node.is_null() {
        n += 1;
        last = node;
        // SAFETY: nodes of the test's own chain.
        node = unsafe { &*node }.0.load(Ordering::Relaxed);
    }
    (n, last)
}

#[test]
fn what_is_given_back_is_taken_again() {
    let pool = Pool::<Node>::new();
    let first = pool.take(8).unwrap();
    let (n, last) = count(first);
    assert_eq!(n, 8);
    // SAFETY: a chain just taken.
    unsafe { pool.give(first, last) };
    let some = pool.take(3).unwrap();
    assert_eq!(some, first, "no fresh memory while some is free");
    assert_eq!(count(some).0, 3);
    assert_eq!(count(pool.take(100).unwrap()).0, 5, "takes what is there rather than growing");
}

/// A regression test. When a pool had one stack, two takers that met there made fresh memory, which
/// stayed: the pool grew by 6 KiB a second under load.
#[test]
fn a_taker_that_stands_still_costs_no_memory_for_each_take() {
    let pool = Pool::<Node>::new();
    for stack in &pool.stacks {
        let _stopped = stack.taker.try_lock().unwrap();
        for _ in 0..1000 {
            let node = pool.take(1).unwrap();
            // SAFETY: a chain of one just taken.
            unsafe { pool.give(node, node) };
        }
    }
    assert!(pool.all() <= 8 * STACKS, "{} nodes for one at a time", pool.all());
}
