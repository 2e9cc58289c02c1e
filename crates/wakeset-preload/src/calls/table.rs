//! The table of calls: one row for each call that Wakeset looks at before the kernel does.
//!
//! From it come the exported hooks, the decoder of `syscall()`, `docs/calls.md`, and the test that
//! makes each call by both roads (`tests/table/roads.rs`). `row.rs` says how a row becomes code.
//! The files in `table/` hold nothing but rows, so that tests can read them, too.
//!
//! ```text
//! ABI row(arguments) -> result {
//!     names [..]    libc's names: each is a hook whose real call is libc's function of that name
//!     alias [..]    other names of the same function, as `__pread64` of `pread`: their hooks call
//!                   the hook of the row's name. For a name that begins with two underscores and
//!                   takes the same arguments. All others belong into `names`: `…64` forms, which
//!                   may be functions of their own, and `…_chk` and `…_2` forms
//!     hand [..]     names whose hooks are written by hand, in the file that the row's body is in
//!     number [..]   system calls with the arguments of the row
//!     raw [..]      system calls with other arguments or without a fast path, each with the
//!                   function that answers them
//!     => policy [..]   what happens, as below
//!     Class "what docs/calls.md says about it"
//!     apart "why the two roads cannot be compared"
//! }
//! ```
//!
//! | policy | what happens |
//! |---|---|
//! | `body [f]` | `f` gets the arguments and a function that makes the real call |
//! | `migrates [fd ..]` | the objects of these descriptors migrate; then the real call |
//! | `opens [path]` | pipes migrate if the path names a descriptor; then the real call, whose result is a new number |
//! | `opens_stream [path]` | the same with a stream |
//! | `makes []` | the real call, whose result is a new number |
//! | `makes_or_keeps [fd]` | the same if `fd` is -1; otherwise the result is `fd` |
//! | `makes_stream []`, `makes_directory []` | as `makes`, of a stream or directory |
//! | `leaves [Reason]` | every object migrates, for good; then the real call |
//! | `first [f(..), ..]` | these run; then the real call |
//! | `by_hand []` | all of the row is written by hand |
//!
//! A call that depends on the state of pipes and pairs only has the policy `first
//! [socket::migrate_pair(fd)]` and the argument `fd: c_int`.
//!
//! A row has the ABI `"C-unwind"` unless its call certainly is no cancellation point and never
//! blocks (pthreads(7) lists them; it is right for every call): pthread_cancel(3) unwinds the
//! thread from inside the real call. Arguments without a type are registers that the hook passes on
//! as they are. If all of them are, the result is `usize`, the register as it is; otherwise it is
//! libc's type. The row's own name is used in `CALL` of the test; with `alias` it must be the name
//! in libc that the aliases call.
//!
//! Every name and number belongs to one row. A row either has an entry in `tests/c/roads_calls.h`,
//! which makes the call by both roads, or says `apart`, never both. CONTRIBUTING.md says how to add
//! a hook.

mod bytes;
mod descriptors;
mod memory;
mod processes;
mod waits;

pub(super) use bytes::{read, recv, recvfrom, send, write};
pub(super) use waits::{poll, ppoll};

use super::row::Registers;
use core::ffi::{CStr, c_long};
use syscalls::Sysno;

/// Whether a call of this name may be answered without libc's function of that name.
pub(super) fn is_answered(name: &CStr) -> bool {
    let name = name.to_bytes();
    let parts = [bytes::answers, waits::answers, descriptors::answers, processes::answers];
    // `syscall` is the other road into all of them.
    name == b"syscall" || parts.iter().any(|answers| answers(name))
}

/// A system call by its number, as through its libc name; `call` makes it.
///
/// # Safety
/// The registers are as that call wants them.
#[inline]
pub(crate) unsafe fn decode(
    number: Sysno,
    registers: Registers,
    call: impl Fn(Registers) -> c_long,
) -> c_long {
    // SAFETY: the caller's contract.
    unsafe {
        if bytes::has(number) {
            bytes::decode(number, registers, call)
        } else if has(number) {
            decode_rest(number, registers, call)
        } else {
            call(registers)
        }
    }
}

/// Whether a system call has a row.
pub(crate) const fn has(number: Sysno) -> bool {
    bytes::has(number)
        || waits::has(number)
        || descriptors::has(number)
        || processes::has(number)
        || memory::has(number)
}

/// Whether all that the row of a system call does comes before the real call.
pub(crate) const fn acts_before(number: Sysno) -> bool {
    bytes::acts_before(number)
        || waits::acts_before(number)
        || descriptors::acts_before(number)
        || processes::acts_before(number)
        || memory::acts_before(number)
}

/// [`decode`] for the parts of the table whose calls are not made so often that their code should
/// stand in the way of reads and writes.
#[inline(never)]
unsafe fn decode_rest(
    number: Sysno,
    registers: Registers,
    call: impl Fn(Registers) -> c_long,
) -> c_long {
    // SAFETY: the caller's contract.
    unsafe {
        if waits::has(number) {
            waits::decode(number, registers, call)
        } else if descriptors::has(number) {
            descriptors::decode(number, registers, call)
        } else if processes::has(number) {
            processes::decode(number, registers, call)
        } else {
            memory::decode(number, registers, call)
        }
    }
}
