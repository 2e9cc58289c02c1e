//! The commands of a window that go to the kernel together.

use super::{Batch, Command, WINDOW};
use crate::kernel_half::uring::command_uring::{Order, Task};
use crate::sys::{self, Errno};
use core::ptr;
use wakeset::mutated;

/// The number of commands from which one submission is better than single calls.
const WORTH_A_SUBMISSION: usize = 8;

/// The indices of commands that have been gathered.
pub(super) struct ForKernel {
    which: [u16; WINDOW],
    n: usize,
}

impl ForKernel {
    pub(super) fn new() -> Self {
        Self { which: [0; WINDOW], n: 0 }
    }

    pub(super) fn push(&mut self, i: usize) {
        self.which[self.n] = i as u16;
        self.n += 1;
    }

    /// Takes all of them.
    fn drain(&mut self) -> &[u16] {
        &self.which[..core::mem::take(&mut self.n)]
    }
}

impl Batch {
    /// Carries out what has been gathered. Returns whether the batch stops at one of them.
    pub(super) fn flush(
        &mut self,
        window: &mut [Command],
        gathered: &mut ForKernel,
        in_order: bool,
    ) -> bool {
        let which = gathered.drain();
        let submitted = self.submit(window, which, in_order);
        let failed = |i: &u16| window[usize::from(*i)].result != 0;
        if self.stop && which[..submitted].iter().any(failed) {
            return true;
        }
        for i in &which[submitted..] {
            let command = &mut window[usize::from(*i)];
            let result =
                sys::epoll_ctl(self.epfd, command.op, command.fd, &raw const command.event);
            command.set_result(result);
            if self.stop && result.is_err() {
                return true;
            }
        }
        false
    }

    /// Carries out commands through the io_uring, if there is one and they are worth it. Returns
    /// how many of them, from the first on, have been carried out.
    fn submit(&mut self, window: &mut [Command], which: &[u16], in_order: bool) -> usize {
        let Some(uring) = self.uring.as_mut().filter(|_| which.len() >= WORTH_A_SUBMISSION) else {
            return 0;
        };
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
        unsafe { uring.run(self.epfd, order, &tasks[..which.len()], done) }
    }
}
