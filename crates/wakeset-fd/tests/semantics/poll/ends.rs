//! What ends a call that sleeps.

use super::*;

pub(super) fn a_write_ends_it<B: Polls>() {
    let counters = [Counter::<B>::new(0), Counter::<B>::new(0)];
    let asked = counters.each_ref().map(|counter| (counter.as_raw_fd(), POLLIN));
    for limit in [None, LONG] {
        for i in [0, 1] {
            let task = polling::<B>(&asked, limit);
            counters[i].write(1);
            let mut told = vec![0, 0];
            told[i] = POLLIN;
            assert_eq!(task.join(), (Ok(1), told));
            counters[i].read();
        }
    }
}

pub(super) fn a_write_to_a_pipe_ends_it<B: Polls>() {
    let pairs = [own_pipe::<B>(), own_pair::<B>(B::socketpair(libc::SOCK_CLOEXEC))];
    let asked = pairs.each_ref().map(|(reader, _)| (reader.as_raw_fd(), POLLIN));
    for i in [0, 1] {
        let task = polling::<B>(&asked, None);
        pairs[i].1.write(b"x").unwrap();
        let mut told = vec![0, 0];
        told[i] = POLLIN;
        assert_eq!(task.join(), (Ok(1), told));
        pairs[i].0.read(&mut [0; 8]).unwrap();
    }
}

pub(super) fn the_kernels_end_it_too<B: Polls>() {
    let (counter, (reader, writer)) = (Counter::<B>::new(0), pipe::<B>());
    let asked = [(counter.as_raw_fd(), POLLIN), (reader.as_raw_fd(), POLLIN)];
    for limit in [None, LONG] {
        let task = polling::<B>(&asked, limit);
        writer.write(b"x").unwrap();
        assert_eq!(task.join(), (Ok(1), vec![0, POLLIN]));
        reader.read(&mut [0; 8]).unwrap();
        let task = polling::<B>(&asked, limit);
        counter.write(1);
        assert_eq!(task.join(), (Ok(1), vec![POLLIN, 0]));
        counter.read();
    }
}

pub(super) fn an_expiry_ends_it<B: Polls>() {
    let (counter, (reader, _writer)) = (Counter::<B>::new(0), pipe::<B>());
    let timer = B::timer(20 * MS);
    let asked = [(timer, POLLIN), (counter.as_raw_fd(), POLLIN), (reader.as_raw_fd(), POLLIN)];
    for n in [2, 3] {
        let begin = Instant::now();
        B::set_timer(timer, 20 * MS);
        let (result, told) = poll::<B>(&asked[..n], LONG);
        assert_eq!((result, told[0]), (Ok(1), POLLIN));
        assert!(begin.elapsed() >= 20 * MS);
    }
    B::close(timer).unwrap();
}

pub(super) fn a_timer_set_meanwhile_ends_it<B: Polls>() {
    let (timer, (reader, _writer)) = (B::timer(Duration::from_secs(1000)), pipe::<B>());
    let asked = [(timer, POLLIN), (reader.as_raw_fd(), POLLIN)];
    for n in [1, 2] {
        B::set_timer(timer, Duration::from_secs(1000));
        let task = polling::<B>(&asked[..n], LONG);
        B::set_timer(timer, 5 * MS);
        assert_eq!(task.join().0, Ok(1));
    }
    B::close(timer).unwrap();
}

pub(super) fn a_set_ends_it<B: Polls>() {
    let (outer, inner, counter) = (Set::<B>::new(), Set::<B>::new(), Counter::<B>::new(0));
    inner.add(&counter, IN, 1);
    outer.add(&inner, IN, 2);
    for set in [&inner, &outer] {
        let task = polling::<B>(&[(set.as_raw_fd(), POLLIN)], LONG);
        counter.write(1);
        assert_eq!(task.join(), (Ok(1), vec![POLLIN]));
        counter.read();
    }
    let timer = B::timer(Duration::from_secs(1000));
    inner.add(&timer, IN, 3);
    let task = polling::<B>(&[(outer.as_raw_fd(), POLLIN)], LONG);
    B::set_timer(timer, 5 * MS);
    assert_eq!(task.join(), (Ok(1), vec![POLLIN]));
    B::close(timer).unwrap();
}

pub(super) fn a_set_that_gets_the_kernels_ends_it<B: Polls>() {
    let (set, counter, (reader, writer)) = (Set::<B>::new(), Counter::<B>::new(0), pipe::<B>());
    set.add(&counter, IN, 1);
    let asked = [(set.as_raw_fd(), POLLIN)];
    let task = polling::<B>(&asked, LONG);
    set.add(&reader, IN, 2);
    writer.write(b"x").unwrap();
    assert_eq!(task.join(), (Ok(1), vec![POLLIN]));
    reader.read(&mut [0; 8]).unwrap();
    let task = polling::<B>(&asked, LONG);
    counter.write(1);
    assert_eq!(task.join(), (Ok(1), vec![POLLIN]));
}

pub(super) fn the_time_ends_it_and_not_too_early<B: Polls>() {
    let (counter, (reader, _writer)) = (Counter::<B>::new(0), pipe::<B>());
    let asked = [(counter.as_raw_fd(), POLLIN), (reader.as_raw_fd(), POLLIN)];
    for n in [1, 2] {
        for mask in [None, Some(0)] {
            let begin = Instant::now();
            let (result, told) = poll_masked::<B>(&asked[..n], Some(15 * MS), mask);
            assert_eq!((result, told), (Ok(0), vec![0; n]));
            assert!(begin.elapsed() >= 15 * MS);
        }
    }
}

pub(super) fn a_signal_ends_it<B: Polls>() {
    signals::install();
    let (counter, (reader, _writer)) = (Counter::<B>::new(0), pipe::<B>());
    let asked = [(counter.as_raw_fd(), POLLIN), (reader.as_raw_fd(), POLLIN)];
    for signal in [signals::PLAIN, signals::RESTARTING] {
        for n in [1, 2] {
            for limit in [None, LONG] {
                let task = polling::<B>(&asked[..n], limit);
                assert_eq!(task.interrupt(signal), (Err(EINTR), vec![0; n]));
            }
        }
    }
    let task = polling::<B>(&asked[..1], None);
    for _ in 0..5 {
        task.signal(signals::IGNORED);
        task.until_asleep();
    }
    assert!(!task.has_ended());
    counter.write(1);
    assert_eq!(task.join(), (Ok(1), vec![POLLIN]));
}

pub(super) fn what_came_before_a_signal_goes_first<B: Polls>() {
    signals::install();
    let (counter, (reader, writer)) = (Counter::<B>::new(0), pipe::<B>());
    let asked = [(counter.as_raw_fd(), POLLIN), (reader.as_raw_fd(), POLLIN)];
    for _ in 0..50 {
        let task = polling::<B>(&asked, LONG);
        task.until_asleep();
        writer.write(b"x").unwrap();
        task.signal(signals::PLAIN);
        assert_eq!(task.join(), (Ok(1), vec![0, POLLIN]));
        reader.read(&mut [0; 8]).unwrap();
    }
}

/// A thread that has this signal pending, and blocks it.
fn with_pending<T>(f: impl FnOnce() -> T) -> T {
    signals::install();
    signals::block(signals::PLAIN, true);
    signals::raise(signals::PLAIN);
    let result = f();
    signals::block(signals::PLAIN, false);
    result
}

pub(super) fn a_mask_lets_a_signal_in<B: Polls>() {
    let (counter, (reader, _writer)) = (Counter::<B>::new(0), pipe::<B>());
    let asked = [(counter.as_raw_fd(), POLLIN), (reader.as_raw_fd(), POLLIN)];
    for n in [1, 2] {
        for limit in [NOW, LONG, None] {
            let before = signals::handled();
            let (result, told) = with_pending(|| poll_masked::<B>(&asked[..n], limit, Some(0)));
            assert_eq!((result, told), (Err(EINTR), vec![0; n]));
            assert_eq!(signals::handled(), before + 1);
        }
    }
    counter.write(1);
    let before = signals::handled();
    let ready = with_pending(|| {
        let ready = poll_masked::<B>(&asked, NOW, Some(0));
        assert_eq!(signals::handled(), before, "what is ready goes first");
        ready
    });
    assert_eq!(ready, (Ok(1), vec![POLLIN, 0]));
}

/// Writes that come fast teach the thread to spin; then a signal comes that only the mask lets in.
pub(super) fn a_mask_lets_a_signal_in_at_any_time<B: Polls>() {
    signals::install();
    let counter = Counter::<B>::new(0);
    let asked = [(counter.as_raw_fd(), POLLIN)];
    let own = counter.clone();
    let (tell, told) = std::sync::mpsc::channel();
    let task = Task::start(move || {
        signals::block(signals::PLAIN, true);
        for _ in 0..ROUNDS {
            let (result, _) = poll_masked::<B>(&asked, LONG, Some(0));
            if result.is_ok() {
                own.read();
            }
            tell.send(result).unwrap();
        }
    });
    for round in 0..ROUNDS {
        let end = Instant::now() + Duration::from_micros(round % 40);
        while Instant::now() < end {
            std::hint::spin_loop();
        }
        if round % 4 == 3 {
            task.signal(signals::PLAIN);
            assert_eq!(told.recv().unwrap(), Err(EINTR), "round {round}");
        } else {
            counter.write(1);
            assert_eq!(told.recv().unwrap(), Ok(1), "round {round}");
        }
    }
    task.join();
}

const ROUNDS: u64 = 2000;

pub(super) fn a_mask_keeps_a_signal_out<B: Polls>() {
    signals::install();
    let counter = Counter::<B>::new(0);
    let asked = [(counter.as_raw_fd(), POLLIN)];
    let task = Task::asleep(move || {
        let before = signals::handled();
        let told = poll_masked::<B>(&asked, None, Some(signals::mask_of(signals::PLAIN)));
        (told, signals::handled() - before)
    });
    sleep(2 * MS);
    task.signal(signals::PLAIN);
    task.until_asleep();
    assert!(!task.has_ended());
    counter.write(1);
    assert_eq!(task.join(), ((Ok(1), vec![POLLIN]), 1));
}

/// A thread whose calls have slept asks the kernel in another way.
pub(super) fn what_is_ready_is_told_after_calls_that_slept<B: Polls>() {
    let (counter, (reader, writer)) = (Counter::<B>::new(0), pipe::<B>());
    let asked = [(reader.as_raw_fd(), POLLIN), (counter.as_raw_fd(), POLLIN)];
    let sleep = || {
        for _ in 0..3 {
            assert_eq!(poll::<B>(&asked, Some(MS)), (Ok(0), vec![0, 0]));
        }
    };
    for limit in [None, LONG] {
        sleep();
        writer.write(b"x").unwrap();
        assert_eq!(poll::<B>(&asked, limit), (Ok(1), vec![POLLIN, 0]));
        counter.write(1);
        assert_eq!(poll::<B>(&asked, limit), (Ok(2), vec![POLLIN, POLLIN]));
        reader.read(&mut [0; 8]).unwrap();
        assert_eq!(poll::<B>(&asked, limit), (Ok(1), vec![0, POLLIN]));
        counter.read();
        sleep();
        let task = polling::<B>(&asked, limit);
        writer.write(b"x").unwrap();
        assert_eq!(task.join(), (Ok(1), vec![POLLIN, 0]));
        reader.read(&mut [0; 8]).unwrap();
    }
    sleep();
    drop(writer);
    assert_eq!(poll::<B>(&asked, LONG), (Ok(1), vec![POLLHUP, 0]));
}
