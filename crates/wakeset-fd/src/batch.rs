//! Several epoll_ctl(2) commands in one call, in order, each with its own result: `epoll_ctl_batch`, proposed to Linux in 2012 and
//! 2015 and merged neither time.
//!
//! The result of a batch is that of a loop of epoll_ctl(2). What it saves:
//!
//! - the lock of the set's in-process half is taken once for all commands of a window;
//! - commands on kernel descriptors, if there are many, are handed to the kernel together (`uring.rs`), where it allows that.
//!
//! All are done when the call returns: whoever has removed a descriptor may close it then, and use its number for another.
//!
//! **Order.** Commands on different descriptors do not see each other, so in a window (`WINDOW` commands) in which no descriptor comes
//! twice the two kinds are gathered, and the kernel may put one aside that meets a lock. In other windows, and in a batch that stops at an
//! error, each command begins when the one before it is done.

use crate::count::count;
use crate::listeners;
use crate::section::Section;
use crate::set::{self, FdSet};
use crate::stats::Stat;
use crate::sys::{self, Errno};
use crate::table::{self, Entry, Using};
use crate::uring::{Order, Ring, Task};
use core::ffi::c_int;
use core::fmt;
use core::ptr;
use core::sync::atomic::Ordering;
use libc::{ECANCELED, EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, epoll_event};
use wakeset::{Changes, Error, Event, Events, Source, mutated};

/// Commands looked at together. Signals that come to a program with the preload library wait for the end of a window.
const WINDOW: usize = 256;
/// From so many commands on kernel descriptors on, a ring is worth making: it saves some 0.1 µs a command, and takes 20 µs.
const WORTH_A_RING: usize = 512;
/// From so many on, one submission is better than single calls.
const WORTH_A_SUBMISSION: usize = 8;

/// Flag of [`epoll_ctl_batch`]: make no further change behind one that fails.
pub const STOP_AT_ERROR: c_int = 1;
/// Flag of [`epoll_ctl_batch`]: do not use io_uring. For a program whose own seccomp(2) filter kills what calls io_uring_setup(2): a
/// filter that makes that call fail needs no flag.
pub const SINGLE_CALLS: c_int = 2;

/// One command, as in C: `struct ws_epoll_ctl_cmd`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Command {
    /// `EPOLL_CTL_ADD`, `EPOLL_CTL_MOD` or `EPOLL_CTL_DEL`.
    pub op: c_int,
    /// The descriptor that it is about.
    pub fd: c_int,
    /// As in epoll_ctl(2); ignored by `EPOLL_CTL_DEL`.
    pub event: epoll_event,
    /// Set by the call: 0, or the errno of this command, negated; `-ECANCELED` if the batch stopped before it.
    pub result: c_int,
}

impl Command {
    /// A command that has not been carried out.
    pub const fn new(op: c_int, fd: c_int, events: u32, data: u64) -> Self {
        Self { op, fd, event: epoll_event { events, u64: data }, result: 0 }
    }

    fn asked(&self) -> Event {
        match self.op {
            EPOLL_CTL_DEL => Event::default(),
            _ => Event::new(Events::from_bits_retain(self.event.events), self.event.u64),
        }
    }

    fn set_result(&mut self, result: Result<(), Errno>) {
        self.result = result.map_or_else(|error| -error.into_raw(), |()| 0);
    }
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (events, data) = (self.event.events, self.event.u64);
        let named = &mut f.debug_struct("Command");
        named.field("op", &self.op).field("fd", &self.fd).field("events", &events).field("data", &data);
        named.field("result", &self.result).finish()
    }
}

/// Makes several changes to the set `epfd`, in order, each as epoll_ctl(2) would; how many succeeded. Each command has its own
/// result afterwards, and all that were made are in force. It is no transaction: what was changed stays so if a later command fails.
///
/// `flags`: 0, or [`STOP_AT_ERROR`] and [`SINGLE_CALLS`].
///
/// Where io_uring is used a limit (ENOSPC, ENOMEM, the path limits) may refuse another of the commands than in a loop, if
/// another thread is busy in the set at that moment; so may the order in which what is ready is reported first.
///
/// # Errors
/// EINVAL for unknown flags, and nothing is done. All else, also a wrong `epfd`, is a result of the commands.
#[doc(alias = "ws_epoll_ctl_batch")]
pub fn epoll_ctl_batch(epfd: c_int, flags: c_int, commands: &mut [Command]) -> Result<usize, Errno> {
    if flags & !(STOP_AT_ERROR | SINGLE_CALLS) != 0 {
        return Err(Errno::EINVAL);
    }
    let stop = flags & STOP_AT_ERROR != 0;
    let mut batch = Batch { epfd, stop, ring: None };
    if flags & SINGLE_CALLS == 0 && commands.len() >= WORTH_A_RING {
        let of_kernel = commands.iter().filter(|command| matches!(table::get(command.fd), Entry::Kernel)).count();
        batch.ring = (of_kernel >= WORTH_A_RING).then(Ring::open).flatten();
    }
    let mut stopped = false;
    for window in commands.chunks_mut(WINDOW) {
        if stopped && !mutated!("batch_stops_one_window") {
            window.iter_mut().for_each(|command| command.result = -ECANCELED);
        } else {
            stopped = batch.window(window);
        }
    }
    Ok(commands.iter().filter(|command| command.result == 0).count())
}

/// Who carries out a command.
enum By {
    /// The in-process half, with others.
    Us(&'static dyn Source),
    /// The kernel, with others.
    Kernel,
    /// epoll_ctl(2) by itself: it may move something, take a wider lock or wait.
    Itself,
}

struct Batch {
    epfd: c_int,
    stop: bool,
    ring: Option<Ring>,
}

/// The commands of a window that are left to the kernel.
struct ForKernel {
    which: [u16; WINDOW],
    n: usize,
}

impl Batch {
    /// Carries out one window; whether the batch ends in it.
    fn window(&mut self, window: &mut [Command]) -> bool {
        let _section = Section::enter();
        let set = match table::get(self.epfd) {
            Entry::Set(set) => Using::begin(self.epfd, set),
            _ => None,
        };
        let set = set.as_deref();
        let in_order = self.stop || has_twice(window) && !mutated!("batch_never_twice");
        let mut for_kernel = ForKernel { which: [0; WINDOW], n: 0 };
        let mut ours = Ours { set, held: None, first: 0, added: false };
        window.iter_mut().for_each(|command| command.result = 0);
        for i in 0..window.len() {
            let by = self.who(set, &window[i], &ours);
            if in_order && !matches!(by, By::Us(_)) || matches!(by, By::Itself) {
                ours.end(window, i);
            }
            let before = in_order && !matches!(by, By::Kernel) && !mutated!("batch_overtakes_kernel")
                || matches!(by, By::Itself);
            if before && self.flush(window, &mut for_kernel, in_order) {
                return cancel_behind_error(window);
            }
            match by {
                By::Kernel => for_kernel.push(i),
                By::Us(source) => {
                    if !ours.make(&mut window[i], i, source) {
                        ours.end(window, i);
                        self.flush(window, &mut for_kernel, in_order);
                        self.single(&mut window[i]);
                    }
                }
                By::Itself => self.single(&mut window[i]),
            }
            if self.stop && window[i].result != 0 && !mutated!("batch_goes_on_at_error") {
                ours.end(window, i);
                return cancel_behind_error(window);
            }
        }
        ours.end(window, window.len());
        let stops = self.flush(window, &mut for_kernel, in_order) || mutated!("batch_always_stops");
        stops && cancel_behind_error(window)
    }

    fn who(&self, set: Option<&FdSet>, command: &Command, ours: &Ours<'_>) -> By {
        let target = table::get(command.fd);
        let Some(set) = set else {
            let epfd_is_kernel = matches!(table::get(self.epfd), Entry::Kernel);
            return if epfd_is_kernel && matches!(target, Entry::Kernel) { By::Kernel } else { By::Itself };
        };
        if set.in_kernel.load(Ordering::SeqCst) || set.closed.load(Ordering::SeqCst) {
            return By::Itself;
        }
        let has_kernel = set.has_kernel.load(Ordering::SeqCst);
        match target {
            Entry::Counter(counter) => {
                let may_add = (!has_kernel || set.bell.load(Ordering::SeqCst) >= 0) && ours.may_add(counter);
                match command.op {
                    EPOLL_CTL_ADD if may_add => By::Us(counter),
                    EPOLL_CTL_MOD | EPOLL_CTL_DEL => By::Us(counter),
                    _ => By::Itself,
                }
            }
            Entry::Kernel => {
                let edges = command.asked().events.intersects(Events::ET | Events::ONESHOT);
                let plain = !set.turns.any() && !set.polls.are_active() && listeners::order().is_none();
                if has_kernel && plain && (!edges || set.kernel_edges.load(Ordering::SeqCst)) {
                    By::Kernel
                } else {
                    By::Itself
                }
            }
            // An add of a timer may move it.
            Entry::Timer(_) | Entry::Pipe(_) | Entry::Set(_) | Entry::Bell => By::Itself,
        }
    }

    fn single(&self, command: &mut Command) {
        // SAFETY: the event is there.
        let result = unsafe { crate::calls::epoll_ctl(self.epfd, command.op, command.fd, &raw const command.event) };
        command.set_result(result);
    }

    /// Carries out what has been gathered for the kernel; whether the batch stops at one of them.
    fn flush(&mut self, window: &mut [Command], gathered: &mut ForKernel, in_order: bool) -> bool {
        let which = gathered.take();
        let which = which.all();
        let mut begun = 0;
        if let Some(ring) = self.ring.as_mut().filter(|_| which.len() >= WORTH_A_SUBMISSION) {
            let order = match (self.stop, in_order) {
                (true, _) => Order::StopAtError,
                (false, true) => Order::Strict,
                (false, false) => Order::Free,
            };
            let mut tasks = [const { Task { op: 0, fd: 0, event: ptr::null() } }; WINDOW];
            for (task, i) in tasks.iter_mut().zip(which) {
                let command = &window[usize::from(*i)];
                *task = Task { op: command.op, fd: command.fd, event: &raw const command.event };
            }
            let done = |task: usize, result: Result<(), Errno>| {
                if let Some(i) = which.get(task + usize::from(mutated!("batch_shifts_results"))) {
                    window[usize::from(*i)].set_result(result);
                }
            };
            // SAFETY: the events are in the window, which stays where it is until all is done.
            begun = unsafe { ring.run(self.epfd, order, &tasks[..which.len()], done) };
        }
        let failed = |window: &[Command], which: &[u16]| which.iter().any(|i| window[usize::from(*i)].result != 0);
        if self.stop && failed(window, &which[..begun]) {
            return true;
        }
        for i in &which[begun..] {
            let command = &mut window[usize::from(*i)];
            let result = sys::epoll_ctl(self.epfd, command.op, command.fd, &raw const command.event);
            command.set_result(result);
            if self.stop && result.is_err() {
                return true;
            }
        }
        false
    }
}

impl ForKernel {
    fn push(&mut self, i: usize) {
        self.which[self.n] = i as u16;
        self.n += 1;
    }

    fn take(&mut self) -> Self {
        Self { which: self.which, n: core::mem::take(&mut self.n) }
    }

    fn all(&self) -> &[u16] {
        &self.which[..self.n]
    }
}

/// The in-process half's part of a window.
struct Ours<'a> {
    set: Option<&'a FdSet>,
    held: Option<Changes<'a>>,
    /// The first command of this hold.
    first: usize,
    /// Something was added in this hold.
    added: bool,
}

impl Ours<'_> {
    fn may_add(&self, source: &dyn Source) -> bool {
        match (&self.held, self.set) {
            (Some(held), _) => held.may_add(source),
            (None, Some(set)) => !set.set.wait_queue().has_watches(),
            (None, None) => false,
        }
    }

    /// Carries out a command under the set's lock; `false` if it has to be carried out by itself.
    fn make(&mut self, command: &mut Command, i: usize, source: &'static dyn Source) -> bool {
        let Some(set) = self.set else { return false };
        if self.held.is_none() {
            self.first = i;
        }
        let held = self.held.get_or_insert_with(|| set.set.begin_changes());
        let address = ptr::from_ref(source).cast::<()>();
        let result = match command.op {
            // SAFETY: slots are never freed, and their queues are closed when the object ends.
            EPOLL_CTL_ADD => unsafe { held.add_source(command.fd, source, command.asked()) },
            EPOLL_CTL_MOD => held.modify_source(command.fd, address, command.asked()),
            _ => held.remove_source(command.fd, address),
        };
        self.added |= command.op == EPOLL_CTL_ADD && result.is_ok();
        match result {
            // It is moving, has moved, or there is no memory of ours: as for a single call.
            Err(Error::Closed | Error::NoMemory) => return false,
            Err(Error::NotWatched) if set::has_moved(command.fd, source) => return false,
            result => command.set_result(result.map_err(|error| Errno::new(error.errno()))),
        }
        count(Stat::SyscallsAvoided, usize::from(command.result == 0));
        true
    }

    /// Ends the hold of the lock, before command `end` of the window.
    fn end(&mut self, window: &mut [Command], end: usize) {
        let (Some(set), Some(held)) = (self.set, self.held.take()) else { return };
        held.end();
        let without_bell = set.has_kernel.load(Ordering::SeqCst) && set.bell.load(Ordering::SeqCst) < 0;
        if !core::mem::take(&mut self.added) || !without_bell && !set.in_kernel.load(Ordering::SeqCst) {
            return;
        }
        // The set has got a kernel half, or gone there, while we were at it.
        for command in &mut window[self.first..end] {
            if command.op == EPOLL_CTL_ADD
                && command.result == 0
                && let Entry::Counter(counter) = table::get(command.fd)
            {
                command.set_result(set::settle_add(set, command.fd, counter));
            }
        }
    }
}

/// Whether a descriptor comes twice.
fn has_twice(window: &[Command]) -> bool {
    const PLACES: usize = 4 * WINDOW;
    // One bit for each remainder: two numbers that share one are looked at again.
    let mut seen = [0_u64; PLACES / 64];
    let mut collided = false;
    for command in window {
        let place = command.fd as u32 as usize % PLACES;
        collided |= seen[place / 64] & 1 << (place % 64) != 0;
        seen[place / 64] |= 1 << (place % 64);
    }
    if !collided {
        return false;
    }
    let mut numbers = [0; WINDOW];
    for (number, command) in numbers.iter_mut().zip(window) {
        *number = command.fd;
    }
    let numbers = &mut numbers[..window.len()];
    numbers.sort_unstable();
    numbers.windows(2).any(|pair| pair[0] == pair[1])
}

/// Cancels what stands behind the first error; whether there is one.
fn cancel_behind_error(commands: &mut [Command]) -> bool {
    let mut behind = commands.iter_mut().skip_while(|command| command.result == 0);
    let failed = behind.next().is_some();
    behind.for_each(|command| command.result = -ECANCELED);
    failed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_that_comes_twice_is_noticed() {
        let window = |numbers: &[c_int]| {
            let mut commands = [Command::new(EPOLL_CTL_DEL, 0, 0, 0); 5];
            for (command, number) in commands.iter_mut().zip(numbers) {
                command.fd = *number;
            }
            has_twice(&commands[..numbers.len()])
        };
        assert!(!window(&[]) && !window(&[3]) && !window(&[3, 4, 5, -1, c_int::MAX]));
        assert!(!window(&[3, 3 + 1024, 3 + 2048]), "same place, other number");
        assert!(window(&[3, 4, 3]) && window(&[-1, -1]) && window(&[1027, 3, 1027]));
    }
}
