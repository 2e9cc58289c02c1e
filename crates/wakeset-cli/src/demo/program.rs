//! The demo's program: an ordinary use of epoll(7) and eventfd(2).
//!
//! It knows nothing of Wakeset and calls nothing but libc, so that `wakeset run` reaches it as it
//! reaches any other program. It prints one line for the demo to read: what it counted, and how
//! many nanoseconds that took.

use std::io;
use std::os::fd::RawFd;
use std::sync::Barrier;
use std::time::Instant;

use crate::failure::Failure;

/// Events the consumer takes at once.
const BATCH: usize = 128;

/// `producers` threads each add 1 to an eventfd of their own, `adds` times; this thread waits for
/// all of them with epoll and reads the counters until everything has arrived.
pub fn stress(producers: usize, adds: u64) -> Result<(), Failure> {
    let set = create_set()?;
    let counters: Vec<RawFd> =
        (0..producers).map(|_| create_counter(set)).collect::<Result<_, _>>()?;
    let expected = producers as u64 * adds;
    let start = Barrier::new(producers + 1);
    let (counted, elapsed) = std::thread::scope(|scope| {
        let threads: Vec<_> = counters
            .iter()
            .map(|&counter| {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    let begin = Instant::now();
                    (0..adds).try_for_each(|_| add_one(counter))?;
                    Ok::<_, Failure>(begin)
                })
            })
            .collect();
        start.wait();
        let mut counted = 0;
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; BATCH];
        while counted < expected {
            for event in wait(set, &mut events)? {
                counted += read_counter(event.u64 as RawFd)?;
            }
        }
        let end = Instant::now();
        // From the first addition on: with many producers this thread may be late to begin.
        let mut begin = end;
        for thread in threads {
            begin = begin.min(thread.join().map_err(|_| Failure::own("a producer failed"))??);
        }
        Ok::<_, Failure>((counted, end - begin))
    })?;
    println!("{counted} {}", elapsed.as_nanos());
    Ok(())
}

/// One thread: add, wait, read, `rounds` times.
pub fn pingpong(rounds: u64) -> Result<(), Failure> {
    let set = create_set()?;
    let counter = create_counter(set)?;
    let mut counted = 0;
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 1];
    let begin = Instant::now();
    for _ in 0..rounds {
        add_one(counter)?;
        for event in wait(set, &mut events)? {
            counted += read_counter(event.u64 as RawFd)?;
        }
    }
    println!("{counted} {}", begin.elapsed().as_nanos());
    Ok(())
}

fn create_set() -> Result<RawFd, Failure> {
    // SAFETY: no memory is involved.
    check("epoll_create1", unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })
}

fn create_counter(set: RawFd) -> Result<RawFd, Failure> {
    let flags = libc::EFD_CLOEXEC | libc::EFD_NONBLOCK;
    // SAFETY: no memory is involved.
    let counter = check("eventfd", unsafe { libc::eventfd(0, flags) })?;
    let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: counter as u64 };
    // SAFETY: an initialised event that outlives the call.
    let added = unsafe { libc::epoll_ctl(set, libc::EPOLL_CTL_ADD, counter, &mut event) };
    check("epoll_ctl", added)?;
    Ok(counter)
}

fn wait(set: RawFd, events: &mut [libc::epoll_event]) -> Result<&[libc::epoll_event], Failure> {
    loop {
        // SAFETY: room for as many events as are said.
        let n = unsafe { libc::epoll_wait(set, events.as_mut_ptr(), events.len() as i32, -1) };
        if n >= 0 {
            return Ok(&events[..n as usize]);
        }
        if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            check("epoll_wait", n)?;
        }
    }
}

fn add_one(counter: RawFd) -> Result<(), Failure> {
    let one = 1u64;
    // SAFETY: eight initialised bytes.
    let n = unsafe { libc::write(counter, (&raw const one).cast(), 8) };
    check("write", n as i32).map(drop)
}

fn read_counter(counter: RawFd) -> Result<u64, Failure> {
    let mut value = 0u64;
    // SAFETY: room for eight bytes.
    let n = unsafe { libc::read(counter, (&raw mut value).cast(), 8) };
    check("read", n as i32)?;
    Ok(value)
}

fn check(call: &str, result: i32) -> Result<i32, Failure> {
    match result {
        r if r >= 0 => Ok(r),
        _ => Err(Failure::own(format!("{call} failed: {}", io::Error::last_os_error()))),
    }
}
