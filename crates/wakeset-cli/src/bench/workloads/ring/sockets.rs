//! 1,000 sockets that are all busy, watched edge-triggered: in each pass every one gets a byte, the
//! thread takes events until it has one of each, and reads. The rate is events per second of the
//! time in the calls that take them. `whole` is how much faster a pass is with all that is in it:
//! the writes, in which the kernel queues what the calls take, and the reads.
//!
//! The kernel's side is epoll_wait(2) with no timeout, Wakeset's the same on a set by number that
//! watches through an io_uring (`RING_POLL`): `exact`, which asks poll(2) about each socket before
//! it reports it, and with `hints` (`RING_HINTS`). Both report the same events here.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use libc::{EPOLL_CTL_ADD, c_int, epoll_event};

use crate::bench::measure::point::{Params, params};
use crate::bench::measure::report::{Report, Row};
use crate::bench::measure::spread::Spread;
use crate::bench::options::Timed;
use crate::bench::sides::backend::{ET, IN, lost};
use crate::bench::sides::kernel::check;

const SOCKETS: usize = 1000;
/// Passes of a round at least.
const PASSES: usize = 5;

#[derive(Clone, Copy)]
enum Kind {
    Unix,
    Tcp,
}

const EXACT: c_int = wakeset_fd::RING_POLL;
const HINTS: c_int = wakeset_fd::RING_POLL | wakeset_fd::RING_HINTS;

fn points() -> impl Iterator<Item = (c_int, Kind, usize)> {
    let kinds = [EXACT, HINTS]
        .into_iter()
        .flat_map(|flags| [Kind::Unix, Kind::Tcp].map(|kind| (flags, kind)));
    kinds.flat_map(|(flags, kind)| [16, 64, 256].map(|batch| (flags, kind, batch)))
}

fn describe(flags: c_int, kind: Kind, batch: usize) -> Params {
    let name = match kind {
        Kind::Unix => "unix",
        Kind::Tcp => "tcp",
    };
    let events = if flags == HINTS { "hints" } else { "exact" };
    params([
        ("sockets", SOCKETS.into()),
        ("of", name.into()),
        ("mode", "edge".into()),
        ("events", events.into()),
        ("batch", batch.into()),
    ])
}

pub const DESCRIPTORS: usize = 4 * SOCKETS + 64;

/// Measures and reports all of them.
pub fn measure(report: &mut Report, options: &Timed) -> io::Result<()> {
    let rounds = options.common.rounds;
    for (flags, kind, batch) in points() {
        let mut sides = [Side::new(kind, None)?, Side::new(kind, Some(flags))?];
        let mut rates = [Vec::new(), Vec::new()];
        let mut whole = Vec::new();
        // The first one warms up.
        for round in 0..=rounds {
            let (begin, mut passes) = (Instant::now(), [Vec::new(), Vec::new()]);
            while passes[0].len() < PASSES || begin.elapsed() < options.time() / (rounds + 1) {
                for (side, passes) in sides.iter_mut().zip(&mut passes) {
                    passes.push(side.pass(batch)?);
                }
            }
            if round > 0 {
                let median = |passes: &[Pass], of: fn(&Pass) -> Duration| {
                    Spread::median(passes.iter().map(|pass| of(pass).as_secs_f64()))
                };
                for (rates, passes) in rates.iter_mut().zip(&passes) {
                    rates.push(SOCKETS as f64 / median(passes, |pass| pass.taking));
                }
                whole.push(
                    median(&passes[0], |pass| pass.whole) / median(&passes[1], |pass| pass.whole),
                );
            }
        }
        let mut params = describe(flags, kind, batch);
        if let Some(whole) = Spread::of(whole) {
            params.insert("whole".to_string(), ((whole.median * 100.0).round() / 100.0).into());
        }
        let [kernel, wakeset] = rates.map(Spread::of);
        report.add(Row::new("ring", params, "events/s", kernel, wakeset));
    }
    Ok(())
}

trait Stream: Read + Write + AsRawFd {}
impl<T: Read + Write + AsRawFd> Stream for T {}

struct Side {
    set: c_int,
    polled: bool,
    pairs: Vec<(Box<dyn Stream>, Box<dyn Stream>)>,
}

struct Pass {
    taking: Duration,
    whole: Duration,
}

impl Side {
    fn new(kind: Kind, flags: Option<c_int>) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let set = match flags {
            Some(_) => wakeset_fd::epoll_create1(libc::EPOLL_CLOEXEC).map_err(errno)?,
            // SAFETY: no memory is involved.
            None => check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?,
        };
        let mut side = Side { set, polled: flags.is_some(), pairs: Vec::new() };
        if let Some(flags) = flags {
            wakeset_fd::ring_setup_with(set, SOCKETS, flags).map_err(errno)?;
        }
        for data in 0..SOCKETS {
            side.pairs.push(match kind {
                Kind::Unix => {
                    let (one, other) = UnixStream::pair()?;
                    (Box::new(one), Box::new(other))
                }
                Kind::Tcp => {
                    let one = TcpStream::connect(listener.local_addr()?)?;
                    let (other, _) = listener.accept()?;
                    other.set_nodelay(true)?;
                    (Box::new(one), Box::new(other))
                }
            });
            let event = epoll_event { events: IN | ET, u64: data as u64 };
            let fd = side.pairs[data].0.as_raw_fd();
            // SAFETY: a valid event.
            unsafe { wakeset_fd::epoll_ctl(set, EPOLL_CTL_ADD, fd, &raw const event) }
                .map_err(errno)?;
        }
        Ok(side)
    }

    fn take(&self, events: &mut [epoll_event]) -> io::Result<usize> {
        let (buffer, capacity) = (events.as_mut_ptr(), events.len() as c_int);
        let n = match self.polled {
            true => {
                // SAFETY: room for `capacity` events.
                unsafe { wakeset_fd::epoll_wait(self.set, buffer, capacity, 0) }.map_err(errno)?
            }
            // SAFETY: as above.
            false => check(unsafe { libc::epoll_wait(self.set, buffer, capacity, 0) })?,
        };
        Ok(n as usize)
    }

    fn pass(&mut self, batch: usize) -> io::Result<Pass> {
        let begin = Instant::now();
        for (_, peer) in &mut self.pairs {
            peer.write_all(b"x")?;
        }
        let mut events = vec![epoll_event { events: 0, u64: 0 }; batch];
        let mut seen = vec![false; SOCKETS];
        let (mut left, mut taking) = (SOCKETS, Duration::ZERO);
        while left > 0 {
            let before = Instant::now();
            let n = self.take(&mut events)?;
            taking += before.elapsed();
            for event in &events[..n] {
                let which = event.u64 as usize;
                if event.events != IN || core::mem::replace(&mut seen[which], true) {
                    return Err(io::Error::other(format!("socket {which}: an event too many")));
                }
                self.pairs[which].0.read_exact(&mut [0])?;
            }
            left -= n;
            if n == 0 && begin.elapsed() > Duration::from_secs(5) {
                return Err(lost(&format!("{left} events were lost")));
            }
        }
        let whole = begin.elapsed();
        match self.take(&mut events)? {
            0 => Ok(Pass { taking, whole }),
            _ => Err(io::Error::other("events were reported twice")),
        }
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        // Before the sockets, whose files it may hold.
        let _ = wakeset_fd::close(self.set);
    }
}

fn errno(error: wakeset_fd::Errno) -> io::Error {
    io::Error::from_raw_os_error(error.into_raw())
}
