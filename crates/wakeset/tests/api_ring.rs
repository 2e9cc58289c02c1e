//! The event ring: the same events as a wait gives, from any number of threads.
#![cfg(not(any(loom, shuttle)))]
#![allow(missing_docs)]

use std::collections::HashMap;
use std::thread;
use std::time::Duration;
use wakeset::{
    Counter, CounterFlags, Description, Engine, Error, Event, EventPoll, Events, Timeout, Timer,
    TimerFlags, TimerSpec,
};

fn open(engine: &Engine) -> Description<Counter> {
    Description::new(engine, Counter::new(0, CounterFlags::NONBLOCK))
}

/// A set and counters 0.. that it watches under their number for `events`.
fn watching(n: usize, events: Events) -> (EventPoll, Vec<Description<Counter>>) {
    let engine = Engine::new();
    let set = EventPoll::new(&engine).unwrap();
    let counters: Vec<_> = (0..n).map(|_| open(&engine)).collect();
    for (i, counter) in counters.iter().enumerate() {
        set.add(i as i32, counter, Event::new(events, i as u64)).unwrap();
    }
    (set, counters)
}

/// All that is there, by its data.
fn drain(set: &EventPoll) -> Vec<u64> {
    let mut events = vec![Event::default(); 1000];
    let n = set.ring().unwrap().take(&mut events);
    events[..n].iter().map(|event| event.data).collect()
}

#[test]
fn sizes_are_powers_of_two_within_a_limit() {
    let (set, _) = watching(0, Events::IN);
    assert!(set.ring().is_none());
    assert_eq!(set.make_ring(0).unwrap_err(), Error::Invalid);
    assert_eq!(set.make_ring((1 << 20) + 1).unwrap_err(), Error::Invalid);
    assert_eq!(set.make_ring(5).unwrap().capacity(), 8);
    assert_eq!(set.make_ring(64).unwrap().capacity(), 8, "the first call decides");
    assert_eq!(set.ring().unwrap().capacity(), 8);
    assert_eq!(set.ring().unwrap().wait(&mut [], Timeout::Now), Err(Error::Invalid));
    assert_eq!(set.ring().unwrap().take(&mut []), 0);
}

#[test]
fn levels_are_reported_until_they_are_drained() {
    let (set, counters) = watching(3, Events::IN);
    let ring = set.make_ring(4).unwrap();
    counters[1].write(1).unwrap();
    counters[2].write(1).unwrap();
    for _ in 0..20 {
        assert_eq!(drain(&set), [1, 2]);
    }
    counters[1].read().unwrap();
    assert_eq!(drain(&set), [2]);
    counters[2].read().unwrap();
    assert_eq!(ring.pop(), None);
}

/// A removal takes what has become ready off the list, behind what was taken before.
#[test]
fn a_removal_leaves_the_others_in_line() {
    let (set, counters) = watching(3, Events::IN);
    let ring = set.make_ring(1).unwrap();
    counters[2].write(1).unwrap();
    assert_eq!(drain(&set), [2]);
    counters[0].write(1).unwrap();
    counters[1].write(1).unwrap();
    set.remove(1, &counters[1]).unwrap();
    assert_eq!([(); 4].map(|()| ring.pop().map(|event| event.data)), [2, 0, 2, 0].map(Some));
}

/// As on the ready list: a change of what is there already is no edge for a set around.
#[test]
fn a_change_in_the_ring_is_no_news_outside() {
    let engine = Engine::new();
    let (outer, inner) = (
        EventPoll::new(&engine).unwrap(),
        Description::new(&engine, EventPoll::new(&engine).unwrap()),
    );
    let counter = open(&engine);
    inner.make_ring(1).unwrap();
    inner.add(1, &counter, Event::new(Events::OUT, 1)).unwrap();
    outer.add(2, &inner, Event::new(Events::IN | Events::ET, 2)).unwrap();
    let mut events = [Event::default(); 2];
    assert_eq!(outer.wait(&mut events, Timeout::Now), Ok(1));
    assert_eq!(drain(&inner), [1]);
    counter.write(1).unwrap();
    inner.modify(1, &counter, Event::new(Events::IN, 3)).unwrap();
    assert_eq!(outer.wait(&mut events, Timeout::Now), Ok(0));
    assert_eq!(drain(&inner), [3]);
}

/// Which Linux has the other way round: there the level went back in line before the other became
/// ready.
#[test]
fn what_comes_later_is_behind_levels_taken_since_the_ring_was_filled() {
    let (set, counters) = watching(3, Events::IN);
    let ring = set.make_ring(4).unwrap();
    counters[0].write(1).unwrap();
    counters[1].write(1).unwrap();
    let pop = || ring.pop().map(|event| event.data);
    assert_eq!(pop(), Some(0));
    counters[2].write(1).unwrap();
    assert_eq!([(); 4].map(|()| pop()), [1, 0, 1, 2].map(Some));
}

#[test]
fn an_edge_is_reported_once_for_each_change_seen() {
    let (set, counters) = watching(2, Events::IN | Events::ET);
    let ring = set.make_ring(4).unwrap();
    counters[0].write(1).unwrap();
    counters[0].write(1).unwrap();
    assert_eq!(drain(&set), [0]);
    assert_eq!(drain(&set), []);
    counters[0].write(1).unwrap();
    counters[1].write(1).unwrap();
    assert_eq!(ring.pop().unwrap().data, 0);
    // While it lies in the ring: one event for both changes, as on the ready list.
    counters[1].write(1).unwrap();
    assert_eq!(drain(&set), [1]);
    assert_eq!(drain(&set), []);
}

#[test]
fn what_is_drained_while_it_lies_in_the_ring_is_not_reported() {
    for flags in [Events::empty(), Events::ET, Events::ONESHOT] {
        let (set, counters) = watching(3, Events::IN | flags);
        let ring = set.make_ring(4).unwrap();
        for counter in &counters {
            counter.write(1).unwrap();
        }
        assert_eq!(ring.pop().unwrap().data, 0);
        counters[0].read().unwrap();
        counters[1].read().unwrap();
        assert_eq!(drain(&set), [2], "{flags:?}");
        counters[1].write(1).unwrap();
        assert!(drain(&set).contains(&1), "it is still watched, {flags:?}");
    }
}

#[test]
fn oneshot_is_reported_once_for_each_arming() {
    let shot = Events::IN | Events::ONESHOT;
    let (set, counters) = watching(1, shot);
    let ring = set.make_ring(2).unwrap();
    for data in 10..20 {
        counters[0].write(1).unwrap();
        assert_eq!(drain(&set).len(), 1);
        counters[0].write(1).unwrap();
        assert_eq!(ring.pop(), None);
        set.modify(0, &counters[0], Event::new(shot, data)).unwrap();
        assert_eq!(drain(&set), [data]);
        set.modify(0, &counters[0], Event::new(shot, data)).unwrap();
        counters[0].read().unwrap();
        assert_eq!(ring.pop(), None, "not spent on what is gone");
    }
}

#[test]
fn a_change_reaches_what_lies_in_the_ring() {
    for flags in [Events::empty(), Events::ET, Events::ONESHOT] {
        let (set, counters) = watching(4, Events::IN | flags);
        let ring = set.make_ring(4).unwrap();
        for counter in &counters {
            counter.write(1).unwrap();
        }
        assert_eq!(ring.pop().unwrap().data, 0);
        for to in [Events::empty(), Events::ET, Events::ONESHOT] {
            set.modify(2, &counters[2], Event::new(Events::OUT | to, 20)).unwrap();
            set.modify(3, &counters[3], Event::new(Events::IN | Events::OUT | to, 30)).unwrap();
        }
        set.modify(1, &counters[1], Event::new(Events::PRI, 10)).unwrap();
        let (mut events, expected) = ([Event::default(); 8], Events::IN | Events::OUT);
        let n = ring.take(&mut events);
        assert_eq!(
            events[..2],
            [Event::new(Events::OUT, 20), Event::new(expected, 30)],
            "{flags:?}"
        );
        assert_eq!(n, if flags.is_empty() { 3 } else { 2 }, "{flags:?}");
    }
}

#[test]
fn what_is_removed_or_closed_does_not_come_out() {
    for flags in [Events::empty(), Events::ET, Events::ONESHOT] {
        let (set, mut counters) = watching(5, Events::IN | flags);
        let ring = set.make_ring(8).unwrap();
        for counter in &counters {
            counter.write(1).unwrap();
        }
        assert_eq!(ring.pop().unwrap().data, 0);
        set.remove(0, &counters[0]).unwrap();
        set.remove(1, &counters[1]).unwrap();
        let reused = open(set.engine());
        reused.write(1).unwrap();
        // The memory of the watch and the number are used again.
        set.add(1, &reused, Event::new(Events::IN | flags, 100)).unwrap();
        drop(counters.remove(4));
        assert_eq!(drain(&set), [2, 3, 100], "{flags:?}");
        set.remove(1, &reused).unwrap();
        assert!(!drain(&set).contains(&100));
    }
}

#[test]
fn more_ready_watches_than_slots_are_all_reported() {
    for flags in [Events::empty(), Events::ET, Events::ONESHOT] {
        for entries in [1, 2, 16] {
            let (set, counters) = watching(100, Events::IN | flags);
            let ring = set.make_ring(entries).unwrap();
            for counter in &counters {
                counter.write(1).unwrap();
            }
            let seen: Vec<_> = (0..100).map(|_| ring.pop().unwrap().data).collect();
            assert_eq!(seen, (0..100).collect::<Vec<_>>(), "{flags:?}, {entries} slots");
            assert_eq!(ring.pop().is_some(), flags.is_empty());
        }
    }
}

#[test]
fn a_wait_on_the_set_finds_what_lies_in_the_ring_first() {
    for flags in [Events::empty(), Events::ET, Events::ONESHOT] {
        let (set, counters) = watching(6, Events::IN | flags);
        let ring = set.make_ring(4).unwrap();
        for counter in &counters {
            counter.write(1).unwrap();
        }
        assert_eq!(ring.pop().unwrap().data, 0);
        counters[0].read().unwrap();
        let mut events = [Event::default(); 2];
        assert_eq!(set.wait(&mut events, Timeout::Now), Ok(2));
        assert_eq!(events.map(|event| event.data), [1, 2], "{flags:?}");
        assert_eq!(ring.pop().unwrap().data, 3, "{flags:?}");
        assert_eq!(ring.pop().unwrap().data, 4, "{flags:?}");
    }
}

#[test]
fn a_set_in_a_set_is_ready_while_events_lie_in_its_ring() {
    let engine = Engine::new();
    let inner = Description::new(&engine, EventPoll::new(&engine).unwrap());
    let outer = EventPoll::new(&engine).unwrap();
    let counters = [open(&engine), open(&engine)];
    for (i, counter) in counters.iter().enumerate() {
        inner.add(i as i32, counter, Event::new(Events::IN | Events::ET, i as u64)).unwrap();
    }
    outer.add(1, &inner, Event::new(Events::IN, 9)).unwrap();
    let (of_inner, of_outer) = (inner.make_ring(4).unwrap(), outer.make_ring(4).unwrap());
    for counter in &counters {
        counter.write(1).unwrap();
    }
    assert!(of_inner.pop().is_some());
    assert_eq!(of_outer.pop().map(|event| event.data), Some(9));
    assert!(of_inner.pop().is_some());
    assert_eq!(of_outer.pop(), None);
}

#[test]
fn a_wait_sleeps_until_something_comes_and_no_longer_than_asked() {
    let (set, counters) = watching(1, Events::IN | Events::ET);
    let ring = set.make_ring(4).unwrap();
    let mut events = [Event::default(); 4];
    let limit = Duration::from_millis(20);
    let before = std::time::Instant::now();
    assert_eq!(ring.wait(&mut events, Timeout::After(limit)), Ok(0));
    assert!(before.elapsed() >= limit);
    thread::scope(|threads| {
        let waiter = threads.spawn(|| ring.wait(&mut [Event::default(); 4], Timeout::Never));
        thread::sleep(Duration::from_millis(20));
        counters[0].write(1).unwrap();
        assert_eq!(waiter.join().unwrap(), Ok(1));
    });
}

/// One random program on two sets of the same counters: one waits, the other takes from its ring,
/// one event or several at a time.
#[test]
fn the_ring_gives_what_a_wait_gives() {
    let mut random = Random(std::env::var("WAKESET_SEED").map_or(1, |seed| seed.parse().unwrap()));
    for round in 0..3000 {
        let engine = Engine::new();
        let sets = [EventPoll::new(&engine).unwrap(), EventPoll::new(&engine).unwrap()];
        // Where levels stand in line differs (they go back at the next refill), so either there are
        // none, and one event is taken at a time, or each call takes all.
        let all = round % 2 == 0;
        let ring = sets[1].make_ring(64).unwrap();
        let mut counters: Vec<_> = (0..6).map(|_| open(&engine)).collect();
        let mut log = Vec::new();
        for step in 0..60 {
            let i = random.below(6);
            let flags =
                [Events::ET, Events::ONESHOT, Events::ET | Events::ONESHOT, Events::empty()];
            let flags = flags[random.below(if all { 4 } else { 3 })];
            let bits = [Events::IN, Events::OUT, Events::IN | Events::OUT][random.below(3)];
            let event = Event::new(bits | flags, step);
            let room = if all { 8 } else { 1 };
            let what = random.below(12);
            log.push((what, i, event, room));
            match what {
                0 => {
                    let results = sets.each_ref().map(|set| set.add(i as i32, &counters[i], event));
                    assert_eq!(results[0], results[1]);
                }
                1 => {
                    let results =
                        sets.each_ref().map(|set| set.modify(i as i32, &counters[i], event));
                    assert_eq!(results[0], results[1]);
                }
                2 => {
                    let results = sets.each_ref().map(|set| set.remove(i as i32, &counters[i]));
                    assert_eq!(results[0], results[1]);
                }
                3 => counters[i] = open(&engine),
                4..=6 => counters[i].write(1).unwrap(),
                7 => drop(counters[i].read()),
                _ => {
                    let mut events = [[Event::default(); 8]; 2];
                    let n = [
                        sets[0].wait(&mut events[0][..room], Timeout::Now).unwrap(),
                        ring.wait(&mut events[1][..room], Timeout::Now).unwrap(),
                    ];
                    let [mut waited, mut taken] =
                        [0, 1].map(|side| events[side][..n[side]].to_vec());
                    log.push((90, n[0], waited.first().copied().unwrap_or_default(), n[1]));
                    if all {
                        waited.sort_by_key(|event| event.data);
                        taken.sort_by_key(|event| event.data);
                    }
                    assert_eq!(waited, taken, "round {round}: {log:#?}");
                }
            }
        }
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) as usize % n
    }
}

#[test]
fn rings_go_with_their_sets() {
    let engine = Engine::new();
    let mut seen = HashMap::new();
    for i in 0..100 {
        let set = EventPoll::new(&engine).unwrap();
        let counter = open(&engine);
        set.add(1, &counter, Event::new(Events::IN, i)).unwrap();
        let ring = set.make_ring(1 << (i % 5)).unwrap();
        counter.write(1).unwrap();
        *seen.entry(ring.pop().unwrap().data).or_insert(0) += 1;
        assert_eq!(ring.capacity(), 1 << (i % 5));
    }
    assert_eq!(seen.len(), 100);
}

/// What is found not to be ready as it is taken from the ring comes up when its time comes: nobody
/// else heard of that time, because the watch was on its way.
#[test]
fn a_timer_set_again_while_it_is_in_the_ring_comes_up() -> Result<(), Error> {
    for flags in [Events::empty(), Events::ET, Events::ONESHOT] {
        let engine = Engine::new();
        let set = EventPoll::new(&engine)?;
        let first = Description::new(&engine, Counter::new(1, CounterFlags::NONBLOCK));
        let timer = Description::new(&engine, Timer::new(TimerFlags::NONBLOCK));
        set.add(1, &first, Event::new(Events::IN | Events::ET, 1))?;
        set.add(2, &timer, Event::new(Events::IN | flags, 2))?;
        let ring = set.make_ring(8)?;
        timer.set_at(Duration::from_nanos(1), Duration::ZERO)?;
        assert_eq!(ring.pop(), Some(Event::new(Events::IN, 1)));
        assert_eq!(timer.read(), Ok(1));
        timer.set(TimerSpec { value: Duration::from_millis(30), interval: Duration::ZERO })?;
        assert_eq!(ring.pop(), None, "{flags:?}");
        let mut events = [Event::default(); 4];
        assert_eq!(
            ring.wait(&mut events, Timeout::After(Duration::from_secs(20))),
            Ok(1),
            "{flags:?}"
        );
        assert_eq!((events[0], timer.read()), (Event::new(Events::IN, 2), Ok(1)));
    }
    Ok(())
}
