//! System calls that [`kernel`] answers.

#[path = "../../src/sys/births/exclusion.rs"]
pub(crate) mod births_exclusion;
#[path = "../../src/sys/cancel.rs"]
pub mod cancel;
#[path = "../../src/sys/handled.rs"]
pub mod handled;
pub(crate) mod signal_guard;
#[path = "../../src/sys/steps.rs"]
pub mod steps;
pub(crate) mod sync;
pub(crate) mod tallies;
#[path = "../../src/sys/user.rs"]
pub mod user;
#[path = "../../src/sys/vforked/word.rs"]
pub(crate) mod vforked_word;

use crate::rooms::kernel::{ALARM, BELL, KERNEL};
use core::cell::Cell;
use core::ffi::c_int;
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, epoll_event, itimerspec, pollfd, timespec};
pub(crate) use syscalls::Errno;

loom::thread_local! {
    static NAME: Cell<u32> = Cell::new(0);
}

pub(crate) fn thread_name() -> u32 {
    NAME.with(Cell::get)
}

pub(crate) fn set_thread_name(name: u32) {
    NAME.with(|cell| cell.set(name));
}

pub(crate) mod complaint {
    use super::Errno;
    use core::ffi::c_int;

    pub(crate) fn of_watch(_: c_int, fd: c_int, error: Errno) {
        panic!("the kernel epoll does not take {fd}: {error:?}")
    }
}

pub(crate) const SIGSET_BYTES: usize = 8;

pub(crate) fn epoll_ctl(
    _: c_int,
    op: c_int,
    fd: c_int,
    event: *const epoll_event,
) -> Result<(), Errno> {
    match op {
        EPOLL_CTL_ADD => {
            // SAFETY: an addition brings an event.
            let event = unsafe { event.read_unaligned() };
            KERNEL.add(fd, event.events, event.u64)
        }
        EPOLL_CTL_DEL => KERNEL.remove(fd),
        _ => unreachable!("nobody changes a watch in the kernel"),
    }
}

pub(crate) fn eventfd(_: u32, _: c_int) -> Result<c_int, Errno> {
    KERNEL.open(BELL);
    Ok(BELL)
}

/// Of a doorbell: rings it.
pub(crate) fn write(fd: c_int, _: *const u8, len: usize) -> Result<usize, Errno> {
    assert_eq!(fd, BELL);
    KERNEL.ring();
    Ok(len)
}

/// Of the alarm: no doorbell is used again.
pub(crate) fn read(fd: c_int, _: *mut u8, len: usize) -> Result<usize, Errno> {
    assert_eq!(fd, ALARM);
    KERNEL.silence_alarm();
    Ok(len)
}

/// Of the alarm.
pub(crate) fn timerfd_settime(
    fd: c_int,
    _: c_int,
    new: *const itimerspec,
    _: *mut itimerspec,
) -> Result<(), Errno> {
    assert_eq!(fd, ALARM);
    // SAFETY: the caller gives a setting.
    let value = unsafe { new.read() }.it_value;
    KERNEL.set_alarm(value.tv_sec != 0 || value.tv_nsec != 0);
    Ok(())
}

pub(crate) fn close(_: c_int) -> Result<(), Errno> {
    unreachable!("the program has numbers enough")
}

/// The one call that may be refused makes the alarm.
pub(crate) mod refusable {
    use super::{ALARM, Errno, KERNEL};

    pub(crate) fn make_alarm() -> Result<usize, Errno> {
        KERNEL.open(ALARM);
        Ok(ALARM as usize)
    }

    macro_rules! refusable {
        (timerfd_create $(, $argument:expr)*) => {{
            $(let _ = $argument;)*
            $crate::sys::refusable::make_alarm()
        }};
    }
    pub(crate) use refusable;
}

pub(crate) fn epoll_pwait(
    _: c_int,
    events: *mut epoll_event,
    maxevents: c_int,
    milliseconds: c_int,
    _: *const u8,
    _: usize,
) -> Result<c_int, Errno> {
    let found = KERNEL.wait(maxevents as usize, milliseconds < 0);
    if found.is_empty() && milliseconds > 0 {
        // Time stands still: the wait has nothing more to show.
        return Err(Errno::EINTR);
    }
    for (i, (bits, data)) in found.iter().enumerate() {
        // SAFETY: the caller has memory for as many.
        unsafe { events.add(i).write_unaligned(epoll_event { events: *bits, u64: *data }) };
    }
    Ok(found.len() as c_int)
}

pub(crate) fn epoll_pwait2(
    _: c_int,
    _: *mut epoll_event,
    _: c_int,
    _: Option<&timespec>,
    _: *const u8,
    _: usize,
) -> Result<c_int, Errno> {
    Err(Errno::ENOSYS)
}

pub(crate) fn is_refusal(error: Errno) -> bool {
    error == Errno::ENOSYS
}

pub(crate) fn wait_for_nothing(_: Option<&timespec>, _: *const u8) -> Result<c_int, Errno> {
    unreachable!("no wait outlives the number")
}

pub(crate) fn poll_all_now(entries: &mut [pollfd]) -> bool {
    KERNEL.poll(entries);
    true
}

/// Memory until the schedule's end.
pub(crate) fn map_wiped_on_fork(len: usize) -> Option<*mut u8> {
    Some(KERNEL.map(len))
}

pub(crate) fn gettid() -> c_int {
    1
}

pub(crate) fn is_thread(_: c_int) -> bool {
    true
}

loom::lazy_static! {
    /// Where those sleep who sleep on a word. Each wake is one of them all.
    static ref SLEEPERS: (loom::sync::Mutex<()>, loom::sync::Condvar) =
        (loom::sync::Mutex::new(()), loom::sync::Condvar::new());
}

pub(crate) fn futex_wait(word: &sync::AtomicU32, value: u32) {
    let sleepers = SLEEPERS.0.lock().unwrap();
    if word.load(sync::Ordering::SeqCst) == value {
        drop(SLEEPERS.1.wait(sleepers).unwrap());
    }
}

/// Until a point of the models' clock, which a time that comes has reached at once.
pub(crate) fn futex_sleep(
    word: &sync::AtomicU32,
    value: u32,
    until: &timespec,
) -> Result<(), Errno> {
    if word.load(sync::Ordering::SeqCst) == value && pass(until) {
        return Err(Errno::ETIMEDOUT);
    }
    futex_wait(word, value);
    Ok(())
}

/// Lets the clock reach a point, if it is one that comes.
pub(crate) fn pass(until: &timespec) -> bool {
    let comes = until.tv_sec == 0 && until.tv_nsec < 1_000;
    if comes {
        let now = wakeset::Deadline::now().since_boot().as_nanos() as u64;
        wakeset::set_model_clock(now.max(until.tv_nsec as u64));
    }
    comes
}

/// Its time never passes, unless the model has it pass.
pub(crate) fn futex_wait_for(word: &sync::AtomicU32, value: u32, _: core::time::Duration) -> bool {
    let mut time = TIME.0.lock().unwrap();
    if *time == Time::Passes {
        *time = Time::HasPassed;
        TIME.1.notify_all();
        drop(time);
        // Whoever has waited for that may go first.
        loom::thread::yield_now();
        return true;
    }
    drop(time);
    futex_wait(word, value);
    false
}

/// Whether the time of a sleep passes.
#[derive(PartialEq, Eq)]
enum Time {
    Stands,
    Passes,
    HasPassed,
}

loom::lazy_static! {
    static ref TIME: (loom::sync::Mutex<Time>, loom::sync::Condvar) =
        (loom::sync::Mutex::new(Time::Stands), loom::sync::Condvar::new());
}

/// The time of the next [`futex_wait_for`] passes at once, and of none after it.
pub(crate) fn let_time_pass() {
    *TIME.0.lock().unwrap() = Time::Passes;
}

/// Waits until the time of that one has passed.
pub(crate) fn wait_until_time_passes() {
    let mut time = TIME.0.lock().unwrap();
    while *time != Time::HasPassed {
        time = TIME.1.wait(time).unwrap();
    }
}

pub(crate) fn futex_wake(_: &sync::AtomicU32, _: u32) {
    let _sleepers = SLEEPERS.0.lock().unwrap();
    SLEEPERS.1.notify_all();
}

pub(crate) fn sched_yield() {
    loom::thread::yield_now();
}
