//! Blocking reads, signals, duplicates, and poll(2).

use super::*;

pub(super) fn a_blocking_read_waits_for_expiry<B: Backend>() {
    let timer = Timer::<B>::blocking();
    let (first, interval) = (now() + 3 * MS, 2 * MS);
    timer.set_at(first, interval);
    assert!(timer.try_read().unwrap() >= 1);
    assert!(now() >= first);
    assert!(timer.try_read().unwrap() >= 1);
    assert!(now() >= first + interval);
}

pub(super) fn a_blocking_read_hears_of_a_new_time<B: Backend>() {
    let timer = Timer::<B>::blocking();
    let reader = Task::start({
        let timer = timer.clone();
        move || timer.try_read()
    });
    reader.until_asleep();
    timer.set(HOUR, NONE);
    timer.set(2 * MS, NONE);
    assert_eq!(reader.join(), Ok(1));
}

pub(super) fn a_signal_interrupts_a_read<B: Backend>() {
    let timer = Timer::<B>::blocking();
    timer.set(HOUR, NONE);
    signals::install();
    let task = Task::start(move || timer.try_read());
    assert_eq!(task.interrupt(signals::PLAIN), Err(EINTR));
}

pub(super) fn a_restarting_signal_does_not<B: Backend>() {
    let timer = Timer::<B>::blocking();
    timer.set(HOUR, NONE);
    signals::install();
    let reading = timer.clone();
    let task = Task::asleep(move || (reading.try_read(), signals::handled()));
    for _ in 0..20 {
        task.signal(signals::RESTARTING);
        task.until_asleep();
    }
    timer.set(MS, NONE);
    let (read, handled) = task.join();
    assert_eq!(read, Ok(1));
    assert!(handled > 0);
}

pub(super) fn nonblocking_can_be_turned_on_and_off<B: Backend>() {
    let timer = Timer::<B>::new();
    B::set_nonblocking(timer.fd(), false).unwrap();
    timer.set(2 * MS, NONE);
    assert_eq!(timer.try_read(), Ok(1));
    let timer = Timer::<B>::blocking();
    B::set_nonblocking(timer.fd(), true).unwrap();
    assert_eq!(timer.try_read(), Err(EAGAIN));
}

pub(super) fn a_duplicate_is_the_same_timer<B: Backend>() {
    let timer = Timer::<B>::new();
    let other = timer.dup();
    other.set(MS, NONE);
    assert_eq!(timer.read(), 1);
    assert_eq!(other.try_read(), Err(EAGAIN));
}

/// The duplicate has the timer's setting, its expirations and the time left, to the nanosecond.
pub(super) fn a_duplicate_goes_on_where_the_first_was<B: Backend>() {
    for (first, interval) in
        [(MS, 3 * MS), (now() + HOUR, 5 * MS), (now() + 2 * MS, MS / 3), (now() - 5 * MS, MS)]
    {
        let timer = Timer::<B>::new();
        timer.set_at(first, interval);
        let other = if interval == 5 * MS { timer.dup() } else { timer.migrated_dup() };
        let left = |timer: &Timer<B>| {
            let (before, (left, every), after) = around(|| timer.get());
            assert_eq!(every, interval);
            let next = |now: Duration| {
                first + interval * u32::try_from(expirations(first, interval, now)).unwrap()
            };
            let (soonest, latest) = (next(before).saturating_sub(after), next(after) - before);
            assert!(
                soonest <= left && left <= latest,
                "{left:?} is not in {soonest:?}..={latest:?}"
            );
        };
        left(&other);
        if first < now() + HOUR / 2 {
            sleep(4 * MS);
            let (before, count, after) = around(|| timer.read());
            let (least, most) =
                (expirations(first, interval, before), expirations(first, interval, after));
            assert!((least..=most).contains(&count), "{count} is not in {least}..={most}");
        }
        left(&timer);
    }
}

pub(super) fn a_duplicate_once_expired_is_ready_at_once<B: Backend>() {
    for (set, clock) in [(true, CLOCK_MONOTONIC), (false, CLOCK_MONOTONIC), (false, CLOCK_REALTIME)]
    {
        for round in 0..20 {
            let timer = Timer::<B>::with(clock, TFD_NONBLOCK);
            match set {
                true => timer.set_at(MS, NONE),
                false => timer.set(Duration::from_nanos(1), NONE),
            }
            sleep(MS);
            let other = if round % 4 == 0 { timer.dup() } else { timer.migrated_dup() };
            assert_eq!(other.try_read(), Ok(1));
            assert_eq!(timer.try_read(), Err(EAGAIN));
            assert_eq!(timer.get(), (NONE, NONE));
        }
    }
}

pub(super) fn poll_sees_it<B: Backend>() {
    let timer = Timer::<B>::new();
    // The kernel's: poll(2) is the interposer's to hook.
    let timer = timer.migrated_dup();
    let poll = |limit| {
        let mut entry =
            libc::pollfd { fd: timer.fd(), events: libc::POLLIN | libc::POLLOUT, revents: 0 };
        // SAFETY: one entry.
        assert!(unsafe { libc::poll(&raw mut entry, 1, limit) } >= 0);
        entry.revents
    };
    assert_eq!(poll(0), 0);
    timer.set(MS, NONE);
    assert_eq!(poll(LONG), libc::POLLIN);
}
