//! Rings shared with another process, by number; here with another thread.

use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, c_int, epoll_event};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;
use wakeset::{Event, Events, RingReader, Timeout};
use wakeset_fd::migrate::release;
use wakeset_fd::shared_ring::{Writer, open_reader};
use wakeset_fd::{Errno, close, epoll_create1, epoll_ctl, eventfd, read, write};

const IN: u32 = libc::EPOLLIN as u32;
const ET: u32 = IN | libc::EPOLLET as u32;
const ONESHOT: u32 = IN | libc::EPOLLONESHOT as u32;
const MILLISECOND: Timeout = Timeout::After(Duration::from_millis(1));

/// The tests look at which numbers come again, so they run one after the other.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn ctl(set: c_int, op: c_int, fd: c_int, events: u32, data: u64) {
    let event = epoll_event { events, u64: data };
    // SAFETY: the event is there.
    unsafe { epoll_ctl(set, op, fd, &raw const event) }.unwrap();
}

fn counter(initial: u32) -> c_int {
    eventfd(initial, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC).unwrap()
}

/// One that is the kernel's from the beginning.
fn kernel_counter(initial: u32) -> c_int {
    // SAFETY: no pointer is passed.
    unsafe { libc::eventfd(initial, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) }
}

fn add_to(fd: c_int, value: u64) {
    // SAFETY: eight bytes.
    assert_eq!(unsafe { write(fd, value.to_ne_bytes().as_ptr(), 8) }, Ok(8));
}

fn empty(fd: c_int) {
    let mut value = [0; 8];
    // SAFETY: room for eight bytes.
    assert_eq!(unsafe { read(fd, value.as_mut_ptr(), 8) }, Ok(8));
}

fn new_set() -> c_int {
    epoll_create1(libc::EPOLL_CLOEXEC).unwrap()
}

fn ring(set: c_int, entries: u32) -> (Writer, RingReader) {
    let writer = Writer::new(set, entries).unwrap();
    let reader = open_reader(writer.fd()).unwrap();
    (writer, reader)
}

/// What is there now, by its data.
fn drain(reader: &mut RingReader) -> Vec<u64> {
    let mut events = [Event::default(); 64];
    let n = reader.take(&mut events).unwrap();
    assert!(events[..n].iter().all(|event| event.events == Events::IN));
    let mut data: Vec<_> = events[..n].iter().map(|event| event.data).collect();
    data.sort_unstable();
    data
}

/// The three ways a set can be: in user space, with a half in the kernel, and there altogether.
fn in_each_way(test: impl Fn(c_int, &dyn Fn(u32) -> c_int, &(dyn Fn(c_int) + Sync))) {
    let nothing = |_| {};
    let set = new_set();
    test(set, &counter, &nothing);
    let set = new_set();
    test(set, &kernel_counter, &nothing);
    let set = new_set();
    let idle = kernel_counter(0);
    ctl(set, EPOLL_CTL_ADD, idle, IN, 99);
    test(set, &counter, &nothing);
    let set = new_set();
    test(set, &counter, &|set| release(set).unwrap());
}

#[test]
fn levels_come_again_when_they_have_been_taken_and_still_hold() {
    let _alone = alone();
    in_each_way(|set, make, moves| {
        let (mut writer, mut reader) = ring(set, 8);
        let counters = [make(1), make(1)];
        for (counter, data) in counters.into_iter().zip(0..) {
            ctl(set, EPOLL_CTL_ADD, counter, IN, data);
        }
        moves(set);
        assert_eq!(writer.pump(), Ok(2));
        for _ in 0..10 {
            assert_eq!(writer.pump(), Ok(0), "not before they have been taken");
        }
        assert_eq!(drain(&mut reader), [0, 1]);
        assert_eq!((writer.pump(), drain(&mut reader)), (Ok(2), vec![0, 1]));
        empty(counters[0]);
        assert_eq!((writer.pump(), drain(&mut reader)), (Ok(1), vec![1]));
        empty(counters[1]);
        assert_eq!((writer.pump(), drain(&mut reader)), (Ok(0), vec![]));
        drop(writer);
        close(set).unwrap();
        counters.into_iter().for_each(|counter| close(counter).unwrap());
    });
}

#[test]
fn edges_and_shots_come_once() {
    let _alone = alone();
    for events in [ET, ONESHOT] {
        in_each_way(|set, make, moves| {
            let (mut writer, mut reader) = ring(set, 8);
            let counter = make(1);
            ctl(set, EPOLL_CTL_ADD, counter, events, 1);
            moves(set);
            assert_eq!((writer.pump(), drain(&mut reader)), (Ok(1), vec![1]));
            assert_eq!((writer.pump(), drain(&mut reader)), (Ok(0), vec![]));
            add_to(counter, 1);
            let again = usize::from(events == ET);
            assert_eq!((writer.pump(), drain(&mut reader)), (Ok(again), vec![1; again]));
            ctl(set, EPOLL_CTL_MOD, counter, events, 2);
            assert_eq!((writer.pump(), drain(&mut reader)), (Ok(1), vec![2]));
            ctl(set, EPOLL_CTL_DEL, counter, 0, 0);
            add_to(counter, 1);
            assert_eq!((writer.pump(), drain(&mut reader)), (Ok(0), vec![]));
            drop(writer);
            close(set).unwrap();
            close(counter).unwrap();
        });
    }
}

/// What the reader has not taken when the set moves is not lost, nor is what becomes ready in
/// between.
#[test]
fn a_set_may_move_while_it_is_in_use() {
    let _alone = alone();
    for events in [IN, ET, ONESHOT] {
        let set = new_set();
        let (mut writer, mut reader) = ring(set, 8);
        let counters: Vec<_> = (0..4).map(|_| counter(0)).collect();
        for (counter, data) in counters.iter().zip(0..) {
            ctl(set, EPOLL_CTL_ADD, *counter, events, data);
        }
        add_to(counters[0], 1);
        add_to(counters[1], 1);
        assert_eq!(writer.pump(), Ok(2));
        add_to(counters[2], 1);
        // First one of them, then all.
        release(counters[1]).unwrap();
        assert_eq!(writer.pump(), Ok(0), "the reader first");
        let mut seen = drain(&mut reader);
        assert_eq!(seen, [0, 1]);
        counters[..2].iter().for_each(|counter| empty(*counter));
        add_to(counters[3], 1);
        release(set).unwrap();
        while writer.pump().unwrap() > 0 {
            let some = drain(&mut reader);
            some.iter().for_each(|data| empty(counters[*data as usize]));
            seen.extend(some);
        }
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2, 3], "{events:#x}");
        drop(writer);
        close(set).unwrap();
        counters.into_iter().for_each(|counter| close(counter).unwrap());
    }
}

/// Levels that the reader had when the set got its other half are looked at again.
#[test]
fn levels_come_again_when_a_half_in_the_kernel_has_come() {
    let _alone = alone();
    let set = new_set();
    let (mut writer, mut reader) = ring(set, 8);
    let (counter, ready) = (counter(1), kernel_counter(1));
    ctl(set, EPOLL_CTL_ADD, counter, IN, 1);
    assert_eq!(writer.pump(), Ok(1));
    ctl(set, EPOLL_CTL_ADD, ready, IN, 2);
    assert_eq!((writer.pump(), drain(&mut reader)), (Ok(0), vec![1]));
    for _ in 0..10 {
        assert_eq!((writer.pump(), drain(&mut reader)), (Ok(2), vec![1, 2]));
    }
    drop(writer);
    [set, counter, ready].into_iter().for_each(|fd| close(fd).unwrap());
}

/// Its sleep is in user space; what ends it is not.
#[test]
fn a_sleeping_writer_hears_of_a_half_in_the_kernel() {
    let _alone = alone();
    for round in 0..20 {
        let set = new_set();
        let (mut writer, mut reader) = ring(set, 4);
        let idle = counter(0);
        ctl(set, EPOLL_CTL_ADD, idle, IN, 1);
        let writer = thread::spawn(move || {
            assert_eq!(writer.pump_waiting(Timeout::Never), Ok(1));
            writer
        });
        thread::sleep(Duration::from_micros(100 * round));
        let mut events = [Event::default(); 4];
        assert_eq!(reader.wait(&mut events, MILLISECOND), Ok(0));
        let ready = kernel_counter(1);
        ctl(set, EPOLL_CTL_ADD, ready, IN, 2);
        assert_eq!(reader.wait(&mut events, Timeout::Never), Ok(1));
        assert_eq!(events[0], Event::new(Events::IN, 2));
        drop(writer.join().unwrap());
        [set, idle, ready].into_iter().for_each(|fd| close(fd).unwrap());
    }
}

/// Everything that is written is read, with sleeps on both sides, in each way a set can be.
#[test]
fn nothing_is_lost_and_nobody_sleeps_on() {
    let _alone = alone();
    const UNITS: u64 = 2000;
    for events in [IN, ET] {
        in_each_way(|set, make, moves| {
            let (mut writer, mut reader) = ring(set, 1);
            let counters = [make(0), make(0), make(0)];
            for (counter, data) in counters.into_iter().zip(0..) {
                ctl(set, EPOLL_CTL_ADD, counter, events, data);
            }
            let done = AtomicBool::new(false);
            thread::scope(|scope| {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        let _ = writer.pump_waiting(MILLISECOND).unwrap();
                    }
                });
                scope.spawn(|| {
                    for unit in 0..UNITS {
                        add_to(counters[unit as usize % 3], 1);
                        if unit == UNITS / 2 {
                            moves(set);
                        }
                        if unit % 64 == 0 {
                            thread::sleep(Duration::from_micros(50));
                        }
                    }
                });
                let mut left = UNITS;
                while left > 0 {
                    let mut event = [Event::default()];
                    // A limit for who has lost something.
                    assert_eq!(
                        reader.wait(&mut event, Timeout::After(Duration::from_secs(20))),
                        Ok(1),
                        "{left} left"
                    );
                    let mut value = [0; 8];
                    // SAFETY: room for eight bytes. A level may have been read since.
                    if unsafe { read(counters[event[0].data as usize], value.as_mut_ptr(), 8) }
                        == Ok(8)
                    {
                        left -= u64::from_ne_bytes(value);
                    }
                }
                done.store(true, Ordering::Relaxed);
            });
            drop(writer);
            close(set).unwrap();
            counters.into_iter().for_each(|counter| close(counter).unwrap());
        });
    }
}

#[test]
fn waits_end_when_their_time_is_up() {
    let _alone = alone();
    in_each_way(|set, make, moves| {
        let (mut writer, mut reader) = ring(set, 1);
        let counter = make(0);
        ctl(set, EPOLL_CTL_ADD, counter, IN, 1);
        moves(set);
        assert_eq!(writer.pump_waiting(MILLISECOND), Ok(0), "nothing ready");
        add_to(counter, 1);
        assert_eq!(writer.pump_waiting(MILLISECOND), Ok(1));
        assert_eq!(writer.pump_waiting(MILLISECOND), Ok(0), "full");
        assert_eq!(drain(&mut reader), [1]);
        assert_eq!(writer.pump_waiting(Timeout::Now), Ok(1));
        drop(writer);
        close(set).unwrap();
        close(counter).unwrap();
    });
}

#[test]
fn errors() {
    let _alone = alone();
    assert!(matches!(Writer::new(-1, 1), Err(Errno::EBADF)));
    assert!(matches!(Writer::new(0, 1), Err(Errno::EOPNOTSUPP)));
    assert!(matches!(open_reader(-1), Err(Errno::EBADF)));
    assert!(matches!(open_reader(0), Err(Errno::EINVAL)));
    let set = new_set();
    assert!(matches!(Writer::new(set, 0), Err(Errno::EINVAL)));
    assert!(matches!(Writer::new(set, (1 << 20) + 1), Err(Errno::EINVAL)));
    let mut writer = Writer::new(set, 3).unwrap();
    assert_eq!(writer.capacity(), 4);
    close(set).unwrap();
    assert_eq!(writer.pump(), Err(Errno::EBADF));
    let again = new_set();
    assert_eq!(again, set, "the same number");
    assert_eq!(writer.pump_waiting(MILLISECOND), Err(Errno::EBADF));
    let moved = new_set();
    release(moved).unwrap();
    assert!(matches!(Writer::new(moved, 1), Err(Errno::EOPNOTSUPP)));
    drop(writer);
    close(again).unwrap();
    close(moved).unwrap();
}
