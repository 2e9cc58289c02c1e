use super::*;
use alloc::sync::Arc;
use alloc::vec::Vec;

struct Node(AtomicPtr<Node>);
impl Pooled for Node {
    fn vacant() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }
    fn link(&self) -> &AtomicPtr<Self> {
        &self.0
    }
}

fn nodes(mut node: *mut Node) -> Vec<usize> {
    let mut nodes = Vec::new();
    while !node.is_null() {
        nodes.push(node.addr());
        // SAFETY: nodes of a chain just taken.
        node = unsafe { &*node }.0.load(Ordering::Relaxed);
    }
    nodes
}

/// A pool with two free nodes. One thread takes twice and gives nothing back; another runs `other`,
/// which returns the nodes that it keeps. No two of them then have the same node.
fn two_takers(other: fn(&Pool<Node>) -> Vec<usize>) {
    crate::explore(3, move || {
        let pool = Arc::new(Pool::<Node>::new());
        let chain = pool.take(2).unwrap();
        let last = nodes(chain)[1];
        // SAFETY: the chain just taken.
        unsafe { pool.give(chain, ptr::with_exposed_provenance_mut(last)) };
        let other = {
            let pool = Arc::clone(&pool);
            loom::thread::spawn(move || other(&pool))
        };
        let mut taken = nodes(pool.take(1).unwrap());
        taken.extend(nodes(pool.take(1).unwrap()));
        taken.extend(other.join().unwrap());
        taken.sort_unstable();
        let n = taken.len();
        taken.dedup();
        assert_eq!(taken.len(), n, "one node was taken twice");
    });
}

/// Takes two nodes, and gives the first of them back.
fn take_two_and_give_one(pool: &Pool<Node>) -> Vec<usize> {
    let first = pool.take(1).unwrap();
    let second = pool.take(1).unwrap();
    // SAFETY: a chain of one just taken.
    unsafe { pool.give(first, first) };
    nodes(second)
}

/// Catches a free list with an ABA problem: a taker reads a link, another taker takes both nodes
/// and gives the first back, and the first taker's compare-and-swap succeeds, though its link leads
/// to the node in use.
#[test]
fn nothing_is_in_two_hands() {
    two_takers(take_two_and_give_one);
}

/// The same, with a taker that first finds the other one taking and must not wait for it.
#[test]
fn a_take_in_vain_disturbs_no_taker() {
    two_takers(|pool| {
        let in_vain = pool.take(1).unwrap();
        [nodes(in_vain), take_two_and_give_one(pool)].concat()
    });
}
