//! shutdown(2) of an end of a socket pair.
//!
//! Each direction that it ends is a pipe. Its word says from then on that nothing more is taken,
//! and that there is an end after what is left. The kernel's sockets have to hear of it as well,
//! because EPIPE and SIGPIPE are theirs to give:
//!
//! | what is left in the directions | the kernel's sockets |
//! |---|---|
//! | nothing | are shut down at once |
//! | bytes, which they would not take any more | are shut down when the pair migrates, once they have the bytes; a write that is refused makes it migrate |

use super::carrier::number_of;
use super::{Bound, FdPipe};
use crate::migrate;
use crate::stats::Stat;
use crate::stats::count::count;
use crate::sys::refusable::refusable;
use crate::sys::signal_guard::SignalGuard;
use crate::sys::verdict::Verdict::{self, Done, Kernel};
use crate::sys::{self, Errno, forked, vforked};
use crate::table::{self, Entry};
use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::Ordering;
use libc::{SHUT_RD, SHUT_RDWR, SHUT_WR};
use wakeset::{Pipe, mutated};

/// In an end's mode: what the kernel's socket has to be shut down for. `how + 1` of shutdown(2) has
/// a bit for each direction.
const LATER_SHIFT: u32 = 3;
const BOTH: u32 = SHUT_RDWR as u32 + 1;

/// shutdown(2) as far as it concerns in-process objects.
pub fn shutdown(fd: c_int, how: c_int) -> Verdict<()> {
    loop {
        let entry = table::get(fd);
        if matches!(entry, Entry::Doorbell) {
            return Done(Err(Errno::EBADF));
        }
        let end = entry.downcast::<FdPipe>();
        let end = end.filter(|end| end.bound().is_some_and(Bound::is_socket));
        // ENOTSOCK or EINVAL, whatever is in it.
        let Some(end) = end.filter(|_| matches!(how, SHUT_RD | SHUT_WR | SHUT_RDWR)) else {
            return Kernel;
        };
        if let Some(verdict) = end.shut(fd, how) {
            return verdict;
        }
    }
}

impl FdPipe {
    /// `None`: look the number up again.
    fn shut(&'static self, fd: c_int, how: c_int) -> Option<Verdict<()>> {
        let _guard = SignalGuard::enter();
        let _migrating = migrate::hold_migrations();
        if !table::stands_for(fd, &self.head) {
            return None;
        }
        Some(match self.bound().filter(|bound| self.may_be_shut_here(fd, *bound)) {
            Some(bound) => {
                self.shut_here(fd, bound, how);
                count(Stat::SyscallsAvoided, 1);
                Done(Ok(()))
            }
            None => {
                migrate::fd_held(fd, Stat::MigratedUnmodelled);
                Kernel
            }
        })
    }

    fn may_be_shut_here(&self, fd: c_int, bound: Bound) -> bool {
        let is_here = bound.state(0).is_some_and(|state| !state.sealed);
        let childs = |end: &FdPipe| forked::may_have(end.head.fd());
        let is_childs = vforked::may_exist() || bound.ends().any(childs);
        // A filter that refuses the call refuses one with a bad argument, too.
        let is_allowed = || refusable!(shutdown, fd, -1_isize) == Err(Errno::EINVAL);
        is_here && !is_childs && self.closed_other().is_none() && is_allowed()
    }

    fn shut_here(&self, fd: c_int, bound: Bound, how: c_int) {
        let inward = bound.inward().filter(|_| how != SHUT_WR);
        let outward = bound.outward().filter(|_| how != SHUT_RD);
        let shut = |pipe: &Pipe| pipe.shut(bound.generation).unwrap_or(0);
        let left: u32 = [inward, outward].into_iter().flatten().map(shut).sum();
        if left == 0 || mutated!("socket_shut_before_its_bytes") {
            let _ = sys::raw!(shutdown, fd, how);
        } else {
            self.mode.fetch_or((how as u32 + 1) << LATER_SHIFT, Ordering::SeqCst);
        }
        if mutated!("socket_shut_in_secret") {
            return;
        }
        bound.pair.pipes.iter().for_each(Pipe::wake_closed);
        // Whatever was shut before, and on either side: each of them looks for itself. The end that
        // was named comes first, as in Linux.
        self.queue.wake_all_published();
        let others = bound.ends().filter(|end| !ptr::eq(*end, self));
        others.for_each(|end| end.queue.wake_all_published());
    }
}

impl Bound {
    fn ends(self) -> impl Iterator<Item = &'static FdPipe> {
        [0, 1].into_iter().filter_map(move |index| self.end(index))
    }

    /// Whether the kernel's sockets have not heard yet of a shutdown.
    pub(super) fn is_shut_later(self) -> bool {
        self.ends().any(|end| end.mode.load(Ordering::SeqCst) >> LATER_SHIFT & BOTH != 0)
    }

    /// Tells the kernel's sockets, which have the bytes by now. The caller holds the migrations
    /// lock.
    pub(super) fn shut_in_kernel(self) {
        for end in self.ends() {
            let how = end.mode.load(Ordering::SeqCst) >> LATER_SHIFT & BOTH;
            // A close says more than a shutdown did.
            let is_closed = end.closing.load(Ordering::SeqCst) && end.kept.number().is_none();
            if how == 0 || is_closed || mutated!("socket_shut_is_forgotten") {
                continue;
            }
            let number = number_of(true, end);
            if number >= 0 {
                let _ = sys::raw!(shutdown, number, how - 1);
            }
        }
    }
}
