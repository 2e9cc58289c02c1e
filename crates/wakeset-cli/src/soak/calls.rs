//! The calls of the load, by descriptor number: Wakeset's own functions, or libc's, which the
//! preload library answers under `wakeset run` and the kernel without it.

use std::io;

use libc::{c_int, epoll_event};

/// What answers the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    Library,
    Libc,
}

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn checked<T>(result: Result<T, wakeset_fd::Errno>) -> io::Result<T> {
    result.map_err(|errno| io::Error::from_raw_os_error(errno.into_raw()))
}

impl Calls {
    pub fn set(self) -> io::Result<c_int> {
        match self {
            Calls::Library => checked(wakeset_fd::epoll_create1(libc::EPOLL_CLOEXEC)),
            // SAFETY: no memory is involved.
            Calls::Libc => check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) }),
        }
    }

    /// An eventfd at 0 that is closed on exec, with further flags.
    pub fn counter(self, flags: c_int) -> io::Result<c_int> {
        let flags = flags | libc::EFD_CLOEXEC;
        match self {
            Calls::Library => checked(wakeset_fd::eventfd(0, flags)),
            // SAFETY: no memory is involved.
            Calls::Libc => check(unsafe { libc::eventfd(0, flags) }),
        }
    }

    /// A pipe that does not block: reading end, writing end.
    pub fn pipe(self) -> io::Result<[c_int; 2]> {
        let mut ends = [-1; 2];
        // SAFETY: room for two numbers.
        check(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) })?;
        Ok(ends)
    }

    pub fn control(
        self,
        set: c_int,
        op: c_int,
        fd: c_int,
        bits: c_int,
        data: u64,
    ) -> io::Result<()> {
        let mut event = epoll_event { events: bits as u32, u64: data };
        match self {
            Calls::Library => {
                // SAFETY: a valid event.
                checked(unsafe { wakeset_fd::epoll_ctl(set, op, fd, &raw const event) })
            }
            // SAFETY: as above.
            Calls::Libc => check(unsafe { libc::epoll_ctl(set, op, fd, &raw mut event) }).map(drop),
        }
    }

    pub fn add(self, set: c_int, fd: c_int, bits: c_int, data: u64) -> io::Result<()> {
        self.control(set, libc::EPOLL_CTL_ADD, fd, bits, data)
    }

    pub fn modify(self, set: c_int, fd: c_int, bits: c_int, data: u64) -> io::Result<()> {
        self.control(set, libc::EPOLL_CTL_MOD, fd, bits, data)
    }

    pub fn remove(self, set: c_int, fd: c_int) -> io::Result<()> {
        self.control(set, libc::EPOLL_CTL_DEL, fd, 0, 0)
    }

    /// The data of what is ready.
    pub fn wait(self, set: c_int, limit: c_int) -> io::Result<impl Iterator<Item = u64>> {
        let mut events = [epoll_event { events: 0, u64: 0 }; 16];
        let capacity = events.len() as c_int;
        let n = match self {
            // SAFETY: room for that many.
            Calls::Library => checked(unsafe {
                wakeset_fd::epoll_wait(set, events.as_mut_ptr(), capacity, limit)
            }),
            Calls::Libc => {
                // SAFETY: as above.
                check(unsafe { libc::epoll_wait(set, events.as_mut_ptr(), capacity, limit) })
            }
        }?;
        Ok(events.into_iter().take(n as usize).map(|event| event.u64))
    }

    /// How many bytes were taken from the buffer.
    pub fn write(self, fd: c_int, bytes: &[u8]) -> io::Result<usize> {
        let (from, len) = (bytes.as_ptr(), bytes.len());
        match self {
            // SAFETY: the bytes are there.
            Calls::Library => checked(unsafe { wakeset_fd::write(fd, from, len) }),
            Calls::Libc => {
                // SAFETY: as above.
                check(unsafe { libc::write(fd, from.cast(), len) } as c_int).map(|n| n as usize)
            }
        }
    }

    /// How many bytes came into the buffer.
    pub fn read(self, fd: c_int, bytes: &mut [u8]) -> io::Result<usize> {
        let (to, len) = (bytes.as_mut_ptr(), bytes.len());
        match self {
            // SAFETY: the memory is there.
            Calls::Library => checked(unsafe { wakeset_fd::read(fd, to, len) }),
            Calls::Libc => {
                // SAFETY: as above.
                check(unsafe { libc::read(fd, to.cast(), len) } as c_int).map(|n| n as usize)
            }
        }
    }

    /// Adds units to an eventfd.
    pub fn add_units(self, fd: c_int, units: u64) -> io::Result<()> {
        self.write(fd, &units.to_ne_bytes()).map(drop)
    }

    /// Takes an eventfd's units; `None` if there are none.
    pub fn take_units(self, fd: c_int) -> io::Result<Option<u64>> {
        let mut bytes = [0; 8];
        match self.read(fd, &mut bytes) {
            Ok(_) => Ok(Some(u64::from_ne_bytes(bytes))),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub fn close(self, fd: c_int) -> io::Result<()> {
        match self {
            Calls::Library => checked(wakeset_fd::close(fd)),
            // SAFETY: the load owns what it closes.
            Calls::Libc => check(unsafe { libc::close(fd) }).map(drop),
        }
    }

    pub fn dup(self, fd: c_int) -> io::Result<c_int> {
        match self {
            Calls::Library => checked(wakeset_fd::dup(fd)),
            // SAFETY: no memory is involved.
            Calls::Libc => check(unsafe { libc::dup(fd) }),
        }
    }
}
