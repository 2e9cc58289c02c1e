//! A worker of `bench herd`: `wakeset __herd WAY ORDER LISTENER`. It serves until its standard input ends, and prints what it did.

use std::ffi::c_int;
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::ptr;

use serde::{Deserialize, Serialize};

use crate::Failure;
use crate::bench::Order;
use crate::bench::child::checked;

/// What a client gets.
pub const REPLY: &[u8; 11] = b"hello world";

/// What `wakeset __herd` takes.
#[derive(clap::Args)]
pub struct Options {
    #[arg(value_enum)]
    way: Way,
    #[arg(value_enum)]
    order: Order,
    /// The listener's number
    listener: c_int,
}

/// How a worker waits for the listener and its standard input.
#[derive(Clone, Copy, Debug, PartialEq, clap::ValueEnum)]
pub enum Way {
    Select,
    Poll,
    Exclusive,
    Wakeset,
}

impl Way {
    pub fn name(self) -> &'static str {
        match self {
            Way::Select => "select",
            Way::Poll => "poll",
            Way::Exclusive => "exclusive",
            Way::Wakeset => "wakeset",
        }
    }
}

/// What a worker did.
#[derive(Serialize, Deserialize)]
pub struct Served {
    pub connections: u64,
    /// Calls of accept(2), also those that found nothing.
    pub accepts: u64,
    /// Voluntary context switches.
    pub wakes: u64,
    /// User and system time.
    pub cpu_us: u64,
}

/// Serves, and prints a [`Served`].
pub fn run(options: &Options) -> Result<(), Failure> {
    let served = serve(options).map_err(|e| Failure::own(format!("a worker: {e}")))?;
    println!("{}", serde_json::to_string(&served).unwrap_or_default());
    Ok(())
}

fn serve(options: &Options) -> io::Result<Served> {
    let mut waiting = Waiting::new(options)?;
    println!("ready");
    io::stdout().flush()?;
    let (wakes, cpu_us) = usage()?;
    let mut served = Served { connections: 0, accepts: 0, wakes: 0, cpu_us: 0 };
    while waiting.wait()? {
        // SAFETY: no address is wanted.
        let fd = unsafe { libc::accept4(options.listener, ptr::null_mut(), ptr::null_mut(), libc::SOCK_CLOEXEC) };
        served.accepts += 1;
        if fd < 0 {
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EAGAIN | libc::ECONNABORTED | libc::EINTR) => continue,
                _ => return Err(error),
            }
        }
        // SAFETY: the reply, and a descriptor of ours.
        unsafe {
            let sent = libc::send(fd, REPLY.as_ptr().cast(), REPLY.len(), libc::MSG_NOSIGNAL);
            libc::close(fd);
            checked(sent as i64)?;
        }
        served.connections += 1;
    }
    let now = usage()?;
    (served.wakes, served.cpu_us) = (now.0 - wakes, now.1 - cpu_us);
    Ok(served)
}

/// Voluntary context switches, and microseconds of CPU time.
fn usage() -> io::Result<(u64, u64)> {
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: a place for it.
    checked(unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) }.into())?;
    // SAFETY: filled in.
    let usage = unsafe { usage.assume_init() };
    let microseconds = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
    Ok((usage.ru_nvcsw as u64, microseconds(usage.ru_utime) + microseconds(usage.ru_stime)))
}

/// What a worker keeps from wait to wait.
struct Waiting {
    way: Way,
    order: Order,
    listener: c_int,
    /// An epoll set, of the ways that have one.
    set: c_int,
    /// Whether the listener was reported since it was put at the tail of the queue.
    was_woken: bool,
}

impl Waiting {
    fn new(options: &Options) -> io::Result<Self> {
        let &Options { way, order, listener } = options;
        let mut waiting = Waiting { way, order, listener, set: -1, was_woken: false };
        if matches!(way, Way::Exclusive | Way::Wakeset) {
            // SAFETY: a number.
            waiting.set = checked(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) }.into())? as c_int;
            waiting.change(libc::EPOLL_CTL_ADD, listener, libc::EPOLLIN | libc::EPOLLEXCLUSIVE)?;
            waiting.change(libc::EPOLL_CTL_ADD, 0, libc::EPOLLIN)?;
        }
        Ok(waiting)
    }

    fn change(&self, operation: c_int, fd: c_int, events: c_int) -> io::Result<()> {
        let mut event = libc::epoll_event { events: events as u32, u64: fd as u64 };
        // SAFETY: an event.
        checked(unsafe { libc::epoll_ctl(self.set, operation, fd, &mut event) }.into()).map(drop)
    }

    /// Waits for a connection; `false` when the standard input has ended.
    fn wait(&mut self) -> io::Result<bool> {
        match self.way {
            Way::Select => self.select(),
            Way::Poll => self.poll(),
            Way::Exclusive => self.epoll_wait(),
            Way::Wakeset => {
                if self.was_woken && self.order == Order::Fifo {
                    // To the tail of the listener's queue; the addition looks whether there is a connection.
                    self.change(libc::EPOLL_CTL_DEL, self.listener, 0)?;
                    self.change(libc::EPOLL_CTL_ADD, self.listener, libc::EPOLLIN | libc::EPOLLEXCLUSIVE)?;
                }
                self.was_woken = true;
                self.epoll_wait()
            }
        }
    }

    fn select(&self) -> io::Result<bool> {
        let mut read = MaybeUninit::<libc::fd_set>::zeroed();
        let none = ptr::null_mut();
        // SAFETY: all-zero is an empty set, and the numbers are small.
        unsafe {
            libc::FD_SET(0, read.as_mut_ptr());
            libc::FD_SET(self.listener, read.as_mut_ptr());
            checked(libc::select(self.listener + 1, read.as_mut_ptr(), none, none, ptr::null_mut()).into())?;
            Ok(!libc::FD_ISSET(0, read.as_ptr()))
        }
    }

    fn poll(&self) -> io::Result<bool> {
        let mut wanted = [0, self.listener].map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
        // SAFETY: two entries.
        checked(unsafe { libc::poll(wanted.as_mut_ptr(), 2, -1) }.into())?;
        Ok(wanted[0].revents == 0)
    }

    fn epoll_wait(&self) -> io::Result<bool> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 2];
        // SAFETY: room for two.
        let n = checked(unsafe { libc::epoll_wait(self.set, events.as_mut_ptr(), 2, -1) }.into())? as usize;
        Ok(!events[..n].iter().any(|event| event.u64 == 0))
    }
}
