//! Removals that tell which threads have an event.
#![cfg(not(any(loom, shuttle)))]

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use wakeset::{
    Counter, CounterFlags, Description, Engine, Error, Event, EventPoll, Events, Lease, Removal,
    Timeout,
};

const ONESHOT: Events = Events::IN.union(Events::ONESHOT);

struct World {
    set: EventPoll,
    ready: Description<Counter>,
}

impl World {
    fn watching(events: Events) -> Self {
        let engine = Engine::new();
        let ready = Description::new(&engine, Counter::new(1, CounterFlags::NONBLOCK));
        let set = EventPoll::new(&engine).unwrap();
        set.add(1, &ready, Event::new(events, 1)).unwrap();
        Self { set, ready }
    }

    fn remove(&self) -> Removal<'_> {
        self.set.retire(1, &self.ready).unwrap()
    }
}

fn take(lease: &mut Lease<'_>) -> usize {
    lease.wait(&mut [Event::default(); 4], Timeout::Now).unwrap()
}

#[test]
fn what_nobody_was_told_of_is_free() {
    for events in [Events::IN, ONESHOT, Events::IN | Events::ET] {
        let world = World::watching(events);
        let _lease = world.set.lease().unwrap();
        assert!(matches!(world.remove(), Removal::Idle));
        assert!(matches!(world.set.retire(1, &world.ready), Err(Error::NotWatched)));
    }
}

#[test]
fn it_is_in_hand_until_the_hand_comes_back() {
    let ways: [fn(Lease<'_>); 3] = [
        |lease| drop(lease),
        |mut lease| lease.release(),
        |mut lease| assert_eq!(take(&mut lease), 0),
    ];
    for events in [Events::IN, ONESHOT, Events::IN | Events::ET] {
        for way in ways {
            let world = World::watching(events);
            let (mut lease, mut other) = (world.set.lease().unwrap(), world.set.lease().unwrap());
            assert_eq!(take(&mut lease), 1);
            let told = world.remove();
            let Removal::InUse(holders) = told else { panic!("{told:?}") };
            assert!(
                !holders.have_released() && !holders.wait(Timeout::After(Duration::from_millis(2)))
            );
            assert_eq!(take(&mut other), 0, "no further report");
            assert!(!holders.wait(Timeout::Now), "another's lease is not the one");
            way(lease);
            assert!(holders.have_released() && holders.wait(Timeout::Never));
        }
    }
}

#[test]
fn all_hands_that_have_it_count_but_the_own() {
    let world = World::watching(Events::IN);
    let mut leases = [0, 1, 2].map(|_| world.set.lease().unwrap());
    for lease in &mut leases {
        assert_eq!(take(lease), 1);
    }
    let [own, mut second, third] = leases;
    let Ok(Removal::InUse(holders)) = own.retire(1, &world.ready) else { panic!() };
    second.release();
    assert!(!holders.have_released());
    drop(third);
    assert!(holders.wait(Timeout::Never), "the own lease does not count");
    let world = World::watching(Events::IN);
    let mut own = world.set.lease().unwrap();
    assert_eq!(take(&mut own), 1);
    assert!(matches!(own.retire(1, &world.ready), Ok(Removal::Idle)));
}

#[test]
fn another_watch_in_the_same_memory_is_another() {
    let world = World::watching(Events::IN);
    let mut lease = world.set.lease().unwrap();
    assert_eq!(take(&mut lease), 1);
    let Removal::InUse(holders) = world.remove() else { panic!() };
    world.set.add(1, &world.ready, Event::new(Events::IN, 2)).unwrap();
    assert!(matches!(world.remove(), Removal::Idle), "nobody was told of this one");
    assert!(!holders.have_released());
}

#[test]
fn to_arm_it_again_gives_it_back() {
    let world = World::watching(ONESHOT);
    let mut lease = world.set.lease().unwrap();
    assert_eq!(take(&mut lease), 1);
    world.set.modify(1, &world.ready, Event::new(ONESHOT, 1)).unwrap();
    let Removal::InUse(holders) = world.remove() else { panic!("somebody else armed it") };
    drop(holders);
    world.set.add(1, &world.ready, Event::new(ONESHOT, 1)).unwrap();
    assert_eq!(take(&mut lease), 1);
    assert_eq!(
        lease.modify(1, &world.ready, Event::new(Events::IN | Events::EXCLUSIVE, 1)),
        Err(Error::Invalid)
    );
    lease.modify(1, &world.ready, Event::new(ONESHOT, 1)).unwrap();
    assert!(matches!(world.remove(), Removal::Idle));
    assert_eq!(lease.modify(1, &world.ready, Event::new(ONESHOT, 1)), Err(Error::NotWatched));
}

#[test]
fn without_hands_only_one_shots_are_known() {
    let told = |events: Events, wait: bool, arm: Option<Events>| {
        let world = World::watching(events);
        if wait {
            assert_eq!(world.set.wait(&mut [Event::default()], Timeout::Now), Ok(1));
        }
        if let Some(events) = arm {
            world.set.modify(1, &world.ready, Event::new(events, 1)).unwrap();
        }
        format!("{:?}", world.remove())
    };
    assert_eq!(told(Events::IN, false, None), "Idle");
    assert_eq!(told(Events::IN, true, None), "Unknown");
    assert_eq!(told(ONESHOT, true, None), "Disarmed");
    assert_eq!(told(ONESHOT, true, Some(ONESHOT)), "Idle");
    assert_eq!(told(ONESHOT, true, Some(Events::IN)), "Unknown");
    assert_eq!(told(Events::IN, true, Some(ONESHOT)), "Unknown");
}

/// Many threads serve what others remove and free. A use after the free shows in the magic number.
#[test]
fn nothing_is_used_after_it_was_freed() {
    const ALIVE: u64 = 0x5eed_ca11_ab1e_f00d;
    struct Object {
        magic: AtomicU64,
        counter: Description<Counter>,
    }
    const ROUNDS: usize = 3_000;
    let engine = Engine::new();
    let set = EventPoll::new(&engine).unwrap();
    let (over, in_hand, taken) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut lease = set.lease().unwrap();
                let mut events = [Event::default(); 4];
                while !over.load(Ordering::Relaxed) {
                    let n = lease.wait(&mut events, Timeout::from_millis(1)).unwrap();
                    for event in &events[..n] {
                        // SAFETY: what the test is about. The memory itself stays until the end.
                        let object = unsafe { &*(event.data as *const Object) };
                        taken.fetch_add(1, Ordering::Relaxed);
                        for _ in 0..5 {
                            assert_eq!(
                                object.magic.load(Ordering::Relaxed),
                                ALIVE,
                                "used after it was freed"
                            );
                            std::thread::yield_now();
                        }
                        let _ = object.counter.read();
                    }
                }
            });
        }
        let counters: Vec<_> = (0..8)
            .map(|_| Description::new(&engine, Counter::new(0, CounterFlags::NONBLOCK)))
            .collect();
        let object =
            |i: usize| Object { magic: AtomicU64::new(ALIVE), counter: counters[i % 8].clone() };
        let objects: Vec<_> = (0..ROUNDS).map(object).collect();
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for (i, object) in objects.iter().enumerate() {
                let kind = [Events::IN, ONESHOT, Events::IN | Events::ET][i % 3];
                object.counter.write(1).unwrap();
                set.add(
                    i as i32,
                    &object.counter,
                    Event::new(kind, std::ptr::from_ref(object) as u64),
                )
                .unwrap();
                // Until somebody has it, or seems not to come.
                let before = taken.load(Ordering::Relaxed);
                for _ in 0..i % 4 * 50 {
                    if taken.load(Ordering::Relaxed) != before {
                        break;
                    }
                    std::thread::yield_now();
                }
                match set.retire(i as i32, &object.counter).unwrap() {
                    Removal::Idle => {}
                    Removal::InUse(holders) => {
                        in_hand.fetch_add(1, Ordering::Relaxed);
                        assert!(holders.wait(Timeout::Never));
                    }
                    told => panic!("{told:?}"),
                }
                object.magic.store(0, Ordering::Relaxed);
            }
        }));
        over.store(true, Ordering::Relaxed);
        if let Err(panic) = done {
            std::panic::resume_unwind(panic);
        }
    });
    let met = [taken.into_inner(), in_hand.into_inner()];
    assert!(met[0] > 0 && met[1] > 0, "nothing met: {met:?}");
}
