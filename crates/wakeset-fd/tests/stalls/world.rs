//! What a stalled thread stands in: a set with two eventfds, by number, and an account of what was
//! written, read and reported.

use crate::patience::Patience;
use crate::polls;
use crate::trap::{LIMIT, Progress, Thread};
use libc::{
    EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLET, EPOLLIN, EPOLLONESHOT, c_int, epoll_event,
};
use std::collections::HashMap;
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use wakeset_fd as fd;

pub const IN: u32 = EPOLLIN as u32;
pub const ET: u32 = EPOLLET as u32;
pub const ONESHOT: u32 = EPOLLONESHOT as u32;

pub const B: u64 = 1000;
pub const C: u64 = 1003;
pub const STOP: u64 = 1001;
pub const PIPE: u64 = 1002;

pub type Errno = fd::Errno;

pub struct World {
    pub set: c_int,
    /// -1 once closed.
    pub a: AtomicI32,
    /// What has its number then.
    successor: AtomicI32,
    pub b: c_int,
    pub c: c_int,
    stop: c_int,
    pub kind: u32,
    /// The data of the watch on `a`; 0 without one.
    data: AtomicU64,
    next_data: AtomicU64,
    written: AtomicU64,
    /// Writes under way: one that goes on after a close goes to whatever its number stands for by
    /// then.
    writing: AtomicU64,
    may_be_late: AtomicBool,
    read: AtomicU64,
    stale: AtomicU64,
    reports: Mutex<HashMap<u64, u64>>,
    workers: Mutex<Vec<Thread>>,
    pub extras: Mutex<Vec<Thread>>,
    /// A thread in poll(2) of `a` and of `c`.
    pub poller: Mutex<Option<Thread>>,
    /// To be closed at the end.
    pub more: Mutex<Vec<c_int>>,
}

pub fn eventfd() -> c_int {
    fd::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC).unwrap()
}

pub fn epoll() -> c_int {
    fd::epoll_create1(libc::EPOLL_CLOEXEC).unwrap()
}

pub fn ctl(set: c_int, op: c_int, number: c_int, events: u32, data: u64) -> Result<(), Errno> {
    let event = epoll_event { events, u64: data };
    // SAFETY: an event of our own.
    unsafe { fd::epoll_ctl(set, op, number, &raw const event) }
}

pub fn add(set: c_int, number: c_int, events: u32, data: u64) {
    ctl(set, EPOLL_CTL_ADD, number, events, data).unwrap();
}

pub fn write(number: c_int, n: u64) -> bool {
    // SAFETY: eight bytes of our own.
    unsafe { fd::write(number, (&raw const n).cast(), 8) }.is_ok()
}

pub fn read(number: c_int) -> Option<u64> {
    let mut n = 0_u64;
    // SAFETY: eight bytes of our own.
    unsafe { fd::read(number, (&raw mut n).cast(), 8) }.ok().map(|_| n)
}

/// What a wait reports, by data.
pub fn wait(set: c_int, milliseconds: c_int) -> Vec<u64> {
    let mut events = [epoll_event { events: 0, u64: 0 }; 16];
    // SAFETY: room for sixteen.
    match unsafe { fd::epoll_wait(set, events.as_mut_ptr(), 16, milliseconds) } {
        Ok(n) => events[..n as usize].iter().map(|event| event.u64).collect(),
        Err(error) => panic!("a wait failed: {error:?}"),
    }
}

impl World {
    pub fn new(kind: u32) -> Arc<Self> {
        let (set, a, b, c, stop) = (epoll(), eventfd(), eventfd(), eventfd(), eventfd());
        add(set, a, kind, 1);
        add(set, b, IN, B);
        add(set, stop, IN, STOP);
        Arc::new(Self {
            set,
            a: AtomicI32::new(a),
            successor: AtomicI32::new(-1),
            b,
            c,
            stop,
            kind,
            data: AtomicU64::new(1),
            next_data: AtomicU64::new(2),
            written: AtomicU64::new(0),
            writing: AtomicU64::new(0),
            may_be_late: AtomicBool::new(false),
            read: AtomicU64::new(0),
            stale: AtomicU64::new(0),
            reports: Mutex::default(),
            workers: Mutex::default(),
            extras: Mutex::default(),
            poller: Mutex::default(),
            more: Mutex::default(),
        })
    }

    /// The number of `a`.
    pub fn a(&self) -> c_int {
        self.a.load(SeqCst)
    }

    pub fn of(&self, data: u64) -> u64 {
        self.reports.lock().unwrap().get(&data).copied().unwrap_or(0)
    }

    pub fn data(&self) -> u64 {
        self.data.load(SeqCst)
    }

    /// One write of 1 to `a`, by `write`.
    pub fn write_a(&self, write: impl FnOnce(c_int, u64) -> bool) {
        self.written.fetch_add(1, SeqCst);
        self.writing.fetch_add(1, SeqCst);
        assert!(write(self.a(), 1), "a write failed");
        self.writing.fetch_sub(1, SeqCst);
    }

    pub fn read_a(&self, read: impl FnOnce(c_int) -> Option<u64>) {
        let data = self.data();
        let seen = self.of(data);
        if let Some(n) = read(self.a()) {
            self.read.fetch_add(n, SeqCst);
            if self.data() == data {
                self.stale.fetch_max(seen, SeqCst);
            }
        }
    }

    pub fn wait(&self, milliseconds: c_int) -> usize {
        let reported = wait(self.set, milliseconds);
        for &data in &reported {
            *self.reports.lock().unwrap().entry(data).or_default() += 1;
        }
        reported.len()
    }

    /// Handles the set's events until there is one of `last`.
    pub fn work_until(&self, last: u64) {
        loop {
            let reported = wait(self.set, -1);
            for &data in &reported {
                *self.reports.lock().unwrap().entry(data).or_default() += 1;
                match data {
                    STOP | PIPE | C => {}
                    B => drop(read(self.b)),
                    _ if data == self.data() => self.read_a(read),
                    _ => {}
                }
            }
            if reported.contains(&last) {
                return;
            }
        }
    }

    /// Starts a thread that handles the set's events.
    pub fn start_worker(self: &Arc<Self>) {
        let world = Arc::clone(self);
        let (tell, tid) = channel();
        let worker = Thread::start(None, move || {
            // SAFETY: takes nothing, cannot fail.
            tell.send(unsafe { libc::gettid() }).unwrap();
            world.work_until(STOP);
        });
        // Only to make the interesting case likely: it has something to do, or it will sleep.
        let path = format!("/proc/self/task/{}/stat", tid.recv().unwrap());
        let end = Instant::now() + Duration::from_millis(100);
        let is_asleep = || fs::read_to_string(&path).is_ok_and(|stat| stat.contains(") S"));
        while !(is_asleep() && is_asleep()) && Instant::now() < end {
            thread::yield_now();
        }
        self.workers.lock().unwrap().push(worker);
    }

    pub fn stop_workers(&self) -> Result<(), String> {
        let workers = std::mem::take(&mut *self.workers.lock().unwrap());
        if workers.is_empty() {
            return Ok(());
        }
        assert!(write(self.stop, 1));
        for worker in workers {
            worker.join().map_err(|error| format!("a waiter: {error}"))?;
        }
        read(self.stop).unwrap();
        Ok(())
    }

    /// Makes sure that `data` is reported once more than `before`, to whomever.
    pub fn hear(&self, data: u64, before: u64) -> Result<(), String> {
        self.hear_unless(data, before, || false)
    }

    /// The same, unless there is no need.
    pub fn hear_unless(
        &self,
        data: u64,
        before: u64,
        needless: impl Fn() -> bool,
    ) -> Result<(), String> {
        let mut patience = Patience::of(LIMIT);
        while self.of(data) <= before && !needless() {
            if patience.is_over() {
                return Err(format!("{data} was not reported"));
            }
            if self.workers.lock().unwrap().is_empty() {
                self.wait(20);
            } else {
                thread::sleep(Duration::from_micros(50));
            }
        }
        Ok(())
    }

    fn armed_with(&self, data: u64) {
        self.data.store(data, SeqCst);
        self.stale.store(0, SeqCst);
    }

    pub fn modify_a(&self) {
        let data = self.next_data.fetch_add(1, SeqCst);
        ctl(self.set, EPOLL_CTL_MOD, self.a(), self.kind, data).unwrap();
        self.armed_with(data);
    }

    pub fn remove_a(&self) {
        ctl(self.set, EPOLL_CTL_DEL, self.a(), 0, 0).unwrap();
        self.armed_with(0);
    }

    pub fn add_a(&self) {
        let data = self.next_data.fetch_add(1, SeqCst);
        add(self.set, self.a(), self.kind, data);
        self.armed_with(data);
    }

    /// Closes `a`. The number is given away at once, so that a late thread meets another object
    /// under it.
    pub fn close_a(&self) {
        self.armed_with(0);
        self.may_be_late.store(self.writing.load(SeqCst) > 0, SeqCst);
        let a = self.a.swap(-1, SeqCst);
        fd::close(a).unwrap();
        let next = eventfd();
        assert_eq!(next, a, "the lowest number is given first");
        self.successor.store(next, SeqCst);
        self.more.lock().unwrap().push(next);
    }

    pub fn check(&self) -> Result<(), String> {
        self.stop_workers()?;
        polls::end_poll(self)?;
        for extra in std::mem::take(&mut *self.extras.lock().unwrap()) {
            extra.release();
            if extra.until_at_rest() == Progress::Asleep {
                return Err("an extra thread sleeps".into());
            }
            extra.join()?;
        }
        let _ = read(self.c);
        let before = self.of(B);
        assert!(write(self.b, 1));
        self.hear(B, before).map_err(|error| format!("afterwards: {error}"))?;
        let _ = read(self.b);
        if self.a() < 0 {
            // Whoever still works on what was closed must not take the number's next object for it:
            // nothing watches that.
            let heard = || {
                self.reports
                    .lock()
                    .unwrap()
                    .iter()
                    .filter(|(data, _)| **data < B)
                    .map(|(_, n)| n)
                    .sum::<u64>()
            };
            let before = heard();
            if read(self.successor.load(SeqCst)).is_some() && !self.may_be_late.load(SeqCst) {
                return Err("the next object of a closed number was written to".into());
            }
            assert!(write(self.successor.load(SeqCst), 1));
            self.wait(0);
            return if heard() == before {
                Ok(())
            } else {
                Err("the next object of a closed number is watched".into())
            };
        }
        let data = self.data();
        let once = self.kind & ONESHOT != 0;
        // What is there is seen by one look, and taken by one read.
        self.wait(0);
        let heard = self.of(data);
        let left = read(self.a()).unwrap_or(0);
        let (written, taken) = (self.written.load(SeqCst), self.read.load(SeqCst));
        if written - taken != left {
            return Err(format!("{written} written, {taken} read, {left} left"));
        }
        if data == 0 {
            return Ok(());
        }
        if left > 0 && heard <= if once { 0 } else { self.stale.load(SeqCst) } {
            return Err(format!("{left} left, and {heard} reports"));
        }
        if once && heard > 1 {
            return Err(format!("{heard} reports of a one-shot watch"));
        }
        // It works as if nothing had been.
        while self.wait(0) > 0 && self.kind & (ET | ONESHOT) != 0 {}
        if once {
            self.modify_a();
        }
        let data = self.data();
        let before = self.of(data);
        assert!(write(self.a(), 1));
        self.wait(0);
        let more = self.of(data) - before;
        if more == 1 { Ok(()) } else { Err(format!("one more write had {more} reports")) }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let numbers = [self.a(), self.b, self.c, self.stop, self.set];
        for number in numbers.into_iter().chain(std::mem::take(&mut *self.more.lock().unwrap())) {
            if number >= 0 {
                let _ = fd::close(number);
            }
        }
    }
}
