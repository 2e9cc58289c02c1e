//! Wakeset through the functions of the crate `wakeset-fd`, as a program would call it that links the crate. Calls
//! that this crate does not offer move what they name into the kernel first, as the preload library's do.

use super::kernel::raw;
use super::{Command, Sysno, World};
use libc::{c_int, epoll_event};
use std::ptr;
use std::sync::{Once, OnceLock};
use wakeset_fd::stats::Stat;
use wakeset_fd::{Errno, counter, descriptor, escape, set};

/// Wakeset, in this process.
#[derive(Debug)]
pub struct Api(());

impl Api {
    /// Also makes Wakeset's answer to a bad pointer EFAULT from now on.
    #[allow(clippy::new_without_default, reason = "it has an effect on the process")]
    pub fn new() -> Self {
        static ONCE: Once = Once::new();
        ONCE.call_once(recover_from_faults);
        Self(())
    }
}

fn of<T: TryInto<isize>>(result: Result<T, Errno>) -> isize {
    match result {
        Ok(value) => value.try_into().unwrap_or(isize::MAX),
        Err(errno) => -(errno.into_raw() as isize),
    }
}

impl World for Api {
    unsafe fn call(&mut self, number: Sysno, arguments: [usize; 6]) -> isize {
        let [a, b, c, d, e, f] = arguments;
        let fd = a as c_int;
        let events = b as *mut epoll_event;
        // SAFETY: the caller's contract, for all calls below.
        let kernel = || unsafe { raw(number, arguments) };
        let complete = |verdict: wakeset_fd::Verdict<c_int>| of(verdict.or_kernel(|| as_result(kernel())));
        // SAFETY: as above.
        unsafe {
            match number {
                Sysno::eventfd2 => of(wakeset_fd::eventfd(a as u32, b as c_int)),
                Sysno::timerfd_create => of(wakeset_fd::timerfd_create(fd, b as c_int)),
                Sysno::timerfd_settime => {
                    of(wakeset_fd::timerfd_settime(fd, b as c_int, c as *const _, d as *mut _).map(|()| 0))
                }
                Sysno::epoll_create1 => of(wakeset_fd::epoll_create1(fd)),
                Sysno::epoll_ctl => of(wakeset_fd::epoll_ctl(fd, b as c_int, c as c_int, d as *const _).map(|()| 0)),
                Sysno::epoll_wait => of(wakeset_fd::epoll_wait(fd, events, c as c_int, d as c_int)),
                Sysno::epoll_pwait => {
                    let mask = set::Mask { set: e as *const u8, bytes: f };
                    complete(set::epoll_wait(fd, events, c as c_int, set::Limit::Milliseconds(d as c_int), mask))
                }
                Sysno::epoll_pwait2 => {
                    of(wakeset_fd::epoll_pwait2(fd, events, c as c_int, d as *const _, e as *const _))
                }
                Sysno::pipe2 => of(wakeset_fd::pipe2(a as *mut c_int, b as c_int).map(|()| 0)),
                Sysno::socketpair => {
                    of(wakeset_fd::socketpair(fd, b as c_int, c as c_int, d as *mut c_int).map(|()| 0))
                }
                Sysno::shutdown => {
                    if wakeset_fd::pipe::is_end(fd) {
                        escape::fd(fd, Stat::MovedUnmodelled);
                    }
                    kernel()
                }
                Sysno::read => of(wakeset_fd::read(fd, b as *mut u8, c)),
                Sysno::write => of(wakeset_fd::write(fd, b as *const u8, c)),
                Sysno::close => of(wakeset_fd::close(fd).map(|()| 0)),
                Sysno::dup => of(wakeset_fd::dup(fd)),
                Sysno::dup2 => complete(descriptor::before_dup_to(fd, b as c_int, 0)),
                Sysno::dup3 => complete(descriptor::before_dup_to(fd, b as c_int, c as c_int)),
                Sysno::fcntl if b as c_int == libc::F_SETFL => {
                    of(wakeset_fd::set_nonblocking(fd, c as c_int & libc::O_NONBLOCK != 0).map(|()| 0))
                }
                Sysno::fcntl => complete(descriptor::before_dup(fd)),
                Sysno::ioctl if descriptor::is_hidden(fd) => -(libc::EBADF as isize),
                Sysno::ioctl => {
                    let result = kernel();
                    if result == 0 {
                        counter::note_nonblocking(fd, *(c as *const c_int) != 0);
                    }
                    result
                }
                Sysno::sendmsg => {
                    descriptor::before_sendmsg(b as *const _);
                    kernel()
                }
                Sysno::poll => {
                    for i in 0..b {
                        escape::fd((*(a as *const libc::pollfd).add(i)).fd, Stat::MovedPoll);
                    }
                    kernel()
                }
                Sysno::select => {
                    for number in 0..fd {
                        if [b, c].iter().any(|set| libc::FD_ISSET(number, *set as *const libc::fd_set)) {
                            escape::fd(number, Stat::MovedPoll);
                        }
                    }
                    kernel()
                }
                Sysno::readv | Sysno::writev | Sysno::pread64 => {
                    escape::fd(fd, Stat::MovedUnmodelled);
                    kernel()
                }
                Sysno::splice => {
                    escape::fd(fd, Stat::MovedUnmodelled);
                    escape::fd(c as c_int, Stat::MovedUnmodelled);
                    kernel()
                }
                _ => kernel(),
            }
        }
    }

    fn batch(&mut self, set: c_int, stop: bool, commands: &mut [Command]) {
        let flags = if stop { wakeset_fd::batch::STOP_AT_ERROR } else { 0 };
        let succeeded = wakeset_fd::epoll_ctl_batch(set, flags, commands);
        assert_eq!(succeeded, Ok(commands.iter().filter(|command| command.result == 0).count()));
    }

    fn ring(&mut self, set: c_int, entries: usize, polls: bool) {
        let flags = if polls { wakeset_fd::RING_POLL } else { 0 };
        let _ = wakeset_fd::ring_setup_with(set, entries, flags);
    }

    fn fork(&mut self) {
        // What a fork does to the parent's objects, without the expense of a child.
        escape::everything(Stat::MovedFork);
        escape::open_gate();
    }
}

fn as_result(result: isize) -> Result<c_int, Errno> {
    if result < 0 { Err(Errno::new(-result as i32)) } else { Ok(result as c_int) }
}

/// An access of Wakeset's to the program's memory that faults goes on where it says; any other fault is the business of whoever had the handler before.
pub(super) fn recover_from_faults() {
    /// The handlers of SIGSEGV and SIGBUS from before.
    static BEFORE: [OnceLock<libc::sigaction>; 2] = [const { OnceLock::new() }; 2];
    extern "C" fn resume(signal: c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
        // SAFETY: the kernel passes the interrupted thread's context.
        unsafe {
            let registers = &raw mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
            let next = &raw mut (*registers)[libc::REG_RIP as usize];
            match wakeset_fd::user::recovery(*next as usize) {
                Some(resume) => *next = resume as i64,
                // The instruction faults again, and this time it meets the handler from before.
                None => {
                    let before = BEFORE[usize::from(signal == libc::SIGBUS)].get();
                    libc::sigaction(signal, before.map_or(ptr::null(), ptr::from_ref), ptr::null_mut());
                }
            }
        }
    }
    // SAFETY: a valid action, whose handler is async-signal-safe.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = resume as extern "C" fn(c_int, *mut libc::siginfo_t, *mut libc::c_void) as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        for (signal, before) in [libc::SIGSEGV, libc::SIGBUS].into_iter().zip(&BEFORE) {
            let mut old: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, ptr::null(), &mut old);
            let _ = before.set(old);
            libc::sigaction(signal, &action, ptr::null_mut());
        }
    }
}
