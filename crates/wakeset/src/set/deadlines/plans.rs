//! The plans of one set: a heap by time, with where in it each watch is.

use crate::error::Error;
use crate::wake::watch::Watch;
use hashbrown::HashTable;

use crate::wake::timed::NEVER;
use alloc::vec::Vec;

/// In place of a heap position: not planned.
const NOWHERE: u32 = u32::MAX;
/// Children of a heap entry: fewer levels than two, and what is compared lies side by side.
const ARITY: usize = 4;

/// The plans of one set: a heap by time, and where in it each watch is. Memory for a watch is taken
/// when it is added.
#[derive(Debug)]
pub(in crate::set) struct Plans {
    heap: Vec<Plan>,
    nodes: Vec<Node>,
    /// Nodes by watch.
    index: HashTable<u32>,
    /// The first free node, `NOWHERE` for none; the next is in its `place`.
    free: u32,
}

#[derive(Clone, Copy, Debug)]
struct Plan {
    at: u64,
    node: u32,
}

#[derive(Debug)]
struct Node {
    watch: *mut Watch,
    /// Its index in the heap.
    place: u32,
}

fn hash(watch: *mut Watch) -> u64 {
    let mixed = (watch.addr() as u64 >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 32)
}

impl Plans {
    pub(in crate::set) const fn new() -> Self {
        Self { heap: Vec::new(), nodes: Vec::new(), index: HashTable::new(), free: NOWHERE }
    }

    /// Whether there was ever one, so that memory is to be freed.
    pub(in crate::set) fn have_memory(&self) -> bool {
        self.nodes.capacity() != 0 || self.index.capacity() != 0
    }

    /// Makes room for a watch.
    pub(in crate::set) fn insert(&mut self, watch: *mut Watch) -> Result<(), Error> {
        let rehash = |node: &u32| hash(self.nodes[*node as usize].watch);
        self.index.try_reserve(1, rehash).map_err(|_| Error::NoMemory)?;
        let all = self.index.len() + 1;
        self.heap.try_reserve(all - self.heap.len()).map_err(|_| Error::NoMemory)?;
        let node = match self.free {
            NOWHERE => {
                self.nodes.try_reserve(1).map_err(|_| Error::NoMemory)?;
                self.nodes.push(Node { watch, place: NOWHERE });
                (self.nodes.len() - 1) as u32
            }
            node => {
                let place = &mut self.nodes[node as usize];
                self.free = core::mem::replace(place, Node { watch, place: NOWHERE }).place;
                node
            }
        };
        self.index.insert_unique(hash(watch), node, |node| hash(self.nodes[*node as usize].watch));
        Ok(())
    }

    /// Forgets a watch.
    pub(in crate::set) fn remove(&mut self, watch: *mut Watch) {
        if self.index.is_empty() {
            return;
        }
        let nodes = &self.nodes;
        let Ok(entry) =
            self.index.find_entry(hash(watch), |node| nodes[*node as usize].watch == watch)
        else {
            return;
        };
        let (node, _) = entry.remove();
        self.set(node, NEVER);
        self.nodes[node as usize] = Node { watch: core::ptr::null_mut(), place: self.free };
        self.free = node;
    }

    pub(in crate::set) fn find(&self, watch: *mut Watch) -> Option<u32> {
        if self.index.is_empty() {
            return None;
        }
        self.index.find(hash(watch), |node| self.nodes[*node as usize].watch == watch).copied()
    }

    /// Whether there is room for it.
    pub(in crate::set) fn has(&self, watch: *mut Watch) -> bool {
        self.find(watch).is_some()
    }

    /// The earliest plan.
    pub(in crate::set) fn first(&self) -> u64 {
        self.heap.first().map_or(NEVER, |plan| plan.at)
    }

    /// When a node is planned for.
    pub(in crate::set) fn at(&self, node: u32) -> u64 {
        match self.nodes[node as usize].place {
            NOWHERE => NEVER,
            place => self.heap[place as usize].at,
        }
    }

    /// Takes out a watch whose time has come.
    pub(in crate::set) fn take_due(&mut self, now: u64) -> Option<*mut Watch> {
        let Plan { at, node } = *self.heap.first()?;
        if at > now {
            return None;
        }
        self.set(node, NEVER);
        Some(self.nodes[node as usize].watch)
    }

    /// Plans a node for `at`, `NEVER` for not at all.
    pub(in crate::set) fn set(&mut self, node: u32, at: u64) {
        let plan = Plan { at, node };
        let place = match self.nodes[node as usize].place {
            NOWHERE if at == NEVER => return,
            NOWHERE => {
                // Room for every node has been made.
                self.heap.push(plan);
                self.heap.len() - 1
            }
            place if at == NEVER => {
                self.nodes[node as usize].place = NOWHERE;
                let Some(last) = self.heap.pop().filter(|last| last.node != node) else { return };
                self.heap[place as usize] = last;
                place as usize
            }
            place => {
                self.heap[place as usize] = plan;
                place as usize
            }
        };
        let place = self.up(place);
        self.down(place);
    }

    /// Moves an entry towards the root while it is earlier than its parent; where it comes to lie.
    fn up(&mut self, mut place: usize) -> usize {
        let plan = self.heap[place];
        while let Some(parent) = place.checked_sub(1).map(|below| below / ARITY) {
            if self.heap[parent].at <= plan.at {
                break;
            }
            self.put(place, self.heap[parent]);
            place = parent;
        }
        self.put(place, plan);
        place
    }

    fn down(&mut self, mut place: usize) {
        let plan = self.heap[place];
        loop {
            let first = place * ARITY + 1;
            let children = first..(first + ARITY).min(self.heap.len());
            let Some(child) = children.min_by_key(|child| self.heap[*child].at) else { break };
            if self.heap[child].at >= plan.at {
                break;
            }
            self.put(place, self.heap[child]);
            place = child;
        }
        self.put(place, plan);
    }

    fn put(&mut self, place: usize, plan: Plan) {
        self.heap[place] = plan;
        self.nodes[plan.node as usize].place = place as u32;
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
