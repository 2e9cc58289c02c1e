//! The `Source` trait: every event bit of epoll_ctl(2), and what wakes mean.

use std::sync::atomic::{AtomicU32, Ordering};
use wakeset::{Description, Engine, Error, Event, EventPoll, Events, Source, Timeout, WaitQueue};

/// A source whose readiness is whatever it was last told.
struct Bits(AtomicU32, WaitQueue);

impl Source for Bits {
    fn poll(&self) -> Events {
        Events::from_bits_retain(self.0.load(Ordering::SeqCst))
    }

    fn wait_queue(&self) -> &WaitQueue {
        &self.1
    }
}

struct World {
    _engine: Engine,
    set: EventPoll,
    bits: Description<Bits>,
}

fn world() -> World {
    let engine = Engine::new();
    let set = EventPoll::new(&engine).unwrap();
    let bits = Description::new(&engine, Bits(AtomicU32::new(0), WaitQueue::new()));
    World { _engine: engine, set, bits }
}

impl World {
    fn watch(&self, events: Events) {
        let _ = self.set.remove(1, &self.bits);
        self.set.add(1, &self.bits, Event::new(events, 7)).unwrap();
    }

    fn becomes(&self, events: Events) {
        self.bits.0.store(events.bits(), Ordering::SeqCst);
        self.bits.wait_queue().wake(events);
    }

    fn ready(&self) -> Events {
        let mut events = [Event::default(); 4];
        match self.set.wait(&mut events, Timeout::Now).unwrap() {
            0 => Events::empty(),
            1 => events[0].events,
            n => panic!("{n} reports of one watch"),
        }
    }
}

/// The readiness bits one can ask for.
const ASKABLE: [Events; 9] = [
    Events::IN,
    Events::PRI,
    Events::OUT,
    Events::RDNORM,
    Events::RDBAND,
    Events::WRNORM,
    Events::WRBAND,
    Events::MSG,
    Events::RDHUP,
];

#[test]
fn every_bit_is_reported_if_asked_for() {
    for asked in ASKABLE {
        for holds in ASKABLE {
            let w = world();
            w.watch(asked);
            w.becomes(holds);
            assert_eq!(w.ready(), asked & holds, "{asked:?} asked, {holds:?} holds");
        }
    }
}

#[test]
fn every_bit_has_its_edges() {
    for bit in ASKABLE {
        let w = world();
        w.watch(bit | Events::ET);
        for _ in 0..3 {
            w.becomes(bit);
            assert_eq!(w.ready(), bit);
            assert_eq!(w.ready(), Events::empty());
        }
        for other in ASKABLE.into_iter().filter(|other| *other != bit) {
            // The bit still holds, but what has changed is another.
            w.bits.wait_queue().wake(other);
            assert_eq!(w.ready(), Events::empty(), "{other:?} is no edge for {bit:?}");
        }
    }
}

#[test]
fn error_and_hang_up_need_not_be_asked_for() {
    for bit in [Events::ERR, Events::HUP] {
        let w = world();
        w.watch(Events::empty());
        w.becomes(bit);
        assert_eq!(w.ready(), bit);
        w.watch(Events::ONESHOT);
        assert_eq!(w.ready(), bit);
        w.becomes(bit);
        assert_eq!(w.ready(), Events::empty(), "disarmed means them too");
        w.watch(Events::IN | Events::EXCLUSIVE);
        assert_eq!(w.ready(), bit);
    }
}

#[test]
fn all_that_holds_is_reported_in_one_event() {
    let w = world();
    let asked = ASKABLE.into_iter().collect();
    w.watch(asked);
    w.becomes(asked | Events::ALWAYS);
    assert_eq!(w.ready(), asked | Events::ALWAYS);
}

#[test]
fn flags_are_never_reported() {
    let w = world();
    for flags in
        [Events::ET, Events::ONESHOT, Events::WAKEUP, Events::ET | Events::ONESHOT | Events::WAKEUP]
    {
        w.watch(Events::IN | flags);
        w.becomes(Events::IN | Events::FLAGS);
        assert_eq!(w.ready(), Events::IN);
    }
}

#[test]
fn a_wake_of_nothing_particular_means_look() {
    let w = world();
    w.watch(Events::IN | Events::OUT | Events::ET);
    w.bits.0.store(Events::OUT.bits(), Ordering::SeqCst);
    w.bits.wait_queue().wake(Events::empty());
    assert_eq!(w.ready(), Events::OUT);
}

#[test]
fn a_wake_too_many_is_harmless() {
    let w = world();
    w.watch(Events::IN);
    for _ in 0..10 {
        w.bits.wait_queue().wake(Events::IN);
        assert_eq!(w.ready(), Events::empty());
    }
    w.becomes(Events::IN);
    w.bits.wait_queue().wake(Events::IN);
    assert_eq!(w.ready(), Events::IN);
}

#[test]
fn a_closed_queue_takes_no_watch() {
    let w = world();
    w.watch(Events::IN);
    w.bits.wait_queue().close();
    assert!(w.set.is_empty());
    assert_eq!(w.set.add(1, &w.bits, Event::new(Events::IN, 7)), Err(Error::Closed));
    w.becomes(Events::IN);
    assert_eq!(w.ready(), Events::empty());
}

/// For sources that live by other means than a `Description`.
#[test]
fn a_source_by_address() {
    let engine = Engine::new();
    let set = EventPoll::new(&engine).unwrap();
    let bits = Box::new(Bits(AtomicU32::new(Events::IN.bits()), WaitQueue::new()));
    let address: *const Bits = &*bits;
    // SAFETY: the box stays until its queue has been closed below, and the engine longer.
    unsafe { set.add_source(3, address, Event::new(Events::IN, 1)) }.unwrap();
    // SAFETY: as above.
    let again = unsafe { set.add_source(3, address, Event::new(Events::IN, 1)) };
    assert_eq!(again, Err(Error::AlreadyWatched));
    set.modify_source(3, address.cast(), Event::new(Events::IN | Events::ET, 2)).unwrap();
    let mut events = [Event::default(); 4];
    assert_eq!(set.wait(&mut events, Timeout::Now), Ok(1));
    assert_eq!(events[0], Event::new(Events::IN, 2));
    set.remove_source(3, address.cast()).unwrap();
    assert_eq!(set.remove_source(3, address.cast()), Err(Error::NotWatched));
    // SAFETY: as above.
    unsafe { set.add_source(4, address, Event::new(Events::IN, 3)) }.unwrap();
    bits.wait_queue().close();
    assert!(set.is_empty());
}
