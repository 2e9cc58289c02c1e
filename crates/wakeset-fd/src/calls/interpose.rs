//! What functions that stand in front of libc's have in common: the interposer's hooks and the C
//! library's shims both answer in libc's form (a value, or -1 and `errno`), and both migrate what a
//! call names before the kernel gets it.
//!
//! Each function that answers takes `call`, which is libc's own function with the same arguments.

use crate::calls::{descriptor, io};
use crate::migrate;
use crate::set::{self, Limit, Mask, Rest};
use crate::stats::Stat;
use crate::sys::verdict::Verdict;
use crate::sys::{Errno, SIGSET_BYTES, user};
use crate::table::{self, Bytes, Entry};
use core::ffi::{c_int, c_ulong, c_void};
use core::ops::RangeInclusive;
use core::time::Duration;
use libc::{epoll_event, fd_set, iovec, nfds_t, pollfd, sigset_t, ssize_t, timespec, timeval};
use wakeset::Timeout;

/// Sets `errno` and returns -1.
#[cold]
pub fn fail(errno: c_int) -> isize {
    // SAFETY: this thread's errno.
    unsafe { *libc::__errno_location() = errno };
    -1
}

/// What a libc function returns for a result. Leaves `errno` alone when there is no error.
pub fn returned<T: TryInto<isize>>(result: Result<T, Errno>) -> isize {
    match result {
        Ok(value) => value.try_into().unwrap_or(0),
        Err(error) => fail(error.into_raw()),
    }
}

/// [`returned`] for calls that return nothing but success.
pub fn returned_unit(result: Result<(), Errno>) -> c_int {
    returned(result.map(|()| 0_isize)) as c_int
}

/// What a libc function returns for a verdict.
pub fn answered<T: TryInto<isize>>(verdict: Verdict<T>, call: impl FnOnce() -> isize) -> isize {
    match verdict {
        Verdict::Done(result) => returned(result),
        Verdict::Kernel => call(),
    }
}

/// [`answered`] for calls that return an int which is not negative: a descriptor or a number of
/// events.
pub fn answered_int(verdict: Verdict<c_int>, call: impl FnOnce() -> c_int) -> c_int {
    answered(verdict.map(|value| value as isize), || call() as isize) as c_int
}

/// [`answered`] for calls that return nothing but success.
pub fn answered_unit(verdict: Verdict<()>, call: impl FnOnce() -> c_int) -> c_int {
    answered_int(verdict.map(|()| 0), call)
}

/// A wait that has to be the kernel's. After a sleep that something of ours has ended, the number
/// may stand for a set of ours. `call` is one of epoll_wait(2)'s family, with a limit of the same
/// form.
///
/// # Safety
/// As epoll_pwait2(2).
pub unsafe fn wait_in_kernel(
    epfd: c_int,
    events: *mut epoll_event,
    capacity: c_int,
    limit: Limit,
    mask: Mask,
    call: impl Fn(Limit) -> c_int,
) -> c_int {
    let rest = Rest::of(limit);
    let mut limit = limit;
    loop {
        // SAFETY: the kernel returns how many it has written.
        if let Some(found) = unsafe { set::in_kernel(epfd, events, || call(limit)) } {
            return found;
        }
        // SAFETY: the kernel has accepted it.
        limit = unsafe { rest.limit() };
        // SAFETY: the caller's contract.
        let verdict = unsafe { set::epoll_wait(epfd, events, capacity, limit, mask) };
        if let Verdict::Done(result) = verdict {
            return returned(result.map(|n| n as isize)) as c_int;
        }
    }
}

/// The lengths of one buffer that mean the same to read(2) as to readv(2). The latter takes an
/// empty buffer as nothing to do, and shortens one that is too long before it checks that
/// the memory is there.
const SAME_FOR_BOTH: RangeInclusive<usize> = 1..=0x7fff_f000;

/// The one buffer of a vector, if reading or writing it is what readv(2) or writev(2) would do.
fn only_buffer(vectors: *const iovec, n: c_int) -> Option<iovec> {
    if n != 1 || vectors.is_null() {
        return None;
    }
    // SAFETY: any bits are an iovec.
    let vector = unsafe { user::load(vectors) }?;
    SAME_FOR_BOTH.contains(&vector.iov_len).then_some(vector)
}

/// readv(2) or writev(2). With one buffer it is `single`, the hooked read(2) or write(2); with
/// several an in-process object migrates, and `call` follows. By neither does another process come
/// to the object, so a forked child asks for it as for a read.
pub fn vectored(
    fd: c_int,
    vectors: *const iovec,
    n: c_int,
    single: impl FnOnce(*mut c_void, usize) -> ssize_t,
    call: impl FnOnce() -> ssize_t,
) -> ssize_t {
    if matches!(table::get_for_bytes(fd), Bytes::Entry(Entry::Object(_)) | Bytes::Away) {
        if let Some(iovec { iov_base, iov_len }) = only_buffer(vectors, n) {
            return single(iov_base, iov_len);
        }
        migrate::fd(fd, Stat::MigratedOddArgument);
    }
    call()
}

/// Before poll(2): migrates what an array of pollfd names.
///
/// # Safety
/// `fds` is valid for `n` entries, or the kernel will say EFAULT.
#[inline]
pub unsafe fn before_poll(fds: *const pollfd, n: nfds_t) {
    if !descriptor::any() || fds.is_null() {
        return;
    }
    for i in 0..n as usize {
        // SAFETY: any bits are a pollfd.
        let Some(entry) = (unsafe { user::load(fds.wrapping_add(i)) }) else { return };
        migrate::fd(entry.fd, Stat::MigratedPoll);
    }
}

/// Before select(2): migrates what up to three fd_sets name.
///
/// # Safety
/// Each set is null or valid for `n` bits, or the kernel will say EFAULT.
#[inline]
pub unsafe fn before_select(n: c_int, sets: [*const fd_set; 3]) {
    // Beyond there is nothing to migrate, and there may be no memory either.
    let n = n.min(table::numbers().end);
    for set in sets.into_iter().filter(|set| !set.is_null()) {
        for word in 0..(n.max(0) as usize).div_ceil(64) {
            let pointer = set.cast::<u64>().wrapping_add(word);
            // SAFETY: any bits are a word of a set.
            let Some(mut bits) = (unsafe { user::load(pointer) }) else { return };
            while bits != 0 {
                let fd = (word * 64) as c_int + bits.trailing_zeros() as c_int;
                // What lies beyond the last number is not asked for.
                if fd < n {
                    migrate::fd(fd, Stat::MigratedPoll);
                }
                bits &= bits - 1;
            }
        }
    }
}

/// After fcntl(2) has returned `result`: notes whether an object blocks. Whether it may have
/// changed.
pub fn after_fcntl(fd: c_int, command: c_int, argument: usize, result: c_int) -> bool {
    let changed = command == libc::F_SETFL && result == 0;
    if changed {
        io::note_nonblocking(fd, argument as c_int & libc::O_NONBLOCK != 0);
    }
    changed
}

/// After ioctl(2) has returned `result`: notes whether an object blocks. Whether it may have
/// changed.
///
/// # Safety
/// The arguments are those that the kernel has just answered.
pub unsafe fn after_ioctl(fd: c_int, request: u32, argument: usize, result: c_int) -> bool {
    let changed = c_ulong::from(request) == libc::FIONBIO && result == 0;
    if changed {
        let pointer = core::ptr::with_exposed_provenance::<c_int>(argument);
        // SAFETY: the kernel has just read an int there.
        io::note_nonblocking(fd, unsafe { pointer.read_unaligned() } != 0);
    }
    changed
}

/// The mask of epoll_pwait(2), the function: the kernel's signal set is the first 8 bytes of
/// libc's.
#[inline]
pub fn mask_of(mask: *const sigset_t) -> Mask {
    Mask { set: mask.cast(), bytes: SIGSET_BYTES }
}

/// A time limit as the program gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeLimit {
    /// None: a null pointer.
    Forever,
    /// So long; not zero.
    After(Duration),
    /// No time at all.
    Zero,
    /// The kernel will say EINVAL or EFAULT.
    Invalid,
}

/// Whether a timespec or a timeval says no time at all. One that cannot be read does not.
///
/// # Safety
/// As [`TimeLimit::of_timespec`].
#[inline(always)]
pub unsafe fn is_no_time(limit: *const [u64; 2]) -> bool {
    let word = limit.cast::<u64>();
    // SAFETY: any bits are a word.
    !limit.is_null()
        && unsafe {
            user::load_u64_or(word, 1) == 0 && user::load_u64_or(word.wrapping_add(1), 1) == 0
        }
}

impl TimeLimit {
    /// The limit of ppoll(2) and pselect(2).
    ///
    /// # Safety
    /// The memory, if it is there, is not written by another thread at the same time.
    pub unsafe fn of_timespec(pointer: *const timespec) -> Self {
        if pointer.is_null() {
            return Self::Forever;
        }
        // SAFETY: any bits are a timespec.
        let Some(timespec { tv_sec, tv_nsec }) = (unsafe { user::load(pointer) }) else {
            return Self::Invalid;
        };
        let nanos = u32::try_from(tv_nsec).ok().filter(|nanos| *nanos < 1_000_000_000);
        Self::of_parts(u64::try_from(tv_sec).ok(), nanos)
    }

    /// The limit of select(2).
    ///
    /// # Safety
    /// As [`of_timespec`](Self::of_timespec).
    pub unsafe fn of_timeval(pointer: *const timeval) -> Self {
        if pointer.is_null() {
            return Self::Forever;
        }
        // SAFETY: any bits are a timeval.
        let Some(timeval { tv_sec, tv_usec }) = (unsafe { user::load(pointer) }) else {
            return Self::Invalid;
        };
        let micros = u32::try_from(tv_usec).ok().filter(|micros| *micros < 1_000_000);
        Self::of_parts(u64::try_from(tv_sec).ok(), micros.map(|micros| micros * 1000))
    }

    /// The limit of poll(2): -1 is none.
    #[inline]
    pub fn of_milliseconds(timeout: c_int) -> Self {
        match u64::try_from(timeout) {
            Err(_) => Self::Forever,
            Ok(0) => Self::Zero,
            Ok(milliseconds) => Self::After(Duration::from_millis(milliseconds)),
        }
    }

    /// As a wait in process has it. `None`: the kernel says EINVAL or EFAULT, or takes the limit
    /// for another than it looks like.
    pub fn timeout(self) -> Option<Timeout> {
        match self {
            Self::Forever => Some(Timeout::Never),
            Self::After(limit) => Some(Timeout::After(limit)),
            Self::Zero => Some(Timeout::Now),
            Self::Invalid => None,
        }
    }

    fn of_parts(seconds: Option<u64>, nanos: Option<u32>) -> Self {
        match (seconds, nanos) {
            (Some(0), Some(0)) => Self::Zero,
            (Some(seconds), Some(nanos)) => Self::After(Duration::new(seconds, nanos)),
            _ => Self::Invalid,
        }
    }
}

/// A limit as poll(2) takes it, rounded up; none is -1.
pub fn milliseconds_of(limit: Option<Duration>) -> c_int {
    limit.map_or(-1, set::milliseconds_of)
}

/// A time as ppoll(2) takes it.
pub fn timespec_of(time: Duration) -> timespec {
    set::timespec_of(time)
}

/// A time as select(2) takes it.
pub fn timeval_of(time: Duration) -> timeval {
    timeval {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_usec: i64::from(time.subsec_micros()),
    }
}

#[cfg(test)]
mod tests;
