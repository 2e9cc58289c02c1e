//! Batches of changes, against single calls.
#![cfg(not(any(loom, shuttle)))]

use wakeset::{
    Change, Counter, CounterFlags, Description, Engine, Error, Event, EventPoll, Events, OnError,
    Timeout,
};

fn counter(engine: &Engine, value: u64) -> Description<Counter> {
    Description::new(engine, Counter::new(value, CounterFlags::NONBLOCK))
}

/// The same random changes singly and in batches of random length: the same results, watches and
/// events.
#[test]
fn a_batch_has_the_results_of_single_calls() {
    let mut random = fastrand::Rng::with_seed(1);
    let mut below = move |n: usize| random.usize(..n);
    for round in 0..150 {
        let engine = Engine::new();
        let (stranger, inner) = (
            counter(&Engine::new(), 1),
            Description::new(&engine, EventPoll::new(&engine).unwrap()),
        );
        let counters: Vec<_> = (0..30).map(|i| counter(&engine, i % 2)).collect();
        let sets = [0, 1].map(|_| Description::new(&engine, EventPoll::new(&engine).unwrap()));
        // Watched themselves, every other time: adds then take the wider lock.
        let outer = EventPoll::new(&engine).unwrap();
        if round % 2 == 0 {
            sets.iter().for_each(|set| outer.add(0, set, Event::new(Events::IN, 0)).unwrap());
        }
        for _ in 0..4 {
            let on_error = if below(2) == 0 { OnError::GoOn } else { OnError::Stop };
            let masks =
                [Events::IN, Events::OUT, Events::IN | Events::ET, Events::IN | Events::ONESHOT];
            let masks = [
                masks.as_slice(),
                &[Events::IN | Events::EXCLUSIVE, Events::PRI | Events::EXCLUSIVE],
            ]
            .concat();
            let plan: Vec<_> = (0..1 + below(600))
                .map(|_| (below(3), below(32), masks[below(masks.len())]))
                .collect();
            let change = |&(op, target, events): &(usize, usize, Events)| {
                let (fd, event) = (target as i32 % 25, Event::new(events, target as u64));
                match (op, counters.get(target)) {
                    (0, Some(counter)) => Change::add(fd, counter, event),
                    (1, Some(counter)) => Change::modify(fd, counter, event),
                    (_, Some(counter)) => Change::remove(fd, counter),
                    (0, None) if target == 30 => Change::add(fd, &stranger, event),
                    (_, None) if target == 30 => Change::remove(fd, &stranger),
                    (0, None) => Change::add(fd, &inner, event),
                    (_, None) => Change::remove(fd, &inner),
                }
            };
            let mut together: Vec<_> = plan.iter().map(change).collect();
            let succeeded = sets[0].apply(&mut together, on_error);
            let single = |&(op, target, events): &(usize, usize, Events)| {
                let (set, fd, event) =
                    (&sets[1], target as i32 % 25, Event::new(events, target as u64));
                match (op, counters.get(target)) {
                    (0, Some(counter)) => set.add(fd, counter, event),
                    (1, Some(counter)) => set.modify(fd, counter, event),
                    (_, Some(counter)) => set.remove(fd, counter),
                    (0, None) if target == 30 => set.add(fd, &stranger, event),
                    (_, None) if target == 30 => set.remove(fd, &stranger),
                    (0, None) => set.add(fd, &inner, event),
                    (_, None) => set.remove(fd, &inner),
                }
            };
            let mut singly = vec![None; plan.len()];
            for (step, result) in plan.iter().zip(&mut singly) {
                *result = Some(single(step));
                if on_error == OnError::Stop && *result != Some(Ok(())) {
                    break;
                }
            }
            let results =
                |changes: &[Change<'_>]| changes.iter().map(Change::result).collect::<Vec<_>>();
            assert_eq!(results(&together), singly, "round {round}");
            assert_eq!(succeeded, singly.iter().filter(|result| **result == Some(Ok(()))).count());
            assert_eq!(sets[0].len(), sets[1].len());
            let events = sets.each_ref().map(|set| {
                let mut events = [Event::default(); 64];
                let n = set.wait(&mut events, Timeout::Now).unwrap();
                events[..n].to_vec()
            });
            assert_eq!(events[0], events[1], "round {round}: what is reported, and its order");
        }
    }
}

#[test]
fn a_change_says_what_became_of_it() {
    let engine = Engine::new();
    let (set, counter) = (EventPoll::new(&engine).unwrap(), counter(&engine, 0));
    let add = Change::add(1, &counter, Event::new(Events::IN, 1));
    let mut changes = [add, add, Change::remove(1, &counter)];
    assert_eq!(changes[0].result(), None);
    assert_eq!(set.apply(&mut changes, OnError::GoOn), 2);
    assert_eq!(
        changes.map(|change| change.result()),
        [Some(Ok(())), Some(Err(Error::AlreadyWatched)), Some(Ok(()))]
    );
    assert_eq!(set.apply(&mut changes, OnError::Stop), 1);
    assert_eq!(
        changes.map(|change| change.result()),
        [Some(Ok(())), Some(Err(Error::AlreadyWatched)), None]
    );
    assert_eq!(set.len(), 1);
}
