//! The program that `bench uffd` measures: `wakeset __uffd …`. It uses nothing but libc, so that it
//! is the same plain and under the interposer; the pool's side alone links ours.

use std::ffi::{c_int, c_ulong, c_void};
use std::fmt;
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use procfs::ProcResult;
use procfs::process::Process;
use serde::{Deserialize, Serialize};
use wakeset_group::fault::{EVENT_PAGEFAULT, Message, Pool};

use super::side::{Side, Wait};
use crate::bench::options::Order;
use crate::bench::programs::child::checked;
use crate::failure::Failure;

/// What `wakeset __uffd` takes.
#[derive(clap::Args)]
pub struct Options {
    #[arg(value_enum)]
    side: Side,
    #[command(flatten)]
    point: Point,
}

/// What is measured on every side.
#[derive(clap::Args)]
pub struct Point {
    #[arg(value_enum)]
    pub wait: Wait,
    #[arg(value_enum)]
    pub order: Order,
    /// Service threads
    pub handlers: usize,
    /// Threads that touch memory
    pub workers: usize,
    /// How much memory they touch
    pub megabytes: usize,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "workers={},{}", self.workers, self.wait.name())
    }
}

/// The command line for that.
pub fn arguments(side: Side, point: &Point) -> Vec<String> {
    let side = format!("{side:?}").to_lowercase();
    let numbers = [point.handlers, point.workers, point.megabytes].map(|n| n.to_string());
    let words = ["__uffd", &side, point.wait.name(), point.order.name()].map(String::from);
    words.into_iter().chain(numbers).collect()
}

/// What a run came to.
#[derive(Serialize, Deserialize)]
pub struct Sample {
    pub milliseconds: f64,
    /// Messages that were read.
    pub messages: u64,
    /// Voluntary context switches of the service threads.
    pub sleeps: u64,
    /// Reads that found nothing though poll had said that there was something.
    pub empty: u64,
    /// How often another thread became the leader, where that is known.
    pub handed_on: Option<u64>,
    /// Messages that the busiest and the least busy service thread read.
    pub busiest: u64,
    pub least_busy: u64,
}

impl Sample {
    /// Sleeps that ended with nothing to do. Under the interposer the leader changes at most once
    /// for each message; how often it did is not known.
    pub fn spurious(&self, side: Side) -> u64 {
        let handed_on = match side {
            Side::Kernel => 0,
            Side::Run | Side::Pool => self.handed_on.unwrap_or(self.messages),
        };
        self.empty.max(self.sleeps.saturating_sub(self.messages + handed_on))
    }
}

const UFFD_API: u64 = 0xaa;
const UFFDIO_API: c_ulong = 0xc018_aa3f;
const UFFDIO_REGISTER: c_ulong = 0xc020_aa00;
const UFFDIO_COPY: c_ulong = 0xc028_aa03;
const REGISTER_MODE_MISSING: u64 = 1;
const USER_MODE_ONLY: c_int = 1;
const PAGE: usize = 4096;

/// Whether this process may have a userfaultfd at all.
pub fn is_permitted() -> io::Result<()> {
    let fd = open(0)?;
    // SAFETY: ours.
    unsafe { libc::close(fd) };
    Ok(())
}

fn open(flags: c_int) -> io::Result<c_int> {
    let opened = |flags: c_int| {
        // SAFETY: numbers only.
        checked(unsafe { libc::syscall(libc::SYS_userfaultfd, flags | libc::O_CLOEXEC) })
    };
    // Faults of user space alone need no privileges, and this program makes no others.
    let fd = opened(flags | USER_MODE_ONLY).or_else(|_| opened(flags))? as c_int;
    let mut api = [UFFD_API, 0, 0];
    // SAFETY: `struct uffdio_api`.
    checked(unsafe { libc::ioctl(fd, UFFDIO_API, api.as_mut_ptr()) }.into())?;
    Ok(fd)
}

/// What the threads share.
struct Stage {
    fd: c_int,
    base: usize,
    /// By service thread.
    messages: Vec<AtomicU64>,
    threads: Vec<AtomicI32>,
    empty: AtomicU64,
    ready: Barrier,
    pool: Option<Pool>,
}

/// Runs it and prints a [`Sample`].
pub fn run(options: &Options) -> Result<(), Failure> {
    let sample = measure(options).map_err(|e| Failure::own(format!("userfaultfd: {e}")))?;
    println!("{}", serde_json::to_string(&sample).unwrap_or_default());
    Ok(())
}

fn measure(options: &Options) -> io::Result<Sample> {
    let Options { side, point } = options;
    let pages = point.megabytes.max(1) << 20 >> PAGE.trailing_zeros();
    let stage = Arc::new(Stage::new(*side, point, pages)?);
    for i in 0..point.handlers {
        let (stage, wait) = (Arc::clone(&stage), point.wait);
        // The service threads end with the process: nothing else ends one that waits in the kernel.
        std::thread::Builder::new().stack_size(256 << 10).spawn(move || stage.serve(i, wait))?;
    }
    stage.ready.wait();
    // Let them all go to sleep first.
    std::thread::sleep(Duration::from_millis(100));
    let sleeps_before = stage.sleeps()?;
    let handed_on_before = stage.pool.as_ref().map(Pool::handed_on);
    let milliseconds = touch(stage.base, pages, point.workers);
    let handed_on = stage.pool.as_ref().map(Pool::handed_on).zip(handed_on_before);
    let by_thread: Vec<_> =
        stage.messages.iter().map(|count| count.load(Ordering::Relaxed)).collect();
    Ok(Sample {
        milliseconds,
        messages: by_thread.iter().sum(),
        sleeps: stage.sleeps()? - sleeps_before,
        empty: stage.empty.load(Ordering::Relaxed),
        handed_on: handed_on.map(|(now, before)| now - before),
        busiest: by_thread.iter().copied().max().unwrap_or(0),
        least_busy: by_thread.iter().copied().min().unwrap_or(0),
    })
}

/// Reads a byte of every page, in so many threads. Returns how many milliseconds that took.
fn touch(base: usize, pages: usize, workers: usize) -> f64 {
    let begin = Instant::now();
    let share = pages.div_ceil(workers);
    std::thread::scope(|scope| {
        for worker in 0..workers {
            let range = (worker * share).min(pages)..((worker + 1) * share).min(pages);
            scope.spawn(move || {
                for page in range {
                    let byte = ptr::with_exposed_provenance::<u8>(base + page * PAGE);
                    // SAFETY: a byte of the mapping.
                    unsafe { byte.read_volatile() };
                }
            });
        }
    });
    begin.elapsed().as_secs_f64() * 1e3
}

fn map(len: usize) -> io::Result<usize> {
    let (protection, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a fresh mapping.
    let base =
        unsafe { libc::mmap(ptr::null_mut(), len, protection, flags | libc::MAP_NORESERVE, -1, 0) };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // One fault for each page, whatever the machine does with large ones.
    // SAFETY: our mapping.
    unsafe { libc::madvise(base, len, libc::MADV_NOHUGEPAGE) };
    Ok(base.expose_provenance())
}

impl Stage {
    /// A userfaultfd with so many pages registered.
    fn new(side: Side, point: &Point, pages: usize) -> io::Result<Self> {
        let fd = open(if point.wait == Wait::Poll { libc::O_NONBLOCK } else { 0 })?;
        let base = map(pages * PAGE)?;
        let mut register = [base as u64, (pages * PAGE) as u64, REGISTER_MODE_MISSING, 0];
        // SAFETY: `struct uffdio_register`.
        checked(unsafe { libc::ioctl(fd, UFFDIO_REGISTER, register.as_mut_ptr()) }.into())?;
        let pool = match side {
            Side::Pool => Some(
                Pool::new(fd, point.order.into())
                    .map_err(|e| io::Error::from_raw_os_error(e.into_raw()))?,
            ),
            Side::Kernel | Side::Run => None,
        };
        Ok(Stage {
            fd,
            base,
            messages: (0..point.handlers).map(|_| AtomicU64::new(0)).collect(),
            threads: (0..point.handlers).map(|_| AtomicI32::new(0)).collect(),
            empty: AtomicU64::new(0),
            ready: Barrier::new(point.handlers + 1),
            pool,
        })
    }

    fn serve(&self, i: usize, wait: Wait) {
        // SAFETY: no arguments.
        self.threads[i].store(unsafe { libc::gettid() }, Ordering::Relaxed);
        let page = vec![0x5a_u8; PAGE];
        let mut message = [Message::default()];
        self.ready.wait();
        loop {
            let got = match &self.pool {
                Some(pool) => pool.next(&mut message, None).is_ok(),
                None => self.next(&mut message, wait),
            };
            if got && message[0].event() == EVENT_PAGEFAULT {
                // Before the worker can go on, and with the last page end the run.
                self.messages[i].fetch_add(1, Ordering::Relaxed);
                self.copy(message[0].address(), &page);
            }
        }
    }

    fn next(&self, message: &mut [Message; 1], wait: Wait) -> bool {
        if wait == Wait::Poll {
            let mut wanted = libc::pollfd { fd: self.fd, events: libc::POLLIN, revents: 0 };
            // SAFETY: one entry.
            if unsafe { libc::poll(&mut wanted, 1, -1) } != 1 {
                return false;
            }
        }
        let buffer = message.as_mut_ptr().cast::<c_void>();
        // SAFETY: a buffer for a message.
        let got = unsafe { libc::read(self.fd, buffer, size_of_val(message)) }
            == size_of_val(message) as isize;
        if !got {
            self.empty.fetch_add(1, Ordering::Relaxed);
        }
        got
    }

    fn copy(&self, address: u64, page: &[u8]) {
        let start = address & !(PAGE as u64 - 1);
        debug_assert!(start >= self.base as u64);
        let mut copy = [start, page.as_ptr().expose_provenance() as u64, PAGE as u64, 0, 0];
        // SAFETY: `struct uffdio_copy`. It fails only where the page is there already.
        unsafe { libc::ioctl(self.fd, UFFDIO_COPY, copy.as_mut_ptr()) };
    }

    /// Voluntary context switches of the service threads so far.
    fn sleeps(&self) -> io::Result<u64> {
        let process = Process::myself().map_err(io::Error::other)?;
        let switches = |thread: &AtomicI32| {
            let task = process.task_from_tid(thread.load(Ordering::Relaxed))?;
            Ok(task.status()?.voluntary_ctxt_switches.unwrap_or(0))
        };
        let sum = self.threads.iter().map(switches).sum::<ProcResult<u64>>();
        sum.map_err(io::Error::other)
    }
}
