//! What a timer is set to, and what it counts.

use super::*;

pub(super) fn a_timer_begins_disarmed<B: Backend>() {
    let timer = Timer::<B>::new();
    assert_eq!(timer.get(), (NONE, NONE));
    assert_eq!(timer.try_read(), Err(EAGAIN));
}

pub(super) fn a_timer_once_expires_once<B: Backend>() {
    let timer = Timer::<B>::new();
    let begun = now();
    timer.set(3 * MS, NONE);
    assert_eq!(timer.read(), 1);
    assert!(now() - begun >= 3 * MS, "early");
    assert_eq!(timer.get(), (NONE, NONE));
    sleep(5 * MS);
    assert_eq!(timer.try_read(), Err(EAGAIN));
}

pub(super) fn a_timer_counts_what_was_not_read<B: Backend>() {
    let timer = Timer::<B>::new();
    let (mut first, interval) = (now() + MS, Duration::from_micros(700));
    timer.set_at(first, interval);
    for pause in [9 * MS, NONE, 5 * MS] {
        sleep(pause);
        let (before, count, after) = around(|| timer.read());
        let (least, most) =
            (expirations(first, interval, before).max(1), expirations(first, interval, after));
        assert!((least..=most).contains(&count), "{count} is not in {least}..={most}");
        first += interval * count as u32;
    }
}

pub(super) fn what_is_left_is_exact<B: Backend>() {
    let timer = Timer::<B>::new();
    let at = now() + HOUR;
    timer.set_at(at, 7 * MS);
    let (before, (left, interval), after) = around(|| timer.get());
    assert!(at - after <= left && left <= at - before, "{left:?}");
    assert_eq!(interval, 7 * MS);
    let (before, (), set) = around(|| timer.set(HOUR, NONE));
    let (asked, (left, interval), after) = around(|| timer.get());
    assert!(left + (asked - set) <= HOUR && left + (after - before) >= HOUR, "{left:?}");
    assert_eq!(interval, NONE);
}

pub(super) fn setting_it_says_what_was_left<B: Backend>() {
    let timer = Timer::<B>::new();
    let at = now() + HOUR;
    assert_eq!(timer.try_set(TFD_TIMER_ABSTIME, at, 3 * MS), Ok((NONE, NONE)));
    let (before, old, after) = around(|| timer.try_set(0, 2 * HOUR, NONE).unwrap());
    assert!(at - after <= old.0 && old.0 <= at - before && old.1 == 3 * MS, "{old:?}");
    // During an interval, the time left is what remains of it.
    let (first, interval) = (now(), 50 * MS);
    timer.set_at(first, interval);
    timer.read();
    timer.set_at(first, interval);
    sleep(2 * MS);
    let (before, old, after) = around(|| timer.try_set(0, NONE, NONE).unwrap());
    let next = |now: Duration| first + interval * expirations(first, interval, now) as u32;
    assert!(next(before) - after.min(next(before)) <= old.0 && old.0 <= interval, "{old:?}");
    assert_eq!(old.1, interval);
    // A timer without an interval that has expired and was not read has no time left.
    timer.set_at(MS, NONE);
    sleep(MS);
    assert_eq!(timer.try_set(0, NONE, NONE), Ok((NONE, NONE)));
}

pub(super) fn setting_it_drops_what_was_not_read<B: Backend>() {
    let timer = Timer::<B>::new();
    timer.set_at(MS, MS);
    sleep(MS);
    timer.set(HOUR, NONE);
    assert_eq!(timer.try_read(), Err(EAGAIN));
    timer.set_at(MS, NONE);
    sleep(MS);
    timer.set(NONE, NONE);
    assert_eq!(timer.try_read(), Err(EAGAIN));
}

pub(super) fn a_point_in_time_that_has_passed_expires_at_once<B: Backend>() {
    let timer = Timer::<B>::new();
    timer.set_at(Duration::from_nanos(1), NONE);
    assert_eq!(timer.read(), 1);
    let interval = Duration::from_secs(1);
    let first = Duration::from_nanos(1);
    timer.set_at(first, interval);
    let (before, count, after) = around(|| timer.read());
    assert!(
        (expirations(first, interval, before)..=expirations(first, interval, after))
            .contains(&count)
    );
}

pub(super) fn no_value_disarms_it_and_keeps_the_interval<B: Backend>() {
    let timer = Timer::<B>::new();
    timer.set(MS, NONE);
    timer.set(NONE, 5 * MS);
    assert_eq!(timer.get(), (NONE, 5 * MS));
    sleep(8 * MS);
    assert_eq!(timer.try_read(), Err(EAGAIN));
    timer.set_at(NONE, 6 * MS);
    assert_eq!(timer.get(), (NONE, 6 * MS));
}

pub(super) fn the_longest_times_are_taken<B: Backend>() {
    let timer = Timer::<B>::new();
    let longest = Duration::from_nanos(i64::MAX as u64);
    for (flags, value) in
        [(0, i64::MAX as u64), (TFD_TIMER_ABSTIME, i64::MAX as u64), (0, 9_223_372_036)]
    {
        let value = Duration::new(value, 999_999_999);
        let (before, set, after) = around(|| timer.try_set(flags, value, value));
        set.unwrap();
        let (_, (left, interval), later) = around(|| timer.get());
        assert_eq!(interval, longest);
        assert!(
            left <= longest - before && left + later >= longest,
            "{left:?} of {longest:?} at {after:?}"
        );
    }
    let years = Duration::from_secs(200 * 365 * 24 * 3600);
    timer.set(years, years);
    let (left, interval) = timer.get();
    assert!(left <= years && left > years - HOUR && interval == years);
}

pub(super) fn all_clocks_there_are<B: Backend>() {
    for clock_id in [CLOCK_MONOTONIC, CLOCK_REALTIME, CLOCK_BOOTTIME] {
        let timer = Timer::<B>::with(clock_id, TFD_NONBLOCK);
        timer.set(2 * MS, NONE);
        assert_eq!(timer.read(), 1);
        timer.set(MS, MS);
        assert!(timer.read() >= 1);
        let at = clock(clock_id) + HOUR;
        timer.set_at(at, MS);
        let (left, interval) = timer.get();
        assert!(
            left <= HOUR && left > HOUR - Duration::from_secs(100) && interval == MS,
            "{left:?}"
        );
    }
}

pub(super) fn a_point_in_real_time<B: Backend>() {
    let timer = Timer::<B>::with(CLOCK_REALTIME, TFD_NONBLOCK);
    timer.set(HOUR, NONE);
    let at = clock(CLOCK_REALTIME) + 3 * MS;
    let (old, _) = timer.try_set(TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, at, NONE).unwrap();
    assert!(old <= HOUR && old > HOUR - Duration::from_secs(100));
    assert_eq!(timer.read(), 1);
    assert!(clock(CLOCK_REALTIME) >= at);
    // On other clocks, and without a point in time, the flag means nothing.
    let timer = Timer::<B>::new();
    timer.try_set(TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, MS, NONE).unwrap();
    assert_eq!(timer.read(), 1);
    timer.try_set(TFD_TIMER_CANCEL_ON_SET, MS, NONE).unwrap();
    assert_eq!(timer.read(), 1);
}
