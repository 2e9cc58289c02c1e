//! A call made on another thread, which may block.

use std::fs;
use std::os::unix::thread::JoinHandleExt;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long a task may take before the test fails.
const LOST: Duration = Duration::from_secs(40);

/// A running call. A test ends each: a thread that is left asleep would be found by another test.
pub struct Task<T> {
    tid: libc::pid_t,
    thread: Option<JoinHandle<()>>,
    begun: &'static Location<'static>,
    result: Receiver<thread::Result<T>>,
}

impl<T> Task<T> {
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        assert!(self.has_ended() || thread::panicking(), "nobody ends the call of {}", self.begun);
    }
}

impl<T: Send + 'static> Task<T> {
    #[track_caller]
    pub fn start(call: impl FnOnce() -> T + Send + 'static) -> Self {
        let (tell_tid, tid) = channel();
        let (tell, result) = channel();
        let thread = thread::spawn(move || {
            // SAFETY: takes nothing, cannot fail.
            let _ = tell_tid.send(unsafe { libc::gettid() });
            let _ = tell.send(catch_unwind(AssertUnwindSafe(call)));
        });
        let begun = Location::caller();
        Self { tid: tid.recv().unwrap(), thread: Some(thread), begun, result }
    }

    /// Starts a call, and returns once it sleeps.
    #[track_caller]
    pub fn asleep(call: impl FnOnce() -> T + Send + 'static) -> Self {
        let task = Self::start(call);
        task.until_asleep();
        task
    }

    /// Returns once the call sleeps (or has ended). Only a means to make the interesting case
    /// likely: no test may rely on it, since a thread can sleep for other reasons too.
    pub fn until_asleep(&self) {
        let give_up = Instant::now() + Duration::from_secs(2);
        let mut seen = 0;
        while seen < 3 && Instant::now() < give_up {
            match self.state() {
                Some('S') => seen += 1,
                Some(_) => seen = 0,
                None => return,
            }
            thread::sleep(Duration::from_micros(300));
        }
    }

    /// The scheduler's letter for the thread; `None` once it has ended.
    fn state(&self) -> Option<char> {
        let stat = fs::read_to_string(format!("/proc/self/task/{}/stat", self.tid)).ok()?;
        stat.rsplit_once(") ")?.1.chars().next()
    }

    /// Sends the thread a signal.
    pub fn signal(&self, signal: libc::c_int) {
        self.thread.iter().for_each(|thread| {
            // SAFETY: the thread has not been joined or detached, so its handle is valid.
            unsafe { libc::pthread_kill(thread.as_pthread_t(), signal) };
        });
    }

    /// Sends signals until the call has ended, and returns what it returned: the first signal may
    /// come before the call sleeps.
    #[track_caller]
    pub fn interrupt(self, signal: libc::c_int) -> T {
        self.until_asleep();
        while !self.has_ended() {
            self.signal(signal);
            thread::sleep(Duration::from_millis(1));
        }
        self.join()
    }

    /// What the call returned. If the call panicked, the panic goes on here.
    #[track_caller]
    pub fn join(mut self) -> T {
        let result = match self.result.recv_timeout(LOST) {
            Ok(result) => result,
            Err(RecvTimeoutError::Timeout) => panic!("still blocked"),
            Err(RecvTimeoutError::Disconnected) => unreachable!("every call sends its result"),
        };
        // No test that counts threads meets one that is about to end.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }
}

/// How many of `tasks` have ended, counted when at least `wanted` have ended and the other tasks
/// have had time to follow.
#[track_caller]
pub fn ended<T: Send + 'static>(tasks: &[Task<T>], wanted: usize) -> usize {
    let count = || tasks.iter().filter(|task| task.has_ended()).count();
    let give_up = Instant::now() + LOST;
    while count() < wanted {
        assert!(Instant::now() < give_up, "{} of {wanted} have ended", count());
        thread::sleep(Duration::from_micros(300));
    }
    for _ in 0..10 {
        thread::sleep(Duration::from_millis(2));
        for task in tasks {
            task.until_asleep();
        }
    }
    count()
}
