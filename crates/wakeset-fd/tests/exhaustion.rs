//! Lack of memory and of descriptor numbers, and what else the kernel may refuse. One script of
//! calls runs on the kernel and, again and again with less, on Wakeset. Every return value and
//! every event has to be the same, because what Wakeset cannot keep becomes the kernel's.
//!
//! Each run is a forked child: limits and filters belong to a process, a child's table of objects
//! is new, and an abort is one more way to fail.

#[allow(dead_code, reason = "the semantics tests use the rest")]
#[path = "semantics/backend.rs"]
mod backend;
#[path = "semantics/faults.rs"]
mod faults;
#[path = "exhaustion/memory.rs"]
mod memory;
#[path = "exhaustion/numbers.rs"]
mod numbers;
#[path = "exhaustion/taken.rs"]
mod taken;

use backend::{Backend, Kernel, Wakeset};
use libc::{
    EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLET, EPOLLIN, EPOLLONESHOT, c_int, epoll_event,
};
use numbers::*;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{Read, Write};
use std::os::fd::FromRawFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, Ordering};

/// The system's allocator, which can be told to refuse one thread.
struct Rationed;

#[global_allocator]
static HEAP: Rationed = Rationed;

thread_local! {
    /// How many allocations this thread may still make while it is on rations.
    static RATION: Cell<usize> = const { Cell::new(usize::MAX) };
    static RATIONED: Cell<bool> = const { Cell::new(false) };
    /// Only one allocation is refused, and then there is memory again.
    static ONE_REFUSAL: Cell<bool> = const { Cell::new(false) };
    static REFUSED: Cell<usize> = const { Cell::new(0) };
    /// Allocations on rations, less those that were freed.
    static LIVE: Cell<isize> = const { Cell::new(0) };
}

// SAFETY: hands everything on to the system's allocator, or refuses it.
unsafe impl GlobalAlloc for Rationed {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if RATIONED.get() {
            let left = RATION.get();
            if left == 0 {
                REFUSED.set(REFUSED.get() + 1);
                RATION.set(if ONE_REFUSAL.get() { usize::MAX } else { 0 });
                return std::ptr::null_mut();
            }
            RATION.set(left - 1);
            LIVE.set(LIVE.get() + 1);
        }
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        if RATIONED.get() {
            LIVE.set(LIVE.get() - 1);
        }
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Makes one tested call on rations; the script around it has all the memory that it needs.
fn rationed<T>(call: impl FnOnce() -> T) -> T {
    RATIONED.set(true);
    let result = call();
    RATIONED.set(false);
    result
}

/// Lets one test fork at a time: a child has a copy of the thread that forked, and of no other.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Runs `f` in a forked child. Returns its text, or how else the child ended.
fn in_child(f: impl FnOnce() -> String) -> Result<String, String> {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut ends = [0; 2];
    // SAFETY: a place for two numbers; the child only runs `f`, on the one thread it has, and ends.
    unsafe {
        assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC), 0);
        let child = libc::fork();
        assert!(child >= 0);
        if child == 0 {
            // A child that hangs has failed, too.
            libc::alarm(30);
            let text = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
            let mut end = std::fs::File::from_raw_fd(ends[1]);
            let done = text.is_ok_and(|text| end.write_all(text.as_bytes()).is_ok());
            libc::_exit(i32::from(!done));
        }
        libc::close(ends[1]);
        let mut text = String::new();
        std::fs::File::from_raw_fd(ends[0]).read_to_string(&mut text).unwrap();
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        match status {
            0 => Ok(text),
            _ if libc::WIFSIGNALED(status) => {
                Err(format!("ended by signal {}", libc::WTERMSIG(status)))
            }
            _ => Err(format!("status {}", libc::WEXITSTATUS(status))),
        }
    }
}

/// The calls of a script, each noted with what it returned.
struct Script<B> {
    log: String,
    backend: std::marker::PhantomData<B>,
}

impl<B: Backend> Script<B> {
    fn new() -> Self {
        Self { log: String::new(), backend: std::marker::PhantomData }
    }

    fn note<T>(&mut self, what: &str, result: Result<T, c_int>) -> Option<T> {
        let text = match &result {
            Ok(_) => "done".to_string(),
            Err(errno) => std::io::Error::from_raw_os_error(*errno).to_string(),
        };
        self.log += &format!("{what}: {text}\n");
        result.ok()
    }

    fn counter(&mut self, value: u32) -> c_int {
        let made = rationed(|| B::eventfd(value, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC));
        self.note("eventfd", made).unwrap_or(-1)
    }

    fn set(&mut self) -> c_int {
        let made = rationed(|| B::epoll_create1(libc::EPOLL_CLOEXEC));
        self.note("epoll_create1", made).unwrap_or(-1)
    }

    fn ctl(&mut self, set: c_int, op: c_int, fd: c_int, events: c_int, data: u64) {
        let mut event = epoll_event { events: events as u32, u64: data };
        // SAFETY: a valid event.
        let done = rationed(|| unsafe { B::epoll_ctl(set, op, fd, &raw mut event) });
        self.note(&format!("epoll_ctl {op} {events:#x} {data}"), done);
    }

    fn add(&mut self, set: c_int, fd: c_int, events: c_int, data: u64) {
        self.ctl(set, EPOLL_CTL_ADD, fd, events, data);
    }

    fn write(&mut self, fd: c_int, value: u64) {
        // SAFETY: 8 bytes of our own.
        let done = rationed(|| unsafe { B::write(fd, (&raw const value).cast(), 8) });
        self.note(&format!("write {value}"), done);
    }

    fn read(&mut self, fd: c_int) {
        let mut value = 0_u64;
        // SAFETY: 8 bytes of our own.
        let done = rationed(|| unsafe { B::read(fd, (&raw mut value).cast(), 8) });
        self.note("read", done);
        self.log += &format!("  {value}\n");
    }

    /// Waits until `milliseconds` have passed without an event, and notes all events, sorted: the
    /// order across the halves of a set is not Linux's.
    fn wait(&mut self, set: c_int, milliseconds: c_int) {
        let mut events = [epoll_event { events: 0, u64: 0 }; 64];
        // SAFETY: room for 64.
        let found =
            rationed(|| unsafe { B::epoll_wait(set, events.as_mut_ptr(), 64, milliseconds) });
        let n = self.note("epoll_wait", found).unwrap_or(0);
        let mut found: Vec<_> =
            events[..n as usize].iter().map(|event| ({ event.u64 }, { event.events })).collect();
        found.sort_unstable();
        self.log += &format!("  {found:?}\n");
    }

    fn dup(&mut self, fd: c_int) -> c_int {
        let made = rationed(|| B::dup(fd));
        self.note("dup", made).unwrap_or(-1)
    }

    fn close(&mut self, fd: c_int) {
        let done = rationed(|| B::close(fd));
        self.note("close", done);
    }
}

fn pipe_with_a_byte() -> [c_int; 2] {
    let mut ends = [0; 2];
    // SAFETY: a place for two numbers, and one byte.
    unsafe {
        assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC), 0);
        assert_eq!(libc::write(ends[1], c"x".as_ptr().cast(), 1), 1);
    }
    ends
}

/// A script that uses a bit of everything. `midway` runs between making the objects and using them.
fn everything<B: Backend>(ours: bool, midway: impl FnOnce()) -> String {
    let mut script = Script::<B>::new();
    let s = &mut script;
    let (outer, set) = (s.set(), s.set());
    let counters: Vec<c_int> = (0..12).map(|i| s.counter(i % 2)).collect();
    for (i, &counter) in counters.iter().enumerate() {
        s.add(set, counter, [EPOLLIN, EPOLLIN | EPOLLONESHOT][i % 2], i as u64);
    }
    // One source in many sets makes its wait queue grow.
    let watchers: Vec<c_int> = (0..7).map(|_| s.set()).collect();
    for (i, &watcher) in watchers.iter().enumerate() {
        s.add(watcher, counters[0], EPOLLIN | EPOLLET, i as u64);
    }
    let pipe = pipe_with_a_byte();
    midway();
    s.wait(set, 0);
    s.wait(set, 0);
    s.ctl(set, EPOLL_CTL_MOD, counters[1], EPOLLIN, 101);
    s.ctl(set, EPOLL_CTL_DEL, counters[3], 0, 0);
    s.wait(set, 0);
    s.write(counters[0], 5);
    watchers.iter().for_each(|&watcher| s.wait(watcher, 0));
    s.add(outer, set, EPOLLIN, 1000);
    s.wait(outer, 0);
    s.add(set, counters[3], EPOLLIN | EPOLLET, 103);
    s.write(counters[3], 1);
    s.wait(set, 0);
    s.wait(set, 0);
    // Drained, because an edge may be reported again after a migration (SEMANTICS.md, Differences
    // 8).
    s.read(counters[3]);
    s.ctl(outer, EPOLL_CTL_DEL, set, 0, 0);
    // Both halves.
    s.add(set, pipe[0], EPOLLIN, 2000);
    s.wait(set, 0);
    s.wait(set, 10);
    // One object migrates, and then all.
    let twin = s.dup(counters[5]);
    s.write(twin, 7);
    s.write(counters[2], 1);
    s.wait(set, 0);
    s.read(counters[5]);
    s.close(twin);
    if ours {
        rationed(|| wakeset_fd::fork::prepare().in_parent());
    }
    s.wait(set, 0);
    s.write(counters[4], 1);
    s.wait(set, 0);
    s.ctl(set, EPOLL_CTL_DEL, counters[4], 0, 0);
    s.ctl(set, EPOLL_CTL_MOD, counters[6], EPOLLIN, 106);
    // And after it.
    let (late, late_set) = (s.counter(3), s.set());
    s.add(late_set, late, EPOLLIN, 1);
    s.wait(late_set, 0);
    s.add(set, late, EPOLLIN, 3000);
    s.wait(set, 0);
    counters.iter().for_each(|&counter| s.read(counter));
    s.wait(set, 0);
    counters
        .into_iter()
        .chain(watchers)
        .chain([late, late_set, set, outer])
        .for_each(|fd| s.close(fd));
    script.log
}

/// The first line that differs, with the lines before it.
#[track_caller]
fn same(what: &str, kernel: &str, ours: Result<String, String>) -> String {
    let ours = ours.unwrap_or_else(|how| panic!("{what}: {how}"));
    let (refused, ours) = ours.split_once('\n').unwrap_or(("", &ours));
    for (line, (kernel, ours)) in
        kernel.lines().zip(ours.lines().chain(std::iter::repeat("(no line)"))).enumerate()
    {
        assert_eq!(ours, kernel, "{what}: line {}", line + 1);
    }
    assert_eq!(kernel.lines().count(), ours.lines().count(), "{what}");
    refused.to_string()
}

/// A child's report of a run on Wakeset: how many allocations were refused, and the log.
fn report(log: String) -> String {
    format!("{}\n{log}", REFUSED.get())
}

extern "C" fn nothing(_: c_int) {}
