//! Descriptors as the tests use them: sets, counters, and objects of the kernel.

use crate::backend::{Backend, Errno};
use libc::{c_int, c_uint, epoll_event, timespec};
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, IntoRawFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;

pub const IN: u32 = libc::EPOLLIN as u32;
pub const PRI: u32 = libc::EPOLLPRI as u32;
pub const OUT: u32 = libc::EPOLLOUT as u32;
pub const ERR: u32 = libc::EPOLLERR as u32;
pub const HUP: u32 = libc::EPOLLHUP as u32;
pub const RDHUP: u32 = libc::EPOLLRDHUP as u32;
pub const RDNORM: u32 = libc::EPOLLRDNORM as u32;
pub const WRNORM: u32 = libc::EPOLLWRNORM as u32;
pub const RDBAND: u32 = libc::EPOLLRDBAND as u32;
pub const WRBAND: u32 = libc::EPOLLWRBAND as u32;
pub const MSG: u32 = libc::EPOLLMSG as u32;
pub const ET: u32 = libc::EPOLLET as u32;
pub const ONESHOT: u32 = libc::EPOLLONESHOT as u32;
pub const WAKEUP: u32 = libc::EPOLLWAKEUP as u32;
pub const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE as u32;

/// The most a counter holds.
pub const LARGEST: u64 = u64::MAX - 1;

/// A timeout in milliseconds so long that reaching it means the test has failed; it ends the wait
/// so that a failure is an assertion and not a hang.
pub const LONG: c_int = 30_000;

/// A reported event: the watch's data, and the bits.
pub type Report = (u64, u32);

/// A descriptor that a set of world `B` can watch. The parameter lets the compiler infer the world.
pub trait Descriptor<B> {
    fn number(&self) -> RawFd;
}

impl<B: Backend> Descriptor<B> for Fd<B> {
    fn number(&self) -> RawFd {
        self.as_raw_fd()
    }
}

impl<B: Backend> Descriptor<B> for Set<B> {
    fn number(&self) -> RawFd {
        self.as_raw_fd()
    }
}

impl<B: Backend> Descriptor<B> for Counter<B> {
    fn number(&self) -> RawFd {
        self.as_raw_fd()
    }
}

impl<B> Descriptor<B> for RawFd {
    fn number(&self) -> RawFd {
        *self
    }
}

/// An open descriptor of world `B`, closed there when the last clone goes.
pub struct Fd<B: Backend>(Arc<Owned<B>>);

struct Owned<B: Backend>(RawFd, PhantomData<B>);

impl<B: Backend> Drop for Owned<B> {
    fn drop(&mut self) {
        let _ = B::close(self.0);
    }
}

impl<B: Backend> Clone for Fd<B> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<B: Backend> AsRawFd for Fd<B> {
    fn as_raw_fd(&self) -> RawFd {
        self.0.0
    }
}

impl<B: Backend> Fd<B> {
    pub fn own(raw: RawFd) -> Self {
        Self(Arc::new(Owned(raw, PhantomData)))
    }

    /// Another descriptor of the same description.
    pub fn dup(&self) -> Self {
        Self::own(B::dup(self.as_raw_fd()).unwrap())
    }

    /// The same, of a description that is the kernel's by now.
    pub fn migrated_dup(&self) -> Self {
        B::migrate(self.as_raw_fd());
        self.dup()
    }

    pub fn read(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        // SAFETY: a buffer of that length.
        unsafe { B::read(self.as_raw_fd(), buffer.as_mut_ptr(), buffer.len()) }
    }

    pub fn write(&self, bytes: &[u8]) -> Result<usize, Errno> {
        // SAFETY: bytes of that length.
        unsafe { B::write(self.as_raw_fd(), bytes.as_ptr(), bytes.len()) }
    }
}

/// An epoll set.
pub struct Set<B: Backend>(Fd<B>);

impl<B: Backend> Clone for Set<B> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<B: Backend> AsRawFd for Set<B> {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl<B: Backend> Set<B> {
    pub fn new() -> Self {
        Self(Fd::own(B::epoll_create1(libc::EPOLL_CLOEXEC).unwrap()))
    }

    pub fn dup(&self) -> Self {
        Self(self.0.dup())
    }

    pub fn ctl(
        &self,
        op: c_int,
        target: &impl Descriptor<B>,
        events: u32,
        data: u64,
    ) -> Result<(), Errno> {
        ctl::<B>(self.as_raw_fd(), op, target.number(), events, data)
    }

    pub fn try_add(
        &self,
        target: &impl Descriptor<B>,
        events: u32,
        data: u64,
    ) -> Result<(), Errno> {
        self.ctl(libc::EPOLL_CTL_ADD, target, events, data)
    }

    pub fn try_modify(
        &self,
        target: &impl Descriptor<B>,
        events: u32,
        data: u64,
    ) -> Result<(), Errno> {
        self.ctl(libc::EPOLL_CTL_MOD, target, events, data)
    }

    pub fn try_remove(&self, target: &impl Descriptor<B>) -> Result<(), Errno> {
        self.ctl(libc::EPOLL_CTL_DEL, target, 0, 0)
    }

    #[track_caller]
    pub fn add(&self, target: &impl Descriptor<B>, events: u32, data: u64) {
        self.try_add(target, events, data).expect("EPOLL_CTL_ADD");
    }

    #[track_caller]
    pub fn modify(&self, target: &impl Descriptor<B>, events: u32, data: u64) {
        self.try_modify(target, events, data).expect("EPOLL_CTL_MOD");
    }

    #[track_caller]
    pub fn remove(&self, target: &impl Descriptor<B>) {
        self.try_remove(target).expect("EPOLL_CTL_DEL");
    }

    /// epoll_wait(2) with a `maxevents` of `max`.
    pub fn wait(&self, max: usize, timeout: c_int) -> Result<Vec<Report>, Errno> {
        let mut events = vec![epoll_event { events: 0, u64: 0 }; max];
        // SAFETY: room for `max` events.
        let n =
            unsafe { B::epoll_wait(self.as_raw_fd(), events.as_mut_ptr(), max as c_int, timeout) }?;
        Ok(reports(&events[..n as usize]))
    }

    /// epoll_pwait2(2) with a `maxevents` of 16. `None` is no limit.
    pub fn wait_masked(
        &self,
        timeout: Option<Duration>,
        mask: Option<u64>,
    ) -> Result<Vec<Report>, Errno> {
        let mut events = [epoll_event { events: 0, u64: 0 }; 16];
        let timeout = timeout.map(|limit| timespec {
            tv_sec: limit.as_secs() as libc::time_t,
            tv_nsec: limit.subsec_nanos().into(),
        });
        // SAFETY: room for 16 events; the timeout and the mask outlive the call, or are null.
        let n = unsafe {
            B::epoll_pwait2(
                self.as_raw_fd(),
                events.as_mut_ptr(),
                16,
                timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref),
                mask.as_ref().map_or(std::ptr::null(), std::ptr::from_ref),
            )
        }?;
        Ok(reports(&events[..n as usize]))
    }

    /// What is ready now, up to 64, in the order of delivery.
    #[track_caller]
    pub fn ready(&self) -> Vec<Report> {
        self.wait(64, 0).expect("epoll_wait")
    }

    /// Waits for one event, and fails if none comes.
    #[track_caller]
    pub fn next(&self) -> Report {
        let got = self.wait(1, LONG).expect("epoll_wait");
        *got.first().expect("an event")
    }
}

fn reports(events: &[epoll_event]) -> Vec<Report> {
    events.iter().map(|event| (event.u64, event.events)).collect()
}

/// epoll_ctl by numbers.
pub fn ctl<B: Backend>(
    set: RawFd,
    op: c_int,
    fd: RawFd,
    events: u32,
    data: u64,
) -> Result<(), Errno> {
    let mut event = epoll_event { events, u64: data };
    // SAFETY: a valid event.
    unsafe { B::epoll_ctl(set, op, fd, &raw mut event) }
}

/// An eventfd.
pub struct Counter<B: Backend>(Fd<B>);

impl<B: Backend> Clone for Counter<B> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<B: Backend> AsRawFd for Counter<B> {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl<B: Backend> Counter<B> {
    /// A non-blocking counter.
    pub fn new(initial: c_uint) -> Self {
        Self::with_flags(initial, libc::EFD_NONBLOCK)
    }

    /// A counter whose reads and writes block.
    pub fn blocking(initial: c_uint) -> Self {
        Self::with_flags(initial, 0)
    }

    pub fn with_flags(initial: c_uint, flags: c_int) -> Self {
        Self(Fd::own(B::eventfd(initial, flags | libc::EFD_CLOEXEC).unwrap()))
    }

    pub fn fd(&self) -> &Fd<B> {
        &self.0
    }

    pub fn dup(&self) -> Self {
        Self(self.0.dup())
    }

    pub fn try_write(&self, n: u64) -> Result<(), Errno> {
        match self.0.write(&n.to_ne_bytes())? {
            8 => Ok(()),
            len => panic!("wrote {len} bytes"),
        }
    }

    pub fn try_read(&self) -> Result<u64, Errno> {
        let mut bytes = [0; 8];
        match self.0.read(&mut bytes)? {
            8 => Ok(u64::from_ne_bytes(bytes)),
            len => panic!("read {len} bytes"),
        }
    }

    #[track_caller]
    pub fn write(&self, n: u64) {
        self.try_write(n).expect("write");
    }

    #[track_caller]
    pub fn read(&self) -> u64 {
        self.try_read().expect("read")
    }

    /// Empties the counter, whatever is in it.
    #[track_caller]
    pub fn drain(&self) {
        while self.try_read().is_ok() {}
    }
}

/// Read end and write end.
pub type Pipe<B> = (Fd<B>, Fd<B>);

/// A pipe, non-blocking at both ends: the kernel's own in both worlds.
pub fn pipe<B: Backend>() -> Pipe<B> {
    let (reader, writer) = io::pipe().unwrap();
    (kernel_fd(reader), kernel_fd(writer))
}

/// Both ends of a pair that world `B` has made.
pub fn own_pair<B: Backend>(made: Result<[RawFd; 2], Errno>) -> Pipe<B> {
    let [one, other] = made.expect("two descriptors");
    (Fd::own(one), Fd::own(other))
}

/// A connected pair of stream sockets, non-blocking.
pub fn socket_pair<B: Backend>() -> (Fd<B>, Fd<B>) {
    let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
    (kernel_fd(one), kernel_fd(other))
}

fn kernel_fd<B: Backend>(file: impl IntoRawFd) -> Fd<B> {
    let raw = file.into_raw_fd();
    B::set_nonblocking(raw, true).unwrap();
    Fd::own(raw)
}

/// The most descriptors this process may have now.
fn descriptor_limit() -> libc::rlimit {
    // SAFETY: a valid place for the limits.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit), 0);
        limit
    }
}

/// Raises the limit for tests that need hundreds of descriptors at the same time.
pub fn raise_descriptor_limit() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let mut limit = descriptor_limit();
        limit.rlim_cur = limit.rlim_cur.max(limit.rlim_max.min(10_000));
        // SAFETY: a valid limit.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
    });
}

/// A number so high that no descriptor gets it by chance, and that no other test asks for.
pub fn far_number() -> RawFd {
    static TAKEN: AtomicI32 = AtomicI32::new(0);
    raise_descriptor_limit();
    descriptor_limit().rlim_cur as RawFd - 1 - TAKEN.fetch_add(1, Ordering::Relaxed)
}
