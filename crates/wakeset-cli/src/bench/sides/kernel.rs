//! The kernel's own epoll, eventfd and timerfd.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use super::backend::Backend;

/// The kernel as a backend: a descriptor for each object.
pub struct Kernel;

impl Backend for Kernel {
    type Set = OwnedFd;
    type Counter = OwnedFd;
    type Timer = OwnedFd;
    type Event = libc::epoll_event;
    const NO_EVENT: Self::Event = libc::epoll_event { events: 0, u64: 0 };

    fn create_set(&self) -> io::Result<OwnedFd> {
        // SAFETY: no memory is involved.
        own(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })
    }

    fn create_counter(&self) -> io::Result<OwnedFd> {
        // SAFETY: no memory is involved.
        own(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })
    }

    fn create_timer(&self) -> io::Result<OwnedFd> {
        // SAFETY: no memory is involved.
        own(unsafe {
            libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC | libc::TFD_NONBLOCK)
        })
    }

    fn add_timer(&self, set: &OwnedFd, to: &OwnedFd, bits: u32, data: u64) -> io::Result<()> {
        control(set, libc::EPOLL_CTL_ADD, to, bits, data)
    }

    fn add(&self, set: &OwnedFd, to: &OwnedFd, bits: u32, data: u64) -> io::Result<()> {
        control(set, libc::EPOLL_CTL_ADD, to, bits, data)
    }

    fn modify(&self, set: &OwnedFd, of: &OwnedFd, bits: u32, data: u64) -> io::Result<()> {
        control(set, libc::EPOLL_CTL_MOD, of, bits, data)
    }

    fn remove(&self, set: &OwnedFd, from: &OwnedFd) -> io::Result<()> {
        control(set, libc::EPOLL_CTL_DEL, from, 0, 0)
    }

    fn add_set(&self, set: &OwnedFd, inner: &OwnedFd, bits: u32, data: u64) -> io::Result<()> {
        control(set, libc::EPOLL_CTL_ADD, inner, bits, data)
    }

    fn remove_set(&self, set: &OwnedFd, inner: &OwnedFd) -> io::Result<()> {
        control(set, libc::EPOLL_CTL_DEL, inner, 0, 0)
    }

    fn wait(
        &self,
        set: &OwnedFd,
        events: &mut [libc::epoll_event],
        timeout: Duration,
    ) -> io::Result<usize> {
        let capacity = i32::try_from(events.len()).unwrap_or(i32::MAX);
        let timeout = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: room for as many events as are said.
        let n =
            unsafe { libc::epoll_wait(set.as_raw_fd(), events.as_mut_ptr(), capacity, timeout) };
        check(n).map(|n| n as usize)
    }

    fn data(event: &libc::epoll_event) -> u64 {
        event.u64
    }

    fn write(&self, counter: &OwnedFd, value: u64) -> io::Result<()> {
        // SAFETY: eight initialised bytes.
        let n = unsafe { libc::write(counter.as_raw_fd(), (&raw const value).cast(), 8) };
        check(n as i32).map(drop)
    }

    fn read(&self, counter: &OwnedFd) -> io::Result<Option<u64>> {
        let mut value = 0u64;
        // SAFETY: room for eight bytes.
        let n = unsafe { libc::read(counter.as_raw_fd(), (&raw mut value).cast(), 8) };
        match check(n as i32) {
            Ok(_) => Ok(Some(value)),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn set_timer(&self, timer: &OwnedFd, time: Duration) -> io::Result<()> {
        let never = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let value =
            libc::timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
        let spec = libc::itimerspec { it_interval: never, it_value: value };
        // SAFETY: an initialised value; the old one is not asked for.
        check(unsafe {
            libc::timerfd_settime(timer.as_raw_fd(), 0, &raw const spec, std::ptr::null_mut())
        })
        .map(drop)
    }

    fn read_timer(&self, timer: &OwnedFd) -> io::Result<Option<u64>> {
        self.read(timer)
    }
}

fn control(set: &OwnedFd, operation: i32, fd: &OwnedFd, bits: u32, data: u64) -> io::Result<()> {
    let mut event = libc::epoll_event { events: bits, u64: data };
    // SAFETY: an initialised event that outlives the call.
    check(unsafe { libc::epoll_ctl(set.as_raw_fd(), operation, fd.as_raw_fd(), &mut event) })
        .map(drop)
}

fn own(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the kernel has just made the descriptor, and nothing else uses it.
    check(fd).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The result of a libc call, or the error it left in errno.
pub fn check(result: i32) -> io::Result<i32> {
    match result {
        r if r >= 0 => Ok(r),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Allows this process `need` descriptors, or as many as it may have. Returns how many those are.
pub fn raise_descriptor_limit(need: usize) -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: room for the answer.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } != 0 {
        return 0;
    }
    let need = need as libc::rlim_t;
    // Only a privileged process may raise the hard limit; that is tried first and may fail.
    for most in [limit.rlim_max.max(need), limit.rlim_max] {
        let wanted = libc::rlimit { rlim_cur: most.min(limit.rlim_cur.max(need)), rlim_max: most };
        // SAFETY: an initialised value.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &wanted) } == 0 {
            return usize::try_from(wanted.rlim_cur).unwrap_or(usize::MAX);
        }
    }
    usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX)
}
