use super::*;
use alloc::sync::Arc;

/// Three threads add to what the lock guards; those of `real_time` inherit. Catches two holders
/// at once (loom's cell panics), an unlock that does not publish, and one that leaves a
/// sleeper behind.
fn one_holder_at_a_time(real_time: [bool; 3]) {
    crate::explore(3, move || {
        let lock = Arc::new(ScanLock::new(loom::cell::UnsafeCell::new(0)));
        let add = |lock: &ScanLock<loom::cell::UnsafeCell<u32>>, real_time| {
            set_priority_inheritance(real_time);
            // SAFETY: the pointer is valid; that nobody else uses it is what loom checks.
            lock.lock().with_mut(|n| unsafe { *n += 1 });
        };
        let others = [real_time[1], real_time[2]].map(|real_time| {
            let lock = Arc::clone(&lock);
            loom::thread::spawn(move || add(&lock, real_time))
        });
        add(&lock, real_time[0]);
        for other in others {
            other.join().unwrap();
        }
        // SAFETY: as above.
        assert_eq!(lock.lock().with(|n| unsafe { *n }), 3);
    });
}

#[test]
fn one_holder_at_a_time_at_the_turnstile() {
    one_holder_at_a_time([false; 3]);
}

#[test]
fn one_holder_at_a_time_in_the_kernel() {
    one_holder_at_a_time([true; 3]);
}

#[test]
fn one_holder_at_a_time_of_both_kinds() {
    one_holder_at_a_time([false, true, false]);
    one_holder_at_a_time([true, true, false]);
}
