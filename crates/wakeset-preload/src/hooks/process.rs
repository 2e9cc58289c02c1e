//! fork, exec, spawn, and what else gives descriptors to another process or thread.
//!
//! fork(2) itself needs no hook: glibc runs the pthread_atfork(3) handlers of [`start`](crate::start) for it, also when
//! daemon(3) or forkpty(3) forks. vfork(2) does: the child works on the same memory, but with a descriptor table of its own, so what it
//! calls by a number may be something else in the parent by then. Everything moves before it.

use crate::outcome::returned;
use crate::real::real;
use crate::start;
use core::ffi::{c_char, c_int, c_long, c_void};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use libc::pid_t;
use wakeset_fd::stats::Stat;
use wakeset_fd::{Errno, descriptor, escape, fork};

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

extern "C" fn before_vfork() {
    fork::before_vfork();
}

/// In the parent, with what the system call returned.
extern "C" fn after_vfork(result: isize) -> pid_t {
    fork::after_vfork();
    returned(Errno::from_ret(result as usize).map(|pid| pid as isize)) as pid_t
}

/// vfork(2). The child returns first, on the parent's stack, and writes over what is below; so the return address waits in a register,
/// and nothing else is kept.
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

/// Before a clone(2) with these flags: moves everything if the child does not share memory and descriptors with us, or lasts only until it
/// execs. Whether the gate has to be opened again.
pub(super) fn before_clone(flags: c_int) -> bool {
    if flags & libc::CLONE_VM == 0 || flags & (libc::CLONE_FILES | libc::CLONE_VFORK) == libc::CLONE_VFORK {
        escape::everything(Stat::MovedFork);
        return true;
    }
    if flags & libc::CLONE_FILES == 0 {
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
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*) -> $result:ty, $before:expr;)+) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            type Function = unsafe extern "C" fn($($type),*) -> $result;
            $before;
            // SAFETY: the caller's contract.
            unsafe { real!($name: Function)($($argument),*) }
        }
    )+};
}

before_new_program! {
    /// execve(2).
    execve(path: *const c_char, arguments: Words, environment: Words) -> c_int, descriptor::before_exec(Stat::MovedExec);
    /// execv(3).
    execv(path: *const c_char, arguments: Words) -> c_int, descriptor::before_exec(Stat::MovedExec);
    /// execvp(3).
    execvp(file: *const c_char, arguments: Words) -> c_int, descriptor::before_exec(Stat::MovedExec);
    /// execvpe(3).
    execvpe(file: *const c_char, arguments: Words, environment: Words) -> c_int, descriptor::before_exec(Stat::MovedExec);
    /// fexecve(3).
    fexecve(fd: c_int, arguments: Words, environment: Words) -> c_int, descriptor::before_exec(Stat::MovedExec);
    /// execveat(2).
    execveat(directory: c_int, path: *const c_char, arguments: Words, environment: Words, flags: c_int) -> c_int, descriptor::before_exec(Stat::MovedExec);
    /// posix_spawn(3).
    posix_spawn(pid: *mut pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void,
        arguments: Words, environment: Words) -> c_int, before_spawn(actions);
    /// posix_spawnp(3).
    posix_spawnp(pid: *mut pid_t, file: *const c_char, actions: *const c_void, attributes: *const c_void,
        arguments: Words, environment: Words) -> c_int, before_spawn(actions);
    /// system(3).
    system(command: *const c_char) -> c_int, before_spawn(ptr::null());
    /// popen(3).
    popen(command: *const c_char, mode: *const c_char) -> *mut c_void, before_spawn(ptr::null());
}

/// The numbers that file actions of posix_spawn(3) have ever named, and whether they have named a way to any. Actions are used as often as the program likes, also with
/// what has its number from later on.
static NAMED: [AtomicU64; NUMBERS / 64] = [const { AtomicU64::new(0) }; NUMBERS / 64];
const NUMBERS: usize = 1 << 20;
static NAMED_BY_PATH: AtomicBool = AtomicBool::new(false);

/// The word of [`NAMED`] in which a number has its bit, and that bit.
fn place_of(fd: c_int) -> Option<(&'static AtomicU64, u64)> {
    let word = NAMED.get(usize::try_from(fd).ok()? / 64)?;
    Some((word, 1 << (fd % 64)))
}

/// Moves what the new program inherits, and what `actions` may give it.
fn before_spawn(actions: *const c_void) {
    let named = |fd| place_of(fd).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0);
    descriptor::before_new_program(Stat::MovedSpawn, |fd| !actions.is_null() && named(fd));
    if !actions.is_null() && NAMED_BY_PATH.load(Ordering::Relaxed) {
        escape::pipes(Stat::MovedSpawn);
    }
}

/// posix_spawn_file_actions_adddup2(3): the new program will have a descriptor without close-on-exec for this one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_spawn_file_actions_adddup2(actions: *mut c_void, fd: c_int, new: c_int) -> c_int {
    type Add = unsafe extern "C" fn(*mut c_void, c_int, c_int) -> c_int;
    if let Some((word, bit)) = place_of(fd) {
        word.fetch_or(bit, Ordering::Relaxed);
    }
    // SAFETY: the caller's contract.
    unsafe { real!(posix_spawn_file_actions_adddup2: Add)(actions, fd, new) }
}

/// posix_spawn_file_actions_addopen(3): a path may be a name of a descriptor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_spawn_file_actions_addopen(
    actions: *mut c_void,
    fd: c_int,
    path: *const c_char,
    flags: c_int,
    mode: libc::mode_t,
) -> c_int {
    type Add = unsafe extern "C" fn(*mut c_void, c_int, *const c_char, c_int, libc::mode_t) -> c_int;
    // SAFETY: the caller's contract.
    if unsafe { super::pipe::names_descriptor(path) } {
        NAMED_BY_PATH.store(true, Ordering::Relaxed);
    }
    // SAFETY: as above.
    unsafe { real!(posix_spawn_file_actions_addopen: Add)(actions, fd, path, flags, mode) }
}
