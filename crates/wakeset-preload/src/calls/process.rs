//! exec, spawn, ends, and what else makes descriptors mean something new. fork(2) and clone(2) are
//! in [`fork`](super::fork).

use super::leave::leave_to_kernel;
use super::path::names_descriptor;
use crate::listeners;
use crate::process::end;
use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use wakeset_fd::listeners::End;
use wakeset_fd::reserved::{PIECES, Reserved};
use wakeset_fd::stats::Stat;
use wakeset_fd::{deputy, descriptor, migrate};

/// Before setns(2), and calls that change what the process may do.
pub(super) fn before_change() {
    deputy::end_all();
}

/// Before setns(2). The name space may be one of process numbers, as for [`before_unshare`].
pub(super) fn before_setns() {
    deputy::refuse();
}

/// Before unshare(2). With `CLONE_FILES` two descriptor tables share one memory afterwards, and
/// numbers no longer mean one thing.
pub(super) fn before_unshare(flags: c_int) {
    before_change();
    if flags & libc::CLONE_FILES != 0 {
        leave_to_kernel();
    }
    if flags & libc::CLONE_NEWPID != 0 {
        // A child may have the number that its parent has in another name space.
        deputy::refuse();
    }
}

/// Before pthread_cancel(3). Blocking calls are cancellation points; libc's own are exact about it,
/// so from here on they do the blocking.
pub(super) fn before_cancel() {
    leave_to_kernel();
}

/// Before an exec: migrates what the new program inherits, and leaves to others what this one was
/// woken for.
pub(super) fn before_exec() {
    deputy::before_end();
    descriptor::before_exec(Stat::MigratedExec);
    listeners::before_end(End::Exec);
}

/// Before the process ends in another way than by exit(3), at which the library hears of it.
pub(super) fn before_end() {
    end::before_end();
}

/// Before a thread ends by a system call of its own. It may have its thread-local storage from
/// another thread, so nothing else of it is given up.
pub(super) fn before_thread_end() {
    listeners::before_wait();
    deputy::before_thread_end();
}

/// The numbers that file actions of posix_spawn(3) have ever named. Actions are used as often as
/// the program likes, also after the number has come to mean something else.
static NAMED: Reserved<AtomicU64, WORDS> = Reserved::new();
/// A power of two that is enough for all numbers, 64 in a word, and gives pieces of whole pages.
const WORDS: usize = PIECES * 4096 / 8;
/// Whether a number was named for which there is no entry.
static NAMED_ANY: AtomicBool = AtomicBool::new(false);
/// Whether file actions have ever named a path that leads to a descriptor.
static NAMED_BY_PATH: AtomicBool = AtomicBool::new(false);

/// Whether file actions may have named a number.
fn is_named(fd: c_int) -> bool {
    let word = usize::try_from(fd).ok().and_then(|fd| NAMED.get(fd / 64));
    NAMED_ANY.load(Ordering::Relaxed)
        || word.is_some_and(|word| word.load(Ordering::Relaxed) & 1 << (fd % 64) != 0)
}

/// Before posix_spawn(3) and its kin: migrates what the new program inherits, and what `actions`
/// (0 for none) may give it.
pub(super) fn before_spawn(actions: usize) {
    wakeset_fd::listeners::before_spawn();
    descriptor::before_new_program(Stat::MigratedSpawn, |fd| actions != 0 && is_named(fd));
    if actions != 0 && NAMED_BY_PATH.load(Ordering::Relaxed) {
        migrate::pipes(Stat::MigratedSpawn);
    }
}

/// Before posix_spawn_file_actions_adddup2(3): the new program will have a descriptor without
/// close-on-exec for this one.
pub(super) fn note_spawn_number(fd: c_int) {
    let Ok(number) = usize::try_from(fd) else { return };
    match NAMED.place(number / 64) {
        Some(word) => _ = word.fetch_or(1 << (fd % 64), Ordering::Relaxed),
        None => NAMED_ANY.store(true, Ordering::Relaxed),
    }
}

/// Before posix_spawn_file_actions_addopen(3): a path may be a name of a descriptor.
///
/// # Safety
/// `path` is a C string.
pub(super) unsafe fn note_spawn_path(path: usize) {
    // SAFETY: the caller's contract.
    if unsafe { names_descriptor(ptr::with_exposed_provenance(path)) } {
        NAMED_BY_PATH.store(true, Ordering::Relaxed);
    }
}
