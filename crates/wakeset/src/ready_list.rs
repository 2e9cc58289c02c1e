//! The ready list, first half: where wakers put watches. The second half, the harvester's own queue, is in
//! [`set`](crate::set), behind the scan lock.
//!
//! The list is a type parameter of [`EventPoll`](crate::EventPoll). [`LockFree`] is what everybody should use; [`SpinLock`] and
//! [`RwLock`] are built as Linux built its list before and after 2019 so that the trade can be measured. Both break
//! the rule that a stopped waker stops nobody else.

use crate::steps::step;
use crate::sync::{AtomicPtr, AtomicU32, Ordering};
use crate::watch::Watch;
use core::ptr;

mod sealed {
    pub trait Sealed {}
}

/// How wakers hand watches to the harvester. Sealed: its contract is the wake path's.
pub trait ReadyList: sealed::Sealed + Send + Sync + 'static {
    /// Which list this is; the wake path branches on it.
    #[doc(hidden)]
    const POLICY: Policy;
}

/// A push stack, taken whole and reversed: a push is one compare-and-swap, and a waker stopped before or after it
/// hides nobody else's watch. Allocates nothing, and may run in a signal handler.
#[derive(Debug)]
pub enum LockFree {}
/// The list behind a spinlock, taken for every event (Linux up to 5.0, and from 6.17). For the benchmark only.
#[derive(Debug)]
pub enum SpinLock {}
/// The list behind a read-write lock: wakers share it, the harvester excludes them (Linux 5.1 to 6.16). For the benchmark only.
#[derive(Debug)]
pub enum RwLock {}

impl sealed::Sealed for LockFree {}
impl sealed::Sealed for SpinLock {}
impl sealed::Sealed for RwLock {}
impl ReadyList for LockFree {
    const POLICY: Policy = Policy::LockFree;
}
impl ReadyList for SpinLock {
    const POLICY: Policy = Policy::SpinLock;
}
impl ReadyList for RwLock {
    const POLICY: Policy = Policy::RwLock;
}

/// The policy as a value, kept in each set.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Policy {
    LockFree = 0,
    SpinLock = 1,
    RwLock = 2,
}

const WRITER: u32 = 1 << 31;

/// The bit of the head that calls for attention. Watches are 64-byte aligned.
const ATTENTION: usize = 1;

fn untagged(head: *mut Watch) -> *mut Watch {
    head.map_addr(|address| address & !ATTENTION)
}

/// The wakers' side of the list: last pushed first, linked through [`Watch::next`].
#[derive(Debug)]
pub(crate) struct Incoming {
    head: AtomicPtr<Watch>,
    /// The lock word of the two locked policies: 0 free, `WRITER` held alone, else the number of sharers.
    lock: AtomicU32,
}

impl Incoming {
    pub(crate) fn new() -> Self {
        Self { head: AtomicPtr::new(ptr::null_mut()), lock: AtomicU32::new(0) }
    }

    /// Whether nothing has been pushed and nobody calls for attention.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.head.load(ordering!(SeqCst, "list_look_relaxed")).is_null()
    }

    /// Puts a watch on the list.
    ///
    /// # Safety
    /// The caller has turned on the watch's `QUEUED` bit and so owns its `next` link; the watch is type-stable.
    #[inline]
    pub(crate) unsafe fn push(&self, watch: *mut Watch) {
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            step!(push_before);
            // SAFETY: the caller owns the link.
            unsafe { &*watch }.next.store(untagged(head), Ordering::Relaxed);
            // SeqCst: the first half of publish-then-check with a waiter that counts itself in and then looks
            // here (`Sleepers::kick`). No ABA problem: nothing is ever popped singly.
            let attention = if mutant!("push_drops_attention") { 0 } else { head.addr() & ATTENTION };
            let tagged = watch.map_addr(|address| address | attention);
            step!(push_linked);
            match self.head.compare_exchange(head, tagged, ordering!(SeqCst, "push_relaxed"), Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => head = now,
            }
        }
        step!(push_done);
    }

    /// Makes the next harvest look for marked watches that are not on the list.
    #[cold]
    pub(crate) fn call_attention(&self) {
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            let tagged = head.map_addr(|address| address | ATTENTION);
            step!(attention_before);
            // Also if it is called already: the read-modify-write is what the check of the sleepers needs.
            match self.head.compare_exchange(head, tagged, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => head = now,
            }
        }
        step!(attention_called);
    }

    /// Takes everything, last pushed first, and whether attention was called.
    pub(crate) fn take(&self) -> (*mut Watch, bool) {
        if self.is_empty() {
            return (ptr::null_mut(), false);
        }
        step!(take_before);
        let head = if mutant!("take_in_two_steps") {
            let head = self.head.load(Ordering::SeqCst);
            self.head.store(ptr::null_mut(), Ordering::SeqCst);
            head
        } else {
            self.head.swap(ptr::null_mut(), ordering!(SeqCst, "take_relaxed"))
        };
        step!(taken);
        (untagged(head), head.addr() & ATTENTION != 0)
    }

    /// Runs `f` as a waker of a locked policy does: with the list locked against the harvester, and for the
    /// spinlock against the other wakers.
    pub(crate) fn locked_by_waker<T>(&self, policy: Policy, f: impl FnOnce() -> T) -> T {
        match policy {
            Policy::LockFree => f(),
            Policy::SpinLock => self.exclusively(f),
            Policy::RwLock => {
                loop {
                    let sharers = self.lock.load(Ordering::Relaxed);
                    if (sharers & WRITER == 0 || mutant!("sharers_ignore_the_harvester"))
                        && self
                            .lock
                            .compare_exchange_weak(
                                sharers,
                                sharers + 1,
                                ordering!(Acquire, "list_share_relaxed"),
                                Ordering::Relaxed,
                            )
                            .is_ok()
                    {
                        break;
                    }
                    relax();
                }
                let result = f();
                self.lock.fetch_sub(1, ordering!(Release, "list_unshare_relaxed"));
                result
            }
        }
    }

    /// Runs `f` as the harvester of a locked policy does: alone.
    pub(crate) fn locked_by_harvester<T>(&self, policy: Policy, f: impl FnOnce() -> T) -> T {
        match policy {
            Policy::LockFree => f(),
            Policy::SpinLock | Policy::RwLock => self.exclusively(f),
        }
    }

    fn exclusively<T>(&self, f: impl FnOnce() -> T) -> T {
        while self
            .lock
            .compare_exchange_weak(0, WRITER, ordering!(Acquire, "list_lock_relaxed"), Ordering::Relaxed)
            .is_err()
        {
            relax();
        }
        let result = f();
        self.lock.store(0, ordering!(Release, "list_unlock_relaxed"));
        result
    }
}

/// One turn of a spin: gives the CPU away, because the holder may be waiting for it. (The kernel's own spinlocks are
/// held with preemption off; user space has no such thing, which is one more reason not to use these.)
fn relax() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(shuttle)]
    shuttle::thread::yield_now();
    #[cfg(not(any(loom, shuttle)))]
    rustix::thread::sched_yield();
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::pool::Pooled;
    use alloc::boxed::Box;
    use alloc::sync::Arc;
    use alloc::vec::Vec;

    /// Catches a push that loses another's watch or call for attention, and a take that gives one watch to two takers or tears
    /// the chain.
    #[test]
    fn each_push_is_taken_once() {
        crate::explore(3, || {
            let watches: Arc<[Box<Watch>]> = (0..3).map(|_| Box::new(Watch::vacant())).collect();
            let list = Arc::new(Incoming::new());
            let push = |list: &Incoming, watch: &Watch| {
                // SAFETY: each watch is pushed once, so its link is the pusher's, and it outlives the list.
                unsafe { list.push(ptr::from_ref(watch).cast_mut()) };
            };
            let called = core::cell::Cell::new(false);
            let taken = |list: &Incoming| {
                let mut taken = Vec::new();
                let (mut watch, attention) = list.take();
                called.set(called.get() | attention);
                while !watch.is_null() {
                    taken.push(watch.addr());
                    // SAFETY: one of `watches`.
                    watch = unsafe { &*watch }.next.load(Ordering::Relaxed);
                }
                taken
            };
            let pushers = [0, 1].map(|i| {
                let (list, watches) = (Arc::clone(&list), Arc::clone(&watches));
                loom::thread::spawn(move || {
                    push(&list, &watches[i]);
                    if i == 0 {
                        list.call_attention();
                        push(&list, &watches[2]);
                    }
                })
            });
            let mut all = taken(&list);
            for pusher in pushers {
                pusher.join().unwrap();
            }
            all.extend(taken(&list));
            all.sort_unstable();
            let mut pushed: Vec<_> = watches.iter().map(|watch| ptr::from_ref::<Watch>(watch).addr()).collect();
            pushed.sort_unstable();
            assert_eq!((all, called.get()), (pushed, true));
        });
    }

    type Shared = (Incoming, loom::cell::UnsafeCell<u32>);

    /// Runs both at once, on a list and a cell of which loom checks that who writes it is alone.
    #[allow(clippy::arc_with_non_send_sync, reason = "the cell is what loom checks")]
    fn together(one: fn(&Shared), other: fn(&Shared)) {
        crate::explore(3, move || {
            let shared = Arc::new((Incoming::new(), loom::cell::UnsafeCell::new(0)));
            let theirs = Arc::clone(&shared);
            let thread = loom::thread::spawn(move || other(&theirs));
            one(&shared);
            thread.join().unwrap();
        });
    }

    fn write(cell: &loom::cell::UnsafeCell<u32>) {
        // SAFETY: the pointer is valid; that nobody else uses it is what loom checks.
        cell.with_mut(|n| unsafe { *n += 1 });
    }

    /// Catches a spinlock that lets in two, or does not publish what its holder did.
    #[test]
    fn the_spinlock_excludes_everybody() {
        let waker = |(list, cell): &Shared| list.locked_by_waker(Policy::SpinLock, || write(cell));
        together(waker, waker);
    }

    /// Catches a read-write lock that lets the harvester in beside a waker, or does not publish what its holder did.
    #[test]
    fn the_rwlock_excludes_the_harvester() {
        together(
            |(list, cell)| list.locked_by_harvester(Policy::RwLock, || write(cell)),
            // SAFETY: as in `write`.
            |(list, cell)| list.locked_by_waker(Policy::RwLock, || assert!(cell.with(|n| unsafe { *n }) <= 1)),
        );
    }
}
