//! A program never sees a doorbell. The test has a process of its own, because it uses a number
//! that may have been closed.

use libc::{EFD_NONBLOCK, EPOLL_CTL_ADD, EPOLLIN, c_int, epoll_event};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::thread;
use wakeset_fd::{Errno, close, epoll_create1, epoll_ctl, epoll_wait, eventfd};

fn add(set: c_int, fd: c_int, data: u64) {
    let event = epoll_event { events: EPOLLIN as u32, u64: data };
    // SAFETY: a valid event.
    unsafe { epoll_ctl(set, EPOLL_CTL_ADD, fd, &raw const event) }.unwrap();
}

fn wait(set: c_int, limit: c_int) -> Result<Vec<u64>, Errno> {
    let mut events = [epoll_event { events: 0, u64: 0 }; 4];
    // SAFETY: room for four events.
    let n = unsafe { epoll_wait(set, events.as_mut_ptr(), 4, limit) }?;
    Ok(events[..n as usize].iter().map(|event| event.u64).collect())
}

/// A regression test. A close made the set forget that its kernel half had a doorbell, while a wait
/// had already taken the doorbell's event from the kernel; the wait then reported it.
#[test]
fn a_look_into_a_set_that_is_closed_does_not_show_the_bell() {
    const ROUNDS: u32 = 20_000;
    let mut ends = [0; 2];
    // SAFETY: room for two numbers.
    assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_NONBLOCK) }, 0);
    let counter = eventfd(0, EFD_NONBLOCK).unwrap();
    let make = || {
        let set = epoll_create1(0).unwrap();
        add(set, ends[0], 1);
        add(set, counter, 2);
        set
    };
    // A doorbell that has rung once is ready in every set that gets it, because it is never read.
    let set = make();
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| wait(set, -1));
        thread::sleep(std::time::Duration::from_millis(50));
        // SAFETY: eight bytes.
        unsafe { wakeset_fd::write(counter, 1u64.to_ne_bytes().as_ptr(), 8) }.unwrap();
        assert_eq!(sleeper.join().unwrap().unwrap(), [2]);
    });
    // SAFETY: room for eight bytes.
    unsafe { wakeset_fd::read(counter, [0u8; 8].as_mut_ptr(), 8) }.unwrap();
    close(set).unwrap();

    let (number, round) = (AtomicI32::new(-1), AtomicU32::new(0));
    let looked = AtomicU32::new(0);
    let until = |word: &AtomicU32, i| {
        for looks in 0.. {
            if word.load(Ordering::Acquire) >= i {
                return;
            }
            if looks > 1_000 {
                thread::yield_now();
            }
        }
    };
    let shown = thread::scope(|scope| {
        let looker = scope.spawn(|| {
            let mut shown = Vec::new();
            for i in 1..=ROUNDS {
                until(&round, i);
                // Nothing is ready. EBADF is right as well: the set may be closed.
                shown.extend(wait(number.load(Ordering::Relaxed), 0).unwrap_or_default());
                looked.store(i, Ordering::Release);
            }
            shown
        });
        for i in 1..=ROUNDS {
            let set = make();
            number.store(set, Ordering::Relaxed);
            round.store(i, Ordering::Release);
            (0..i % 256).for_each(|_| std::hint::spin_loop());
            close(set).unwrap();
            until(&looked, i);
        }
        looker.join().unwrap()
    });
    assert_eq!(shown, []);
}
