//! Two threads that wake each other, by one of several means.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use libc::{EPOLL_CTL_ADD, c_int, epoll_event};

use crate::bench::measure::joined::joined;
use crate::bench::programs::child::checked;

/// What the threads wait in, and what they are woken by.
#[derive(Clone, Copy, Debug, PartialEq, clap::ValueEnum)]
pub enum Means {
    /// eventfd and epoll, in sets without kernel descriptors
    Epoll,
    /// The same, with a UDP socket in each set
    EpollSocket,
    /// The same, with a thousand UDP sockets in each set
    #[value(name = "epoll-1000-sockets")]
    EpollManySockets,
    /// Blocking reads of eventfds
    ReadEventfd,
    /// Blocking reads of pipes
    ReadPipe,
    /// eventfd and poll(2)
    Poll,
    /// A pipe and select(2)
    Select,
    /// A word in memory and futex(2): the limit of what sleeps
    Futex,
    /// A word in memory that both read on and on: the limit when awake
    Spin,
}

impl Means {
    /// Kernel descriptors in each set, of which none becomes ready.
    fn idle_sockets(self) -> usize {
        match self {
            Means::EpollSocket => 1,
            Means::EpollManySockets => 1000,
            _ => 0,
        }
    }

    /// Descriptors that a process needs for this, a few spare ones included.
    pub fn descriptors(self) -> usize {
        self.idle_sockets() + 64
    }
}

/// Round trips between two readings of the clock.
const STRETCH: u64 = 16;

/// What one thread waits for, on cache lines of its own.
#[repr(align(128))]
struct Side {
    /// What it reads, what the other one writes, and the set with the first of them.
    read: c_int,
    write: c_int,
    set: c_int,
    /// 1 once it has been woken.
    word: AtomicU32,
}

impl Side {
    fn new(means: Means, sockets: &[c_int]) -> io::Result<Self> {
        let [read, write] = match means {
            Means::Futex | Means::Spin => [-1; 2],
            Means::ReadPipe | Means::Select => pipe()?,
            Means::ReadEventfd => [eventfd(0)?; 2],
            _ => [eventfd(libc::EFD_NONBLOCK)?; 2],
        };
        let set = match means {
            Means::Epoll | Means::EpollSocket | Means::EpollManySockets => {
                let set = epoll()?;
                for &fd in sockets.iter().chain([&read]) {
                    add(set, fd)?;
                }
                set
            }
            _ => -1,
        };
        Ok(Side { read, write, set, word: AtomicU32::new(0) })
    }

    /// Wakes the thread that waits for this side.
    fn wake(&self, means: Means) -> io::Result<()> {
        match means {
            Means::Spin => self.word.store(1, Ordering::Release),
            Means::Futex => {
                self.word.store(1, Ordering::Release);
                let wake = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
                // SAFETY: a word of ours.
                checked(unsafe { libc::syscall(libc::SYS_futex, &raw const self.word, wake, 1) })?;
            }
            _ => {
                let one = 1_u64;
                // SAFETY: eight bytes of our own.
                checked(unsafe { libc::write(self.write, (&raw const one).cast(), 8) } as i64)?;
            }
        }
        Ok(())
    }

    /// Waits until the other thread has woken this side.
    fn wait(&self, means: Means) -> io::Result<()> {
        match means {
            Means::Spin => {
                while self.word.swap(0, Ordering::Acquire) == 0 {
                    while self.word.load(Ordering::Relaxed) == 0 {
                        std::hint::spin_loop();
                    }
                }
                return Ok(());
            }
            Means::Futex => {
                let wait = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
                while self.word.swap(0, Ordering::Acquire) == 0 {
                    let (word, forever) =
                        (&raw const self.word, std::ptr::null::<libc::timespec>());
                    // SAFETY: a word of ours. EAGAIN and EINTR are answered by the loop.
                    unsafe { libc::syscall(libc::SYS_futex, word, wait, 0, forever) };
                }
                return Ok(());
            }
            Means::Poll => {
                let mut wanted = libc::pollfd { fd: self.read, events: libc::POLLIN, revents: 0 };
                // SAFETY: one entry.
                checked(unsafe { libc::poll(&raw mut wanted, 1, -1) }.into())?;
            }
            Means::Select => select(self.read)?,
            Means::Epoll | Means::EpollSocket | Means::EpollManySockets => {
                let mut events = [epoll_event { events: 0, u64: 0 }; 8];
                // SAFETY: room for eight.
                checked(unsafe { libc::epoll_wait(self.set, events.as_mut_ptr(), 8, -1) }.into())?;
            }
            Means::ReadEventfd | Means::ReadPipe => {}
        }
        let mut count = 0_u64;
        // SAFETY: room for eight bytes.
        match checked(unsafe { libc::read(self.read, (&raw mut count).cast(), 8) } as i64)? {
            8 if count == 1 => Ok(()),
            _ => Err(io::Error::other("what was written was not read")),
        }
    }
}

/// Both threads' sides.
pub struct Pair {
    means: Means,
    own: Side,
    other: Side,
    over: AtomicBool,
}

impl Pair {
    pub fn new(means: Means) -> io::Result<Self> {
        let sockets =
            (0..means.idle_sockets()).map(|_| socket()).collect::<io::Result<Vec<_>>>()?;
        let [own, other] = [Side::new(means, &sockets)?, Side::new(means, &sockets)?];
        Ok(Pair { means, own, other, over: AtomicBool::new(false) })
    }

    /// Calls `measure` while another thread answers.
    pub fn run<T>(&self, measure: impl FnOnce(&Self) -> io::Result<T>) -> io::Result<T> {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let answered = self.answer();
                if answered.is_err() {
                    self.over.store(true, Ordering::SeqCst);
                    self.own.wake(self.means)?;
                }
                answered
            });
            let measured = measure(self);
            self.over.store(true, Ordering::SeqCst);
            self.other.wake(self.means)?;
            joined(thread)?;
            measured
        })
    }

    /// The other thread.
    fn answer(&self) -> io::Result<()> {
        loop {
            self.other.wait(self.means)?;
            if self.over.load(Ordering::SeqCst) {
                return Ok(());
            }
            self.own.wake(self.means)?;
        }
    }

    /// Makes round trips for about this time. Returns how many.
    pub fn go_on(&self, time: Duration) -> io::Result<u64> {
        let begin = Instant::now();
        let mut trips = 0;
        while begin.elapsed() < time {
            for _ in 0..STRETCH {
                self.other.wake(self.means)?;
                self.own.wait(self.means)?;
                if self.over.load(Ordering::Relaxed) {
                    return Err(io::Error::other("the other thread has failed"));
                }
            }
            trips += STRETCH;
        }
        Ok(trips)
    }
}

fn eventfd(flags: c_int) -> io::Result<c_int> {
    // SAFETY: numbers only.
    checked(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | flags) }.into()).map(|fd| fd as c_int)
}

fn pipe() -> io::Result<[c_int; 2]> {
    let mut ends = [-1; 2];
    // SAFETY: room for two descriptors.
    checked(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }.into())?;
    Ok(ends)
}

/// Sleeps in select(2) until it can be read.
fn select(fd: c_int) -> io::Result<()> {
    // SAFETY: an empty set is all zeros, and this is one of few descriptors.
    let mut read = unsafe {
        let mut read = std::mem::zeroed();
        libc::FD_SET(fd, &raw mut read);
        read
    };
    let (none, forever) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: a set of our own.
    checked(unsafe { libc::select(fd + 1, &raw mut read, none, none, forever) }.into()).map(drop)
}

/// A socket that nothing is sent to.
fn socket() -> io::Result<c_int> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
    // SAFETY: numbers only.
    checked(unsafe { libc::socket(libc::AF_INET, kind, 0) }.into()).map(|fd| fd as c_int)
}

fn epoll() -> io::Result<c_int> {
    // SAFETY: a number.
    checked(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) }.into()).map(|fd| fd as c_int)
}

fn add(set: c_int, fd: c_int) -> io::Result<()> {
    let mut event = epoll_event { events: libc::EPOLLIN as u32, u64: 1 };
    // SAFETY: an event of our own.
    checked(unsafe { libc::epoll_ctl(set, EPOLL_CTL_ADD, fd, &raw mut event) }.into()).map(drop)
}
