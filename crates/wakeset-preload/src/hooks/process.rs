//! fork, exec, spawn, and what else gives descriptors to another process or thread.
//!
//! fork(2) itself needs no hook: glibc runs the pthread_atfork(3) handlers of [`start`](crate::start) for it, also when
//! daemon(3) or forkpty(3) forks. vfork(2) needs none either: until it execs, the child works on the same memory and the same
//! kernel objects as the parent, and what it *closes* is told apart by its process id.

use crate::real::real;
use crate::start;
use core::ffi::{c_char, c_int, c_long, c_void};
use libc::pid_t;
use wakeset_fd::stats::Stat;
use wakeset_fd::{descriptor, escape};

/// _Fork(3): fork without the handlers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _Fork() -> pid_t {
    type Fork = unsafe extern "C" fn() -> pid_t;
    // SAFETY: each half of the handlers runs once on its side.
    unsafe {
        start::prepare();
        let pid = real!(_Fork: Fork)();
        if pid == 0 {
            start::in_child()
        } else {
            start::in_parent()
        }
        pid
    }
}

/// Before a clone(2) with these flags: moves everything if the child does not share memory and descriptors with us. Whether
/// the gate has to be opened again.
pub(super) fn before_clone(flags: c_int) -> bool {
    if flags & libc::CLONE_VM == 0 {
        escape::everything(Stat::MovedFork);
        return true;
    }
    if flags & (libc::CLONE_FILES | libc::CLONE_VFORK) == 0 {
        // Two descriptor tables over one memory: numbers no longer mean one thing.
        super::uffd::leave_to_kernel();
        escape::everything_for_good(Stat::MovedUnmodelled);
    }
    false
}

/// clone(2). The optional arguments are passed on as they are.
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
    type Clone = unsafe extern "C" fn(*mut c_void, *mut c_void, c_int, *mut c_void, c_long, c_long, c_long) -> c_int;
    let gate_closed = before_clone(flags);
    // SAFETY: the caller's contract.
    let pid = unsafe { real!(clone: Clone)(function, stack, flags, argument, parent_tid, tls, child_tid) };
    if gate_closed {
        escape::open_gate();
    }
    pid
}

/// unshare(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unshare(flags: c_int) -> c_int {
    type Unshare = unsafe extern "C" fn(c_int) -> c_int;
    if flags & libc::CLONE_FILES != 0 {
        super::uffd::leave_to_kernel();
        escape::everything_for_good(Stat::MovedUnmodelled);
    }
    // SAFETY: the caller's contract.
    unsafe { real!(unshare: Unshare)(flags) }
}

/// pthread_cancel(3). Blocking calls are cancellation points; libc's own are exact about it, so from here on they do the blocking.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cancel(thread: libc::pthread_t) -> c_int {
    type Cancel = unsafe extern "C" fn(libc::pthread_t) -> c_int;
    super::uffd::leave_to_kernel();
    escape::everything_for_good(Stat::MovedUnmodelled);
    // SAFETY: the caller's contract.
    unsafe { real!(pthread_cancel: Cancel)(thread) }
}

type Words = *const *const c_char;

/// Defines hooks that move what the new program inherits, and then call libc's function.
macro_rules! before_new_program {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*) -> $result:ty, $reason:ident;)+) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            type Function = unsafe extern "C" fn($($type),*) -> $result;
            descriptor::before_exec(Stat::$reason);
            // SAFETY: the caller's contract.
            unsafe { real!($name: Function)($($argument),*) }
        }
    )+};
}

before_new_program! {
    /// execve(2).
    execve(path: *const c_char, arguments: Words, environment: Words) -> c_int, MovedExec;
    /// execv(3).
    execv(path: *const c_char, arguments: Words) -> c_int, MovedExec;
    /// execvp(3).
    execvp(file: *const c_char, arguments: Words) -> c_int, MovedExec;
    /// execvpe(3).
    execvpe(file: *const c_char, arguments: Words, environment: Words) -> c_int, MovedExec;
    /// fexecve(3).
    fexecve(fd: c_int, arguments: Words, environment: Words) -> c_int, MovedExec;
    /// execveat(2).
    execveat(directory: c_int, path: *const c_char, arguments: Words, environment: Words, flags: c_int) -> c_int, MovedExec;
    /// posix_spawn(3).
    posix_spawn(pid: *mut pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void,
        arguments: Words, environment: Words) -> c_int, MovedSpawn;
    /// posix_spawnp(3).
    posix_spawnp(pid: *mut pid_t, file: *const c_char, actions: *const c_void, attributes: *const c_void,
        arguments: Words, environment: Words) -> c_int, MovedSpawn;
    /// system(3).
    system(command: *const c_char) -> c_int, MovedSpawn;
    /// popen(3).
    popen(command: *const c_char, mode: *const c_char) -> *mut c_void, MovedSpawn;
}

/// posix_spawn_file_actions_adddup2(3): the new program will have a descriptor without close-on-exec for this one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_spawn_file_actions_adddup2(actions: *mut c_void, fd: c_int, new: c_int) -> c_int {
    type Add = unsafe extern "C" fn(*mut c_void, c_int, c_int) -> c_int;
    escape::fd(fd, Stat::MovedSpawn);
    // SAFETY: the caller's contract.
    unsafe { real!(posix_spawn_file_actions_adddup2: Add)(actions, fd, new) }
}
