//! Moves that have something in their way: they end, and those who wait for them do.
#![allow(missing_docs)]

use libc::{
    CLOCK_MONOTONIC, EFD_CLOEXEC, EFD_NONBLOCK, EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLLIN,
    TFD_NONBLOCK, c_int,
};
use std::os::unix::thread::JoinHandleExt;
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use wakeset::{Description, Event, Events, Source, WaitQueue};
use wakeset_fd::{self as fd, Errno};

/// Only a failing test waits that long.
const LIMIT: Duration = Duration::from_secs(10);

/// Numbers are the process's.
static TURN: Mutex<()> = Mutex::new(());

fn epoll() -> c_int {
    fd::epoll_create1(EPOLL_CLOEXEC).unwrap()
}

fn eventfd() -> c_int {
    fd::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC).unwrap()
}

fn add(set: c_int, number: c_int) {
    let event = libc::epoll_event { events: EPOLLIN as u32, u64: 0 };
    // SAFETY: a valid event.
    unsafe { fd::epoll_ctl(set, EPOLL_CTL_ADD, number, &raw const event) }.unwrap();
}

fn try_wait(set: c_int, milliseconds: c_int) -> Result<c_int, c_int> {
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 4];
    // SAFETY: room for four.
    unsafe { fd::epoll_wait(set, events.as_mut_ptr(), 4, milliseconds) }.map_err(Errno::into_raw)
}

fn wait(set: c_int, milliseconds: c_int) -> c_int {
    try_wait(set, milliseconds).unwrap()
}

extern "C" fn nothing(_: c_int) {}

/// Sends a thread signals until it has ended; what it returned.
fn interrupt<T>(thread: JoinHandle<T>) -> T {
    // SAFETY: zeros are a valid action, and the handler does nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(c_int) as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()), 0);
    }
    while !thread.is_finished() {
        // SAFETY: the thread has not been joined.
        unsafe { libc::pthread_kill(thread.as_pthread_t(), libc::SIGUSR1) };
        thread::sleep(Duration::from_millis(1));
    }
    thread.join().unwrap()
}

fn migrate(number: c_int) {
    fd::migrate::release(number).unwrap();
}

/// Runs `f` in a thread, which has to end.
fn ends(what: &str, f: impl FnOnce() + Send + 'static) {
    let (tell, told) = channel();
    let thread = thread::spawn(move || {
        f();
        tell.send(()).unwrap();
    });
    told.recv_timeout(LIMIT).unwrap_or_else(|_| panic!("{what} does not end"));
    thread.join().unwrap();
}

/// A set that somebody still uses when its number is closed is in the set around it no more, or
/// whatever moves that would wait for him.
#[test]
fn of_a_set_around_one_that_was_closed_in_use() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for waits in [true, false] {
        let (outer, inner, counter) = (epoll(), epoll(), eventfd());
        add(outer, inner);
        add(outer, counter);
        let lease = (!waits).then(|| fd::lease::Lease::new(inner).unwrap());
        let waiter = waits.then(|| {
            let (tell, told) = channel();
            let waiter = thread::spawn(move || {
                tell.send(()).unwrap();
                try_wait(inner, 2 * LIMIT.as_millis() as c_int)
            });
            told.recv().unwrap();
            // Only so that it most likely sleeps.
            thread::sleep(Duration::from_millis(20));
            waiter
        });
        fd::close(inner).unwrap();
        ends("a move of what is watched beside it", move || migrate(counter));
        ends("a move of the set around", move || migrate(outer));
        ends("a move of everything", || fd::fork::prepare().in_parent());
        drop(lease);
        // It sleeps on, as after any close in use, until it is interrupted.
        if let Some(waiter) = waiter {
            assert_eq!(interrupt(waiter), Err(libc::EINTR));
        }
        fd::close(outer).unwrap();
        fd::close(counter).unwrap();
    }
}

struct Own(WaitQueue);

impl Source for Own {
    fn poll(&self) -> Events {
        Events::empty()
    }

    fn wait_queue(&self) -> &WaitQueue {
        &self.0
    }
}

/// A set that cannot move is handed out, and for that all timers are left to the kernel: in the
/// same move, because what they are watched by may be in it.
#[test]
fn of_timers_around_a_set_that_stays() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let (top, middle, inner, fixed) = (epoll(), epoll(), epoll(), epoll());
    let timer = fd::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK).unwrap();
    let source = Description::new(fd::custom::engine().unwrap(), Own(WaitQueue::new()));
    fd::custom::add(fixed, &source, Event::new(Events::IN, 0)).unwrap();
    add(inner, fixed);
    add(middle, inner);
    add(middle, timer);
    add(top, middle);
    ends("a move of a set around it", move || migrate(inner));
    assert!(!fd::descriptor::is_in_process(timer));
    let time = |nanoseconds| libc::timespec { tv_sec: 0, tv_nsec: nanoseconds };
    let long_ago = libc::itimerspec { it_interval: time(0), it_value: time(1) };
    // SAFETY: a valid time.
    unsafe {
        fd::timerfd_settime(
            timer,
            libc::TFD_TIMER_ABSTIME,
            &raw const long_ago,
            std::ptr::null_mut(),
        )
    }
    .unwrap();
    assert_eq!(wait(top, 1000), 1);
    [top, middle, inner, timer, fixed].into_iter().for_each(|number| fd::close(number).unwrap());
}
