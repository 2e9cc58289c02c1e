//! The timer, alone and in sets. Time here is real: what must not be early is checked exactly, what
//! must not be late only by arriving at all.
#![allow(missing_docs)]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use wakeset::{
    Counter, CounterFlags, Deadline, Description, Engine, Error, Event, EventPoll, Events, Source,
    Timeout, Timer, TimerFlags, TimerSpec,
};

const MS: Duration = Duration::from_millis(1);
const ONCE: Duration = Duration::ZERO;

fn timer(engine: &Engine) -> Description<Timer> {
    Description::new(engine, Timer::new(TimerFlags::NONBLOCK))
}

fn after(value: Duration) -> TimerSpec {
    TimerSpec { value, interval: ONCE }
}

fn every(value: Duration) -> TimerSpec {
    TimerSpec { value, interval: value }
}

/// The data of what one wait reports, sorted.
fn wait(set: &EventPoll, timeout: Timeout) -> Vec<u64> {
    let mut events = [Event::default(); 8];
    let n = set.wait(&mut events, timeout).unwrap();
    let mut data: Vec<_> = events[..n].iter().map(|event| event.data).collect();
    data.sort_unstable();
    data
}

#[test]
fn a_timer_counts_its_expirations() {
    let timer = Timer::new(TimerFlags::NONBLOCK);
    assert_eq!(timer.try_read(), Err(Error::WouldBlock));
    let begun = Instant::now();
    assert_eq!(timer.set(every(2 * MS)), Ok(TimerSpec::default()));
    assert_eq!(timer.poll(), Events::empty());
    let left = timer.get().unwrap();
    assert!(left.value <= 2 * MS && left.value > ONCE && left.interval == 2 * MS, "{left:?}");
    thread::sleep(9 * MS);
    assert_eq!(timer.poll(), Events::IN);
    assert!(timer.get().unwrap().value <= 2 * MS, "the time to the next expiration");
    let expirations = timer.read().unwrap();
    assert!(expirations >= 4, "{expirations} in {:?}", begun.elapsed());
    assert!(u128::from(expirations) <= begun.elapsed().as_millis() / 2);
    let old = timer.set(TimerSpec::default()).unwrap();
    assert!(old.value <= 2 * MS && old.interval == 2 * MS);
    thread::sleep(3 * MS);
    assert_eq!(timer.read(), Err(Error::WouldBlock), "disarmed");
    assert_eq!(timer.get(), Ok(TimerSpec::default()));
}

#[test]
fn a_timer_once_is_over_when_read() {
    let timer = Timer::new(TimerFlags::NONBLOCK);
    timer.set_at(Duration::from_nanos(1), ONCE).unwrap();
    assert_eq!(timer.get(), Ok(TimerSpec::default()), "nothing is left");
    assert_eq!(timer.read(), Ok(1));
    assert_eq!(timer.read(), Err(Error::WouldBlock));
    // Not set, but it keeps the interval it was given.
    timer.set(TimerSpec { value: ONCE, interval: MS }).unwrap();
    assert_eq!(timer.get(), Ok(TimerSpec { value: ONCE, interval: MS }));
    // Setting it drops what has not been read.
    timer.set_at(Duration::from_nanos(1), ONCE).unwrap();
    timer.set(after(Duration::from_secs(1000))).unwrap();
    assert_eq!(timer.read(), Err(Error::WouldBlock));
    // What is longer than Linux can say is as long as it can.
    timer.set(TimerSpec { value: Duration::MAX, interval: Duration::MAX }).unwrap();
    let left = timer.get().unwrap();
    assert_eq!(left.interval, Duration::from_nanos(i64::MAX as u64));
    assert!(left.value <= left.interval);
    timer.set_at(Duration::from_nanos(1), Duration::MAX).unwrap();
    assert_eq!(timer.read(), Ok(1));
    assert_eq!(timer.read(), Err(Error::WouldBlock));
}

#[test]
fn a_read_blocks_until_it_expires_or_is_set_to() {
    let timer = Timer::new(TimerFlags::empty());
    let begun = Instant::now();
    timer.set(after(5 * MS)).unwrap();
    assert_eq!(timer.read(), Ok(1));
    assert!(begun.elapsed() >= 5 * MS);
    thread::scope(|scope| {
        let reader = scope.spawn(|| timer.read());
        thread::sleep(5 * MS);
        timer.set(after(Duration::from_secs(1000))).unwrap();
        thread::sleep(5 * MS);
        timer.set(after(MS)).unwrap();
        assert_eq!(reader.join().unwrap(), Ok(1));
        let reader = scope.spawn(|| timer.read());
        thread::sleep(5 * MS);
        timer.seal();
        assert_eq!(reader.join().unwrap(), Err(Error::Sealed));
    });
    assert_eq!(timer.set(after(MS)), Err(Error::Sealed));
    assert_eq!(timer.get(), Err(Error::Sealed));
}

#[test]
fn a_wait_ends_when_a_timer_expires() -> Result<(), Error> {
    let engine = Engine::new();
    let set = EventPoll::new(&engine)?;
    let timers = [timer(&engine), timer(&engine), timer(&engine)];
    for (data, timer) in timers.iter().enumerate() {
        set.add(data as i32, timer, Event::new(Events::IN, data as u64))?;
    }
    let begun = Instant::now();
    timers[0].set(after(20 * MS))?;
    timers[1].set(after(5 * MS))?;
    timers[2].set(after(Duration::from_secs(1000)))?;
    assert_eq!(wait(&set, Timeout::Never), [1]);
    assert!(begun.elapsed() >= 5 * MS);
    assert_eq!(wait(&set, Timeout::Now), [1], "level-triggered");
    assert_eq!(timers[1].read(), Ok(1));
    assert_eq!(wait(&set, Timeout::After(MS)), []);
    assert_eq!(wait(&set, Timeout::Never), [0]);
    assert!(begun.elapsed() >= 20 * MS);
    timers[0].set(TimerSpec::default())?;
    assert_eq!(wait(&set, Timeout::Now), [], "set again before it was read");
    // Earlier than planned, later than planned, and gone.
    timers[2].set(after(2 * MS))?;
    timers[0].set(after(MS))?;
    timers[0].set(after(Duration::from_secs(1000)))?;
    assert_eq!(wait(&set, Timeout::Never), [2]);
    Ok(())
}

#[test]
fn an_edge_for_each_expiration_that_follows_a_read() -> Result<(), Error> {
    let engine = Engine::new();
    let set = EventPoll::new(&engine)?;
    let timer = timer(&engine);
    set.add(1, &timer, Event::new(Events::IN | Events::ET, 1))?;
    let past = Duration::from_nanos(1);
    timer.set_at(past, ONCE)?;
    assert_eq!(wait(&set, Timeout::Now), [1]);
    assert_eq!(wait(&set, Timeout::Now), [], "reported");
    timer.set_at(past, ONCE)?;
    assert_eq!(wait(&set, Timeout::Now), [1], "set again, to the same time");
    timer.set(every(2 * MS))?;
    assert_eq!(wait(&set, Timeout::Never), [1]);
    assert_eq!(wait(&set, Timeout::After(7 * MS)), [], "no edge while it is not read");
    assert!(timer.read()? >= 3);
    assert_eq!(wait(&set, Timeout::Never), [1]);
    // Expired and read between two waits: nothing is to be seen.
    timer.read()?;
    thread::sleep(5 * MS);
    timer.read()?;
    assert_eq!(wait(&set, Timeout::Now), []);
    set.modify(1, &timer, Event::new(Events::IN | Events::ONESHOT, 2))?;
    assert_eq!(wait(&set, Timeout::Never), [2]);
    timer.read()?;
    assert_eq!(wait(&set, Timeout::After(5 * MS)), [], "disarmed");
    set.modify(1, &timer, Event::new(Events::IN | Events::ONESHOT, 3))?;
    assert_eq!(wait(&set, Timeout::Never), [3]);
    // Nothing that time makes ready.
    set.modify(1, &timer, Event::new(Events::OUT, 4))?;
    assert_eq!(wait(&set, Timeout::After(5 * MS)), []);
    set.remove(1, &timer)?;
    assert_eq!(wait(&set, Timeout::After(5 * MS)), []);
    Ok(())
}

#[test]
fn a_timer_in_several_sets_is_seen_in_each() -> Result<(), Error> {
    let engine = Engine::new();
    let sets = [EventPoll::new(&engine)?, EventPoll::new(&engine)?, EventPoll::new(&engine)?];
    let timer = timer(&engine);
    for set in &sets {
        set.add(1, &timer, Event::new(Events::IN | Events::ET, 1))?;
    }
    for _ in 0..3 {
        timer.set(after(2 * MS))?;
        // One looks early, and plans; the others have not looked at all.
        assert_eq!(wait(&sets[0], Timeout::Now), []);
        thread::scope(|scope| {
            let waiters = sets.each_ref().map(|set| scope.spawn(|| wait(set, Timeout::Never)));
            assert_eq!(waiters.map(|waiter| waiter.join().unwrap()), [[1], [1], [1]]);
        });
        timer.set(after(Duration::from_secs(1000)))?;
        timer.set(after(MS))?;
        assert_eq!(sets.each_ref().map(|set| wait(set, Timeout::Never)), [[1], [1], [1]]);
        timer.read()?;
    }
    Ok(())
}

#[test]
fn a_timer_in_an_inner_set_ends_a_wait_outside() -> Result<(), Error> {
    let engine = Engine::new();
    for edge in [Events::empty(), Events::ET] {
        let sets = [0, 1, 2].map(|_| Description::new(&engine, EventPoll::new(&engine).unwrap()));
        sets[1].add(10, &sets[0], Event::new(Events::IN | edge, 10))?;
        sets[2].add(20, &sets[1], Event::new(Events::IN | edge, 20))?;
        let (early, late) = (timer(&engine), timer(&engine));
        let begun = Instant::now();
        early.set(after(3 * MS))?;
        sets[0].add(1, &early, Event::new(Events::IN, 1))?;
        sets[0].add(2, &late, Event::new(Events::IN, 2))?;
        late.set(after(10 * MS))?;
        assert_eq!(wait(&sets[2], Timeout::Never), [20]);
        assert!(begun.elapsed() >= 3 * MS);
        if edge.is_empty() {
            early.read()?;
            assert_eq!(wait(&sets[2], Timeout::Now), []);
        }
        // The first one is still to be read: another edge comes all the same.
        assert_eq!(wait(&sets[2], Timeout::Never), [20]);
        assert!(begun.elapsed() >= 10 * MS);
        assert_eq!(
            wait(&sets[0], Timeout::Now),
            if edge.is_empty() { vec![2] } else { vec![1, 2] }
        );
        // Set while it is on the inner set's list, behind something that holds.
        let counter = Description::new(&engine, Counter::new(1, CounterFlags::empty()));
        sets[0].add(3, &counter, Event::new(Events::IN, 3))?;
        if !edge.is_empty() {
            assert_eq!(wait(&sets[2], Timeout::Never), [20], "the counter");
            late.set(after(3 * MS))?;
            assert_eq!(
                wait(&sets[2], Timeout::After(MS)),
                [20],
                "a change inside is an edge outside"
            );
            assert_eq!(wait(&sets[2], Timeout::Never), [20]);
        }
    }
    Ok(())
}

#[test]
fn a_waiter_hears_of_a_timer_set_elsewhere() -> Result<(), Error> {
    let engine = Engine::new();
    let set = EventPoll::new(&engine)?;
    let timers = [timer(&engine), timer(&engine)];
    for (data, timer) in timers.iter().enumerate() {
        set.add(data as i32, timer, Event::new(Events::IN, data as u64))?;
    }
    timers[1].set(after(Duration::from_secs(1000)))?;
    thread::scope(|scope| {
        let waiter = scope.spawn(|| wait(&set, Timeout::Never));
        thread::sleep(5 * MS);
        timers[0].set(after(2 * MS)).unwrap();
        assert_eq!(waiter.join().unwrap(), [0]);
    });
    Ok(())
}

/// Each expiration is one waiter's, whoever of them it was that slept until then.
#[test]
fn when_one_waiter_leaves_another_minds_the_time() -> Result<(), Error> {
    let engine = Engine::new();
    let set = EventPoll::new(&engine)?;
    let timers: Vec<_> = (0..6).map(|_| timer(&engine)).collect();
    for (data, timer) in timers.iter().enumerate() {
        set.add(data as i32, timer, Event::new(Events::IN | Events::ONESHOT, data as u64))?;
    }
    for round in 0..20 {
        for (data, timer) in timers.iter().enumerate() {
            set.modify(data as i32, timer, Event::new(Events::IN | Events::ONESHOT, data as u64))?;
        }
        let mut all: Vec<u64> = thread::scope(|scope| {
            // Some leave because their time is up, and must not take the deadline with them.
            let leaving = [0, 1].map(|_| scope.spawn(|| wait(&set, Timeout::After(MS / 2))));
            let waiters: Vec<_> = timers
                .iter()
                .map(|_| {
                    scope.spawn(|| {
                        let mut event = [Event::default()];
                        assert_eq!(set.wait(&mut event, Timeout::Never), Ok(1));
                        event[0].data
                    })
                })
                .collect();
            for (i, timer) in timers.iter().enumerate() {
                timer.set(after((1 + (i as u32 * 7 + round) % 5) * MS)).unwrap();
            }
            let early = leaving.map(|waiter| waiter.join().unwrap()).concat();
            // Whoever left early may have taken one.
            for taken in &early {
                let timer = &timers[*taken as usize];
                set.modify(*taken as i32, timer, Event::new(Events::IN | Events::ONESHOT, *taken))
                    .unwrap();
            }
            waiters.into_iter().map(|waiter| waiter.join().unwrap()).collect()
        });
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2, 3, 4, 5], "round {round}");
    }
    Ok(())
}

/// Threads set timers, now earlier and now later, while others wait, take and set them again: each
/// comes up, and none before its time.
#[test]
fn no_expiration_is_lost_or_early() -> Result<(), Error> {
    const TIMERS: usize = 32;
    let engine = Engine::new();
    let sets = [EventPoll::new(&engine)?, EventPoll::new(&engine)?];
    let timers: Vec<_> = (0..TIMERS).map(|_| timer(&engine)).collect();
    // When each was last set to expire, 0 for a change under way.
    let due: Vec<_> = (0..TIMERS).map(|_| AtomicU64::new(0)).collect();
    let now = || u64::try_from(boot().as_nanos()).unwrap();
    for (data, timer) in timers.iter().enumerate() {
        // Half of them in both sets.
        for set in &sets[..1 + data % 2] {
            set.add(data as i32, timer, Event::new(Events::IN | Events::ET, data as u64))?;
        }
    }
    let over = AtomicBool::new(false);
    let (taken, ended) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for set in &sets {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        for data in wait(set, Timeout::After(200 * MS)) {
                            let data = data as usize;
                            let at = due[data].load(Ordering::SeqCst);
                            if timers[data].read().is_ok() {
                                assert!(
                                    at <= now()
                                        || at == 0
                                        || due[data].load(Ordering::SeqCst) != at,
                                    "early"
                                );
                                taken.fetch_add(1, Ordering::Relaxed);
                                due[data].store(0, Ordering::SeqCst);
                            }
                        }
                    }
                    ended.fetch_add(1, Ordering::Relaxed);
                });
            }
        }
        let mut random = fastrand::Rng::with_seed(1);
        let begun = Instant::now();
        while begun.elapsed() < 300 * MS {
            let (which, micros) = (random.usize(..TIMERS), random.u64(..3000));
            due[which].store(0, Ordering::SeqCst);
            let at = boot() + Duration::from_micros(micros);
            timers[which].set_at(at, ONCE).unwrap();
            due[which].store(at.as_nanos() as u64, Ordering::SeqCst);
        }
        // All are set to expire soon: all come up, with nobody setting any more.
        for timer in &timers {
            timer.set(after(3 * MS)).unwrap();
        }
        let patience = Instant::now();
        while timers
            .iter()
            .any(|timer| timer.get().unwrap().value > ONCE || !timer.poll().is_empty())
        {
            assert!(patience.elapsed() < Duration::from_secs(20), "an expiration was lost");
            thread::sleep(MS);
        }
        over.store(true, Ordering::Relaxed);
    });
    assert!(taken.into_inner() > TIMERS as u64);
    Ok(())
}

/// The clock the timers go by.
fn boot() -> Duration {
    Deadline::now().since_boot()
}
