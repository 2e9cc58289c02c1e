//! A set in tokio's loop: `AsyncFd`, which watches edges.

use core::ffi::c_int;
use libc::{
    EFD_CLOEXEC, EFD_NONBLOCK, EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLLET, EPOLLIN, epoll_event,
};
use std::os::fd::{AsRawFd, RawFd};
use std::thread;
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::time::timeout;
use wakeset_c::epoll::{ws_epoll_create1, ws_epoll_ctl, ws_epoll_pollfd, ws_epoll_wait};
use wakeset_c::{descriptor::ws_close, eventfd};

/// A lost wake-up shows as a wait this long.
const PATIENCE: Duration = Duration::from_secs(20);
const COUNTERS: usize = 4;
const EACH: u64 = 2000;

struct Set(c_int);

impl AsRawFd for Set {
    fn as_raw_fd(&self) -> RawFd {
        self.0
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        ws_close(self.0);
    }
}

impl Set {
    /// What is ready now, without waiting.
    fn look(&self, room: usize) -> Vec<u64> {
        let mut events = vec![epoll_event { events: 0, u64: 0 }; room];
        // SAFETY: room for as many events as it says.
        let found = unsafe { ws_epoll_wait(self.0, events.as_mut_ptr(), room as c_int, 0) };
        assert!(found >= 0);
        events.iter().take(found as usize).map(|event| event.u64).collect()
    }
}

fn read(fd: c_int) -> u64 {
    let mut value = 0;
    // SAFETY: a place for the value.
    if unsafe { eventfd::ws_eventfd_read(fd, &raw mut value) } == 0 { value } else { 0 }
}

async fn consume(set: Set, counters: [c_int; COUNTERS], room: usize) {
    // SAFETY: the number stays the set's until this is dropped, which closes it.
    let set =
        unsafe { AsyncFd::register(set) }.unwrap_or_else(|_| panic!("a number that can be polled"));
    let mut had = 0;
    while had < COUNTERS as u64 * EACH {
        let ready = timeout(PATIENCE, set.readable()).await;
        let mut ready =
            ready.unwrap_or_else(|_| panic!("lost a wake-up after {had} units")).expect("a guard");
        let found = ready.get_inner().look(room);
        if found.is_empty() {
            ready.clear_ready();
        }
        had += found.iter().map(|which| read(counters[*which as usize])).sum::<u64>();
    }
    assert_eq!(had, COUNTERS as u64 * EACH);
}

fn run(flags: c_int, room: usize) {
    let set = Set(ws_epoll_create1(EPOLL_CLOEXEC));
    let counters = [(); COUNTERS].map(|()| eventfd::ws_eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    for (i, fd) in counters.iter().enumerate() {
        let mut event = epoll_event { events: (EPOLLIN | flags) as u32, u64: i as u64 };
        // SAFETY: a valid event.
        assert_eq!(unsafe { ws_epoll_ctl(set.0, EPOLL_CTL_ADD, *fd, &raw mut event) }, 0);
    }
    assert_eq!(ws_epoll_pollfd(set.0), set.0);
    let producers = counters.map(|fd| {
        thread::spawn(move || {
            for i in 0..EACH {
                // SAFETY: numbers only.
                assert_eq!(unsafe { eventfd::ws_eventfd_write(fd, 1) }, 0);
                if i % 16 == 0 {
                    // So that the loop goes to sleep now and then.
                    thread::sleep(Duration::from_micros(50));
                }
            }
        })
    });
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(consume(set, counters, room));
    for producer in producers {
        producer.join().expect("a producer");
    }
    for fd in counters {
        ws_close(fd);
    }
}

#[test]
fn async_fd_sees_every_event_level() {
    run(0, COUNTERS);
    run(0, 1);
}

#[test]
fn async_fd_sees_every_event_edge() {
    run(EPOLLET, COUNTERS);
    run(EPOLLET, 1);
}
