//! A worker of `bench herd`: `wakeset __herd WAY ORDER LISTENER`. It serves until its standard
//! input ends, and prints what it did.

use std::ffi::c_int;
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::ptr;

use serde::{Deserialize, Serialize};
use wakeset_group::listener::{Errno, Group, Waiter};

use crate::bench::options::Order;
use crate::bench::programs::child::checked;
use crate::failure::Failure;

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
    /// Calls of accept(2), with those that found nothing.
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
    let (wakes, cpu_us) = usage(libc::RUSAGE_SELF)?;
    let mut served = Served { connections: 0, accepts: 0, wakes: 0, cpu_us: 0 };
    while waiting.wait()? {
        // SAFETY: no address is wanted.
        let fd = unsafe {
            libc::accept4(options.listener, ptr::null_mut(), ptr::null_mut(), libc::SOCK_CLOEXEC)
        };
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
    let now = usage(libc::RUSAGE_SELF)?;
    (served.wakes, served.cpu_us) = (now.0 - wakes, now.1 - cpu_us);
    Ok(served)
}

/// Voluntary context switches, and microseconds of CPU time.
pub fn usage(of: c_int) -> io::Result<(u64, u64)> {
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: a buffer for the answer.
    checked(unsafe { libc::getrusage(of, usage.as_mut_ptr()) }.into())?;
    // SAFETY: filled in.
    let usage = unsafe { usage.assume_init() };
    let microseconds = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
    Ok((usage.ru_nvcsw as u64, microseconds(usage.ru_utime) + microseconds(usage.ru_stime)))
}

/// How a worker waits, and what it keeps from wait to wait.
enum Waiting {
    Select(c_int),
    Poll(c_int),
    /// An epoll set.
    Exclusive(c_int),
    Wakeset(Box<Waiter>),
}

impl Waiting {
    fn new(options: &Options) -> io::Result<Self> {
        let listener = options.listener;
        Ok(match options.way {
            Way::Select => Waiting::Select(listener),
            Way::Poll => Waiting::Poll(listener),
            Way::Exclusive => {
                // SAFETY: a number.
                let set =
                    checked(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) }.into())? as c_int;
                watch(set, listener, libc::EPOLLIN | libc::EPOLLEXCLUSIVE)?;
                watch(set, 0, libc::EPOLLIN)?;
                Waiting::Exclusive(set)
            }
            Way::Wakeset => {
                let group = Group::new(listener, options.order.into()).map_err(|e| os_error(&e))?;
                Waiting::Wakeset(Box::new(group.waiter()))
            }
        })
    }

    /// Waits for a connection; `false` when the standard input has ended.
    fn wait(&mut self) -> io::Result<bool> {
        match self {
            Waiting::Select(listener) => select(*listener),
            Waiting::Poll(listener) => poll(*listener),
            Waiting::Exclusive(set) => epoll_wait(*set),
            Waiting::Wakeset(waiter) => {
                let mut input = [libc::pollfd { fd: 0, events: libc::POLLIN, revents: 0 }];
                waiter.wait_beside(&mut input, None).map_err(|e| os_error(&e))
            }
        }
    }
}

fn os_error(error: &Errno) -> io::Error {
    io::Error::from_raw_os_error(error.into_raw())
}

fn watch(set: c_int, fd: c_int, events: c_int) -> io::Result<()> {
    let mut event = libc::epoll_event { events: events as u32, u64: fd as u64 };
    // SAFETY: an event.
    checked(unsafe { libc::epoll_ctl(set, libc::EPOLL_CTL_ADD, fd, &mut event) }.into()).map(drop)
}

fn select(listener: c_int) -> io::Result<bool> {
    let mut read = MaybeUninit::<libc::fd_set>::zeroed();
    let none = ptr::null_mut();
    // SAFETY: all-zero is an empty set, and the numbers are small.
    unsafe {
        libc::FD_SET(0, read.as_mut_ptr());
        libc::FD_SET(listener, read.as_mut_ptr());
        checked(libc::select(listener + 1, read.as_mut_ptr(), none, none, ptr::null_mut()).into())?;
        Ok(!libc::FD_ISSET(0, read.as_ptr()))
    }
}

fn poll(listener: c_int) -> io::Result<bool> {
    let mut wanted = [0, listener].map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
    // SAFETY: two entries.
    checked(unsafe { libc::poll(wanted.as_mut_ptr(), 2, -1) }.into())?;
    Ok(wanted[0].revents == 0)
}

fn epoll_wait(set: c_int) -> io::Result<bool> {
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 2];
    // SAFETY: room for two.
    let n = checked(unsafe { libc::epoll_wait(set, events.as_mut_ptr(), 2, -1) }.into())? as usize;
    Ok(!events[..n].iter().any(|event| event.u64 == 0))
}
