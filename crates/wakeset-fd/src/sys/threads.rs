//! The threads of this process, as the kernel knows them.

use super::births::Birth;
use super::path::Path;
use super::refusable::refusable;
use super::{forked, process, raw, vforked};
use core::ffi::{CStr, c_int};
use core::mem::MaybeUninit;
use syscalls::Errno;

/// The calling thread's number.
pub(crate) fn gettid() -> c_int {
    raw!(gettid).map_or(0, |tid| tid as c_int)
}

/// Returns whether a thread of this process has this number.
pub(crate) fn is_thread(tid: c_int) -> bool {
    raw!(tgkill, super::getpid(), tid, 0) != Err(Errno::ESRCH)
}

/// How many threads this process has, with those that are just ending. `None` where that cannot be
/// found out.
pub(crate) fn count_threads() -> Option<usize> {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    let tasks = c"/proc/self/task".as_ptr();
    refusable!(newfstatat, libc::AT_FDCWD, tasks, status.as_mut_ptr(), 0).ok()?;
    // SAFETY: the kernel has filled it in.
    let links = unsafe { status.assume_init() }.st_nlink;
    // As of any directory with as many others in it.
    usize::try_from(links).ok()?.checked_sub(2)
}

/// Returns whether every other thread of the process is asleep in the kernel at this moment.
///
/// `false` where that cannot be found out, and in a vfork(2) child, whose list of threads is not
/// that of the process whose memory this is.
#[inline(never)]
pub(crate) fn others_sleep() -> bool {
    if process::is_foreign() {
        return false;
    }
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    let _birth = Birth::begin();
    let Ok(tasks) = refusable!(open, c"/proc/self/task".as_ptr(), flags) else { return false };
    let all_sleep = all_sleep_but(tasks, gettid());
    let _ = refusable!(close, tasks);
    all_sleep
}

/// Returns whether all threads in the directory `tasks` but `own` are asleep.
fn all_sleep_but(tasks: usize, own: c_int) -> bool {
    // The caller's stack may be small. With this buffer there is one call for every 16 threads,
    // each of which costs three calls anyway.
    let mut entries = [0_u8; 512];
    loop {
        let Ok(len) = refusable!(getdents64, tasks, entries.as_mut_ptr(), entries.len()) else {
            return false;
        };
        if len == 0 {
            return true;
        }
        let mut rest = entries.get(..len).unwrap_or(&[]);
        // struct linux_dirent64: inode 8, offset 8, length 2, type 1, name.
        while let Some(&[low, high]) = rest.get(16..18) {
            let (entry, next) =
                rest.split_at(usize::from(u16::from_ne_bytes([low, high])).clamp(19, rest.len()));
            rest = next;
            let name = entry.get(19..).and_then(|name| CStr::from_bytes_until_nul(name).ok());
            let number = name.and_then(|name| name.to_str().ok()?.parse::<c_int>().ok());
            if number.is_some_and(|tid| tid != own && !is_asleep(tasks, tid)) {
                return false;
            }
        }
    }
}

/// Whether a thread is asleep; one that waits in vfork(2) is so uninterruptibly. A deputy is as
/// good as asleep: it makes no calls of the program's, and changes what lives here under the
/// migrations lock alone.
fn is_asleep(tasks: usize, tid: c_int) -> bool {
    if forked::is_deputy(tid) {
        return true;
    }
    match state_of(tasks, tid) {
        Some(b'S') => true,
        Some(b'D') => vforked::waiting_thread() == Some(tid),
        _ => false,
    }
}

/// The state of a thread as proc(5) gives it in `stat`: `R`, `S`, `D`, …
fn state_of(tasks: usize, tid: c_int) -> Option<u8> {
    let path = Path::of(format_args!("{tid}/stat"))?;
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    let file = refusable!(openat, tasks, path.as_ptr(), flags).ok()?;
    let mut status = [0_u8; 128];
    let len = refusable!(read, file, status.as_mut_ptr(), status.len());
    let _ = refusable!(close, file);
    // The name, in parentheses, may itself contain any character.
    let status = status.get(..len.ok()?)?;
    let end = status.iter().rposition(|byte| *byte == b')')?;
    status.get(end + 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ptr;
    use core::sync::atomic::{AtomicBool, Ordering};
    extern crate std;

    /// A vfork(2) child saw itself alone, and took back edges that a running thread of its parent
    /// was about to add to.
    #[test]
    fn a_child_that_shares_memory_knows_nothing_of_who_sleeps() {
        extern "C" fn ask(_: *mut core::ffi::c_void) -> c_int {
            c_int::from(others_sleep())
        }
        fn ask_in_child() -> bool {
            let mut stack = std::vec![0_u128; 1 << 12];
            let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
            // SAFETY: the child runs on a stack of its own and ends before we go on.
            let child = unsafe {
                libc::clone(ask, stack.as_mut_ptr_range().end.cast(), flags, ptr::null_mut())
            };
            let mut status = -1;
            // SAFETY: our own child.
            let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
            assert!(ended == child && libc::WIFEXITED(status));
            libc::WEXITSTATUS(status) == 1
        }
        let _alone = crate::table::alone::alone();
        assert_eq!(process::memory(), process::Memory::Own);
        let running = AtomicBool::new(true);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                while running.load(Ordering::Relaxed) {
                    core::hint::spin_loop();
                }
            });
            let asleep = ask_in_child();
            running.store(false, Ordering::Relaxed);
            assert!(!asleep);
        });
    }
}
