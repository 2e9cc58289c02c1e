//! accept(2) on a listener that other threads wait for, too.

use super::call::{Asked, Descriptors, NO_MASK, Outcome};
use super::habits::{ANOTHERS, IN_VAIN, OFTEN, OVERTAKEN, SURE, lower, raise};
use super::thread::{self, WAITER, Waiter};
use super::told;
use super::wait::{ending, wait};
use crate::flags;
use core::ffi::c_int;
use libc::{EPOLLIN, socklen_t};
use syscalls::{Errno, Sysno};
use wakeset::mutated;
use wakeset_fd::doorbell;
use wakeset_fd::interpose::fail;
use wakeset_fd::listeners::{self, ListenerStat, baton, held};
use wakeset_fd::refusable;

/// What a look before accept(2) has found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Looked {
    /// There was no cause for a look, or it cannot tell.
    NotAtAll,
    /// There is a connection.
    Some,
    /// accept(2) would say EAGAIN: there is none, and the listener is non-blocking.
    None,
}

/// Looks for a connection, if this thread has cause to.
fn look_first(fd: c_int) -> Looked {
    let found = WAITER.with(|waiter| {
        let is_told = waiter.reported.get() == fd && waiter.overtaken.get() >= OFTEN;
        let is_done = waiter.accepted.get() == fd && waiter.emptied.get() >= SURE;
        if !(is_told || is_done) || listeners::order().is_none() {
            return None;
        }
        let mut is_ready = || listeners::is_ready(fd);
        Some(is_ready() && (waiter.reported.get() == fd || waiter.stand_back(&mut is_ready)))
    });
    match found {
        None => Looked::NotAtAll,
        Some(true) => Looked::Some,
        // The number may have become something else, about which accept(2) has its own error.
        Some(false) if listeners::is_listener(fd) && flags::is_nonblocking(fd) == Some(true) => {
            Looked::None
        }
        Some(false) => Looked::NotAtAll,
    }
}

/// After a call of accept(2) that has found nothing, or would have. `seen`: a look had found a
/// connection before.
#[cold]
fn note_nothing(fd: c_int, seen: bool) {
    told::saw_none(fd);
    listeners::note_emptied(fd);
    WAITER.with(|waiter| {
        let before = waiter.reported.replace(-1);
        if waiter.came_back.get() && (before == fd || seen) {
            raise(&waiter.anothers, ANOTHERS);
        }
        if waiter.ends_wake(fd) {
            listeners::count(fd, ListenerStat::SpuriousWakes);
        }
        if before == fd {
            raise(&waiter.overtaken, OVERTAKEN);
        } else if waiter.accepted.get() == fd {
            waiter.accepted.set(-1);
            raise(&waiter.emptied, IN_VAIN);
        }
    });
}

/// After a call of accept(2) that has returned `result`. `seen`: a look had found a connection
/// before.
fn note_accept(fd: c_int, result: c_int, seen: bool) {
    if result == -1 {
        // SAFETY: this thread's errno.
        match unsafe { *libc::__errno_location() } {
            libc::EAGAIN => note_nothing(fd, seen),
            // The connection is gone all the same.
            libc::ECONNABORTED => {
                told::note_accept(fd);
                baton::note_accepted(fd);
            }
            _ => {}
        }
        return;
    }
    told::note_accept(fd);
    baton::note_accepted(fd);
    listeners::note_connection(result);
    listeners::count(fd, ListenerStat::Connections);
    WAITER.with(|waiter| {
        waiter.hold(result);
        waiter.ends_wake(fd);
        if waiter.reported.replace(-1) == fd {
            lower(&waiter.overtaken);
        }
        if waiter.accepted.replace(fd) == fd {
            lower(&waiter.emptied);
        }
        if waiter.came_back.replace(true) {
            lower(&waiter.anothers);
        }
    });
}

/// A call of accept(2) as a wait.
struct Accepting {
    fd: c_int,
    found: bool,
}

impl Asked for Accepting {
    fn look(&mut self) -> Result<usize, Errno> {
        self.found = listeners::is_ready(self.fd);
        Ok(usize::from(self.found))
    }

    fn interrupted(&mut self) {}

    fn is_ready(&self, _: c_int) -> bool {
        self.found
    }

    fn outlasts(&self) -> c_int {
        libc::SA_RESTART
    }

    fn tell(&mut self, listeners: &[c_int]) -> Option<Result<usize, Errno>> {
        Some(Ok(listeners.len()))
    }
}

/// Whether accept(2) may block.
fn blocks(fd: c_int) -> bool {
    let version = flags::version().wrapping_add(listeners::generation());
    if WAITER.with(|waiter| waiter.unblocking.get() == (fd, version)) {
        return false;
    }
    let blocks = flags::is_nonblocking(fd) == Some(false);
    if !blocks {
        WAITER.with(|waiter| waiter.unblocking.set((fd, version)));
    }
    blocks
}

/// Whether an accept(2) that blocks does so without a limit.
fn has_no_limit(fd: c_int) -> bool {
    let mut limit = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let mut len = size_of_val(&limit) as socklen_t;
    let (level, option) = (libc::SOL_SOCKET as usize, libc::SO_RCVTIMEO as usize);
    let places = [(&raw mut limit).expose_provenance(), (&raw mut len).expose_provenance()];
    let arguments = [fd as usize, level, option, places[0], places[1]];
    // SAFETY: memory for the limit and its length.
    let asked = unsafe { refusable::call(Sysno::getsockopt, arguments) };
    asked.is_ok() && limit.tv_sec == 0 && limit.tv_usec == 0
}

/// Makes `call`, an accept(2) on this listener. If it blocks beside threads that wait in turn, it
/// is not made before there is something.
#[inline]
fn accept_in_group(fd: c_int, call: &mut dyn FnMut() -> c_int) -> c_int {
    // The call of another thread than the one that polls may sleep for a connection, too.
    let _ = thread::is_only_waiter(fd);
    // A thread that holds connections is to leave the next to one that holds fewer, which the
    // kernel's queue does not know.
    let holds = listeners::may_step_back_in_accept() && held::count_of(held::PROCESS) > 0;
    let sleeps = (holds || listeners::any_exclusive())
        && listeners::is_listener(fd)
        && blocks(fd)
        && (holds || !listeners::is_ready(fd));
    if sleeps && (holds || listeners::is_exclusive(fd)) && has_no_limit(fd) {
        return accept_beside_others(fd, call);
    }
    accept_now(call)
}

/// Gives up the number of this thread's private set, as the process has none left; whether there
/// was one.
pub(crate) fn give_up_set() -> bool {
    WAITER.with(Waiter::give_up_set)
}

/// Makes `call`. If the process has no number left for the connection, gives up the one of this
/// thread's private set, or those of doorbells.
fn accept_now(call: &mut dyn FnMut() -> c_int) -> c_int {
    let result = call();
    // SAFETY: this thread's errno.
    let full = result == -1 && unsafe { *libc::__errno_location() } == libc::EMFILE;
    // The private set had the last number.
    if full && (give_up_set() || doorbell::make_room()) { call() } else { result }
}

/// An accept(2) that blocks: sleeps in the private set until there is something, then makes `call`.
#[cold]
fn accept_beside_others(fd: c_int, call: &mut dyn FnMut() -> c_int) -> c_int {
    let mut asked = Accepting { fd, found: false };
    let mut descriptors = Descriptors::none();
    descriptors.add(fd, EPOLLIN as u32, true);
    let ending = ending(asked.outlasts());
    // SAFETY: this thread's own.
    let ended = || unsafe { ending.read_volatile() };
    let before = ended();
    loop {
        let mut may_wait = true;
        let leaves = || WAITER.with(|waiter| waiter.share.leaves(waiter.notes()));
        if !listeners::is_ready(fd) || leaves() {
            let outcome = match thread::order() {
                Some(order) if descriptors.has_listeners() => {
                    wait(&descriptors, order, None, NO_MASK, &mut asked)
                }
                _ => Outcome::Unchanged,
            };
            match outcome {
                Outcome::Done(Err(error)) => return fail(error.into_raw()) as c_int,
                Outcome::Done(Ok(_)) => {}
                Outcome::Unchanged | Outcome::Rest(_) => may_wait = false,
            }
        }
        let result = call();
        // SAFETY: this thread's errno.
        let emptied = result == -1 && unsafe { *libc::__errno_location() } == libc::EAGAIN;
        if !(emptied && may_wait) {
            return result;
        }
        // It does not block any more. It did when the call began, and in Linux that is what counts.
        if ended() != before {
            return fail(libc::EINTR) as c_int;
        }
    }
}

/// Whether this thread, which accepts until there is nothing left, leaves the rest to others: they
/// hold less, and sleep for this listener or were woken for what is there. It was told by level, so
/// what they do not take its next wait reports again; to the program it is as if another had been
/// faster, and then one more connection had come.
fn leaves_the_rest(fd: c_int) -> bool {
    let holder = || WAITER.with(|waiter| waiter.holder.get());
    let another = |note| listeners::another_holds_less(holder(), note);
    told::has_taken_one(fd)
        && another(baton::Notes::MAX)
        && another(baton::note_of(listeners::inode(fd)))
        && listeners::order().is_some()
        && listeners::is_listener(fd)
        && flags::is_nonblocking(fd) == Some(true)
        && !mutated!("rest_is_taken")
}

/// Makes `call`, an accept(2) on this listener, unless it is known to find nothing, or what it
/// finds is left to others.
pub(crate) fn accept(fd: c_int, call: &mut dyn FnMut() -> c_int) -> c_int {
    if leaves_the_rest(fd) {
        return fail(libc::EAGAIN) as c_int;
    }
    let looked = look_first(fd);
    if looked == Looked::None {
        note_nothing(fd, false);
        return fail(libc::EAGAIN) as c_int;
    }
    let seen = looked == Looked::Some;
    // Nothing may come between the look and the call.
    let result = if seen { accept_now(call) } else { accept_in_group(fd, call) };
    note_accept(fd, result, seen);
    result
}
