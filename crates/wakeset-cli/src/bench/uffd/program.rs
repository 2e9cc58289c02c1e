//! The program that `bench uffd` measures: `wakeset __uffd …`. It uses nothing but libc, so that it is the same plain and under the
//! interposer; the pool's side alone links ours.

use std::ffi::{c_int, c_ulong, c_void};
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use wakeset_group::fault::{EVENT_PAGEFAULT, Message, Pool};

use super::{Side, Wait};
use crate::Failure;
use crate::bench::Order;
use crate::bench::child::checked;

/// What `wakeset __uffd` takes.
#[derive(clap::Args)]
pub struct Options {
    #[arg(value_enum)]
    side: Side,
    #[arg(value_enum)]
    wait: Wait,
    #[arg(value_enum)]
    order: Order,
    /// Service threads
    handlers: usize,
    /// Threads that touch memory
    workers: usize,
    /// How much memory they touch
    megabytes: usize,
}

/// The command line for that.
pub fn arguments(
    side: Side,
    wait: Wait,
    order: Order,
    handlers: usize,
    workers: usize,
    megabytes: usize,
) -> Vec<String> {
    let side = format!("{side:?}").to_lowercase();
    let numbers = [handlers, workers, megabytes].map(|number| number.to_string());
    let words = ["__uffd", &side, wait.name(), order.name()].map(String::from);
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
    /// How often the turn went to another thread, where that is known.
    pub handed_on: Option<u64>,
    /// Messages that the busiest and the least busy service thread read.
    pub busiest: u64,
    pub least_busy: u64,
}

impl Sample {
    /// Sleeps that ended with nothing to do. The interposer hands on at most once for each message, and does not say how often.
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

/// Whether we may have a userfaultfd at all.
pub fn is_permitted() -> io::Result<()> {
    let fd = open(0)?;
    // SAFETY: ours.
    unsafe { libc::close(fd) };
    Ok(())
}

fn open(flags: c_int) -> io::Result<c_int> {
    // SAFETY: numbers only.
    let opened = |flags: c_int| checked(unsafe { libc::syscall(libc::SYS_userfaultfd, flags | libc::O_CLOEXEC) });
    // Anybody may serve faults of user space alone, which is all we make.
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
    let fd = open(if options.wait == Wait::Poll { libc::O_NONBLOCK } else { 0 })?;
    let pages = options.megabytes.max(1) << 20 >> PAGE.trailing_zeros();
    let base = map(pages * PAGE)?;
    let mut register = [base as u64, (pages * PAGE) as u64, REGISTER_MODE_MISSING, 0];
    // SAFETY: `struct uffdio_register`.
    checked(unsafe { libc::ioctl(fd, UFFDIO_REGISTER, register.as_mut_ptr()) }.into())?;
    let order = options.order.into();
    let pool = match options.side {
        Side::Pool => Some(Pool::new(fd, order).map_err(|e| io::Error::from_raw_os_error(e.into_raw()))?),
        Side::Kernel | Side::Run => None,
    };
    let stage = Arc::new(Stage {
        fd,
        base,
        messages: (0..options.handlers).map(|_| AtomicU64::new(0)).collect(),
        threads: (0..options.handlers).map(|_| AtomicI32::new(0)).collect(),
        empty: AtomicU64::new(0),
        ready: Barrier::new(options.handlers + 1),
        pool,
    });
    for i in 0..options.handlers {
        let stage = Arc::clone(&stage);
        let wait = options.wait;
        // They end with the process: one that waits in the kernel can be ended in no other way.
        std::thread::Builder::new().stack_size(256 << 10).spawn(move || stage.serve(i, wait))?;
    }
    stage.ready.wait();
    // Let them all go to sleep first.
    std::thread::sleep(Duration::from_millis(100));
    let sleeps_before = stage.sleeps()?;
    let handed_on_before = stage.pool.as_ref().map(Pool::handed_on);
    let begin = Instant::now();
    let share = pages.div_ceil(options.workers);
    std::thread::scope(|scope| {
        for worker in 0..options.workers {
            let range = (worker * share).min(pages)..((worker + 1) * share).min(pages);
            scope.spawn(move || {
                for page in range {
                    // SAFETY: a byte of the mapping.
                    unsafe { ptr::with_exposed_provenance::<u8>(base + page * PAGE).read_volatile() };
                }
            });
        }
    });
    let milliseconds = begin.elapsed().as_secs_f64() * 1e3;
    let handed_on = stage.pool.as_ref().map(Pool::handed_on).zip(handed_on_before).map(|(now, before)| now - before);
    let by_thread: Vec<_> = stage.messages.iter().map(|count| count.load(Ordering::Relaxed)).collect();
    Ok(Sample {
        milliseconds,
        messages: by_thread.iter().sum(),
        sleeps: stage.sleeps()? - sleeps_before,
        empty: stage.empty.load(Ordering::Relaxed),
        handed_on,
        busiest: by_thread.iter().copied().max().unwrap_or(0),
        least_busy: by_thread.iter().copied().min().unwrap_or(0),
    })
}

fn map(len: usize) -> io::Result<usize> {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a fresh mapping.
    let base = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags | libc::MAP_NORESERVE, -1, 0) };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // One fault for each page, whatever the machine does with large ones.
    // SAFETY: our mapping.
    unsafe { libc::madvise(base, len, libc::MADV_NOHUGEPAGE) };
    Ok(base.expose_provenance())
}

impl Stage {
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
        let place = message.as_mut_ptr().cast::<c_void>();
        // SAFETY: a place for a message.
        let got = unsafe { libc::read(self.fd, place, size_of_val(message)) } == size_of_val(message) as isize;
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
        let mut sum = 0;
        for thread in &self.threads {
            let status = std::fs::read_to_string(format!("/proc/self/task/{}/status", thread.load(Ordering::Relaxed)))?;
            let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            sum += line.and_then(|count| count.trim().parse::<u64>().ok()).unwrap_or(0);
        }
        Ok(sum)
    }
}
