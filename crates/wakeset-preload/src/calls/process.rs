//! exec, spawn, and what else makes descriptors mean something new. fork(2) and clone(2) are in
//! [`fork`](super::fork).

use super::path::names_descriptor;
use crate::uffd;
use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use wakeset_fd::stats::Stat;
use wakeset_fd::{descriptor, migrate};

/// Before unshare(2). With `CLONE_FILES` two descriptor tables share one memory afterwards, and
/// numbers no longer mean one thing.
pub(super) fn before_unshare(flags: c_int) {
    if flags & libc::CLONE_FILES != 0 {
        leave_to_kernel();
    }
}

/// Before pthread_cancel(3). Blocking calls are cancellation points; libc's own are exact about it,
/// so from here on they do the blocking.
pub(super) fn before_cancel() {
    leave_to_kernel();
}

/// Migrates everything, for good.
pub(super) fn leave_to_kernel() {
    uffd::leave_to_kernel();
    migrate::everything_for_good(Stat::MovedUnmodelled);
}

/// Before an exec: migrates what the new program inherits.
pub(super) fn before_exec() {
    descriptor::before_exec(Stat::MovedExec);
}

/// The numbers that file actions of posix_spawn(3) have ever named. Actions are used as often as
/// the program likes, also after the number has come to mean something else.
static NAMED: [AtomicU64; NUMBERS / 64] = [const { AtomicU64::new(0) }; NUMBERS / 64];
const NUMBERS: usize = 1 << 20;
/// Whether file actions have ever named a path that leads to a descriptor.
static NAMED_BY_PATH: AtomicBool = AtomicBool::new(false);

/// The word of [`NAMED`] in which a number has its bit, and that bit.
fn bit_of(fd: c_int) -> Option<(&'static AtomicU64, u64)> {
    let word = NAMED.get(usize::try_from(fd).ok()? / 64)?;
    Some((word, 1 << (fd % 64)))
}

/// Before posix_spawn(3) and its kin: migrates what the new program inherits, and what `actions`
/// (0 for none) may give it.
pub(super) fn before_spawn(actions: usize) {
    let named = |fd| bit_of(fd).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0);
    descriptor::before_new_program(Stat::MovedSpawn, |fd| actions != 0 && named(fd));
    if actions != 0 && NAMED_BY_PATH.load(Ordering::Relaxed) {
        migrate::pipes(Stat::MovedSpawn);
    }
}

/// Before posix_spawn_file_actions_adddup2(3): the new program will have a descriptor without
/// close-on-exec for this one.
pub(super) fn note_spawn_number(fd: c_int) {
    if let Some((word, bit)) = bit_of(fd) {
        word.fetch_or(bit, Ordering::Relaxed);
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
