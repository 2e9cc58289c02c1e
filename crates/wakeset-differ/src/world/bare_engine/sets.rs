//! Calls on sets: epoll_ctl(2), batches of it, and epoll_wait(2).

use super::objects::{BareEngine, Object, Outcome, errno, to_epoll_event, to_event};
use crate::world::Command;
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, c_int, epoll_event};
use wakeset::{Change, Description, Event, EventPoll, OnError, Source, Timeout};

const MOST_EVENTS: c_int = c_int::MAX / size_of::<epoll_event>() as c_int;

impl BareEngine {
    pub(super) fn epoll_ctl(
        &self,
        epfd: usize,
        op: c_int,
        fd: usize,
        event: epoll_event,
    ) -> Outcome {
        self.at(epfd)?;
        let target = self.at(fd)?;
        let set = self.set(epfd)?;
        if matches!(target, Object::Set(target) if std::ptr::eq(&**target, &**set)) {
            return Err(libc::EINVAL);
        }
        let (fd, event) = (fd as c_int, to_event(event));
        match target {
            Object::Counter(counter) => change(set, op, fd, counter, event),
            Object::Timer(timer) => change(set, op, fd, timer, event),
            Object::Set(inner) => change(set, op, fd, inner, event),
        }
    }

    /// What a command of a batch asks the engine for; `None` if the engine cannot be asked for it.
    fn as_change(&self, epfd: c_int, command: &Command) -> Option<Change<'_>> {
        let set = self.set(epfd as usize).ok()?;
        let (op, fd, event) = (command.op, command.fd, to_event(command.event));
        match self.at(fd as usize).ok()? {
            Object::Counter(counter) => to_change(op, fd, counter, event),
            Object::Timer(timer) => to_change(op, fd, timer, event),
            Object::Set(inner) if std::ptr::eq(&**inner, &**set) => None,
            Object::Set(inner) => to_change(op, fd, inner, event),
        }
    }

    /// Carries out a batch: as many commands at a time as the engine can be asked for, and each
    /// command between them, whose answer depends on numbers alone, by itself.
    pub(super) fn apply(&self, epfd: c_int, stop: bool, mut commands: &mut [Command]) {
        let mut stopped = false;
        while !commands.is_empty() {
            let mut changes: Vec<_> =
                commands.iter().map_while(|command| self.as_change(epfd, command)).collect();
            if let (false, Ok(set)) = (stopped, self.set(epfd as usize)) {
                set.apply(&mut changes, if stop { OnError::Stop } else { OnError::GoOn });
            }
            let results: Vec<_> = changes.iter().map(Change::result).collect();
            let (asked, rest) = commands.split_at_mut(results.len());
            for (command, result) in asked.iter_mut().zip(results) {
                command.result = result
                    .map_or(-libc::ECANCELED, |result| result.map_or_else(|e| -e.errno(), |()| 0));
                stopped |= stop && command.result != 0;
            }
            commands = rest;
            if let Some((command, rest)) = std::mem::take(&mut commands).split_first_mut() {
                let single = || {
                    self.epoll_ctl(epfd as usize, command.op, command.fd as usize, command.event)
                };
                let result = if stopped { Err(libc::ECANCELED) } else { single() };
                command.result = result.map_or_else(|errno| -errno, |_| 0);
                stopped |= stop && command.result != 0;
                commands = rest;
            }
        }
    }

    /// # Safety
    /// There is memory for `room` events at `events`.
    pub(super) unsafe fn epoll_wait(
        &self,
        epfd: usize,
        events: *mut epoll_event,
        room: c_int,
        milliseconds: c_int,
    ) -> Outcome {
        self.at(epfd)?;
        if room <= 0 || room > MOST_EVENTS {
            return Err(libc::EINVAL);
        }
        let set = self.set(epfd)?;
        let timeout = Timeout::from_millis(milliseconds);
        let mut next = events;
        let mut put = |event: Event| {
            // SAFETY: the caller's contract; the engine reports no more events than asked for.
            unsafe {
                next.write_unaligned(to_epoll_event(event));
                next = next.add(1);
            }
            true
        };
        if let Some(ring) = set.ring() {
            let mut taken = [Event::default(); 64];
            let room = taken.len().min(room as usize);
            let n = ring.wait(&mut taken[..room], timeout).map_err(errno)?;
            taken[..n].iter().for_each(|event| {
                put(*event);
            });
            return Ok(n as isize);
        }
        set.wait_with(room as usize, timeout, &mut put).map(|n| n as isize).map_err(errno)
    }
}

fn change<S: Source + 'static>(
    set: &EventPoll,
    op: c_int,
    fd: c_int,
    source: &Description<S>,
    event: Event,
) -> Outcome {
    match op {
        EPOLL_CTL_ADD => set.add(fd, source, event),
        EPOLL_CTL_MOD => set.modify(fd, source, event),
        EPOLL_CTL_DEL => set.remove(fd, source),
        _ => return Err(libc::EINVAL),
    }
    .map(|()| 0)
    .map_err(errno)
}

fn to_change<S: Source + 'static>(
    op: c_int,
    fd: c_int,
    source: &Description<S>,
    event: Event,
) -> Option<Change<'_>> {
    Some(match op {
        EPOLL_CTL_ADD => Change::add(fd, source, event),
        EPOLL_CTL_MOD => Change::modify(fd, source, event),
        EPOLL_CTL_DEL => Change::remove(fd, source),
        _ => return None,
    })
}
