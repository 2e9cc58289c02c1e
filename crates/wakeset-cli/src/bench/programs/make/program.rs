//! The program that `bench make` measures: `wakeset __make …`. It uses nothing but libc, so that
//! it is the same plain and under the interposer.

use std::fmt;
use std::io;
use std::time::{Duration, Instant};

use libc::c_int;

use crate::bench::programs::child::checked;
use crate::failure::Failure;

/// What is made.
#[derive(Clone, Copy, Debug, PartialEq, clap::ValueEnum)]
pub enum Kind {
    Eventfd,
    Timerfd,
    Set,
    Pipe,
    Socketpair,
}

impl Kind {
    pub const ALL: [Kind; 5] =
        [Kind::Eventfd, Kind::Timerfd, Kind::Set, Kind::Pipe, Kind::Socketpair];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Eventfd => "eventfd",
            Kind::Timerfd => "timerfd",
            Kind::Set => "set",
            Kind::Pipe => "pipe",
            Kind::Socketpair => "socketpair",
        }
    }

    /// Makes one; its number, or both.
    fn make(self) -> io::Result<[c_int; 2]> {
        let mut ends = [-1; 2];
        // SAFETY: calls without memory of ours, and room for two numbers.
        let made = unsafe {
            match self {
                Kind::Eventfd => libc::eventfd(0, libc::EFD_CLOEXEC),
                Kind::Timerfd => libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC),
                Kind::Set => libc::epoll_create1(libc::EPOLL_CLOEXEC),
                Kind::Pipe => libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC),
                Kind::Socketpair => {
                    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
                    libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr())
                }
            }
        };
        checked(made.into())?;
        Ok(if ends[0] == -1 { [made, -1] } else { ends })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What `wakeset __make` takes.
#[derive(clap::Args)]
pub struct Options {
    #[arg(value_enum)]
    kind: Kind,
    /// How many are made before the first of them is closed
    open: usize,
    /// For how long
    seconds: f64,
    /// So many times all of them, and not for some time: to count instructions and system calls
    #[arg(long)]
    times: Option<u64>,
}

/// The command line for that.
pub fn arguments(kind: Kind, open: usize, seconds: f64) -> Vec<String> {
    ["__make".to_string(), kind.name().to_string(), open.to_string(), seconds.to_string()].into()
}

/// Objects between two readings of the clock.
const STRETCH: usize = 1000;

/// Prints the rate.
pub fn run(options: &Options) -> Result<(), Failure> {
    let rate =
        measure(options).map_err(|e| Failure::own(format!("{}: {e}", options.kind.name())))?;
    println!("{rate}");
    Ok(())
}

fn measure(options: &Options) -> io::Result<f64> {
    let mut made = Vec::with_capacity(options.open);
    let mut all = |times: usize| -> io::Result<()> {
        for _ in 0..times {
            for _ in 0..options.open {
                made.push(options.kind.make()?);
            }
            for number in made.drain(..).flatten().filter(|number| *number != -1) {
                // SAFETY: a number of our own, which nobody uses any more.
                checked(unsafe { libc::close(number) }.into())?;
            }
        }
        Ok(())
    };
    if let Some(times) = options.times {
        all(times as usize)?;
        return Ok(0.0);
    }
    let time = Duration::from_secs_f64(options.seconds);
    let stretch = (STRETCH / options.open.max(1)).max(1);
    all(stretch)?;
    let (begin, mut done) = (Instant::now(), 0);
    while begin.elapsed() < time {
        all(stretch)?;
        done += stretch * options.open;
    }
    Ok(done as f64 / begin.elapsed().as_secs_f64())
}
