//! syscall(2), the function: each call goes the same way as through its libc name.

use super::row::Registers;
use super::table::decode;
use crate::real::real;
use core::ffi::c_long;
use syscalls::Sysno;

type Syscall =
    unsafe extern "C-unwind" fn(c_long, usize, usize, usize, usize, usize, usize) -> c_long;

/// syscall(2). Always six arguments are passed on: the kernel looks at as many as the call has.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    let call = |[a, b, c, d, e, f]: Registers| {
        // SAFETY: the caller's contract.
        unsafe { real!(syscall: Syscall)(number, a, b, c, d, e, f) }
    };
    let registers = [a, b, c, d, e, f];
    match usize::try_from(number).ok().and_then(Sysno::new) {
        // SAFETY: as above.
        Some(number) => unsafe { decode(number, registers, call) },
        None => call(registers),
    }
}
