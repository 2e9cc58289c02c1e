//! Wakeset through libc's functions, in a process that was started with the preload library.

use super::libc_call::{fork_and_reap, int, last_errno, size};
use super::{Sysno, World};
use libc::{c_int, c_long, c_void, epoll_event, sigset_t, size_t, timespec};

/// libc's functions, or syscall(2), as the preload library has replaced them.
#[derive(Debug, Default)]
pub struct Interposed {
    by_number: bool,
}

unsafe extern "C" {
    /// Since glibc 2.35; the libc crate does not declare it.
    fn epoll_pwait2(
        set: c_int,
        events: *mut epoll_event,
        max: c_int,
        timeout: *const timespec,
        mask: *const sigset_t,
    ) -> c_int;
}

/// Whether the preload library is in this process.
pub fn is_preloaded() -> bool {
    std::fs::read_to_string("/proc/self/maps")
        .is_ok_and(|maps| maps.contains("libwakeset_preload.so"))
}

impl World for Interposed {
    fn begin(&mut self, by_number: bool) {
        self.by_number = by_number;
    }

    unsafe fn call(&mut self, number: Sysno, [a, b, c, d, e, f]: [usize; 6]) -> isize {
        let fd = a as c_int;
        let (events, room) = (b as *mut epoll_event, c as c_int);
        // SAFETY: the caller's contract. Masks are null, inaccessible, or as long as glibc's.
        unsafe {
            if self.by_number {
                let result = libc::syscall(number.id() as c_long, a, b, c, d, e, f);
                return if result < 0 { last_errno() } else { result as isize };
            }
            match number {
                Sysno::eventfd2 => int(libc::eventfd(a as u32, b as c_int)),
                Sysno::timerfd_create => int(libc::timerfd_create(fd, b as c_int)),
                Sysno::timerfd_settime => {
                    int(libc::timerfd_settime(fd, b as c_int, c as *const _, d as *mut _))
                }
                Sysno::timerfd_gettime => int(libc::timerfd_gettime(fd, b as *mut _)),
                Sysno::epoll_create1 => int(libc::epoll_create1(fd)),
                Sysno::epoll_ctl => int(libc::epoll_ctl(fd, b as c_int, c as c_int, d as *mut _)),
                Sysno::epoll_wait => int(libc::epoll_wait(fd, events, room, d as c_int)),
                Sysno::epoll_pwait => {
                    int(libc::epoll_pwait(fd, events, room, d as c_int, e as *const _))
                }
                Sysno::epoll_pwait2 => {
                    int(epoll_pwait2(fd, events, room, d as *const _, e as *const _))
                }
                Sysno::read => size(libc::read(fd, b as *mut c_void, c)),
                Sysno::write => size(libc::write(fd, b as *const c_void, c)),
                Sysno::readv => size(libc::readv(fd, b as *const _, c as c_int)),
                Sysno::writev => size(libc::writev(fd, b as *const _, c as c_int)),
                Sysno::pread64 => size(libc::pread64(fd, b as *mut c_void, c, d as i64)),
                Sysno::close => int(libc::close(fd)),
                Sysno::dup => int(libc::dup(fd)),
                Sysno::dup2 => int(libc::dup2(fd, b as c_int)),
                Sysno::dup3 => int(libc::dup3(fd, b as c_int, c as c_int)),
                Sysno::fcntl => int(libc::fcntl(fd, b as c_int, c as c_long)),
                Sysno::ioctl => int(libc::ioctl(fd, b as libc::c_ulong, c)),
                Sysno::pipe2 => int(libc::pipe2(a as *mut c_int, b as c_int)),
                Sysno::socketpair => {
                    int(libc::socketpair(fd, b as c_int, c as c_int, d as *mut c_int))
                }
                Sysno::open => int(libc::open(a as *const _, b as c_int)),
                Sysno::sendmsg => size(libc::sendmsg(fd, b as *const _, c as c_int)),
                Sysno::recvmsg => size(libc::recvmsg(fd, b as *mut _, c as c_int)),
                Sysno::poll => int(libc::poll(a as *mut _, b as libc::nfds_t, c as c_int)),
                Sysno::select => {
                    int(libc::select(fd, b as *mut _, c as *mut _, d as *mut _, e as *mut _))
                }
                Sysno::splice => size(libc::splice(
                    fd,
                    b as *mut _,
                    c as c_int,
                    d as *mut _,
                    e as size_t,
                    f as libc::c_uint,
                )),
                Sysno::shutdown => int(libc::shutdown(fd, b as c_int)),
                _ => unreachable!("a call that programs do not make"),
            }
        }
    }

    fn fork(&mut self) {
        fork_and_reap();
    }
}
