//! What becomes of a caught call.
//!
//! The objects that it names migrate, and it is made in the instruction's place
//! ([`site_of`](crate::dispatch::site_of)). So by instruction nothing is answered in process, and
//! what the call makes is the kernel's from the start. Of most rows of the table that is what they
//! say themselves; those that have a body of their own are sorted here.

use super::masks;
use crate::calls::{Registers, table, uring};
use core::cell::Cell;
use core::ffi::{c_int, c_long, c_uint};
use core::ptr;
use libc::ucontext_t;
use syscalls::{Errno, Sysno, raw_syscall};
use wakeset::mutated;
use wakeset_fd::interpose::{before_poll, before_select, fail};
use wakeset_fd::stats::Stat;
use wakeset_fd::{descriptor, migrate};

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It is made in the instruction's place.
    Made,
    /// It is answered: a result or a negative errno.
    Answered(isize),
    /// It cannot be looked at, or there is nothing left to look for: everything is the kernel's
    /// for good, and the instruction is executed again.
    Left,
}
use Outcome::{Answered, Left, Made};

/// How the real call of a row is made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Real {
    /// At once, by the handler: it does not block, and the row has something to do afterwards.
    Now,
    /// In the instruction's place: the row has nothing to do afterwards, if it is told that this
    /// was the result.
    Later(c_long),
}

/// Decides about a call. The context is that of the interrupted instruction.
///
/// # Safety
/// The registers and the context are those that the kernel has passed to the handler.
pub(super) unsafe fn decide(
    number: usize,
    registers: Registers,
    context: &mut ucontext_t,
) -> Outcome {
    use Sysno as S;
    let Some(call) = Sysno::new(number) else {
        // Numbers of the other ABI name the same calls; others are none.
        return if number & 0x4000_0000 == 0 { Made } else { Left };
    };
    let [a, b, c, d, e, _] = registers;
    // SAFETY: the caller's contract, throughout.
    unsafe {
        match call {
            S::vfork | S::clone3 => Left,
            S::clone if a as c_int & libc::CLONE_VM != 0 || b != 0 => Left,
            S::arch_prctl if a as c_int == ARCH_SET_FS => Left,
            S::prctl if a as c_int == SET_DISPATCH => Left,
            S::rt_sigaction => masks::rt_sigaction(registers),
            S::rt_sigprocmask => masks::rt_sigprocmask(registers, context),
            S::rt_sigsuspend => masks::waiting(a),
            S::ppoll => both(masks::waiting(d), || polls(a, b)),
            S::pselect6 => both(masks::waiting_in(registers[5]), || selects(registers)),
            S::epoll_pwait | S::epoll_pwait2 => both(masks::waiting(e), || names(&[a])),
            S::io_pgetevents => masks::waiting_in(registers[5]),
            S::poll => polls(a, b),
            S::select => selects(registers),
            S::fork | S::clone | S::listen => row(call, registers, Real::Now),
            S::mmap | S::mprotect | S::pkey_mprotect | S::shmat => row(call, registers, Real::Now),
            S::io_uring_setup => row(call, registers, Real::Now),
            S::io_uring_register if uring::is_noted_after(b) => row(call, registers, Real::Now),
            S::io_uring_register => row(call, registers, Real::Later(0)),
            S::io_uring_enter => {
                uring::before_caught_enter(a as c_int, b as c_uint, d as c_uint);
                Made
            }
            S::fcntl if b as c_int == libc::F_SETFL => row(call, registers, Real::Now),
            S::fcntl => names(&[a]),
            S::ioctl if is_noted(b as u32) => row(call, registers, Real::Now),
            S::ioctl => both(names(&[a]), || row(call, registers, Real::Later(0))),
            S::close if mutated!("caught_closes_are_missed") => Made,
            S::close | S::close_range | S::dup2 | S::dup3 => row(call, registers, Real::Later(0)),
            S::read | S::write | S::readv | S::writev | S::dup | S::epoll_wait => names(&[a]),
            S::sendto | S::recvfrom | S::accept | S::accept4 => names(&[a]),
            S::recvmsg | S::recvmmsg | S::shutdown => names(&[a]),
            S::sendmsg => passes(a, b),
            S::pidfd_getfd => names(&[b]),
            S::timerfd_settime | S::timerfd_gettime => names(&[a]),
            S::epoll_ctl => names(&[a, c]),
            S::eventfd | S::eventfd2 | S::timerfd_create | S::pipe | S::pipe2 => Made,
            S::socketpair | S::epoll_create | S::epoll_create1 | S::userfaultfd => Made,
            // A number that it makes is new: closes by instruction are seen as well.
            _ if table::acts_before(call) => row(call, registers, Real::Later(-1)),
            // A row that nobody has sorted.
            _ if table::has(call) => Left,
            _ => Made,
        }
    }
}

const ARCH_SET_FS: c_int = 0x1002;
const SET_DISPATCH: c_int = 59;

/// Whether something is noted after a request of ioctl(2): that it was answered.
fn is_noted(request: u32) -> bool {
    const USERFAULTFD: u32 = 0xaa;
    u64::from(request) == libc::FIONBIO || request >> 8 & 0xff == USERFAULTFD
}

fn both(first: Outcome, then: impl FnOnce() -> Outcome) -> Outcome {
    if first == Made { then() } else { first }
}

/// A call on these numbers: their objects migrate.
fn names(numbers: &[usize]) -> Outcome {
    for number in numbers {
        let fd = *number as c_int;
        if descriptor::is_hidden(fd) {
            return Answered(-(libc::EBADF as isize));
        }
        if !mutated!("caught_calls_migrate_nothing") {
            migrate::fd(fd, Stat::MigratedUnmodelled);
        }
    }
    Made
}

/// sendmsg(2): what it passes on migrates, too.
///
/// # Safety
/// As sendmsg(2).
unsafe fn passes(fd: usize, message: usize) -> Outcome {
    // SAFETY: the caller's contract.
    unsafe { descriptor::before_sendmsg(ptr::with_exposed_provenance(message)) };
    names(&[fd])
}

/// # Safety
/// As poll(2).
unsafe fn polls(fds: usize, n: usize) -> Outcome {
    if mutated!("caught_polls_migrate_nothing") {
        return Made;
    }
    // SAFETY: the caller's contract.
    unsafe { before_poll(ptr::with_exposed_provenance(fds), n as u64) };
    Made
}

/// # Safety
/// As select(2).
unsafe fn selects([n, read, write, except, ..]: Registers) -> Outcome {
    let sets = [read, write, except].map(ptr::with_exposed_provenance);
    // SAFETY: the caller's contract.
    unsafe { before_select(n as c_int, sets) };
    Made
}

/// What the call's row of the table does.
///
/// # Safety
/// The registers are as the call wants them.
unsafe fn row(call: Sysno, registers: Registers, real: Real) -> Outcome {
    let is_made = Cell::new(false);
    let make = |registers: Registers| -> c_long {
        is_made.set(true);
        match real {
            // SAFETY: the caller's contract.
            Real::Now => match unsafe { make_now(call, registers) } {
                Ok(result) => result as c_long,
                Err(errno) => fail(errno.into_raw()) as c_long,
            },
            Real::Later(result) => result,
        }
    };
    // SAFETY: the caller's contract.
    let result = unsafe { table::decode(call, registers, make) };
    if real != Real::Now && is_made.get() {
        return Made;
    }
    if result != -1 {
        return Answered(result as isize);
    }
    // SAFETY: this thread's errno.
    Answered(-(unsafe { *libc::__errno_location() } as isize))
}

/// # Safety
/// The registers are as the call wants them.
unsafe fn make_now(call: Sysno, [a, b, c, d, e, f]: Registers) -> Result<usize, Errno> {
    // SAFETY: the caller's contract.
    unsafe { Errno::from_ret(raw_syscall!(call, a, b, c, d, e, f)) }
}
