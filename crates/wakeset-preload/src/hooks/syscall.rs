//! syscall(2), the function: decoded for every call that the other hooks know.

use super::descriptor::{TFD_IOC_SET_TICKS, before_sendmmsg};
use super::pipe::{DEPENDS, before_fcntl, before_open, move_end};
use super::poll::{before_poll, before_select};
use super::process::before_clone;
use super::{pipe as pipes, uffd};
use crate::outcome::returned;
use crate::real::real;
use core::ffi::{c_int, c_long};
use core::ptr;
use syscalls::Sysno;
use wakeset_fd::set::{self, Limit, Mask};
use wakeset_fd::stats::Stat;
use wakeset_fd::{Errno, Verdict, counter, descriptor, escape, listeners, pipe, timer, user};

type Syscall = unsafe extern "C-unwind" fn(c_long, usize, usize, usize, usize, usize, usize) -> c_long;

/// syscall(2). Always six arguments are passed on: the kernel looks at as many as the call has.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    // SAFETY: the caller's contract, here and below.
    let call = || unsafe { real!(syscall: Syscall)(number, a, b, c, d, e, f) };
    let Some(number) = usize::try_from(number).ok().and_then(Sysno::new) else { return call() };
    uffd::before_syscall(number, [a, b, c]);
    // SAFETY: as above.
    let outcome = unsafe { before(number, [a, b, c, d, e, f]) };
    match outcome {
        Before::Answer(result) => returned(result) as c_long,
        Before::Call => {
            // SAFETY: as above.
            if let Some(result) = unsafe { uffd::syscall(number, [a, b, c]) } {
                return result;
            }
            let waits = matches!(number, Sysno::epoll_wait | Sysno::epoll_pwait | Sysno::epoll_pwait2);
            let result = if waits {
                let events = ptr::with_exposed_provenance_mut(b);
                // SAFETY: the kernel returns how many it has written.
                unsafe { set::in_kernel(a as c_int, events, || call() as c_int).into() }
            } else {
                call()
            };
            after(number, a as c_int, b as c_int, c, result);
            result
        }
        Before::Forks => {
            let result = call();
            // In a child this changes a copy of the gate, which the child resets when it makes its first object.
            escape::open_gate();
            result
        }
    }
}

/// Of kcmp(2).
const KCMP_EPOLL_TFD: usize = 7;

enum Before {
    /// It is answered here.
    Answer(Result<isize, Errno>),
    /// The kernel answers.
    Call,
    /// The kernel answers, twice.
    Forks,
}

impl Before {
    fn of<T: TryInto<isize>>(verdict: Verdict<T>) -> Self {
        match verdict {
            Verdict::Done(result) => Self::Answer(result.map(|value| value.try_into().unwrap_or(0))),
            Verdict::Kernel => Self::Call,
        }
    }
}

/// What has to happen before the kernel gets the call, or instead.
///
/// # Safety
/// The arguments are as that call wants them.
unsafe fn before(number: Sysno, [a, b, c, d, e, f]: [usize; 6]) -> Before {
    let fd = a as c_int;
    let unit = |verdict: Verdict<()>| Before::of(verdict.map(|()| 0_isize));
    let moving = |fds: &[usize], reason: Stat| {
        for fd in fds {
            escape::fd(*fd as c_int, reason);
        }
        Before::Call
    };
    match number {
        Sysno::close | Sysno::listen => listeners::forget(fd),
        Sysno::connect => listeners::forget_listener(fd),
        Sysno::dup2 | Sysno::dup3 => listeners::forget(b as c_int),
        Sysno::close_range => listeners::forget_range(a as u32, b as u32),
        _ => {}
    }
    // SAFETY: the caller's contract, for all calls below.
    unsafe {
        match number {
            Sysno::read => Before::of(counter::read(fd, b as *mut u8, c)),
            Sysno::write => Before::of(counter::write(fd, b as *const u8, c)),
            Sysno::close => unit(descriptor::close(fd)),
            Sysno::close_range => unit(descriptor::close_range(a as u32, b as u32, c as c_int)),
            Sysno::eventfd => answer(counter::eventfd(a as u32, 0)),
            Sysno::eventfd2 => answer(counter::eventfd(a as u32, b as c_int)),
            Sysno::timerfd_create => answer(timer::timerfd_create(fd, b as c_int)),
            Sysno::timerfd_settime => unit(timer::timerfd_settime(fd, b as c_int, c as *const _, d as *mut _)),
            Sysno::timerfd_gettime => unit(timer::timerfd_gettime(fd, b as *mut _)),
            Sysno::epoll_create if fd <= 0 => Before::Call,
            Sysno::epoll_create => answer(set::epoll_create1(0)),
            Sysno::epoll_create1 => answer(set::epoll_create1(fd)),
            Sysno::epoll_ctl => unit(set::epoll_ctl(fd, b as c_int, c as c_int, d as *const _)),
            Sysno::epoll_wait => wait(fd, b, c, Limit::Milliseconds(d as c_int), Mask::NONE),
            Sysno::epoll_pwait => {
                wait(fd, b, c, Limit::Milliseconds(d as c_int), Mask { set: e as *const u8, bytes: f })
            }
            Sysno::epoll_pwait2 => {
                wait(fd, b, c, Limit::Timespec(d as *const _), Mask { set: e as *const u8, bytes: f })
            }
            Sysno::dup => Before::of(descriptor::before_dup(fd).map(|fd| fd as isize)),
            Sysno::dup2 => Before::of(descriptor::before_dup_to(fd, b as c_int, 0).map(|fd| fd as isize)),
            Sysno::dup3 => Before::of(descriptor::before_dup_to(fd, b as c_int, c as c_int).map(|fd| fd as isize)),
            Sysno::fcntl | Sysno::ioctl if descriptor::is_hidden(fd) => Before::Answer(Err(Errno::EBADF)),
            Sysno::fcntl if matches!(b as c_int, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) => {
                moving(&[a], Stat::MovedUnmodelled)
            }
            Sysno::fcntl => {
                before_fcntl(fd, b as c_int, c);
                Before::Call
            }
            Sysno::pipe => unit(Verdict::Done(pipe::pipe2(a as *mut _, 0))),
            Sysno::pipe2 => unit(Verdict::Done(pipe::pipe2(a as *mut _, b as c_int))),
            Sysno::socketpair => unit(Verdict::Done(pipe::socketpair(fd, b as c_int, c as c_int, d as *mut _))),
            Sysno::sendto if e == 0 && f == 0 && pipe::is_end(fd) => {
                Before::of(pipe::send(fd, b as *const u8, c, d as c_int))
            }
            Sysno::recvfrom if e == 0 && pipe::is_end(fd) => Before::of(pipe::recv(fd, b as *mut u8, c, d as c_int)),
            Sysno::getsockopt if c as c_int != DEPENDS => Before::Call,
            Sysno::sendto
            | Sysno::recvfrom
            | Sysno::recvmsg
            | Sysno::recvmmsg
            | Sysno::shutdown
            | Sysno::setsockopt
            | Sysno::getsockopt => {
                move_end(fd);
                Before::Call
            }
            Sysno::open | Sysno::creat => {
                before_open(a as *const _);
                Before::Call
            }
            Sysno::openat | Sysno::openat2 => {
                before_open(b as *const _);
                Before::Call
            }
            Sysno::poll | Sysno::ppoll => {
                before_poll(a as *const _, b as _);
                Before::Call
            }
            Sysno::select | Sysno::pselect6 => {
                before_select(fd, [b as *const _, c as *const _, d as *const _]);
                Before::Call
            }
            Sysno::sendmsg => {
                descriptor::before_sendmsg(b as *const _);
                move_end(fd);
                Before::Call
            }
            Sysno::sendmmsg => {
                before_sendmmsg(b as *const _, c as u32);
                move_end(fd);
                Before::Call
            }
            Sysno::fork | Sysno::vfork => {
                escape::everything(Stat::MovedFork);
                Before::Forks
            }
            Sysno::clone => forks_if(before_clone(a as c_int)),
            Sysno::clone3 => match user::load(a as *const u64) {
                Some(flags) => forks_if(before_clone(flags as c_int)),
                None => Before::Call,
            },
            Sysno::execve | Sysno::execveat => {
                descriptor::before_exec(Stat::MovedExec);
                Before::Call
            }
            Sysno::unshare if fd & libc::CLONE_FILES != 0 => {
                escape::everything_for_good(Stat::MovedUnmodelled);
                Before::Call
            }
            // io_uring and aio reach every descriptor, by a road that does not pass here.
            Sysno::io_uring_setup => {
                escape::everything_for_good(Stat::MovedIoRing);
                Before::Call
            }
            Sysno::io_setup => {
                escape::everything_for_good(Stat::MovedAio);
                Before::Call
            }
            Sysno::ioctl if b as u32 == TFD_IOC_SET_TICKS => moving(&[a], Stat::MovedUnmodelled),
            Sysno::ioctl if !matches!((b >> 8) as u8, 0x54 | 0x89) => {
                escape::everything(Stat::MovedUnmodelled);
                escape::open_gate();
                Before::Call
            }
            Sysno::ioctl => match pipes::ioctl(fd, b as u32, c) {
                Some(0) => Before::Answer(Ok(0)),
                Some(_) => Before::Answer(Err(Errno::EFAULT)),
                None => Before::Call,
            },
            Sysno::readv
            | Sysno::writev
            | Sysno::preadv
            | Sysno::preadv2
            | Sysno::pwritev
            | Sysno::pwritev2
            | Sysno::pread64
            | Sysno::pwrite64
            | Sysno::vmsplice => moving(&[a], Stat::MovedSyscallFn),
            Sysno::splice | Sysno::copy_file_range => moving(&[a, c], Stat::MovedSyscallFn),
            Sysno::tee | Sysno::sendfile => moving(&[a, b], Stat::MovedSyscallFn),
            // Asks whether a set watches a number: the kernel knows only its own watches.
            Sysno::kcmp if c == KCMP_EPOLL_TFD => match user::load(e as *const u32) {
                Some(set) => moving(&[set as usize], Stat::MovedSyscallFn),
                None => Before::Call,
            },
            // Copies a descriptor out of a process, perhaps this one.
            Sysno::pidfd_getfd => moving(&[b], Stat::MovedSyscallFn),
            _ => Before::Call,
        }
    }
}

fn answer(result: Result<c_int, Errno>) -> Before {
    Before::Answer(result.map(|fd| fd as isize))
}

fn forks_if(forks: bool) -> Before {
    if forks { Before::Forks } else { Before::Call }
}

unsafe fn wait(fd: c_int, events: usize, room: usize, limit: Limit, mask: Mask) -> Before {
    // SAFETY: the caller's contract.
    let verdict = unsafe { set::epoll_wait(fd, ptr::with_exposed_provenance_mut(events), room as c_int, limit, mask) };
    Before::of(verdict.map(|n| n as isize))
}

/// What has to happen after the kernel has answered.
fn after(number: Sysno, fd: c_int, command: c_int, argument: usize, result: c_long) {
    match number {
        Sysno::userfaultfd => uffd::recognise(result as c_int),
        Sysno::ioctl => uffd::after_ioctl(fd, command as u32, result),
        _ => {}
    }
    if number == Sysno::fcntl && command == libc::F_SETFL && result == 0 {
        uffd::forget_flags();
        counter::note_nonblocking(fd, argument as c_int & libc::O_NONBLOCK != 0);
    }
    if number == Sysno::ioctl && command as u32 as libc::c_ulong == libc::FIONBIO && result == 0 {
        uffd::forget_flags();
        // SAFETY: the kernel has just read an int there.
        counter::note_nonblocking(fd, unsafe { *(argument as *const c_int) } != 0);
    }
}
