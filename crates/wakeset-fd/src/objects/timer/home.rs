//! The way home of a timerfd that has migrated for forked children.
//!
//! When a timer leaves, its expirations are known for all time to come: until it is set anew, they
//! are at the time that it carried, and after each interval from there. A child that sets it is a
//! doubt, and a call of this process that does so is noted. Not known is how many expirations have
//! been read, here or by a child. So the timer comes home by a call that makes that known:
//!
//! | call | if | the timer is then set to |
//! |---|---|---|
//! | timerfd_settime(2) | – | what the call sets it to; what it was set to before the kernel says |
//! | read(2) | there is something to read, and no time of an expiration has come in the middle of it | the first expiration after the read |
//! | timerfd_gettime(2) | it was not set when it left, or has not expired since | what it carried |
//!
//! No other call is in it meanwhile, and no watch is on it. An expiration that comes in between is
//! lost with the kernel's timer, and found again here: the state above tells of it, and the watch
//! that comes back polls.
//!
//! With `EPOLLET` an expiration may have been reported, or be on its way to a wait. What
//! timerfd_settime(2) and read(2) leave has not been: the watch was given up before. What
//! timerfd_gettime(2) leaves may have been in the moment before that, so an edge-triggered timer
//! that is set does not come home by it.
//!
//! After a timerfd_gettime(2) of a periodic timer that has expired, the kernel gives a read what it
//! had counted until then, and not what has come due since and has not been counted yet. So such a
//! timer is taken for one that has been set.

use super::setting::{Setting, store_spec};
use super::{FdTimer, flags_of, now, store_expirations};
use crate::objects::home::{self, Watcher};
use crate::objects::migratable::Migratable;
use crate::stats::Stat;
use crate::stats::count::count;
use crate::sys::verdict::Verdict::{self, Done, Kernel};
use crate::sys::{self, Errno};
use crate::table::away::{self, Return, Watched};
use crate::table::slot::{end_use_guarded, slot_for};
use crate::table::{self, gate};
use core::ffi::c_int;
use core::sync::atomic::Ordering;
use libc::{itimerspec, timespec};
use wakeset::{Events, Expiry, mutated};

static DISARMED: itimerspec = {
    let never = timespec { tv_sec: 0, tv_nsec: 0 };
    itimerspec { it_value: never, it_interval: never }
};

/// read(2) of a timer that is away, into at least 8 bytes of plausible memory. `None`: look the
/// number up again.
///
/// # Safety
/// As read(2).
pub(crate) unsafe fn read(fd: c_int, buffer: *mut u8, len: usize) -> Option<Verdict<usize>> {
    let carried = known(fd).filter(|_| away::is_due(fd));
    // Before it expires there is nothing to read, and the kernel need not be asked.
    if carried.is_some_and(|carried| carried.has_expired(now())) && is_readable(fd) {
        let mut taken = None;
        let _ = come(fd, Errand::Read(&mut taken));
        if let Some(expirations) = taken {
            // SAFETY: the caller gives the memory.
            return Some(Done(unsafe { store_expirations(buffer, expirations) }));
        }
    }
    home::counted(fd, || sys::read(fd, buffer, len))
}

/// timerfd_settime(2) of one, as [`read`].
///
/// # Safety
/// As timerfd_settime(2).
pub(super) unsafe fn settime(
    fd: c_int,
    flags: c_int,
    new: *const itimerspec,
    old: *mut itimerspec,
) -> Option<Verdict<()>> {
    // SAFETY: the same contract.
    match unsafe { Setting::of(flags, new) } {
        Ok(setting) if setting.is_kernels(slot(fd)?.clock.load(Ordering::Relaxed)) => {
            // As it would leave now for good.
            return away::doubt(fd).then_some(Kernel);
        }
        Ok(setting) if away::is_due(fd) => {
            let mut before = None;
            let _ = come(fd, Errand::Set(setting, &mut before));
            if let Some(before) = before {
                // SAFETY: the caller gives the memory.
                let is_stored = old.is_null() || unsafe { store_spec(old, before) };
                return Some(Done(if is_stored { Ok(()) } else { Err(Errno::EFAULT) }));
            }
        }
        Err(Done(error)) => return Some(Done(error)),
        Ok(_) | Err(Kernel) => {}
    }
    home::counted_whole(fd, || {
        let result = sys::timerfd_settime(fd, flags, new, old);
        // That changes nothing. EFAULT may say that the old setting cannot be stored.
        let is_refused = result == Err(Errno::EINVAL) && !mutated!("refused_setting_is_noted");
        if !is_refused && !mutated!("timer_set_away_is_not_noted") {
            note_set(fd);
        }
        result
    })
}

/// timerfd_gettime(2) of one, as [`read`].
pub(super) fn gettime(fd: c_int, current: *mut itimerspec) -> Option<Verdict<()>> {
    let is_certain = known(fd).is_some_and(|expiry| is_certain(fd, expiry));
    if is_certain && away::is_due(fd) && come(fd, Errand::Look) {
        return None;
    }
    home::counted_whole(fd, || {
        let result = sys::timerfd_gettime(fd, current);
        let has_expired = |carried: Expiry| carried.interval != 0 && carried.has_expired(now());
        if known(fd).is_some_and(has_expired) && !mutated!("looked_at_timer_is_read_home") {
            note_set(fd);
        }
        result
    })
}

/// The slot of a timer that is away.
fn slot(fd: c_int) -> Option<&'static FdTimer> {
    away::slot(fd)?.downcast()
}

/// What the timer carried when it left, if it has not been set since.
fn known(fd: c_int) -> Option<Expiry> {
    let slot = slot(fd)?;
    (!slot.is_set_away.load(Ordering::SeqCst)).then(|| slot.carried())
}

/// The timer has been set since it left, or is taken for such a one. By a call that is counted, so
/// that it does not come home before this.
fn note_set(fd: c_int) {
    if let Some(slot) = slot(fd) {
        slot.is_set_away.store(true, Ordering::SeqCst);
    }
}

/// Whether what a timer carried is what it is set to, because it has not expired since, and nobody
/// has read from it.
fn is_certain(fd: c_int, carried: Expiry) -> bool {
    let has_edges = matches!(
        away::watched(fd),
        Watched::By { asked, .. } if asked.events.contains(Events::ET)
    );
    let has_expired = carried.has_expired(now()) && !mutated!("timer_is_looked_at_expired");
    !carried.is_armed() || !has_edges && !has_expired
}

/// What is left of what a timer carried, after a read that has found something between these times.
/// `None`: that cannot be told, because it is not clear on which side of the read an expiration
/// was.
fn left_after_read(carried: Expiry, begun: u64, ended: u64) -> Option<Expiry> {
    if carried.interval == 0 {
        return Some(Expiry::DISARMED);
    }
    let left = carried.left_at(begun);
    (left == carried.left_at(ended) || mutated!("timer_read_at_any_time")).then_some(left)
}

/// The call by which a timer comes home, with its answer.
enum Errand<'a> {
    Look,
    /// The expirations, once they are taken out.
    Read(&'a mut Option<u64>),
    /// What it was set to, once it is set.
    Set(Setting, &'a mut Option<itimerspec>),
}

impl Errand<'_> {
    /// Whether it may be clear. Nothing but time changes the answer while the timer is on its way.
    fn may(&self, fd: c_int, known: Option<Expiry>) -> bool {
        match self {
            Self::Look => known.is_some_and(|carried| is_certain(fd, carried)),
            Self::Read(_) => known.is_some(),
            Self::Set(..) => true,
        }
    }

    /// What the timer is to be set to at home. `None`: that is not clear.
    fn state(&mut self, fd: c_int, known: Option<Expiry>) -> Option<Expiry> {
        match self {
            Self::Look => known.filter(|carried| is_certain(fd, *carried)),
            Self::Read(taken) => {
                let (known, begun) = (known?, now());
                **taken = take_from_kernel(fd);
                taken.and_then(|_| left_after_read(known, begun, now()))
            }
            Self::Set(setting, _) => Some(setting.expiry(now())),
        }
    }

    /// The kernel's timer was set to that until now.
    fn note(&mut self, before: itimerspec) {
        if let Self::Set(_, answer) = self {
            **answer = Some(before);
        }
    }
}

/// Takes the expirations that can be read, without ever waiting, because nobody else reads.
fn take_from_kernel(fd: c_int) -> Option<u64> {
    match home::read_now(fd) {
        Ok(expirations) => Some(expirations),
        Err(Errno::EAGAIN) => None,
        // Kernels before 6.10 know no such read of a timer.
        Err(_) if !is_readable(fd) => None,
        Err(_) => {
            let mut expirations = 0_u64;
            let read = sys::read(fd, (&raw mut expirations).cast(), 8);
            (read == Ok(8)).then_some(expirations)
        }
    }
}

fn is_readable(fd: c_int) -> bool {
    sys::poll_now(fd, libc::POLLIN) != 0
}

/// Brings a timer home by a call. Where it does not come, the call may have been made all the same.
fn come(fd: c_int, errand: Errand<'_>) -> bool {
    home::come_watched(fd, |watcher| come_home(fd, errand, watcher))
}

/// Makes an object of a timer that comes home: of the kernel's, which nobody else has, and in which
/// no call is. The caller holds the migrations lock.
fn come_home(fd: c_int, mut errand: Errand<'_>, watcher: Option<Watcher>) -> Return {
    let Some(left) = slot(fd).filter(|_| !gate::timers_are_left_to_kernel()) else {
        return Return::Never;
    };
    // The slot may be that of the new object.
    let (known, clock) = (known(fd), left.clock.load(Ordering::Relaxed));
    if !errand.may(fd, known) {
        return Return::Later;
    }
    let Some(nonblocking) = home::is_nonblocking(fd) else { return Return::Later };
    let Some(slot) = slot_for::<FdTimer>(fd) else { return Return::Later };
    // First: it is this very file, or there is nothing to take.
    if !watcher.map_or_else(|| away::is_known(fd), |watcher| watcher.give_up(fd)) {
        end_use_guarded(slot);
        return Return::Later;
    }
    let mut before = DISARMED;
    let state = errand.state(fd, known).filter(|_| {
        let disarmed = mutated!("timer_at_home_expires_in_kernel")
            || sys::timerfd_settime(fd, 0, &raw const DISARMED, &raw mut before).is_ok();
        if disarmed {
            errand.note(before);
        }
        disarmed
    });
    let is_here = state.is_some_and(|state| {
        slot.begin(clock, flags_of(nonblocking), state);
        let is_watched = watcher.is_none_or(|watcher| watcher.take_back(fd, &slot.head));
        if !is_watched {
            slot.seal_words();
            slot.set_kernel_timer();
            // What it carried when it left is not there any more.
            left.is_set_away.store(true, Ordering::SeqCst);
        }
        is_watched
    });
    if !is_here {
        if let Some(watcher) = watcher {
            watcher.leave(fd);
        }
        end_use_guarded(slot);
        return Return::Later;
    }
    table::put_object(fd, slot);
    count(Stat::HomeFork, 1);
    Return::Home
}

#[cfg(test)]
mod tests;
