//! What a spin needs of the machine: pauses, yields, which processor this is, how many there are,
//! and how long threads may spin.

use crate::sync::atomics::{AtomicU32, AtomicU64, Ordering};
use crate::sync::inheritance::is_real_time;
use crate::sync::line::Line;
use core::time::Duration;
use syscalls::{Sysno, syscall};

/// One yield: sched_yield(2).
pub(crate) fn yield_now() {
    rustix::thread::sched_yield();
}

/// Pauses `times` times, some nanoseconds each.
#[inline]
pub(crate) fn pause(times: u32) {
    for _ in 0..times {
        core::hint::spin_loop();
    }
}

/// How long a thread spins at most (ns) when nothing else was asked for and wake-ups take no longer
/// than they do on most machines.
pub(crate) const AUTO_LIMIT: u64 = 30_000;

/// How long a thread may spin before it sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    Off,
    /// As long as it pays.
    Auto,
    /// So many nanoseconds, each time.
    Nanos(u64),
}

/// As [`set_spin_limit`] takes it.
static LIMIT: AtomicU32 = AtomicU32::new(AUTO);
const AUTO: u32 = u32::MAX;

/// The longest spin in microseconds: a second.
pub const LONGEST_SPIN: u32 = 1_000_000;

/// How long threads of this process look for what they wait for before they sleep: `Some`
/// microseconds in each wait (0: not at all; [`LONGEST_SPIN`] at most), or `None`, the default, for
/// as long as it pays: at most a quarter more than a wake-up takes on this machine, between 30 and
/// 100 microseconds, or 50 to 200 with other threads that wake each other.
///
/// It concerns [`EventPoll::wait`](crate::EventPoll::wait), waits on an
/// [`EventRing`](crate::EventRing), and reads and writes that block. A thread that spins finds an
/// event within a microsecond, where a sleep and its wake-up take 20 to 50; it takes processor
/// time instead. Nothing spins in a process that may use one processor only, nor in a real-time
/// thread. A signal handler ends a call with [`Error::Interrupted`](crate::Error::Interrupted) if
/// it runs while the thread sleeps, not while it spins. Any thread may call this at any time.
pub fn set_spin_limit(micros: Option<u32>) {
    LIMIT.store(micros.map_or(AUTO, |micros| micros.min(LONGEST_SPIN)), Ordering::Relaxed);
}

/// How long each wait spins, if [`set_spin_limit`] has set that.
#[doc(hidden)]
pub fn spin_limit() -> Option<Duration> {
    match limit() {
        Limit::Nanos(limit) => Some(Duration::from_nanos(limit)),
        Limit::Off | Limit::Auto => None,
    }
}

#[inline]
pub(crate) fn limit() -> Limit {
    match LIMIT.load(Ordering::Relaxed) {
        0 => Limit::Off,
        AUTO => Limit::Auto,
        micros => Limit::Nanos(u64::from(micros) * 1_000),
    }
}

/// How much processor time the calling thread has had (ns): clock_gettime(2), a system call.
/// `None` where that is refused.
pub(crate) fn thread_time() -> Option<u64> {
    const THREAD_CPUTIME: usize = 3;
    processor_time(THREAD_CPUTIME)
}

/// The same of the process.
pub(crate) fn process_time() -> Option<u64> {
    const PROCESS_CPUTIME: usize = 2;
    processor_time(PROCESS_CPUTIME)
}

/// Whether another thread of this process runs at this moment, and so has not gone to sleep: the
/// clock of its processor time goes on. `None` where the kernel does not say, or there is no such
/// thread any more.
pub(crate) fn runs(thread: u32) -> Option<bool> {
    let before = time_of(thread)?;
    Some(time_of(thread)? != before)
}

/// How much processor time another thread of this process has had (ns). `None` as in [`runs`].
pub(crate) fn time_of(thread: u32) -> Option<u64> {
    // As pthread_getcpuclockid(3) makes it: the scheduler's clock of one thread.
    const OF_THREAD: i32 = 4;
    const BY_SCHEDULER: i32 = 2;
    let clock = !(thread as i32) << 3 | OF_THREAD | BY_SCHEDULER;
    processor_time(clock as usize)
}

fn processor_time(clock: usize) -> Option<u64> {
    let mut time = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes a time there.
    unsafe { syscall!(Sysno::clock_gettime, clock, &raw mut time) }.ok()?;
    Some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// The processor that the calling thread runs on.
#[inline]
pub(crate) fn processor() -> u16 {
    rustix::thread::sched_getcpu() as u16
}

/// How many processors the process may use; 0 before the first look.
static PROCESSORS: AtomicU32 = AtomicU32::new(0);

/// Until when a thread spins at most on each processor (ns; a time that has passed: none does),
/// modulo the number of processors and of places here.
///
/// A count would stay too high after a fork, and where a handler leaves a spin by siglongjmp(3).
static SPINNERS: [Line<AtomicU64>; PLACES] = [const { Line(AtomicU64::new(0)) }; PLACES];
const PLACES: usize = 64;

/// Whether a thread spins on this processor.
pub(crate) fn is_spun_on(processor: u16, now: u64) -> bool {
    let places = (PROCESSORS.load(Ordering::Relaxed) as usize).clamp(1, PLACES);
    SPINNERS[usize::from(processor) % places].load(Ordering::Relaxed) > now
}

/// How many spins begin, or are refused, between two looks around.
const LOOKS: u32 = 64;

/// Whether the process may use several processors, as far as is known.
pub(crate) fn has_processors() -> bool {
    let processors = PROCESSORS.load(Ordering::Relaxed);
    (if processors == 0 { look_around() } else { processors }) > 1
}

/// Asks how many processors the thread may use: sched_getaffinity(2). One, where that is refused.
#[cold]
fn look_around() -> u32 {
    let allowed = rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count());
    PROCESSORS.store(allowed.max(1), Ordering::Relaxed);
    allowed.max(1)
}

/// A thread that spins, for the others to see.
#[derive(Debug)]
pub(crate) struct Spinner {
    place: usize,
    /// How many places are in use.
    places: usize,
}

impl Spinner {
    /// `None` where spinning can only do harm: on one processor, or in a real-time thread, which a
    /// waker of a lower priority cannot push aside. Before a `long` spin, that is asked each time;
    /// before others, which end within microseconds, now and then.
    pub(crate) fn begin(long: bool) -> Option<Self> {
        static BEGUN: AtomicU32 = AtomicU32::new(0);
        let begun = BEGUN.load(Ordering::Relaxed);
        BEGUN.store(begun.wrapping_add(1), Ordering::Relaxed);
        let is_due = begun.is_multiple_of(LOOKS);
        let processors = if is_due { look_around() } else { PROCESSORS.load(Ordering::Relaxed) };
        if (is_due || long) && is_real_time() {
            return None;
        }
        let places = (processors as usize).min(PLACES);
        (places > 1).then(|| Self { place: usize::from(processor()) % places, places })
    }

    /// It spins until `end` at most.
    pub(crate) fn spins_until(&self, end: u64) {
        SPINNERS[self.place].store(end, Ordering::Relaxed);
    }

    /// Whether threads spin on all processors, so that none is left for one that does something.
    pub(crate) fn is_one_too_many(&self, now: u64) -> bool {
        (1..self.places)
            .all(|next| SPINNERS[(self.place + next) % self.places].load(Ordering::Relaxed) > now)
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.spins_until(0);
    }
}
