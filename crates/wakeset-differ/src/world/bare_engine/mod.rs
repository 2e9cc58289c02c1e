//! Wakeset's engine alone, without descriptors: its objects stand behind a table of numbers.

mod objects;
mod sets;

use super::{Command, Sysno, World};
use libc::{c_int, epoll_event, itimerspec};
pub use objects::BareEngine;
use objects::{Object, Outcome, errno};
use std::time::Duration;
use wakeset::{Error, Timer, TimerSpec};

impl World for BareEngine {
    fn until_expired(&mut self, _: c_int) {}

    unsafe fn call(&mut self, number: Sysno, [a, b, c, d, ..]: [usize; 6]) -> isize {
        // SAFETY: the caller's contract: programs for this side pass good addresses only.
        let outcome = unsafe {
            match number {
                Sysno::eventfd2 => self.eventfd(a as u32, b as c_int),
                Sysno::timerfd_create => self.timerfd_create(b as c_int),
                Sysno::timerfd_settime => self.settime(a, b as c_int, c as *const _, d as *mut _),
                Sysno::epoll_create1 => self.epoll_create1(a as c_int),
                Sysno::epoll_ctl => {
                    self.epoll_ctl(a, b as c_int, c, (d as *const epoll_event).read_unaligned())
                }
                Sysno::epoll_wait => {
                    self.epoll_wait(a, b as *mut epoll_event, c as c_int, d as c_int)
                }
                Sysno::read => self.read(a, b as *mut u64),
                Sysno::write => self.write(a, (b as *const u64).read_unaligned()),
                Sysno::close => self.close(a),
                Sysno::dup => self.dup(a),
                Sysno::fcntl => self.set_nonblocking(a, c as c_int & libc::O_NONBLOCK != 0),
                Sysno::ioctl => self.set_nonblocking(a, *(c as *const c_int) != 0),
                _ => unreachable!("a call that programs for this side do not make"),
            }
        };
        outcome.unwrap_or_else(|errno| -(errno as isize))
    }

    fn ring(&mut self, epfd: c_int, entries: usize, _polls: bool) {
        if let Ok(set) = self.set(epfd as usize) {
            let _ = set.make_ring(entries);
        }
    }

    fn batch(&mut self, epfd: c_int, stop: bool, commands: &mut [Command]) {
        self.apply(epfd, stop, commands);
    }
}

impl BareEngine {
    /// # Safety
    /// There is memory for a value at `to`.
    unsafe fn read(&self, fd: usize, to: *mut u64) -> Outcome {
        let value = match self.at(fd)? {
            Object::Counter(counter) => counter.read(),
            Object::Timer(timer) => timer.read(),
            Object::Set(_) => return Err(libc::EINVAL),
        };
        let value = value.map_err(errno)?;
        // SAFETY: the caller's contract.
        unsafe { to.write_unaligned(value) };
        Ok(8)
    }

    fn write(&self, fd: usize, value: u64) -> Outcome {
        match self.at(fd)? {
            Object::Counter(counter) => counter.write(value).map(|()| 8).map_err(errno),
            Object::Timer(_) | Object::Set(_) => Err(libc::EINVAL),
        }
    }

    fn set_nonblocking(&self, fd: usize, on: bool) -> Outcome {
        match self.at(fd)? {
            Object::Counter(counter) => counter.set_nonblocking(on),
            Object::Timer(timer) => timer.set_nonblocking(on),
            Object::Set(_) => {}
        }
        Ok(0)
    }

    /// # Safety
    /// There is a setting at `new`, and memory for one at `old`.
    unsafe fn settime(
        &self,
        fd: usize,
        flags: c_int,
        new: *const itimerspec,
        old: *mut itimerspec,
    ) -> Outcome {
        let Object::Timer(timer) = self.at(fd)? else { return Err(libc::EINVAL) };
        // SAFETY: the caller's contract.
        unsafe {
            let before = set_timer(timer, flags, new.read_unaligned()).map_err(errno)?;
            old.write_unaligned(before);
        }
        Ok(0)
    }
}

fn set_timer(timer: &Timer, flags: c_int, new: itimerspec) -> Result<itimerspec, Error> {
    let duration = |time: libc::timespec| Duration::new(time.tv_sec as u64, time.tv_nsec as u32);
    let time = |time: Duration| libc::timespec {
        tv_sec: time.as_secs() as i64,
        tv_nsec: time.subsec_nanos().into(),
    };
    let (value, interval) = (duration(new.it_value), duration(new.it_interval));
    let old = match flags & libc::TFD_TIMER_ABSTIME {
        0 => timer.set(TimerSpec { value, interval }),
        _ => timer.set_at(value, interval),
    }?;
    Ok(itimerspec { it_value: time(old.value), it_interval: time(old.interval) })
}
