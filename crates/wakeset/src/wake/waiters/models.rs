use super::*;
use alloc::sync::Arc;

/// Catches an event left to a waiter that lingers, and that then sleeps without having seen it.
#[test]
fn who_lingers_sees_what_is_left_to_it() {
    crate::explore(3, || {
        struct Model {
            waiters: Waiters,
            list: AtomicUsize,
        }
        let model = Arc::new(Model { waiters: Waiters::new(), list: AtomicUsize::new(0) });
        let waiter = {
            let model = Arc::clone(&model);
            loom::thread::spawn(move || {
                let listed = || model.list.load(Ordering::SeqCst) != 0;
                if !model.waiters.while_spinning(listed) {
                    let _ = model.waiters.sleep_unless(listed, || None);
                    assert!(listed());
                }
            })
        };
        model.list.fetch_add(1, Ordering::SeqCst);
        model.waiters.kick();
        waiter.join().unwrap();
    });
}

/// Catches a doorbell that is not rung for a waiter that sleeps in a kernel call of its own because
/// one that is about to leave the futex counts as woken. (The bell here is a futex of its own, as a
/// doorbell eventfd is.)
#[test]
fn the_bell_is_rung_for_who_sleeps_elsewhere() {
    crate::explore(3, || {
        struct Model {
            waiters: Waiters,
            list: AtomicUsize,
            bell: Futex,
        }
        let model = Arc::new(Model {
            waiters: Waiters::new(),
            list: AtomicUsize::new(0),
            bell: Futex::new(0),
        });
        model.waiters.set_doorbell(Some((
            |argument| {
                // SAFETY: the model's own bell, which outlives its threads.
                let bell = unsafe { &*core::ptr::with_exposed_provenance::<Futex>(argument) };
                bell.word().fetch_add(1, Ordering::SeqCst);
                bell.wake(1, EVERY_CLASS);
            },
            core::ptr::from_ref(&model.bell).expose_provenance(),
        )));
        let waiter = {
            let model = Arc::clone(&model);
            loom::thread::spawn(move || {
                let rung = model.bell.word().load(Ordering::SeqCst);
                model.waiters.enter_remote();
                if model.list.load(Ordering::SeqCst) == 0 {
                    let _ = model.bell.sleep(rung, None, EVERY_CLASS);
                }
                model.waiters.leave_remote();
            })
        };
        // Comes to the futex with something to do already: it counts itself in, and does not
        // sleep.
        let passer = {
            let model = Arc::clone(&model);
            loom::thread::spawn(move || {
                let _ = model.waiters.sleep_unless(|| true, || None);
            })
        };
        model.list.fetch_add(1, Ordering::SeqCst);
        model.waiters.kick();
        waiter.join().unwrap();
        passer.join().unwrap();
    });
}
