//! What runs out: memory, descriptor numbers, and what the kernel may refuse. One script of calls runs on the kernel and, again and
//! again with less, on Wakeset; every return value and every event has to be the same, because what we cannot keep is the
//! kernel's.
//!
//! Each run is a forked child: limits and filters are a process's own, a child's table of objects is new, and an abort is one
//! more way to fail.

use backend::{Backend, Kernel, Wakeset};
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLET, EPOLLIN, EPOLLONESHOT, c_int, epoll_event};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{Read, Write};
use std::os::fd::FromRawFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, Ordering};

#[allow(dead_code, reason = "the semantics tests use the rest")]
#[path = "semantics/backend.rs"]
mod backend;
#[path = "semantics/faults.rs"]
mod faults;

/// The system's allocator, which can be told to refuse one thread.
struct Rationed;

#[global_allocator]
static HEAP: Rationed = Rationed;

thread_local! {
    /// How many allocations this thread may still make while it is on rations.
    static RATION: Cell<usize> = const { Cell::new(usize::MAX) };
    static RATIONED: Cell<bool> = const { Cell::new(false) };
    /// Only one is refused, and then there is memory again.
    static ONE_REFUSAL: Cell<bool> = const { Cell::new(false) };
    static REFUSED: Cell<usize> = const { Cell::new(0) };
    /// What was taken on rations, less what was given back.
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

/// One call of what is tested, on rations; the script around it has what it needs.
fn rationed<T>(call: impl FnOnce() -> T) -> T {
    RATIONED.set(true);
    let result = call();
    RATIONED.set(false);
    result
}

/// Forks one at a time: a child has a copy of nothing but the thread that forked.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Runs `f` in a forked child and returns the text it gives, or how else the child ended.
fn in_child(f: impl FnOnce() -> String) -> Result<String, String> {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut ends = [0; 2];
    // SAFETY: a place for two numbers; the child only runs `f`, on the one thread it has, and ends.
    unsafe {
        assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC), 0);
        let child = libc::fork();
        assert!(child >= 0);
        if child == 0 {
            // A hang is a failure, too.
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
            _ if libc::WIFSIGNALED(status) => Err(format!("ended by signal {}", libc::WTERMSIG(status))),
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

    /// Waits until `milliseconds` have passed without an event, and notes all there were, sorted: the order across the halves of a set
    /// is not Linux's.
    fn wait(&mut self, set: c_int, milliseconds: c_int) {
        let mut events = [epoll_event { events: 0, u64: 0 }; 64];
        // SAFETY: room for 64.
        let found = rationed(|| unsafe { B::epoll_wait(set, events.as_mut_ptr(), 64, milliseconds) });
        let n = self.note("epoll_wait", found).unwrap_or(0);
        let mut found: Vec<_> = events[..n as usize].iter().map(|event| ({ event.u64 }, { event.events })).collect();
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

/// A bit of everything. `midway` comes between making the objects and using them.
fn everything<B: Backend>(ours: bool, midway: impl FnOnce()) -> String {
    let mut script = Script::<B>::new();
    let s = &mut script;
    let (outer, set) = (s.set(), s.set());
    let counters: Vec<c_int> = (0..12).map(|i| s.counter(i % 2)).collect();
    for (i, &counter) in counters.iter().enumerate() {
        s.add(set, counter, [EPOLLIN, EPOLLIN | EPOLLONESHOT][i % 2], i as u64);
    }
    // One source in many sets: its wait queue grows.
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
    // Drained, because an edge may be reported again after a move (SEMANTICS.md, Differences 8).
    s.read(counters[3]);
    s.ctl(outer, EPOLL_CTL_DEL, set, 0, 0);
    // Both halves.
    s.add(set, pipe[0], EPOLLIN, 2000);
    s.wait(set, 0);
    s.wait(set, 10);
    // Into the kernel: one, and then all.
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
    counters.into_iter().chain(watchers).chain([late, late_set, set, outer]).for_each(|fd| s.close(fd));
    script.log
}

/// The first line that differs, with what stands before it.
#[track_caller]
fn same(what: &str, kernel: &str, ours: Result<String, String>) -> String {
    let ours = ours.unwrap_or_else(|how| panic!("{what}: {how}"));
    let (refused, ours) = ours.split_once('\n').unwrap_or(("", &ours));
    for (line, (kernel, ours)) in kernel.lines().zip(ours.lines().chain(std::iter::repeat("(no line)"))).enumerate() {
        assert_eq!(ours, kernel, "{what}: line {}", line + 1);
    }
    assert_eq!(kernel.lines().count(), ours.lines().count(), "{what}");
    refused.to_string()
}

/// What a child says of a run on Wakeset: how much memory it was refused, and the log.
fn report(log: String) -> String {
    format!("{}\n{log}", REFUSED.get())
}

#[test]
fn no_memory_from_any_allocation_on() {
    let kernel = in_child(|| everything::<Kernel>(false, || ())).unwrap();
    for n in 0..1000 {
        let ours = in_child(|| {
            RATION.set(n);
            report(everything::<Wakeset>(true, || ()))
        });
        if same(&format!("memory for {n} allocations"), &kernel, ours) == "0" {
            assert!(n > 20, "the script needs {n} allocations only");
            return;
        }
    }
    panic!("it never has enough");
}

#[test]
fn no_memory_for_one_allocation() {
    let kernel = in_child(|| everything::<Kernel>(false, || ())).unwrap();
    for n in 0..1000 {
        let ours = in_child(|| {
            ONE_REFUSAL.set(true);
            RATION.set(n);
            report(everything::<Wakeset>(true, || ()))
        });
        if same(&format!("all memory but for allocation {n}"), &kernel, ours) == "0" {
            assert!(n > 20, "the script needs {n} allocations only");
            return;
        }
    }
    panic!("it never has enough");
}

fn open_numbers() -> Vec<c_int> {
    // SAFETY: F_GETFD takes no pointer.
    (0..2048).filter(|&fd| unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0).collect()
}

/// Sets that mix both halves have a doorbell each. When they are closed, as many as there were at once serve the next ones.
#[test]
fn doorbells_are_used_again() {
    let counts = in_child(|| {
        let pipe = pipe_with_a_byte();
        let mut counts = String::new();
        for _ in 0..4 {
            let mut s = Script::<Wakeset>::new();
            let sets: Vec<_> = (0..150).map(|_| s.set()).collect();
            let counter = s.counter(0);
            for &set in &sets {
                s.add(set, counter, EPOLLIN, 1);
                s.add(set, pipe[0], EPOLLIN, 2);
            }
            sets.iter().chain([&counter]).for_each(|&fd| s.close(fd));
            assert!(!s.log.contains("rror"), "{}", s.log);
            counts += &format!("{} ", open_numbers().len());
        }
        counts
    });
    let counts: Vec<usize> = counts.unwrap().split_whitespace().map(|count| count.parse().unwrap()).collect();
    assert!(counts[0] > 150, "there were none: {counts:?}");
    assert!(counts.iter().all(|count| *count == counts[0]), "numbers open after each round: {counts:?}");
}

/// A doorbell may take a number that has memory for an object of the program's. The number gets it back with the next object.
#[test]
fn a_doorbell_leaves_a_number_its_memory() {
    let live = in_child(|| {
        let pipe = pipe_with_a_byte();
        let mut s = Script::<Wakeset>::new();
        let (set, counter) = (s.set(), s.counter(0));
        leave_numbers(1);
        let mut live = Vec::new();
        for _ in 0..10 {
            // The last number there is, for an object and then for a bell.
            let last = s.counter(0);
            assert!(last > counter, "{}", s.log);
            s.close(last);
            s.add(set, counter, EPOLLIN, 1);
            s.add(set, pipe[0], EPOLLIN, 2);
            assert!(open_numbers().contains(&last), "there is no bell");
            // The set goes, and dup2 takes the number from the bell that it leaves.
            let next = s.counter(0);
            assert_eq!(next, -1, "a number was left");
            rationed(|| Wakeset::close(set)).unwrap();
            assert_eq!(s.set(), set);
            rationed(|| Wakeset::dup2(pipe[0], last)).unwrap();
            rationed(|| Wakeset::close(last)).unwrap();
            live.push(LIVE.get());
        }
        format!("{live:?}")
    });
    let live = live.unwrap();
    let counts: Vec<&str> = live.trim_matches(['[', ']']).split(", ").collect();
    assert_eq!(counts[2], counts[9], "allocations there are, after each round: {live}");
}

/// A number whose object is closed while a call sleeps in it has memory for the next object all the same, and gets the first one's
/// back when the call is over.
#[test]
fn memory_of_an_object_closed_under_a_call_is_used_again() {
    let live = in_child(|| {
        let mut live = Vec::new();
        for _ in 0..20 {
            let blocking = rationed(|| Wakeset::eventfd(0, libc::EFD_CLOEXEC)).unwrap();
            let tid = std::sync::Arc::new(AtomicI32::new(0));
            let tell = tid.clone();
            let reader = std::thread::spawn(move || {
                let mut value = 0_u64;
                // SAFETY: takes nothing.
                tell.store(unsafe { libc::gettid() }, Ordering::SeqCst);
                // SAFETY: 8 bytes of our own.
                unsafe { Wakeset::read(blocking, (&raw mut value).cast(), 8) }
            });
            while !sleeps(tid.load(Ordering::SeqCst)) {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            rationed(|| Wakeset::close(blocking)).unwrap();
            let next = rationed(|| Wakeset::eventfd(0, libc::EFD_CLOEXEC)).unwrap();
            assert_eq!(next, blocking, "the script is about one number");
            rationed(|| Wakeset::close(next)).unwrap();
            live.push(LIVE.get());
            // SAFETY: the thread has not been joined; SIGUSR1 has a handler that does nothing.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = nothing as extern "C" fn(c_int) as usize;
                assert_eq!(libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()), 0);
                while !reader.is_finished() {
                    libc::pthread_kill(std::os::unix::thread::JoinHandleExt::as_pthread_t(&reader), libc::SIGUSR1);
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
            }
            assert_eq!(reader.join().unwrap(), Err(libc::EINTR));
        }
        format!("{live:?}")
    });
    let live = live.unwrap();
    let counts: Vec<&str> = live.trim_matches(['[', ']']).split(", ").collect();
    assert_eq!(counts[2], counts[19], "allocations there are, after each round: {live}");
}

extern "C" fn nothing(_: c_int) {}

fn sleeps(tid: c_int) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'))
}

/// From here on `spare` numbers more may be opened, and those are the next ones.
fn leave_numbers(spare: usize) {
    let highest = open_numbers().last().copied().unwrap_or(0);
    // SAFETY: duplicates of the standard input, and a valid limit.
    unsafe {
        // Those below that are free are taken.
        while libc::fcntl(0, libc::F_DUPFD_CLOEXEC, 0) < highest {}
        let last = open_numbers().last().copied().unwrap_or(0);
        let limit = libc::rlimit { rlim_cur: last as u64 + 1 + spare as u64, rlim_max: last as u64 + 100 };
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &limit), 0, "{}", std::io::Error::last_os_error());
    }
}

/// RLIMIT_NOFILE is lowered to what is in use and `spare` more, with objects of every kind there, and then everything is tried.
fn few_numbers<B: Backend>(spare: usize) -> String {
    let mut script = Script::<B>::new();
    let s = &mut script;
    let (set, mixed, other) = (s.set(), s.set(), s.set());
    let counters: Vec<c_int> = (0..6).map(|_| s.counter(0)).collect();
    let pipe = pipe_with_a_byte();
    for (i, &counter) in counters.iter().enumerate() {
        s.add(set, counter, EPOLLIN, i as u64);
        s.add(mixed, counter, EPOLLIN, i as u64);
    }
    leave_numbers(spare);
    let mut made: Vec<c_int> = (0..=spare).map(|i| if i % 2 == 0 { s.counter(1) } else { s.set() }).collect();
    made.retain(|fd| *fd >= 0);
    s.set();
    s.counter(0);
    s.dup(counters[0]);
    s.write(counters[0], 2);
    s.wait(set, 0);
    // No number for a doorbell.
    s.add(mixed, pipe[0], EPOLLIN, 100);
    s.wait(mixed, 0);
    s.write(counters[1], 1);
    s.wait(mixed, 0);
    s.add(other, pipe[0], EPOLLIN, 200);
    s.add(other, counters[2], EPOLLIN, 2);
    s.write(counters[2], 1);
    s.wait(other, 0);
    s.add(other, set, EPOLLIN, 3);
    s.wait(other, 0);
    // A waiter is woken.
    counters.iter().for_each(|&counter| s.read(counter));
    s.ctl(mixed, EPOLL_CTL_DEL, pipe[0], 0, 0);
    let writer = {
        let counter = counters[4];
        std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(30));
            let value = 1_u64;
            // SAFETY: 8 bytes of our own.
            unsafe { B::write(counter, (&raw const value).cast(), 8) }
        })
    };
    s.wait(mixed, 20_000);
    s.note("a late write", writer.join().unwrap());
    // A number comes free, and can be used.
    s.close(counters[5]);
    let again = s.counter(9);
    s.add(set, again, EPOLLIN, 9);
    s.wait(set, 0);
    s.wait(mixed, 0);
    s.dup(again);
    s.close(again);
    s.dup(counters[0]);
    s.wait(set, 0);
    s.log.clone()
}

#[test]
fn no_numbers_left() {
    for spare in 0..5 {
        let kernel = in_child(|| few_numbers::<Kernel>(spare)).unwrap();
        assert!(kernel.contains("Too many open files"), "{kernel}");
        same(&format!("{spare} numbers left"), &kernel, in_child(|| report(few_numbers::<Wakeset>(spare))));
    }
}

/// The program takes a doorbell's number by dup2(2), which it is entitled to, when there is no other for the bell.
fn a_number_taken_over<B: Backend>(take_it: bool) -> String {
    let mut script = Script::<B>::new();
    let s = &mut script;
    let (set, counter, pipe) = (s.set(), s.counter(0), pipe_with_a_byte());
    leave_numbers(1);
    let before = open_numbers();
    s.add(set, counter, EPOLLIN, 1);
    s.add(set, pipe[0], EPOLLIN, 2);
    s.wait(set, 0);
    // In the kernel's run there is nothing yet in the bell's place.
    let number = before.last().map_or(0, |last| *last + 1);
    assert_eq!(take_it, open_numbers().contains(&number), "whether there is a bell");
    let taken = rationed(|| B::dup2(pipe[0], number));
    s.note("dup2", taken);
    s.write(counter, 1);
    s.wait(set, 0);
    s.wait(set, 10);
    s.note("read", {
        let mut byte = 0_u8;
        // SAFETY: one byte of our own.
        unsafe { B::read(number, &raw mut byte, 1) }
    });
    s.wait(set, 0);
    s.close(number);
    s.close(number);
    s.wait(set, 0);
    s.log.clone()
}

#[test]
fn the_number_of_a_doorbell_is_the_programs() {
    let kernel = in_child(|| a_number_taken_over::<Kernel>(false)).unwrap();
    same("dup2 to a bell", &kernel, in_child(|| report(a_number_taken_over::<Wakeset>(true))));
}
