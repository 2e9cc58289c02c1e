//! Wakeset through the functions of its C library, called as a C program calls them.

use super::faults::recover_from_faults;
use super::kernel::raw;
use super::libc_call::{fork_and_reap, int, size};
use super::{Sysno, World, Write};
use libc::{c_int, c_long, c_void, epoll_event};
use wakeset_c::{descriptor, epoll, eventfd, io, poll, timer};
use wakeset_fd::{Verdict, pipe};

/// The C library, in this process.
#[derive(Debug)]
pub struct Library(());

impl Library {
    /// Wakeset in this process, which returns EFAULT for a bad pointer from now on.
    #[allow(clippy::new_without_default, reason = "it has an effect on the process")]
    pub fn new() -> Self {
        recover_from_faults();
        Self(())
    }
}

fn error(errno: wakeset_fd::Errno) -> isize {
    -(errno.into_raw() as isize)
}

fn of(result: Result<(), wakeset_fd::Errno>) -> isize {
    result.map_or_else(error, |()| 0)
}

/// Releases the objects of a call that the library does not offer, as a program has to before it.
fn release_for(number: Sysno, [a, _, c, ..]: [usize; 6]) {
    let (fd, to) = (a as c_int, c as c_int);
    match number {
        Sysno::pread64 => {
            descriptor::ws_release(fd);
        }
        Sysno::splice => {
            descriptor::ws_release(fd);
            descriptor::ws_release(to);
        }
        _ => {}
    }
}

impl World for Library {
    unsafe fn call(&mut self, number: Sysno, arguments: [usize; 6]) -> isize {
        let [a, b, c, d, e, _] = arguments;
        let fd = a as c_int;
        let (events, room) = (b as *mut epoll_event, c as c_int);
        // SAFETY: the caller's contract. Masks are null, inaccessible, or as long as glibc's.
        unsafe {
            match number {
                Sysno::eventfd2 => int(eventfd::ws_eventfd(a as u32, b as c_int)),
                Sysno::timerfd_create => int(timer::ws_timerfd_create(fd, b as c_int)),
                Sysno::timerfd_settime => {
                    int(timer::ws_timerfd_settime(fd, b as c_int, c as *const _, d as *mut _))
                }
                Sysno::timerfd_gettime => int(timer::ws_timerfd_gettime(fd, b as *mut _)),
                Sysno::epoll_create1 => int(epoll::ws_epoll_create1(fd)),
                Sysno::epoll_ctl => {
                    int(epoll::ws_epoll_ctl(fd, b as c_int, c as c_int, d as *mut _))
                }
                Sysno::epoll_wait => int(epoll::ws_epoll_wait(fd, events, room, d as c_int)),
                Sysno::epoll_pwait => {
                    int(epoll::ws_epoll_pwait(fd, events, room, d as c_int, e as *const _))
                }
                Sysno::epoll_pwait2 => {
                    int(epoll::ws_epoll_pwait2(fd, events, room, d as *const _, e as *const _))
                }
                Sysno::read => size(io::ws_read(fd, b as *mut c_void, c)),
                Sysno::write => size(io::ws_write(fd, b as *const c_void, c)),
                Sysno::readv => size(io::ws_readv(fd, b as *const _, c as c_int)),
                Sysno::writev => size(io::ws_writev(fd, b as *const _, c as c_int)),
                Sysno::close => int(descriptor::ws_close(fd)),
                Sysno::dup => int(descriptor::ws_dup(fd)),
                Sysno::dup2 => int(descriptor::ws_dup2(fd, b as c_int)),
                Sysno::dup3 => int(descriptor::ws_dup3(fd, b as c_int, c as c_int)),
                Sysno::fcntl => int(descriptor::ws_fcntl(fd, b as c_int, c as c_long)),
                Sysno::ioctl => int(descriptor::ws_ioctl(fd, b as libc::c_ulong, c as c_long)),
                Sysno::sendmsg => size(io::ws_sendmsg(fd, b as *const _, c as c_int)),
                Sysno::poll => int(poll::ws_poll(a as *mut _, b as libc::nfds_t, c as c_int)),
                Sysno::select => {
                    int(poll::ws_select(fd, b as *mut _, c as *mut _, d as *mut _, e as *mut _))
                }
                // Functions of the crate below; the library's calls know their objects as well.
                Sysno::pipe2 => of(wakeset_fd::pipe2(a as *mut c_int, b as c_int)),
                Sysno::socketpair => {
                    of(wakeset_fd::socketpair(fd, b as c_int, room, d as *mut c_int))
                }
                Sysno::recvmsg if pipe::is_end(fd) => {
                    match pipe::recvmsg(fd, b as *mut _, c as c_int) {
                        Verdict::Done(result) => result.map_or_else(error, |size| size as isize),
                        Verdict::Kernel => raw(number, arguments),
                    }
                }
                Sysno::shutdown => of(wakeset_fd::shutdown(fd, b as c_int)),
                _ => {
                    release_for(number, arguments);
                    raw(number, arguments)
                }
            }
        }
    }

    fn write(&self) -> Option<Write> {
        Some(Box::new(|number, bytes| {
            // SAFETY: the bytes are there.
            size(unsafe { io::ws_write(number, bytes.as_ptr().cast(), bytes.len()) })
        }))
    }

    fn ring(&mut self, set: c_int, entries: usize, polls: bool) {
        wakeset_c::objects::ring::ws_ring_setup(
            set,
            entries,
            if polls { wakeset_fd::RING_POLL } else { 0 },
        );
    }

    fn fork(&mut self) {
        fork_and_reap();
    }
}
