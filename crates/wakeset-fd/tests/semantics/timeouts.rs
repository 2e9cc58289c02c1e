//! Time limits and signals: never too early, and EINTR when a handler ran.

use crate::backend::{Backend, Errno, KernelSigset};
use crate::objects::{Counter, IN, LONG, Pipe, Report, Set, pipe};
use crate::signals::{self, IGNORED, PLAIN, RESTARTING, mask_of};
use crate::task::Task;
use libc::{EBADF, EFAULT, EINTR, EINVAL, epoll_event, timespec};
use std::os::fd::AsRawFd;
use std::ptr;
use std::thread;
use std::time::{Duration, Instant};

on_both!(
    no_time_at_all,
    milliseconds_are_never_short,
    nanoseconds_are_never_short,
    an_event_ends_the_wait,
    a_negative_time_is_for_ever,
    no_limit_is_for_ever,
    a_limit_in_the_far_future_is_a_limit,
    limits_that_are_no_times,
    pwait2_reports_as_wait_does,
    pwait2_checks_its_arguments,
    a_handled_signal_interrupts,
    a_restarting_handler_interrupts_too,
    an_ignored_signal_does_not,
    a_blocked_signal_does_not,
    a_signal_interrupts_a_mixed_wait,
    the_mask_holds_during_the_wait_only,
    a_pending_signal_the_mask_lets_in_interrupts,
    what_is_ready_comes_before_a_pending_signal,
    a_wait_of_no_time_is_not_interrupted,
    an_interrupted_wait_loses_no_event,
);

fn no_time_at_all<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::new(0));
    assert_eq!(set.wait(1, 0), Ok(vec![]));
    assert_eq!(set.wait_masked(Some(Duration::ZERO), None), Ok(vec![]));
    set.add(&counter, IN, 1);
    assert_eq!(set.wait(1, 0), Ok(vec![]));
    assert_eq!(set.wait_masked(Some(Duration::ZERO), None), Ok(vec![]));
}

/// Four sets: an empty one, one with a counter, one with a pipe, and one with both.
fn four_kinds<B: Backend>() -> ([Set<B>; 4], Counter<B>, Pipe<B>) {
    let (counter, pipe) = (Counter::new(0), pipe::<B>());
    let sets = std::array::from_fn(|kind| {
        let set = Set::new();
        if kind & 1 != 0 {
            set.add(&counter, IN, 1);
        }
        if kind & 2 != 0 {
            set.add(&pipe.0, IN, 2);
        }
        set
    });
    (sets, counter, pipe)
}

fn milliseconds_are_never_short<B: Backend>() {
    let (sets, _counter, _pipe) = four_kinds::<B>();
    for set in &sets {
        for limit in [1, 2, 15] {
            let before = Instant::now();
            assert_eq!(set.wait(4, limit), Ok(vec![]));
            assert!(before.elapsed() >= Duration::from_millis(limit as u64));
        }
    }
}

fn nanoseconds_are_never_short<B: Backend>() {
    let (sets, _counter, _pipe) = four_kinds::<B>();
    for set in &sets {
        for limit in [1, 999, 50_000, 1_500_001, 9_999_999] {
            let limit = Duration::from_nanos(limit);
            let before = Instant::now();
            assert_eq!(set.wait_masked(Some(limit), None), Ok(vec![]));
            assert!(before.elapsed() >= limit);
        }
    }
}

/// A wait on another thread, which has begun to sleep.
fn waiting<B: Backend>(set: &Set<B>, limit: i32) -> Task<Result<Vec<Report>, Errno>> {
    let set = set.clone();
    Task::asleep(move || set.wait(4, limit))
}

/// The same with a mask, and no limit or one in nanoseconds.
fn waiting_masked<B: Backend>(
    set: &Set<B>,
    limit: Option<Duration>,
    mask: Option<KernelSigset>,
) -> Task<Result<Vec<Report>, Errno>> {
    let set = set.clone();
    Task::asleep(move || set.wait_masked(limit, mask))
}

fn an_event_ends_the_wait<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::new(0));
    set.add(&counter, IN, 1);
    let task = waiting(&set, LONG);
    counter.write(1);
    assert_eq!(task.join(), Ok(vec![(1, IN)]));
}

fn a_negative_time_is_for_ever<B: Backend>() {
    for limit in [-1, -2, i32::MIN] {
        let (sets, counter, _pipe) = four_kinds::<B>();
        for kind in [1, 3] {
            let task = waiting(&sets[kind], limit);
            thread::sleep(Duration::from_millis(5));
            assert!(!task.has_ended());
            counter.write(1);
            assert_eq!(task.join(), Ok(vec![(1, IN)]));
            counter.drain();
        }
    }
}

fn no_limit_is_for_ever<B: Backend>() {
    let (sets, counter, _pipe) = four_kinds::<B>();
    for kind in [1, 3] {
        let task = waiting_masked(&sets[kind], None, None);
        thread::sleep(Duration::from_millis(5));
        assert!(!task.has_ended());
        counter.write(1);
        assert_eq!(task.join(), Ok(vec![(1, IN)]));
        counter.drain();
    }
}

fn a_limit_in_the_far_future_is_a_limit<B: Backend>() {
    for seconds in [1 << 32, i64::MAX as u64] {
        let (sets, counter, _pipe) = four_kinds::<B>();
        for kind in [1, 3] {
            let limit = Duration::new(seconds, 999_999_999);
            let task = waiting_masked(&sets[kind], Some(limit), None);
            thread::sleep(Duration::from_millis(2));
            assert!(!task.has_ended());
            counter.write(1);
            assert_eq!(task.join(), Ok(vec![(1, IN)]));
            counter.drain();
        }
    }
    let (set, counter) = (Set::<B>::new(), Counter::new(0));
    set.add(&counter, IN, 1);
    let task = waiting(&set, i32::MAX);
    counter.write(1);
    assert_eq!(task.join(), Ok(vec![(1, IN)]));
}

fn pwait2<B: Backend>(
    set: i32,
    max: i32,
    timeout: *const timespec,
    mask: *const KernelSigset,
) -> Result<i32, Errno> {
    let mut event = epoll_event { events: 0, u64: 0 };
    // SAFETY: room for the one event a set of one watch can report; timeouts and masks are valid or
    // cannot be reached.
    unsafe { B::epoll_pwait2(set, &mut event, max, timeout, mask) }
}

fn limits_that_are_no_times<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::new(1));
    set.add(&counter, IN, 1);
    for (tv_sec, tv_nsec) in
        [(0, 1_000_000_000), (0, -1), (-1, 0), (i64::MIN, 0), (1, i64::MAX), (-1, 999_999_999)]
    {
        let limit = timespec { tv_sec, tv_nsec };
        // Even though something is ready.
        let waited = pwait2::<B>(set.as_raw_fd(), 1, &limit, ptr::null());
        assert_eq!(waited, Err(EINVAL), "{tv_sec} s {tv_nsec} ns");
    }
    let nowhere = ptr::without_provenance(8);
    assert_eq!(pwait2::<B>(set.as_raw_fd(), 1, nowhere, ptr::null()), Err(EFAULT));
}

fn pwait2_reports_as_wait_does<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::new(0));
    set.add(&counter, IN, 1);
    counter.write(1);
    for limit in [None, Some(Duration::ZERO), Some(Duration::from_secs(30))] {
        assert_eq!(set.wait_masked(limit, None), Ok(vec![(1, IN)]));
        assert_eq!(set.wait_masked(limit, Some(0)), Ok(vec![(1, IN)]));
        assert_eq!(set.wait_masked(limit, Some(!0)), Ok(vec![(1, IN)]));
    }
}

fn pwait2_checks_its_arguments<B: Backend>() {
    let (set, counter) = (Set::<B>::new(), Counter::<B>::new(1));
    let none = timespec { tv_sec: 0, tv_nsec: 0 };
    assert_eq!(pwait2::<B>(set.as_raw_fd(), 0, &none, ptr::null()), Err(EINVAL));
    assert_eq!(pwait2::<B>(set.as_raw_fd(), -1, &none, ptr::null()), Err(EINVAL));
    assert_eq!(pwait2::<B>(counter.as_raw_fd(), 1, &none, ptr::null()), Err(EINVAL));
    assert_eq!(pwait2::<B>(-1, 1, &none, ptr::null()), Err(EBADF));
}

fn a_handled_signal_interrupts<B: Backend>() {
    signals::install();
    let (sets, _counter, _pipe) = four_kinds::<B>();
    for set in &sets {
        assert_eq!(waiting(set, -1).interrupt(PLAIN), Err(EINTR));
        assert_eq!(waiting(set, LONG).interrupt(PLAIN), Err(EINTR));
        assert_eq!(waiting_masked(set, None, Some(0)).interrupt(PLAIN), Err(EINTR));
    }
}

/// signal(7): epoll_wait is never restarted.
fn a_restarting_handler_interrupts_too<B: Backend>() {
    signals::install();
    let (sets, _counter, _pipe) = four_kinds::<B>();
    for set in &sets {
        assert_eq!(waiting(set, -1).interrupt(RESTARTING), Err(EINTR));
        let limit = Some(Duration::from_secs(30));
        assert_eq!(waiting_masked(set, limit, None).interrupt(RESTARTING), Err(EINTR));
    }
}

fn an_ignored_signal_does_not<B: Backend>() {
    let (sets, counter, _pipe) = four_kinds::<B>();
    for kind in [1, 3] {
        let task = waiting(&sets[kind], -1);
        for _ in 0..5 {
            task.signal(IGNORED);
            task.until_asleep();
        }
        assert!(!task.has_ended());
        counter.write(1);
        assert_eq!(task.join(), Ok(vec![(1, IN)]));
        counter.drain();
    }
}

fn a_blocked_signal_does_not<B: Backend>() {
    signals::install();
    let (set, counter) = (Set::<B>::new(), Counter::new(0));
    set.add(&counter, IN, 1);
    let theirs = set.clone();
    let task = Task::asleep(move || {
        signals::block(PLAIN, true);
        let waited = theirs.wait(4, -1);
        let before = signals::handled();
        signals::block(PLAIN, false);
        (waited, before, signals::handled())
    });
    task.until_asleep();
    // A signal that came before the wait blocked it has been handled; the last one certainly comes
    // after that.
    for _ in 0..3 {
        task.signal(PLAIN);
        task.until_asleep();
    }
    assert!(!task.has_ended());
    counter.write(1);
    assert_eq!(task.join().0, Ok(vec![(1, IN)]));
}

fn a_signal_interrupts_a_mixed_wait<B: Backend>() {
    signals::install();
    let (sets, counter, (reader, writer)) = four_kinds::<B>();
    let both = &sets[3];
    for _ in 0..3 {
        assert_eq!(waiting(both, -1).interrupt(PLAIN), Err(EINTR));
    }
    counter.write(1);
    assert_eq!(both.ready(), [(1, IN)]);
    counter.drain();
    writer.write(b"x").unwrap();
    assert_eq!(both.ready(), [(2, IN)]);
    assert_eq!(reader.read(&mut [0; 8]), Ok(1));
}

fn the_mask_holds_during_the_wait_only<B: Backend>() {
    signals::install();
    for kind in [1, 3] {
        let (sets, counter, _pipe) = four_kinds::<B>();
        let set = sets[kind].clone();
        let task = Task::asleep(move || {
            let before = signals::handled();
            let waited = set.wait_masked(None, Some(mask_of(PLAIN)));
            (waited, before, signals::handled())
        });
        thread::sleep(Duration::from_millis(2));
        task.signal(PLAIN);
        task.until_asleep();
        assert!(!task.has_ended(), "the mask keeps the handler out");
        counter.write(1);
        // The handler has run when the call returns, and the report is complete all the same.
        let (waited, before, after) = task.join();
        assert_eq!(waited, Ok(vec![(1, IN)]));
        assert_eq!(after, before + 1);
    }
}

fn a_pending_signal_the_mask_lets_in_interrupts<B: Backend>() {
    signals::install();
    let (sets, _counter, _pipe) = four_kinds::<B>();
    let task = Task::start(move || {
        signals::block(PLAIN, true);
        for set in &sets {
            let before = signals::handled();
            signals::raise(PLAIN);
            assert_eq!(signals::handled(), before);
            assert_eq!(set.wait_masked(None, Some(0)), Err(EINTR));
            assert_eq!(signals::handled(), before + 1);
            signals::raise(PLAIN);
            let limit = Some(Duration::from_secs(30));
            assert_eq!(set.wait_masked(limit, Some(mask_of(RESTARTING))), Err(EINTR));
            assert_eq!(signals::handled(), before + 2);
            // The thread's own mask is back.
            signals::raise(PLAIN);
            assert_eq!(signals::handled(), before + 2);
            signals::block(PLAIN, false);
            assert_eq!(signals::handled(), before + 3);
            signals::block(PLAIN, true);
        }
    });
    task.join();
}

fn what_is_ready_comes_before_a_pending_signal<B: Backend>() {
    signals::install();
    let (sets, counter, (_reader, writer)) = four_kinds::<B>();
    counter.write(1);
    writer.write(b"x").unwrap();
    let task = Task::start(move || {
        signals::block(PLAIN, true);
        signals::raise(PLAIN);
        let before = signals::handled();
        for (set, n) in sets.iter().zip([0, 1, 1, 2]) {
            if n > 0 {
                assert_eq!(set.wait_masked(None, Some(0)).map(|got| got.len()), Ok(n));
            }
        }
        assert_eq!(signals::handled(), before, "the mask was never really let go");
        signals::block(PLAIN, false);
        assert_eq!(signals::handled(), before + 1);
    });
    task.join();
}

fn a_wait_of_no_time_is_not_interrupted<B: Backend>() {
    signals::install();
    let (sets, _counter, _pipe) = four_kinds::<B>();
    let task = Task::start(move || {
        signals::block(PLAIN, true);
        signals::raise(PLAIN);
        let before = signals::handled();
        for set in &sets {
            assert_eq!(set.wait_masked(Some(Duration::ZERO), Some(0)), Ok(vec![]));
        }
        assert_eq!(signals::handled(), before);
        signals::block(PLAIN, false);
    });
    task.join();
}

fn an_interrupted_wait_loses_no_event<B: Backend>() {
    signals::install();
    const EVENTS: u64 = 300;
    let (set, counter) = (Set::<B>::new(), Counter::<B>::new(0));
    set.add(&counter, IN | libc::EPOLLET as u32, 1);
    let (theirs, drain) = (set.clone(), counter.clone());
    let task = Task::start(move || {
        let mut sum = 0;
        while sum < EVENTS {
            match theirs.wait(4, LONG) {
                Ok(got) => {
                    assert_eq!(got, [(1, IN)], "an event was lost");
                    sum += drain.try_read().unwrap_or(0);
                }
                Err(errno) => assert_eq!(errno, EINTR),
            }
        }
    });
    for i in 0..EVENTS {
        if i % 3 == 0 {
            task.signal(PLAIN);
        }
        counter.write(1);
        if i % 16 == 0 {
            thread::sleep(Duration::from_micros(200));
        }
    }
    task.join();
}
