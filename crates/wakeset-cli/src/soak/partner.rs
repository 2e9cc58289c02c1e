//! The blocking part of the load: each thread has a partner, which blocks in a read, or in a
//! descriptor that is closed under it.

use std::io;
use std::os::unix::thread::JoinHandleExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use fastrand::Rng;
use libc::{EFD_NONBLOCK, EPOLLIN, c_int};
use procfs::process::{ProcState, Process};

use super::counts::bump;
use super::load::Load;

/// What tells a blocked reader to end: more units than it ever gets otherwise.
const LAST: u64 = 1 << 48;

/// A thread that sleeps in what it is told to.
pub struct Partner {
    pub jobs: Sender<Job>,
    done: Receiver<()>,
    /// Its thread id, and whether it is in the call.
    state: Arc<(AtomicI32, AtomicBool)>,
    pub thread: JoinHandle<()>,
}

pub enum Job {
    /// Read until [`LAST`] units come; a blocking eventfd.
    Read(c_int),
    /// One wait of some milliseconds, the set being closed meanwhile.
    Wait(c_int),
    /// One read of an eventfd that is closed meanwhile, until a signal ends it.
    ReadClosed(c_int),
}

impl Partner {
    pub fn start(load: &Arc<Load>) -> Self {
        let (jobs, orders) = mpsc::channel();
        let (report, done) = mpsc::channel();
        let state = Arc::new((AtomicI32::new(0), AtomicBool::new(false)));
        let (load, own) = (load.clone(), state.clone());
        let body = move || {
            // SAFETY: takes nothing, cannot fail.
            own.0.store(unsafe { libc::gettid() }, Ordering::SeqCst);
            for job in orders {
                own.1.store(true, Ordering::SeqCst);
                if let Err(error) = Self::work(&load, job) {
                    load.fail(format!("a blocked call: {error}"));
                }
                own.1.store(false, Ordering::SeqCst);
                if report.send(()).is_err() {
                    return;
                }
            }
        };
        Self { jobs, done, state, thread: std::thread::spawn(body) }
    }

    fn work(load: &Load, job: Job) -> io::Result<()> {
        match job {
            Job::Read(fd) => loop {
                let units = load.calls.take_units(fd)?.unwrap_or(0);
                bump(&load.counts.read, units % LAST);
                bump(&load.counts.blocked_reads, 1);
                if units >= LAST {
                    return Ok(());
                }
            },
            // What these two return depends on the kernel (a signal, a timeout).
            Job::Wait(set) => drop(load.calls.wait(set, 3).map(drop)),
            Job::ReadClosed(fd) => drop(load.calls.take_units(fd)),
        }
        Ok(())
    }

    /// Whether it certainly sleeps in its call. A descriptor may be closed under a thread that
    /// sleeps in it, but not under one that has yet to use the number: that thread may then find
    /// another object under it.
    fn is_asleep(&self) -> bool {
        let (tid, inside) = &*self.state;
        for _ in 0..50 {
            if !inside.load(Ordering::SeqCst) {
                std::thread::yield_now();
                continue;
            }
            let tid = tid.load(Ordering::SeqCst);
            let task = Process::myself().and_then(|process| process.task_from_tid(tid));
            let state = task.and_then(|task| task.stat()?.state());
            if state.is_ok_and(|state| state == ProcState::Sleeping) {
                return inside.load(Ordering::SeqCst);
            }
            std::thread::yield_now();
        }
        false
    }

    /// Has it read what we write.
    pub fn block_in_reads(&self, load: &Load, random: &mut Rng) -> io::Result<()> {
        let fd = load.calls.counter(0)?;
        let _ = self.jobs.send(Job::Read(fd));
        for _ in 0..random.usize(..200) {
            let units = random.u64(1..=3);
            load.calls.add_units(fd, units)?;
            bump(&load.counts.written, units);
        }
        load.calls.add_units(fd, LAST)?;
        let _ = self.done.recv();
        load.calls.close(fd)
    }

    /// Closes a set that it waits in; meanwhile other threads use the number again.
    pub fn close_under_a_wait(&self, load: &Load) -> io::Result<()> {
        let (set, counter) = (load.calls.set()?, load.calls.counter(EFD_NONBLOCK)?);
        load.calls.add(set, counter, EPOLLIN, 0)?;
        let _ = self.jobs.send(Job::Wait(set));
        let asleep = self.is_asleep();
        if asleep {
            load.calls.close(set)?;
            // Most likely the same number.
            let again = load.calls.set()?;
            load.calls.close(again)?;
            bump(&load.counts.closed_under_a_sleeper, 1);
        }
        load.calls.close(counter)?;
        let _ = self.done.recv();
        if asleep { Ok(()) } else { load.calls.close(set) }
    }

    /// Closes an eventfd that it reads.
    pub fn close_under_a_read(&self, load: &Load) -> io::Result<()> {
        let fd = load.calls.counter(0)?;
        let _ = self.jobs.send(Job::ReadClosed(fd));
        if !self.is_asleep() {
            load.calls.add_units(fd, 1)?;
            let _ = self.done.recv();
            return load.calls.close(fd);
        }
        load.calls.close(fd)?;
        let again = load.calls.counter(0)?;
        load.calls.close(again)?;
        bump(&load.counts.closed_under_a_sleeper, 1);
        loop {
            // SAFETY: the thread runs until its sender is dropped.
            unsafe { libc::pthread_kill(self.thread.as_pthread_t(), libc::SIGUSR1) };
            match self.done.recv_timeout(Duration::from_millis(1)) {
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                _ => return Ok(()),
            }
        }
    }
}

extern "C" fn do_nothing(_: c_int) {}

/// Gives SIGUSR1 a handler that does nothing, so that it ends a read and nothing else.
pub fn ignore_signals() {
    // SAFETY: a handler that does nothing, and a structure that is valid when zeroed.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = do_nothing as extern "C" fn(c_int) as usize;
        libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut());
    }
}
