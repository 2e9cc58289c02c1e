extern crate std;
use super::*;

/// A try in vain gave back the lock that another held.
#[test]
fn a_try_in_vain_leaves_the_lock_to_its_holder() {
    let lock = ScanLock::new(());
    let held = lock.lock();
    std::thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| assert!(lock.try_lock().is_none())).join().unwrap();
        }
    });
    assert!(lock.try_lock().is_none());
    drop(held);
    assert!(lock.try_lock().is_some());
}

/// Whether or not this process may have real-time threads, some sleep as those do.
#[test]
fn sleepers_of_both_kinds_share_a_lock() {
    let lock = ScanLock::new(0);
    let add = |in_kernel: bool| {
        for _ in 0..20_000 {
            let me = thread_id::current();
            let mut guard = if in_kernel && (lock.raw.take(me) || lock.raw.0.lock_in_kernel(me)) {
                ScanGuard { lock: &lock, me, on_this_thread: PhantomData }
            } else {
                lock.lock()
            };
            *guard += 1;
            // Others have to come while it is held.
            if *guard % 16 == 0 {
                std::thread::yield_now();
            }
        }
    };
    std::thread::scope(|threads| {
        for in_kernel in [false, true, false, true] {
            let add = &add;
            threads.spawn(move || add(in_kernel));
        }
    });
    assert_eq!(*lock.lock(), 80_000);
    assert_eq!(lock.raw.0.word().load(Ordering::Relaxed), FREE);
}
