//! Leased events: what an event's data stands for is not freed while a thread has it.

use super::*;
use loom::cell::UnsafeCell;

/// What the data of the world's watch stands for. Loom fails if it is used while, or not known to
/// be before, it is freed.
struct Data {
    world: Arc<World>,
    value: UnsafeCell<bool>,
}

// SAFETY: which thread uses it, and when, is what the models are about.
unsafe impl Sync for Data {}

impl Data {
    fn watched_for(events: Events) -> Arc<Self> {
        let data = Arc::new(Self { world: World::watching(events), value: UnsafeCell::new(true) });
        data.world.counter.write(1).unwrap();
        data
    }

    fn use_it(&self) {
        // SAFETY: loom sees to it.
        self.value.with(|value| assert!(unsafe { *value }, "used after it was freed"));
    }

    fn free(&self) {
        // SAFETY: as above.
        self.value.with_mut(|value| {
            assert!(unsafe { std::mem::replace(&mut *value, false) }, "freed twice")
        });
    }

    fn remove(&self) -> Removal<'_> {
        self.world.set.retire(1, &self.world.counter).unwrap()
    }
}

/// Catches a report that no lease notes, one that is put down before it has been used, and a waiter
/// that nobody wakes.
#[test]
fn what_is_in_hand_is_not_freed() {
    explore(3, || {
        let data = Data::watched_for(Events::IN);
        let user = run(&data, |data| {
            let mut lease = data.world.set.lease().unwrap();
            let mut events = [Event::default()];
            if lease.wait(&mut events, Timeout::Now).unwrap() == 1 {
                data.use_it();
            }
            lease.release();
        });
        match data.remove() {
            Removal::Idle => {}
            Removal::InUse(holders) => assert!(holders.wait(Timeout::Never)),
            Removal::Disarmed | Removal::Unknown => panic!("all have leases"),
        }
        data.free();
        user.join().unwrap();
    });
}

/// Catches the same where one of two leases is missed.
#[test]
fn each_of_two_hands_is_waited_for() {
    explore(2, || {
        let data = Data::watched_for(Events::IN);
        let users = [0, 1].map(|_| {
            run(&data, |data| {
                let mut lease = data.world.set.lease().unwrap();
                if lease.wait(&mut [Event::default()], Timeout::Now).unwrap() == 1 {
                    data.use_it();
                }
            })
        });
        if let Removal::InUse(holders) = data.remove() {
            assert!(holders.wait(Timeout::Never));
        }
        data.free();
        for user in users {
            user.join().unwrap();
        }
    });
}

/// Catches a one-shot report that leaves the watch armed: both sides would free, or one while the
/// other uses.
#[test]
fn of_a_one_shot_exactly_one_side_frees() {
    explore(3, || {
        let data = Data::watched_for(Events::IN | Events::ONESHOT);
        let user = run(&data, |data| {
            if data.world.take().is_some() {
                data.use_it();
                let event = Event::new(Events::IN | Events::ONESHOT, 1);
                match data.world.set.modify(1, &data.world.counter, event) {
                    Ok(()) => {}
                    Err(Error::NotWatched) => data.free(),
                    Err(error) => panic!("{error}"),
                }
            }
        });
        match data.remove() {
            Removal::Idle => data.free(),
            // Then it is the user's business.
            Removal::Disarmed => {}
            Removal::InUse(_) | Removal::Unknown => {
                panic!("nobody has a lease, and it was one-shot all the time")
            }
        }
        user.join().unwrap();
        // SAFETY: nobody else is left.
        data.value.with(|value| assert!(!unsafe { *value }, "freed by nobody"));
    });
}

/// Catches an answer that holds only for watches that were one-shot from the beginning.
#[test]
fn what_was_not_one_shot_before_is_unknown() {
    explore(2, || {
        let data = Data::watched_for(Events::IN);
        let user = run(&data, |data| {
            if data.world.take().is_some() {
                data.use_it();
            }
        });
        data.world
            .set
            .modify(1, &data.world.counter, Event::new(Events::IN | Events::ONESHOT, 1))
            .unwrap();
        if let Removal::Idle = data.remove() {
            data.free();
        }
        user.join().unwrap();
    });
}
