//! The table of calls: one row for each call that Wakeset looks at before the kernel does.
//!
//! From it come the exported hooks, the decoder of `syscall()`, `docs/calls.md`, and the test that
//! makes each call by both roads (`tests/table/roads.rs`). `row.rs` says how a row becomes code.
//! The files in `table/` hold nothing but rows, so that tests can read them, too.
//!
//! ```text
//! ABI row(arguments) -> result {
//!     names [..]    libc's names: each is a hook whose real call is libc's function of that name
//!     alias [..]    other names for the first of `names`: their hooks call its hook. For names
//!                   with two underscores; a `…64` form belongs into `names`
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
//! | `opens [path]` | pipes migrate if the path names a descriptor; then the real call |
//! | `leaves [Reason]` | every object migrates, for good; then the real call |
//! | `first [f(..), ..]` | these run; then the real call |
//! | `by_hand []` | all of the row is written by hand |
//!
//! A row has the ABI `"C-unwind"` if its call is a cancellation point (pthreads(7) lists them; in
//! doubt take it, it is right for every call): pthread_cancel(3) unwinds the thread from inside the
//! real call. Arguments without a type are registers that the hook
//! passes on as they are.
//!
//! Every name and number belongs to one row. A new row takes an entry in `tests/c/roads_calls.h`.

mod bytes;
mod descriptors;
mod memory;
mod processes;
mod waits;

pub(super) use bytes::{read, recv, recvfrom, send, write};
pub(super) use waits::{poll, ppoll};

use super::row::Registers;
use core::ffi::c_long;
use syscalls::Sysno;

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
