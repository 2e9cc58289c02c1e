//! Wakeset through the functions of the crate `wakeset-fd`, as a program calls them that links the
//! crate. A call that the crate does not offer makes the objects that it names migrate first, as
//! the preload library does.

use super::faults::recover_from_faults;
use super::kernel::raw;
use super::{Command, Sysno, World, Write};
use core::ptr;
use libc::{c_int, epoll_event, timespec};
use wakeset_fd::stats::Stat;
use wakeset_fd::{Errno, counter, descriptor, duplicate, migrate, pipe, set};

/// Wakeset, in this process.
#[derive(Debug)]
pub struct Api(());

impl Api {
    /// Wakeset in this process, which returns EFAULT for a bad pointer from now on.
    #[allow(clippy::new_without_default, reason = "it has an effect on the process")]
    pub fn new() -> Self {
        recover_from_faults();
        Self(())
    }
}

fn of<T: TryInto<isize>>(result: Result<T, Errno>) -> isize {
    match result {
        Ok(value) => value.try_into().unwrap_or(isize::MAX),
        Err(errno) => -(errno.into_raw() as isize),
    }
}

fn unit(result: Result<(), Errno>) -> isize {
    of(result.map(|()| 0))
}

/// The system call itself.
///
/// # Safety
/// As [`World::call`].
unsafe fn kernel(number: Sysno, arguments: [usize; 6]) -> Result<c_int, Errno> {
    // SAFETY: the caller's contract.
    let result = unsafe { raw(number, arguments) };
    if result < 0 { Err(Errno::new(-result as i32)) } else { Ok(result as c_int) }
}

const NO_TIME: timespec = timespec { tv_sec: 0, tv_nsec: 0 };

/// poll(2) without time to wait or without a limit, or select(2) without time.
///
/// # Safety
/// As [`World::call`].
unsafe fn poll_or_select(number: Sysno, [a, b, c, d, ..]: [usize; 6]) -> isize {
    let limit =
        if number == Sysno::select || c == 0 { ptr::from_ref(&NO_TIME) } else { ptr::null() };
    // SAFETY: the caller's contract.
    unsafe {
        if number == Sysno::poll {
            return of(wakeset_fd::ppoll(a as *mut _, b as u64, limit, ptr::null()));
        }
        let sets = [b, c, d].map(|set| set as *mut _);
        of(wakeset_fd::pselect(a as c_int, sets, limit, ptr::null()))
    }
}

/// timerfd_create(2), timerfd_settime(2) and timerfd_gettime(2).
///
/// # Safety
/// As [`World::call`].
unsafe fn of_timer(number: Sysno, [a, b, c, d, ..]: [usize; 6]) -> isize {
    let fd = a as c_int;
    // SAFETY: the caller's contract.
    unsafe {
        match number {
            Sysno::timerfd_create => of(wakeset_fd::timerfd_create(fd, b as c_int)),
            Sysno::timerfd_settime => {
                unit(wakeset_fd::timerfd_settime(fd, b as c_int, c as *const _, d as *mut _))
            }
            _ => unit(wakeset_fd::timerfd_gettime(fd, b as *mut _)),
        }
    }
}

/// Calls of several buffers on an end of a pipe or pair.
///
/// # Safety
/// As [`World::call`].
unsafe fn of_pieces(number: Sysno, arguments: [usize; 6]) -> isize {
    let [a, b, c, ..] = arguments;
    let (fd, n) = (a as c_int, c as c_int);
    // SAFETY: the caller's contract.
    unsafe {
        let verdict = match number {
            Sysno::readv => pipe::readv(fd, b as *const _, n),
            Sysno::writev => pipe::writev(fd, b as *const _, n),
            Sysno::recvmsg => pipe::recvmsg(fd, b as *mut _, n),
            _ => {
                descriptor::before_sendmsg(b as *const _);
                pipe::sendmsg(fd, b as *const _, n)
            }
        };
        of(verdict.or_kernel(|| kernel(number, arguments).map(|size| size as usize)))
    }
}

/// The calls that the crate offers. `None` for others.
///
/// # Safety
/// As [`World::call`].
unsafe fn offered(number: Sysno, arguments: [usize; 6]) -> Option<isize> {
    let [a, b, c, d, e, f] = arguments;
    let fd = a as c_int;
    let (events, maxevents) = (b as *mut epoll_event, c as c_int);
    // SAFETY: the caller's contract, here and below.
    let complete = |verdict: wakeset_fd::Verdict<c_int>| unsafe {
        of(verdict.or_kernel(|| kernel(number, arguments)))
    };
    // SAFETY: as above.
    Some(unsafe {
        match number {
            Sysno::eventfd2 => of(wakeset_fd::eventfd(a as u32, b as c_int)),
            Sysno::timerfd_create | Sysno::timerfd_settime | Sysno::timerfd_gettime => {
                of_timer(number, arguments)
            }
            Sysno::epoll_create1 => of(wakeset_fd::epoll_create1(fd)),
            Sysno::epoll_ctl => {
                unit(wakeset_fd::epoll_ctl(fd, b as c_int, c as c_int, d as *const _))
            }
            Sysno::epoll_wait => of(wakeset_fd::epoll_wait(fd, events, maxevents, d as c_int)),
            Sysno::epoll_pwait => {
                let limit = set::Limit::Milliseconds(d as c_int);
                let mask = set::Mask { set: e as *const u8, bytes: f };
                complete(set::epoll_wait(fd, events, maxevents, limit, mask))
            }
            Sysno::epoll_pwait2 => {
                let (limit, mask) = (d as *const _, e as *const _);
                of(wakeset_fd::epoll_pwait2(fd, events, maxevents, limit, mask))
            }
            Sysno::pipe2 => unit(wakeset_fd::pipe2(a as *mut c_int, b as c_int)),
            Sysno::socketpair => {
                unit(wakeset_fd::socketpair(fd, b as c_int, c as c_int, d as *mut c_int))
            }
            Sysno::read => of(wakeset_fd::read(fd, b as *mut u8, c)),
            Sysno::write => of(wakeset_fd::write(fd, b as *const u8, c)),
            Sysno::shutdown => unit(wakeset_fd::shutdown(fd, b as c_int)),
            Sysno::poll | Sysno::select => poll_or_select(number, arguments),
            Sysno::close => unit(wakeset_fd::close(fd)),
            Sysno::dup => of(wakeset_fd::dup(fd)),
            Sysno::dup2 => complete(duplicate::dup2(fd, b as c_int)),
            Sysno::dup3 => complete(duplicate::dup3(fd, b as c_int, c as c_int)),
            Sysno::fcntl if b as c_int == libc::F_SETFL => {
                unit(wakeset_fd::set_nonblocking(fd, c as c_int & libc::O_NONBLOCK != 0))
            }
            Sysno::fcntl => {
                complete(duplicate::dup_above(fd, c, b as c_int == libc::F_DUPFD_CLOEXEC))
            }
            Sysno::ioctl if descriptor::is_hidden(fd) => -(libc::EBADF as isize),
            Sysno::ioctl => {
                let result = raw(number, arguments);
                if result == 0 {
                    counter::note_nonblocking(fd, *(c as *const c_int) != 0);
                }
                result
            }
            _ => return None,
        }
    })
}

/// Makes the objects migrate that a call names which the crate does not offer.
///
/// # Safety
/// As [`World::call`].
unsafe fn migrate_for(number: Sysno, [a, b, c, ..]: [usize; 6]) {
    let fd = a as c_int;
    match number {
        // SAFETY: the caller's contract.
        Sysno::sendmsg => unsafe { descriptor::before_sendmsg(b as *const _) },
        Sysno::readv | Sysno::writev | Sysno::pread64 => {
            migrate::fd(fd, Stat::MigratedUnmodelled);
        }
        Sysno::splice => {
            migrate::fd(fd, Stat::MigratedUnmodelled);
            migrate::fd(c as c_int, Stat::MigratedUnmodelled);
        }
        _ => {}
    }
}

impl World for Api {
    unsafe fn call(&mut self, number: Sysno, arguments: [usize; 6]) -> isize {
        use Sysno as S;
        let is_of_pieces = matches!(number, S::readv | S::writev | S::sendmsg | S::recvmsg);
        // SAFETY: the caller's contract.
        unsafe {
            if is_of_pieces && pipe::is_end(arguments[0] as c_int) {
                return of_pieces(number, arguments);
            }
            offered(number, arguments).unwrap_or_else(|| {
                migrate_for(number, arguments);
                raw(number, arguments)
            })
        }
    }

    fn batch(&mut self, set: c_int, stop: bool, commands: &mut [Command]) {
        let flags = if stop { wakeset_fd::batch::STOP_AT_ERROR } else { 0 };
        let succeeded = wakeset_fd::epoll_ctl_batch(set, flags, commands);
        assert_eq!(succeeded, Ok(commands.iter().filter(|command| command.result == 0).count()));
    }

    fn write(&self) -> Option<Write> {
        let write = |number, bytes: &[u8]| {
            // SAFETY: the bytes are there.
            of(unsafe { wakeset_fd::write(number, bytes.as_ptr(), bytes.len()) })
        };
        Some(Box::new(write))
    }

    fn ring(&mut self, set: c_int, entries: usize, polls: bool) {
        let flags = if polls { wakeset_fd::RING_POLL } else { 0 };
        let _ = wakeset_fd::ring_setup_with(set, entries, flags);
    }

    fn fork(&mut self) {
        // A fork's effect on the parent's objects, without the cost of a child.
        migrate::everything(Stat::MigratedFork);
        migrate::open_gate();
    }
}
