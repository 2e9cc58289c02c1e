//! Threads in poll(2).

use crate::descriptors::pipe;
use crate::looks::numbered;
use crate::trap::{LIMIT, Place, Progress, Thread};
use crate::world::{IN, World, add, epoll, eventfd, wait, write};
use libc::{POLLIN, c_int, pollfd};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wakeset_fd as fd;

/// How many of the numbers are readable within `milliseconds`, -1 for any time.
fn poll(numbers: &[c_int], milliseconds: i64) -> c_int {
    let entry = |number: &c_int| pollfd { fd: *number, events: POLLIN, revents: 0 };
    let mut entries: Vec<_> = numbers.iter().map(entry).collect();
    let limit = libc::timespec { tv_sec: 0, tv_nsec: milliseconds * 1_000_000 };
    let limit = if milliseconds < 0 { std::ptr::null() } else { &raw const limit };
    let (place, n) = (entries.as_mut_ptr(), entries.len() as libc::nfds_t);
    // SAFETY: so many entries, and a time or none.
    unsafe { fd::ppoll(place, n, limit, std::ptr::null()) }.expect("a poll failed")
}

pub fn is_readable(number: c_int) -> bool {
    poll(&[number], 0) > 0
}

/// Waits for the source, or for what ends the wait if nothing else does.
pub fn poll_source(world: &World) {
    assert!(poll(&[world.a(), world.c], -1) > 0);
}

/// Ends it if the source does not.
pub fn nudge_poll_of_source(world: &World) {
    if !is_readable(world.a()) {
        assert!(write(world.c, 1));
    }
}

/// Waits for the set, likewise.
pub fn poll_set(world: &World) {
    assert!(poll(&[world.set, world.c], -1) > 0);
}

pub fn nudge_poll_of_set(world: &World) {
    if !is_readable(world.set) {
        assert!(write(world.c, 1));
    }
}

/// Waits for the source, likewise, and for a pipe of the kernel's.
pub fn poll_both(world: &World) {
    let pipe = world.more.lock().unwrap()[0];
    assert!(poll(&[world.a(), pipe, world.c], -1) > 0);
}

/// The pipe for [`poll_both`].
pub fn open_pipe(world: &Arc<World>) {
    pipe(world);
}

fn start(world: &Arc<World>, poll: fn(&World)) {
    let own = Arc::clone(world);
    *world.poller.lock().unwrap() = Some(Thread::asleep(move || poll(&own)));
}

/// Starts a thread that sleeps in poll(2) of the source.
pub fn start_poll_of_source(world: &Arc<World>) {
    start(world, poll_source);
}

/// The same, beside a pipe of the kernel's.
pub fn start_poll_of_both(world: &Arc<World>) {
    open_pipe(world);
    start(world, poll_both);
}

/// Ends that thread: it has to be over already, or soon, if the source is readable.
pub fn end_poll(world: &World) -> Result<(), String> {
    let Some(thread) = world.poller.lock().unwrap().take() else { return Ok(()) };
    let is_readable = is_readable(world.a());
    if !is_readable {
        assert!(write(world.c, 1));
    }
    if !thread.ends_within(LIMIT) {
        return Err(format!("a thread sleeps in poll(2), and the source is ready: {is_readable}"));
    }
    thread.join()
}

/// A look at a number that has been readable all the time, by a thread that stops at `place` while
/// dup2(2) puts another readable object there and the first one ends. `at_home`: the number is that
/// which the first one was made with. Says at which steps the thread has been.
fn look_beside_dup2(
    at_home: bool,
    look: fn(c_int) -> bool,
    place: Option<Place>,
) -> Result<Vec<&'static str>, String> {
    let (one, other) = (eventfd(), eventfd());
    assert!(write(one, 1) && write(other, 1));
    let copy = fd::dup(one).unwrap();
    let (number, last) = if at_home { (one, copy) } else { (copy, one) };
    let looker = Thread::start(place, move || assert!(look(number), "the look finds nothing"));
    let replace = move || {
        assert_eq!(fd::duplicate::dup2(other, number), fd::Verdict::Done(Ok(number)));
        fd::close(last).unwrap();
    };
    if looker.until_stopped() == Progress::Stopped {
        let replaced = looker.beside(replace);
        looker.release();
        replaced.join()?;
    } else {
        replace();
    }
    let came_to = looker.log();
    looker.join()?;
    [number, other].into_iter().for_each(|number| fd::close(number).unwrap());
    Ok(came_to)
}

/// Beside a descriptor of the kernel's, which has nothing.
fn is_readable_among_others(number: c_int) -> bool {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    poll(&[number, socket.as_raw_fd()], 0) > 0
}

pub fn a_look_beside_a_dup2_finds_one_object_or_the_other() {
    for look in [is_readable, is_readable_among_others] {
        for at_home in [false, true] {
            let steps = look_beside_dup2(at_home, look, None).unwrap();
            assert!(steps.contains(&"poll_found"), "{steps:?}");
            for place in numbered(steps) {
                look_beside_dup2(at_home, look, Some(place)).unwrap_or_else(|error| {
                    panic!("a poll stopped at {place:?}, at home {at_home}: {error}")
                });
            }
        }
    }
}

/// Sets a timer to so many milliseconds from now.
fn set_timer(timer: c_int, milliseconds: i64) {
    let time = |milliseconds: i64| libc::timespec {
        tv_sec: milliseconds / 1000,
        tv_nsec: milliseconds % 1000 * 1_000_000,
    };
    let setting = libc::itimerspec { it_interval: time(0), it_value: time(milliseconds) };
    // SAFETY: a valid time; the old one is not asked for.
    unsafe { fd::timerfd_settime(timer, 0, &raw const setting, std::ptr::null_mut()) }.unwrap();
}

/// Whether one of the numbers is readable within so many milliseconds.
type Wait = fn(&[c_int; 2], i64) -> bool;

fn wait_in_poll(numbers: &[c_int; 2], milliseconds: i64) -> bool {
    poll(numbers, milliseconds) > 0
}

fn wait_in_set(numbers: &[c_int; 2], milliseconds: i64) -> bool {
    let set = epoll();
    numbers.iter().for_each(|number| add(set, *number, IN, 1));
    let found = wait(set, milliseconds as c_int);
    fd::close(set).unwrap();
    !found.is_empty()
}

/// A wait for a timer and a socket that sleeps until the timer was due at first, and stops at
/// `place` until its time has run out. The socket is readable in time. Says at which steps the
/// thread has been.
fn run_out_of_time(wait: Wait, place: Option<Place>) -> Result<Vec<&'static str>, String> {
    const TIMER: i64 = 20;
    const CHECK: Duration = Duration::from_millis(40);
    const TIME: i64 = 150;
    let timer = fd::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_NONBLOCK).unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let numbers = [timer, socket.as_raw_fd()];
    set_timer(timer, TIMER);
    let began = Instant::now();
    let until = |time: Duration| std::thread::sleep(time.saturating_sub(began.elapsed()));
    let waiter = Thread::start(place, move || assert!(wait(&numbers, TIME), "it finds nothing"));
    waiter.until_at_rest();
    set_timer(timer, 1_000_000);
    until(CHECK);
    socket.send_to(b"x", socket.local_addr().unwrap()).unwrap();
    let time = Duration::from_millis(TIME as u64);
    let in_time = began.elapsed() < time;
    if place.is_some() {
        until(time + CHECK);
        waiter.release();
    }
    let came_to = waiter.log();
    let result = waiter.join();
    fd::close(timer).unwrap();
    if in_time { result.map(|()| came_to) } else { run_out_of_time(wait, place) }
}

pub fn a_wait_whose_time_runs_out_beside_it_finds_what_came_in_time() {
    let waits: [(Wait, _, _); 2] = [
        (wait_in_poll, "poller_slept", "poll_looked"),
        (wait_in_set, "elsewhere_slept", "elsewhere_before_look"),
    ];
    for (wait, first, last) in waits {
        let steps = run_out_of_time(wait, None).unwrap();
        let slept = steps.iter().position(|step| *step == first).expect("it sleeps");
        let looked = steps.iter().skip(slept).position(|step| *step == last).expect("it looks");
        for place in numbered(steps).drain(slept..=slept + looked) {
            run_out_of_time(wait, Some(place))
                .unwrap_or_else(|error| panic!("a wait stopped at {place:?}: {error}"));
        }
    }
}
