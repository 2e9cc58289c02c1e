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

/// Waiters, of whom one is remote and sleeps on a bell: a futex of its own, as a doorbell eventfd
/// is.
struct Remote {
    waiters: Waiters,
    list: AtomicUsize,
    bell: Futex,
}

impl Remote {
    fn new() -> Arc<Self> {
        let waiters = Waiters::new();
        Arc::new(Self { waiters, list: AtomicUsize::new(0), bell: Futex::new(0) })
    }

    fn install_bell(&self) {
        self.waiters.set_doorbell(Some((Self::ring, self.argument())));
    }

    fn argument(&self) -> usize {
        core::ptr::from_ref(&self.bell).expose_provenance()
    }

    fn ring(argument: usize) {
        // SAFETY: the model's own bell, which outlives its threads.
        let bell = unsafe { &*core::ptr::with_exposed_provenance::<Futex>(argument) };
        bell.word().fetch_add(1, Ordering::SeqCst);
        bell.wake(1, EVERY_CLASS);
    }

    fn wait(&self) {
        let rung = self.bell.word().load(Ordering::SeqCst);
        self.waiters.enter_remote();
        if self.list.load(Ordering::SeqCst) == 0 {
            let _ = self.bell.sleep(rung, None, EVERY_CLASS);
        }
        self.waiters.leave_remote();
    }

    fn push(&self) {
        self.list.fetch_add(1, Ordering::SeqCst);
        self.waiters.kick();
    }

    /// Runs `f` in another thread.
    fn run(self: &Arc<Self>, f: impl FnOnce(&Self) + 'static) -> loom::thread::JoinHandle<()> {
        let model = Arc::clone(self);
        loom::thread::spawn(move || f(&model))
    }
}

/// Catches a doorbell that is not rung for a waiter that sleeps in a kernel call of its own because
/// one that is about to leave the futex counts as woken.
#[test]
fn the_bell_is_rung_for_who_sleeps_elsewhere() {
    crate::explore(3, || {
        let model = Remote::new();
        model.install_bell();
        let waiter = model.run(Remote::wait);
        // Comes to the futex with something to do already: it counts itself in, and does not
        // sleep.
        let passer = model.run(|model| {
            let _ = model.waiters.sleep_unless(|| true, || None);
        });
        model.push();
        waiter.join().unwrap();
        passer.join().unwrap();
    });
}

/// Catches a doorbell that comes too late for a wake, from a thread that does not see the waiter
/// for whom it should ring it.
#[test]
fn a_bell_that_comes_late_is_rung() {
    crate::explore(3, || {
        let model = Remote::new();
        let waiter = model.run(Remote::wait);
        let waker = model.run(Remote::push);
        model.install_bell();
        if model.waiters.has_remote_waiter() {
            Remote::ring(model.argument());
        }
        waiter.join().unwrap();
        waker.join().unwrap();
    });
}
