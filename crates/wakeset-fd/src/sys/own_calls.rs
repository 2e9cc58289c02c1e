//! The system calls that we make of our own accord: docs/system-calls.md says why, and what becomes
//! of each without it. A test holds the two against each other, and against what a program that
//! uses everything makes.

use super::Sysno;

/// A call of ours.
#[derive(Clone, Copy, Debug)]
pub struct OwnCall {
    /// Its number.
    pub number: Sysno,
    /// Its second argument, where that is always the same.
    pub second: Option<u32>,
    /// Objects cannot live in process where it is refused.
    pub essential: bool,
}

const fn essential(number: Sysno) -> OwnCall {
    OwnCall { number, second: None, essential: true }
}

const fn useful(number: Sysno) -> OwnCall {
    OwnCall { number, second: None, essential: false }
}

/// An operation on a futex of this process.
const fn futex(operation: i32) -> OwnCall {
    let second = Some((operation | libc::FUTEX_PRIVATE_FLAG) as u32);
    OwnCall { second, ..essential(Sysno::futex) }
}

const fn fcntl(command: i32) -> OwnCall {
    OwnCall { second: Some(command as u32), ..useful(Sysno::fcntl) }
}

/// SIOCOUTQ.
const OUTPUT_QUEUE: Option<u32> = Some(0x5411);

/// ioctl_eventpoll(2).
pub(crate) const EPIOCSPARAMS: u32 = 0x4008_8a01;
pub(crate) const EPIOCGPARAMS: u32 = 0x8008_8a02;

/// Those that a process makes when it first binds, listens or waits for a listener, to find others
/// that share it; and timerfd_create(2), for a set that gets its first listener while threads sleep
/// in it. A process that has installed a filter makes none of them.
pub const CALLS_TO_FIND_OTHERS: &[OwnCall] = &[
    useful(Sysno::memfd_create),
    useful(Sysno::ftruncate),
    useful(Sysno::fchmod),
    fcntl(libc::F_ADD_SEALS),
    fcntl(libc::F_GET_SEALS),
    useful(Sysno::pipe2),
    useful(Sysno::getppid),
    useful(Sysno::readlinkat),
    #[cfg(target_arch = "x86_64")]
    useful(Sysno::newfstatat),
    useful(Sysno::timerfd_create),
];

/// All others. A row of the table of docs/system-calls.md may stand for several.
pub const OWN_CALLS: &[OwnCall] = &[
    futex(libc::FUTEX_WAIT),
    futex(libc::FUTEX_WAKE),
    futex(libc::FUTEX_WAIT_BITSET),
    futex(libc::FUTEX_WAKE_BITSET),
    essential(Sysno::rt_sigprocmask),
    essential(Sysno::read),
    essential(Sysno::write),
    essential(Sysno::close),
    essential(Sysno::epoll_ctl),
    essential(Sysno::timerfd_settime),
    essential(Sysno::sendto),
    essential(Sysno::recvfrom),
    #[cfg(target_arch = "x86_64")]
    useful(Sysno::epoll_wait),
    useful(Sysno::epoll_pwait),
    useful(Sysno::epoll_pwait2),
    #[cfg(target_arch = "x86_64")]
    useful(Sysno::poll),
    useful(Sysno::ppoll),
    #[cfg(target_arch = "x86_64")]
    useful(Sysno::select),
    useful(Sysno::pselect6),
    useful(Sysno::eventfd2),
    useful(Sysno::epoll_create1),
    fcntl(libc::F_DUPFD_CLOEXEC),
    fcntl(libc::F_GETFL),
    fcntl(libc::F_GETFD),
    fcntl(libc::F_GETPIPE_SZ),
    useful(Sysno::dup3),
    useful(Sysno::getsockopt),
    useful(Sysno::getsockname),
    OwnCall { second: OUTPUT_QUEUE, ..useful(Sysno::ioctl) },
    OwnCall { second: Some(EPIOCGPARAMS), ..useful(Sysno::ioctl) },
    OwnCall { second: Some(EPIOCSPARAMS), ..useful(Sysno::ioctl) },
    useful(Sysno::fstat),
    #[cfg(target_arch = "x86_64")]
    useful(Sysno::open),
    useful(Sysno::openat),
    useful(Sysno::getdents64),
    useful(Sysno::mmap),
    useful(Sysno::munmap),
    useful(Sysno::mprotect),
    useful(Sysno::madvise),
    useful(Sysno::getpid),
    useful(Sysno::gettid),
    useful(Sysno::kcmp),
    useful(Sysno::process_vm_readv),
    useful(Sysno::tgkill),
    useful(Sysno::rt_tgsigqueueinfo),
    useful(Sysno::rt_sigaction),
    useful(Sysno::rt_sigpending),
    useful(Sysno::sched_yield),
    useful(Sysno::sched_getaffinity),
    useful(Sysno::sched_getscheduler),
    useful(Sysno::prlimit64),
    useful(Sysno::clock_gettime),
];
