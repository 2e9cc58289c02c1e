//! Random programs, whose results are compared with the clock.

use super::*;

/// Sets, reads, queries, duplicates and waits in random order; the clock says what is right.
pub(super) fn random_programs_answer_as_the_clock_says<B: Backend>() {
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = move |most: u64| {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % most
    };
    for _ in 0..40 {
        let set = Set::<B>::new();
        let timer = Timer::<B>::new();
        set.add(&timer, IN, 7);
        let mut copies = Vec::new();
        // The first expiry after those that were read; NONE for never.
        let (mut first, mut interval) = (NONE, NONE);
        for _ in 0..25 {
            match next(7) {
                0 | 1 => {
                    let value = Duration::from_nanos(next(4_000_000));
                    let every = Duration::from_nanos(
                        [0, 1 + next(100), 1 + next(3_000_000)][next(3) as usize],
                    );
                    let at = if next(5) == 0 {
                        NONE
                    } else {
                        now() + value - Duration::from_nanos(next(3_000_000))
                    };
                    let (before, old, after) = around(|| {
                        timer.try_set(TFD_TIMER_ABSTIME, at, every).expect("timerfd_settime")
                    });
                    check_left(first, interval, before, old, after);
                    (first, interval) = (at, every);
                }
                2 => {
                    let (before, left, after) = around(|| timer.get());
                    check_left(first, interval, before, left, after);
                }
                3 | 4 => {
                    let (before, read, after) = around(|| timer.try_read());
                    let count =
                        |now| if first == NONE { 0 } else { expirations(first, interval, now) };
                    match read {
                        Ok(read) => {
                            assert!(
                                (count(before).max(1)..=count(after)).contains(&read),
                                "{read}"
                            );
                            first = if interval == NONE {
                                NONE
                            } else {
                                first + interval * u32::try_from(read).unwrap()
                            };
                        }
                        // The kernel's interrupt may be late, but it comes.
                        Err(EAGAIN) if count(before) > 0 => assert_eq!(set.next(), (7, IN)),
                        Err(error) => assert_eq!(error, EAGAIN),
                    }
                }
                5 if copies.is_empty() && next(4) == 0 => copies.push(timer.migrated_dup()),
                5 => sleep(Duration::from_nanos(next(1_000_000))),
                _ => {
                    let (before, got, after) =
                        around(|| set.wait(1, next(3) as c_int).expect("epoll_wait"));
                    let expired = |now| first != NONE && first <= now;
                    if !got.is_empty() {
                        assert!(expired(after), "early");
                    } else if expired(before) {
                        assert_eq!(set.next(), (7, IN));
                    }
                }
            }
        }
    }
}

#[track_caller]
pub(super) fn check_left(
    first: Duration,
    interval: Duration,
    before: Duration,
    got: (Duration, Duration),
    after: Duration,
) {
    assert_eq!(got.1, interval);
    let left = |now: Duration| match (first, expirations(first, interval, now)) {
        (NONE, _) => NONE,
        (first, 0) => first - now,
        (_, _) if interval == NONE => NONE,
        (first, n) => {
            let next = first.as_nanos() + interval.as_nanos() * u128::from(n);
            Duration::from_nanos(u64::try_from(next).unwrap()) - now
        }
    };
    if expirations(first, interval, before) == expirations(first, interval, after) {
        assert!(
            left(after) <= got.0 && got.0 <= left(before),
            "{:?} is not in {:?}..={:?}",
            got.0,
            left(after),
            left(before)
        );
    } else {
        assert!(got.0 <= left(before).max(interval), "{:?}", got.0);
    }
}
