use super::*;
use alloc::sync::Arc;

type Shared = (ListLock, loom::cell::UnsafeCell<u32>);

/// Runs both at once, on a list and a cell of which loom checks that who writes it is alone.
#[allow(clippy::arc_with_non_send_sync, reason = "the cell is what loom checks")]
fn together(one: fn(&Shared), other: fn(&Shared)) {
    crate::explore(3, move || {
        let shared = Arc::new((ListLock::new(), loom::cell::UnsafeCell::new(0)));
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
    let waker = |(list, cell): &Shared| list.by_waker(ReadyList::Spinlock, || write(cell));
    together(waker, waker);
}

/// Catches a read-write lock that lets the harvester in beside a waker, or does not publish
/// what its holder did.
#[test]
fn the_rwlock_excludes_the_harvester() {
    together(
        |(list, cell)| list.by_harvester(ReadyList::Rwlock, || write(cell)),
        // SAFETY: as in `write`.
        |(list, cell)| {
            list.by_waker(ReadyList::Rwlock, || assert!(cell.with(|n| unsafe { *n }) <= 1))
        },
    );
}
