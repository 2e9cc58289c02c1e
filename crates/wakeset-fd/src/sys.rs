//! The kernel, reached without libc: libc's functions are the ones the preload library replaces.

use core::ffi::{c_int, c_uint};
use core::ptr;
use core::time::Duration;
use libc::{epoll_event, itimerspec, timespec};
pub use syscalls::{Errno, Sysno};

/// One raw system call.
macro_rules! raw {
    ($number:ident $(, $argument:expr)*) => {
        // SAFETY: the arguments are passed on from a caller who vouches for what they point to.
        unsafe { syscalls::syscall!(syscalls::Sysno::$number $(, $argument)*) }
    };
}
pub(crate) use raw;

/// The size of the kernel's signal set.
pub(crate) const SIGSET_BYTES: usize = 8;

pub(crate) fn write(fd: c_int, buffer: *const u8, len: usize) -> Result<usize, Errno> {
    raw!(write, fd, buffer, len)
}

pub(crate) fn read(fd: c_int, buffer: *mut u8, len: usize) -> Result<usize, Errno> {
    raw!(read, fd, buffer, len)
}

pub(crate) fn close(fd: c_int) -> Result<(), Errno> {
    raw!(close, fd).map(drop)
}

pub(crate) fn dup(fd: c_int) -> Result<c_int, Errno> {
    raw!(dup, fd).map(|fd| fd as c_int)
}

pub(crate) fn dup_to(fd: c_int, new: c_int) -> Result<(), Errno> {
    raw!(dup3, fd, new, libc::O_CLOEXEC).map(drop)
}

pub(crate) fn fcntl(fd: c_int, command: c_int, argument: usize) -> Result<c_int, Errno> {
    raw!(fcntl, fd, command, argument).map(|result| result as c_int)
}

pub(crate) fn eventfd(initial: c_uint, flags: c_int) -> Result<c_int, Errno> {
    raw!(eventfd2, initial, flags).map(|fd| fd as c_int)
}

pub(crate) fn timerfd_create(clock: c_int, flags: c_int) -> Result<c_int, Errno> {
    raw!(timerfd_create, clock, flags).map(|fd| fd as c_int)
}

pub(crate) fn timerfd_settime(
    fd: c_int,
    flags: c_int,
    new: *const itimerspec,
    old: *mut itimerspec,
) -> Result<(), Errno> {
    raw!(timerfd_settime, fd, flags, new, old).map(drop)
}

pub(crate) fn timerfd_gettime(fd: c_int, current: *mut itimerspec) -> Result<(), Errno> {
    raw!(timerfd_gettime, fd, current).map(drop)
}

pub(crate) fn epoll_create1(flags: c_int) -> Result<c_int, Errno> {
    raw!(epoll_create1, flags).map(|fd| fd as c_int)
}

pub(crate) fn epoll_ctl(epfd: c_int, op: c_int, fd: c_int, event: *const epoll_event) -> Result<(), Errno> {
    raw!(epoll_ctl, epfd, op, fd, event).map(drop)
}

pub(crate) fn epoll_pwait(
    epfd: c_int,
    events: *mut epoll_event,
    room: c_int,
    milliseconds: c_int,
    mask: *const u8,
    mask_bytes: usize,
) -> Result<c_int, Errno> {
    raw!(epoll_pwait, epfd, events, room, milliseconds, mask, mask_bytes).map(|n| n as c_int)
}

pub(crate) fn epoll_pwait2(
    epfd: c_int,
    events: *mut epoll_event,
    room: c_int,
    limit: Option<&timespec>,
    mask: *const u8,
    mask_bytes: usize,
) -> Result<c_int, Errno> {
    let limit = limit.map_or(ptr::null(), ptr::from_ref);
    raw!(epoll_pwait2, epfd, events, room, limit, mask, mask_bytes).map(|n| n as c_int)
}

/// What poll(2) says of one descriptor right now.
pub(crate) fn poll_now(fd: c_int, events: i16) -> i16 {
    poll_within(fd, events, Duration::ZERO)
}

/// The same within this time; 0 if there was nothing.
pub(crate) fn poll_within(fd: c_int, events: i16, limit: Duration) -> i16 {
    let mut entry = libc::pollfd { fd, events, revents: 0 };
    let limit = timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
    match raw!(ppoll, &raw mut entry, 1, &raw const limit, ptr::null::<u8>(), SIGSET_BYTES) {
        Ok(_) => entry.revents,
        Err(_) => 0,
    }
}

/// RLIMIT_NOFILE: one above the highest number that may be given out; 0 where it cannot be told.
pub(crate) fn number_limit() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    match raw!(prlimit64, 0, libc::RLIMIT_NOFILE, 0, &raw mut limit) {
        Ok(_) => usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX),
        Err(_) => 0,
    }
}

/// Sets the calling thread's signal mask; the one from before.
pub(crate) fn set_signal_mask(mask: u64) -> u64 {
    let mut before = 0_u64;
    let _ = raw!(rt_sigprocmask, libc::SIG_SETMASK, &raw const mask, &raw mut before, SIGSET_BYTES);
    before
}

/// Sleeps until a signal handler has run: EINTR.
pub(crate) fn pause() -> Result<c_int, Errno> {
    wait_for_nothing(None, ptr::null(), SIGSET_BYTES)
}

/// Sleeps as a wait on nothing: until the time is up (0) or a signal handler has run (EINTR).
pub(crate) fn wait_for_nothing(limit: Option<&timespec>, mask: *const u8, mask_bytes: usize) -> Result<c_int, Errno> {
    let limit = limit.map_or(ptr::null(), ptr::from_ref);
    raw!(ppoll, ptr::null::<u8>(), 0, limit, mask, mask_bytes).map(|n| n as c_int)
}

pub(crate) fn getpid() -> c_int {
    raw!(getpid).map_or(0, |pid| pid as c_int)
}

pub(crate) fn gettid() -> c_int {
    raw!(gettid).map_or(0, |tid| tid as c_int)
}

/// Whether a thread of this process has this number.
pub(crate) fn is_thread(tid: c_int) -> bool {
    raw!(tgkill, getpid(), tid, 0) != Err(Errno::ESRCH)
}

/// Whether every other thread of the process is asleep in the kernel at this moment. "No" where it cannot be told, and in a vfork(2) child,
/// whose list of threads is not that of the process whose memory this is.
#[inline(never)]
pub(crate) fn others_sleep() -> bool {
    if crate::fork::is_foreign() {
        return false;
    }
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    let Ok(tasks) = raw!(open, c"/proc/self/task".as_ptr(), flags) else { return false };
    let own = raw!(gettid).unwrap_or(0);
    // Somebody's small stack: rather a call for every 16 threads, each of which takes three anyway.
    let mut entries = [0_u8; 512];
    let mut all_sleep = true;
    while all_sleep {
        let Ok(len) = raw!(getdents64, tasks, entries.as_mut_ptr(), entries.len()) else {
            all_sleep = false;
            break;
        };
        if len == 0 {
            break;
        }
        let mut rest = entries.get(..len).unwrap_or(&[]);
        // struct linux_dirent64: inode 8, offset 8, length 2, type 1, name.
        while let Some(&[low, high]) = rest.get(16..18) {
            let (entry, next) = rest.split_at(usize::from(u16::from_ne_bytes([low, high])).clamp(19, rest.len()));
            rest = next;
            let name = entry.get(19..).and_then(|name| core::ffi::CStr::from_bytes_until_nul(name).ok());
            let number = name.and_then(|name| name.to_str().ok()?.parse::<usize>().ok());
            all_sleep &= number.is_none_or(|tid| tid == own || state_of(tasks, tid) == Some(b'S'));
        }
    }
    let _ = raw!(close, tasks);
    all_sleep
}

/// The state of a thread as proc(5) gives it in `stat`: `R`, `S`, `D`, …
fn state_of(tasks: usize, tid: usize) -> Option<u8> {
    use core::fmt::Write;
    struct Text([u8; 32], usize);
    impl Write for Text {
        fn write_str(&mut self, text: &str) -> core::fmt::Result {
            let place = self.0.get_mut(self.1..self.1 + text.len()).ok_or(core::fmt::Error)?;
            place.copy_from_slice(text.as_bytes());
            self.1 += text.len();
            Ok(())
        }
    }
    let mut path = Text([0; 32], 0);
    write!(path, "{tid}/stat\0").ok()?;
    let file = raw!(openat, tasks, path.0.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC).ok()?;
    let mut status = [0_u8; 128];
    let len = raw!(read, file, status.as_mut_ptr(), status.len());
    let _ = raw!(close, file);
    // The name, in parentheses, may itself contain any character.
    let status = status.get(..len.ok()?)?;
    let end = status.iter().rposition(|byte| *byte == b')')?;
    status.get(end + 2).copied()
}

const FUTEX_WAIT_PRIVATE: usize = 128;
const FUTEX_WAKE_PRIVATE: usize = 129;

/// Sleeps while a word is `value`; may end early.
pub(crate) fn futex_wait(word: &core::sync::atomic::AtomicU32, value: u32) {
    let _ = raw!(futex, word.as_ptr(), FUTEX_WAIT_PRIVATE, value, 0, 0, 0);
}

/// Wakes up to `n` who sleep on a word.
pub(crate) fn futex_wake(word: &core::sync::atomic::AtomicU32, n: u32) {
    let _ = raw!(futex, word.as_ptr(), FUTEX_WAKE_PRIVATE, n, 0, 0, 0);
}

pub(crate) fn sched_yield() {
    let _ = raw!(sched_yield);
}

/// Where user memory ends on a machine with four levels of page tables. With five it goes on, for programs that ask for it.
const USER_END: usize = (1 << 47) - 4096;

/// Whether `len` bytes from `start` lie in user memory. Beyond it the kernel says EFAULT before it does anything, whatever
/// part of the bytes it would have used.
#[inline(always)]
pub(crate) fn is_user<T>(start: *const T, len: usize) -> bool {
    let start = start.addr();
    start <= USER_END && len <= USER_END - start
}

/// The same, without null and small addresses (a field of a null pointer), where we would fault.
#[inline(always)]
pub(crate) fn is_plausible<T>(start: *const T, len: usize) -> bool {
    start.addr() >= 4096 && is_user(start, len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicBool, Ordering};
    extern crate std;

    /// A vfork(2) child saw itself alone, and took back edges that a running thread of its parent was about to add to.
    #[test]
    fn a_child_that_shares_memory_knows_nothing_of_who_sleeps() {
        extern "C" fn ask(_: *mut core::ffi::c_void) -> c_int {
            c_int::from(others_sleep())
        }
        fn ask_in_child() -> bool {
            let mut stack = std::vec![0_u128; 1 << 12];
            let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
            // SAFETY: the child runs on a stack of its own and ends before we go on.
            let child = unsafe { libc::clone(ask, stack.as_mut_ptr_range().end.cast(), flags, ptr::null_mut()) };
            let mut status = -1;
            // SAFETY: our own child.
            let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
            assert!(ended == child && libc::WIFEXITED(status));
            libc::WEXITSTATUS(status) == 1
        }
        assert!(crate::fork::may_make_objects());
        let running = AtomicBool::new(true);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                while running.load(Ordering::Relaxed) {
                    core::hint::spin_loop();
                }
            });
            let asleep = ask_in_child();
            running.store(false, Ordering::Relaxed);
            assert!(!asleep);
        });
    }
}
