//! A ring between two processes.

use std::io;
use std::time::{Duration, Instant};

use wakeset::{
    Counter, CounterFlags, Description, Engine, Event, EventPoll, Events, RingReader, RingWriter,
    Timeout,
};

const LONG: Timeout = Timeout::After(Duration::from_secs(20));

/// Runs `child` in a forked child, which ends with what it returns; its process id.
fn fork(child: impl FnOnce() -> i32) -> libc::pid_t {
    // SAFETY: the child calls nothing that other threads may hold a lock of.
    match unsafe { libc::fork() } {
        -1 => panic!("{}", io::Error::last_os_error()),
        0 => {
            let status = child();
            // SAFETY: ends the process.
            unsafe { libc::_exit(status) }
        }
        child => child,
    }
}

fn end_of(child: libc::pid_t) -> Result<i32, i32> {
    let mut status = 0;
    // SAFETY: our child, and room for its status.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    if libc::WIFSIGNALED(status) {
        Err(libc::WTERMSIG(status))
    } else {
        Ok(libc::WEXITSTATUS(status))
    }
}

/// Both sides sleep whenever they have nothing to do.
#[test]
fn another_process_gets_every_event() {
    const ALL: u64 = 20_000;
    let engine = Engine::new();
    let set = EventPoll::new(&engine).expect("memory for a set");
    let counter = Description::new(&engine, Counter::new(0, CounterFlags::NONBLOCK));
    set.add(1, &counter, Event::new(Events::IN | Events::ET, 0)).expect("memory for a watch");
    let mut writer = RingWriter::new(&set, 4).expect("shared memory");
    // SAFETY: the descriptor is the writer's.
    let mut reader = unsafe { RingReader::open(writer.fd()) }.expect("a mapping");
    let child = fork(|| {
        let mut events = [Event::default(); 3];
        for expected in 0..ALL {
            // One at a time, with the number that its watch had.
            match reader.wait(&mut events[..1], LONG) {
                Ok(1) if events[0] == Event::new(Events::IN, expected) => {}
                _ => return 1,
            }
        }
        0
    });
    for number in 0..ALL {
        let event = Event::new(Events::IN | Events::ET, number);
        set.modify(1, &counter, event).expect("it is watched");
        let written = counter.write(1).is_ok().then(|| writer.pump_waiting(LONG));
        assert_eq!(written, Some(Ok(1)), "event {number}");
        counter.read().expect("what was written");
    }
    assert_eq!(end_of(child), Ok(0));
}

#[test]
fn a_reader_that_dies_stops_the_flow_and_nothing_else() {
    let engine = Engine::new();
    let set = EventPoll::new(&engine).expect("memory for a set");
    let counters: Vec<_> = (0..10)
        .map(|_| Description::new(&engine, Counter::new(1, CounterFlags::NONBLOCK)))
        .collect();
    for (i, counter) in counters.iter().enumerate() {
        set.add(i as i32, counter, Event::new(Events::IN, i as u64)).expect("memory for a watch");
    }
    let mut writer = RingWriter::new(&set, 4).expect("shared memory");
    // SAFETY: the descriptor is the writer's.
    let mut reader = unsafe { RingReader::open(writer.fd()) }.expect("a mapping");
    let child = fork(|| {
        loop {
            if reader.wait(&mut [Event::default()], LONG).is_err() {
                return 1;
            }
        }
    });
    let mut written = 0;
    while written < 100 {
        written += writer.pump_waiting(LONG).expect("a reader that obeys");
    }
    // SAFETY: our child.
    assert_eq!(unsafe { libc::kill(child, libc::SIGKILL) }, 0);
    assert_eq!(end_of(child), Err(libc::SIGKILL));
    let begin = Instant::now();
    let limit = Timeout::After(Duration::from_millis(20));
    while writer.pump_waiting(limit).expect("an index that can be") != 0 {
        assert!(begin.elapsed() < Duration::from_secs(20), "it takes events for ever");
    }
    let mut events = [Event::default(); 16];
    assert_eq!(set.wait(&mut events, Timeout::Now), Ok(10), "the set has them all");
}
