//! fork(2), vfork(2) and clone(2).
//!
//! glibc runs the pthread_atfork(3) handlers of `process::fork`, also when daemon(3) or forkpty(3)
//! forks. The function `fork` has a hook to tell it from those: only its child comes back to the
//! program, and what that child does is seen. A vfork(2) child works on the same memory, but with a
//! descriptor table of its own, so what it calls by a number may be something else in the parent by
//! then. What either names migrates.

use super::instruction::before_shared;
use super::leave::leave_to_kernel;
use super::row::Registers;
use crate::dispatch;
use crate::process::fork::{in_child, in_parent, keeping, prepare};
use crate::process::statistics;
use crate::real::real;
use core::ffi::{c_int, c_long, c_void};
use core::ptr;
use libc::pid_t;
use wakeset_fd::fork::Kept;
use wakeset_fd::interpose::returned;
use wakeset_fd::listeners;
use wakeset_fd::stats::Stat;
use wakeset_fd::{Errno, fork, migrate, user};

/// fork(2), the function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fork() -> pid_t {
    type Fork = unsafe extern "C" fn() -> pid_t;
    // SAFETY: the caller's contract.
    keeping(|| unsafe { real!(fork: Fork)() })
}

/// _Fork(3): fork without the handlers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _Fork() -> pid_t {
    type Fork = unsafe extern "C" fn() -> pid_t;
    // SAFETY: each half of the handlers runs once on its side.
    unsafe {
        prepare();
        let pid = real!(_Fork: Fork)();
        if pid == 0 {
            in_child()
        } else {
            in_parent()
        }
        pid
    }
}

/// Whether all calls of a vfork(2) child are seen: in it nothing is caught that is called by
/// instruction.
fn are_calls_seen() -> bool {
    !dispatch::is_on()
}

extern "C" fn before_vfork() -> Kept {
    listeners::before_fork();
    fork::before_vfork(are_calls_seen())
}

/// In the parent, with what the system call returned.
unsafe extern "C" fn after_vfork(result: isize, kept: Kept) -> pid_t {
    // SAFETY: `vfork` hands on what `before_vfork` has returned.
    unsafe { fork::after_vfork(kept) };
    returned(Errno::from_ret(result as usize).map(|pid| pid as isize)) as pid_t
}

/// vfork(2). The child returns first, on the parent's stack, and writes over what is below; so the
/// return address, and what `before_vfork` has returned, wait in registers, and nothing else is
/// kept.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfork() -> pid_t {
    core::arch::naked_asm!(
        "endbr64",
        "sub rsp, 8",
        "call {before}",
        "add rsp, 8",
        "pop rdi",
        "mov rsi, rax",
        "mov eax, {number}",
        "syscall",
        "push rdi",
        "test rax, rax",
        "jz 2f",
        "mov rdi, rax",
        "sub rsp, 8",
        "call {after}",
        "add rsp, 8",
        "2: ret",
        before = sym before_vfork,
        after = sym after_vfork,
        number = const libc::SYS_vfork,
    )
}

/// glibc's other name for vfork(2).
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __vfork() -> pid_t {
    core::arch::naked_asm!("endbr64", "jmp {vfork}", vfork = sym vfork)
}

/// clone(2), the function. The optional arguments are passed on as they are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clone(
    function: *mut c_void,
    stack: *mut c_void,
    flags: c_int,
    argument: *mut c_void,
    parent_tid: c_long,
    tls: c_long,
    child_tid: c_long,
) -> c_int {
    type Clone = unsafe extern "C" fn(
        *mut c_void,
        *mut c_void,
        c_int,
        *mut c_void,
        c_long,
        c_long,
        c_long,
    ) -> c_int;
    let call = || {
        // SAFETY: the caller's contract.
        unsafe { real!(clone: Clone)(function, stack, flags, argument, parent_tid, tls, child_tid) }
    };
    if is_like_vfork(flags) {
        listeners::before_fork();
        let kept = fork::before_vfork(are_calls_seen());
        let result = call();
        // SAFETY: returned above.
        unsafe { fork::after_vfork(kept) };
        return result;
    }
    around_clone(flags, call)
}

/// Whether a clone(2) is what vfork(2) is: on the caller's memory and thread-local storage, with
/// numbers of its own, while the caller waits.
fn is_like_vfork(flags: c_int) -> bool {
    /// The signal at the child's end.
    const SIGNAL: c_int = 0xff;
    flags & !SIGNAL == libc::CLONE_VM | libc::CLONE_VFORK
}

/// glibc's other name for clone(2). A jump, so that it needs no word about optional arguments.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __clone() -> c_int {
    core::arch::naked_asm!("endbr64", "jmp {clone}", clone = sym clone)
}

/// fork(2), the system call.
pub(super) fn raw_fork(registers: Registers, call: impl FnOnce(Registers) -> c_long) -> c_long {
    around_fork(|| call(registers))
}

/// vfork(2), the system call. It returns in the child as well, so its end is not seen.
pub(super) fn raw_vfork(registers: Registers, call: impl FnOnce(Registers) -> c_long) -> c_long {
    fork::share_for_good();
    around_fork(|| call(registers))
}

/// clone(2), the system call.
pub(super) fn raw_clone(registers: Registers, call: impl FnOnce(Registers) -> c_long) -> c_long {
    around_clone(registers[0] as c_int, || call(registers))
}

/// clone3(2), whose flags are the first word of a structure.
///
/// # Safety
/// As clone3(2).
pub(super) unsafe fn raw_clone3(
    registers: Registers,
    call: impl FnOnce(Registers) -> c_long,
) -> c_long {
    // SAFETY: any bits are flags.
    match unsafe { user::load(ptr::with_exposed_provenance::<u64>(registers[0])) } {
        Some(flags) => around_clone(flags as c_int, || call(registers)),
        None => call(registers),
    }
}

/// A clone(2) with these flags.
fn around_clone<T>(flags: c_int, call: impl FnOnce() -> T) -> T {
    let has_own_memory = flags & libc::CLONE_VM == 0;
    if has_own_memory && flags & libc::CLONE_FILES != 0 {
        // Two memories over one descriptor table: neither side sees the other's calls.
        leave_to_kernel();
        fork::before_sharing_numbers();
        return call();
    }
    if !has_own_memory && flags & libc::CLONE_THREAD == 0 {
        fork::share_for_good();
    }
    // A child without a descriptor table of ours that lasts only until it execs.
    let is_vfork = flags & (libc::CLONE_FILES | libc::CLONE_VFORK) == libc::CLONE_VFORK;
    if has_own_memory || is_vfork {
        return around_fork(call);
    }
    if flags & libc::CLONE_FILES == 0 {
        // Two descriptor tables over one memory: numbers no longer mean one thing.
        leave_to_kernel();
    }
    before_shared();
    call()
}

/// A call that returns twice, the second time in a child that shares nothing with this process but
/// descriptions.
fn around_fork<T>(call: impl FnOnce() -> T) -> T {
    listeners::end_all_alone();
    migrate::everything(Stat::MigratedFork);
    let result = call();
    // In a child this changes a copy of the gate, which the child resets when it makes its first
    // object.
    migrate::open_gate();
    statistics::note_fork();
    result
}
