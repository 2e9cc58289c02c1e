//! One window of a batch: which way each command goes.

use super::in_kernel::ForKernel;
use super::in_process::InProcess;
use super::{Batch, Command, WINDOW};
use crate::kernel_half::listeners;
use crate::objects::counter::FdCounter;
use crate::set::{FdSet, complete, first_listener};
use crate::sys::signal_guard::SignalGuard;
use crate::table::{self, Entry, Using};
use core::sync::atomic::Ordering;
use libc::{ECANCELED, EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD};
use wakeset::{Events, mutated};

/// How a command is carried out.
enum Route {
    /// In the in-process half, together with others.
    InProcess(&'static FdCounter),
    /// In the kernel, together with others.
    InKernel,
    /// By a call of epoll_ctl(2) of its own: it may migrate something, take a wider lock or wait.
    Alone,
}

impl Batch {
    /// Carries out one window. Returns whether the batch ends in it.
    pub(super) fn run_window(&mut self, window: &mut [Command]) -> bool {
        // Before the guard: a baton is not made inside of one.
        for command in window.iter().filter(|command| command.op == EPOLL_CTL_ADD) {
            if matches!(table::peek(command.fd), Entry::Kernel) {
                first_listener::before_add(command.fd, command.asked().events);
            }
        }
        let _guard = SignalGuard::enter();
        let set = table::find::<FdSet>(self.epfd).and_then(|set| Using::begin(self.epfd, set));
        let set = set.as_deref();
        let in_order = self.stop || has_twice(window) && !mutated!("batch_never_twice");
        let mut for_kernel = ForKernel::new();
        let mut in_process = InProcess::new(set);
        window.iter_mut().for_each(|command| command.result = 0);
        for i in 0..window.len() {
            let route = self.route(set, &window[i], &in_process);
            if in_order && !matches!(route, Route::InProcess(_)) || matches!(route, Route::Alone) {
                in_process.release(window, i);
            }
            let kernel_first = in_order
                && !matches!(route, Route::InKernel)
                && !mutated!("batch_overtakes_kernel")
                || matches!(route, Route::Alone);
            if kernel_first && self.flush(window, &mut for_kernel, in_order) {
                return cancel_after_error(window);
            }
            match route {
                Route::InKernel => for_kernel.push(i),
                Route::InProcess(source) => {
                    if !in_process.carry_out(&mut window[i], i, source) {
                        in_process.release(window, i);
                        self.flush(window, &mut for_kernel, in_order);
                        self.call(&mut window[i]);
                    }
                }
                Route::Alone => self.call(&mut window[i]),
            }
            if self.stop && window[i].result != 0 && !mutated!("batch_goes_on_at_error") {
                in_process.release(window, i);
                return cancel_after_error(window);
            }
        }
        in_process.release(window, window.len());
        let stops = self.flush(window, &mut for_kernel, in_order) || mutated!("batch_always_stops");
        stops && cancel_after_error(window)
    }

    fn route(&self, set: Option<&FdSet>, command: &Command, in_process: &InProcess<'_>) -> Route {
        let target = table::get(command.fd);
        let Some(set) = set else {
            let epfd_is_kernel = matches!(table::get(self.epfd), Entry::Kernel);
            return if epfd_is_kernel && matches!(target, Entry::Kernel) {
                Route::InKernel
            } else {
                Route::Alone
            };
        };
        if set.state.is_in_kernel() || set.state.is_closed() {
            return Route::Alone;
        }
        let has_kernel = set.state.has_kernel();
        match target {
            Entry::Object(object) => {
                // An addition of a timer may migrate the timer, and a set has company. What has
                // several numbers is to be held; by a number that was one of several a moment ago,
                // the slot may be another's by now.
                let is_at_home = !object.has_several() && object.fd() == command.fd;
                let counter = object.downcast::<FdCounter>().filter(|_| is_at_home);
                let Some(counter) = counter else { return Route::Alone };
                let may_add = (!has_kernel || set.doorbell.load(Ordering::SeqCst) >= 0)
                    && in_process.may_add(counter);
                match command.op {
                    EPOLL_CTL_ADD if may_add => Route::InProcess(counter),
                    EPOLL_CTL_MOD | EPOLL_CTL_DEL => Route::InProcess(counter),
                    _ => Route::Alone,
                }
            }
            Entry::Kernel => {
                let edges = command.asked().events.intersects(Events::ET | Events::ONESHOT);
                let plain =
                    !set.rotation.any() && !set.polls.are_active() && listeners::order().is_none();
                if has_kernel && plain && (!edges || set.state.has_asked_edges()) {
                    Route::InKernel
                } else {
                    Route::Alone
                }
            }
            Entry::Doorbell => Route::Alone,
        }
    }

    fn call(&self, command: &mut Command) {
        // SAFETY: the event is valid memory.
        let result = unsafe {
            complete::epoll_ctl(self.epfd, command.op, command.fd, &raw const command.event)
        };
        command.set_result(result);
    }
}

/// Returns whether a descriptor comes twice.
fn has_twice(window: &[Command]) -> bool {
    const BITS: usize = 4 * WINDOW;
    // One bit for each remainder. If two numbers share one, all are compared.
    let mut seen = [0_u64; BITS / 64];
    let mut collided = false;
    for command in window {
        let bit = command.fd as u32 as usize % BITS;
        collided |= seen[bit / 64] & 1 << (bit % 64) != 0;
        seen[bit / 64] |= 1 << (bit % 64);
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

/// Cancels the commands after the first error. Returns whether there is one.
fn cancel_after_error(commands: &mut [Command]) -> bool {
    let mut rest = commands.iter_mut().skip_while(|command| command.result == 0);
    let failed = rest.next().is_some();
    rest.for_each(|command| command.result = -ECANCELED);
    failed
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ffi::c_int;

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
        assert!(!window(&[3, 3 + 1024, 3 + 2048]), "same bit, other number");
        assert!(window(&[3, 4, 3]) && window(&[-1, -1]) && window(&[1027, 3, 1027]));
    }
}
