//! The program that `bench selfpipe` measures: `wakeset __selfpipe …`. It uses nothing but libc, so
//! that it is the same plain and under the interposer.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use libc::{EPOLL_CTL_ADD, c_int, epoll_event};

use crate::bench::measure::joined::joined;
use crate::bench::programs::child::checked;
use crate::failure::Failure;

/// What a loop is woken by.
#[derive(Clone, Copy, Debug, PartialEq, clap::ValueEnum)]
pub enum Means {
    Pipe,
    Socketpair,
}

impl Means {
    pub fn name(self) -> &'static str {
        match self {
            Means::Pipe => "pipe",
            Means::Socketpair => "socketpair",
        }
    }
}

/// What `wakeset __selfpipe` takes.
#[derive(clap::Args)]
pub struct Options {
    #[arg(value_enum)]
    means: Means,
    /// One thread that does everything, or one that writes and one that waits
    threads: usize,
    /// For how long
    seconds: f64,
}

/// The command line for that.
pub fn arguments(means: Means, threads: usize, seconds: f64) -> Vec<String> {
    ["__selfpipe".to_string(), means.name().to_string(), threads.to_string(), seconds.to_string()]
        .into()
}

/// How long a byte may take that has been written.
const LOST: c_int = 5000;
/// Round trips between two readings of the clock.
const STRETCH: u64 = 256;

/// Both ends and a set with the first of them.
struct Loop {
    means: Means,
    set: c_int,
    ends: [c_int; 2],
}

impl Loop {
    fn new(means: Means) -> io::Result<Self> {
        let mut ends = [-1; 2];
        // SAFETY: room for two descriptors, and an event of our own.
        unsafe {
            checked(i64::from(match means {
                Means::Pipe => libc::pipe2(ends.as_mut_ptr(), libc::O_NONBLOCK | libc::O_CLOEXEC),
                Means::Socketpair => {
                    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
                    libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr())
                }
            }))?;
            let set = checked(libc::epoll_create1(libc::EPOLL_CLOEXEC).into())? as c_int;
            let mut event = epoll_event { events: libc::EPOLLIN as u32, u64: 1 };
            checked(libc::epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &raw mut event).into())?;
            Ok(Loop { means, set, ends })
        }
    }

    /// Writes one byte; `false` if the pipe is full.
    fn wake(&self) -> io::Result<bool> {
        let byte = 0_u8;
        // SAFETY: one byte of our own.
        let written = unsafe {
            match self.means {
                Means::Pipe => libc::write(self.ends[1], (&raw const byte).cast(), 1),
                Means::Socketpair => libc::send(self.ends[1], (&raw const byte).cast(), 1, 0),
            }
        };
        unless_blocked(written as i64).map(|n| n == 1)
    }

    /// Waits for a byte, and reads as many as there are.
    fn take(&self) -> io::Result<u64> {
        let mut events = [epoll_event { events: 0, u64: 0 }; 8];
        // SAFETY: room for eight.
        if checked(unsafe { libc::epoll_wait(self.set, events.as_mut_ptr(), 8, LOST) }.into())? == 0
        {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "a wake-up was lost"));
        }
        self.read()
    }

    /// Reads as many bytes as there are, at most as asyncio reads at once.
    fn read(&self) -> io::Result<u64> {
        let mut bytes = [0_u8; 4096];
        // SAFETY: a buffer of our own.
        let read = unsafe {
            match self.means {
                Means::Pipe => libc::read(self.ends[0], bytes.as_mut_ptr().cast(), bytes.len()),
                Means::Socketpair => {
                    libc::recv(self.ends[0], bytes.as_mut_ptr().cast(), bytes.len(), 0)
                }
            }
        };
        unless_blocked(read as i64)
    }
}

/// 0 for EAGAIN.
fn unless_blocked(result: i64) -> io::Result<u64> {
    match checked(result) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        result => result.map(|n| n as u64),
    }
}

/// Prints the rate.
pub fn run(options: &Options) -> Result<(), Failure> {
    let time = Duration::from_secs_f64(options.seconds);
    let rate = Loop::new(options.means)
        .and_then(|own| if options.threads == 1 { alone(&own, time) } else { together(&own, time) })
        .map_err(|e| Failure::own(format!("{}: {e}", options.means.name())))?;
    println!("{rate}");
    Ok(())
}

fn alone(own: &Loop, time: Duration) -> io::Result<f64> {
    let begin = Instant::now();
    let mut done = 0_u64;
    while begin.elapsed() < time {
        for _ in 0..STRETCH {
            if !own.wake()? || own.take()? != 1 {
                return Err(io::Error::other("what was written was not read"));
            }
        }
        done += STRETCH;
    }
    Ok(done as f64 / begin.elapsed().as_secs_f64())
}

fn together(own: &Loop, time: Duration) -> io::Result<f64> {
    let (written, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let begin = Instant::now();
    let read = std::thread::scope(|scope| -> io::Result<u64> {
        let writer = scope.spawn(|| -> io::Result<()> {
            while !over.load(Ordering::Relaxed) {
                for _ in 0..STRETCH {
                    while !own.wake()? {
                        std::thread::yield_now();
                    }
                }
                written.fetch_add(STRETCH, Ordering::SeqCst);
            }
            Ok(())
        });
        let mut read = 0;
        let loop_over = (|| -> io::Result<()> {
            while begin.elapsed() < time {
                read += own.take()?;
            }
            Ok(())
        })();
        over.store(true, Ordering::Relaxed);
        // The writer may still wait for space in the pipe.
        while !writer.is_finished() {
            read += own.read()?;
        }
        loop_over?;
        while read < written.load(Ordering::SeqCst) {
            read += own.take()?;
        }
        joined(writer).map(|()| read)
    })?;
    Ok(read as f64 / begin.elapsed().as_secs_f64())
}
