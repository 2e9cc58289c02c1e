//! Whether a seccomp filter that is already there ends processes that make one of Wakeset's own
//! calls. The author of such a filter knows the program's calls, and not those.
//!
//! A process cannot read its filters, so a child makes the calls, one after another, with
//! arguments by which nothing happens.

use std::convert::Infallible;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

use wakeset_fd::Sysno;
use wakeset_fd::own_calls::{CALLS_TO_FIND_OTHERS, OWN_CALLS, OwnCall};

/// The first of them that ends a process here.
pub fn deadly_call() -> Option<Sysno> {
    if !has_filter() {
        return None;
    }
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    // SAFETY: a fresh mapping of a page, which stays until the exec.
    let reached: &AtomicUsize = unsafe {
        let page = libc::mmap(std::ptr::null_mut(), 4096, access, kind, -1, 0);
        if page == libc::MAP_FAILED {
            return None;
        }
        &*page.cast()
    };
    let status = status_of_child(|| try_all(reached))?;
    let ended = libc::WIFSIGNALED(status);
    all_calls().nth(reached.load(Ordering::SeqCst)).filter(|_| ended).map(|own| own.number)
}

fn all_calls() -> impl Iterator<Item = &'static OwnCall> {
    OWN_CALLS.iter().chain(CALLS_TO_FIND_OTHERS)
}

/// Runs `f`, which makes system calls only, in a child, whose status this is. No signal tells of
/// its end: where SIGCHLD is blocked, one would wait for the program.
fn status_of_child(f: impl FnOnce() -> Infallible) -> Option<libc::c_int> {
    // SAFETY: a fork, but for libc's share in it.
    let child = unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) } as libc::pid_t;
    if child == 0 {
        f();
    }
    let mut status = 0;
    // SAFETY: our own child, if there is one.
    while unsafe { libc::waitpid(child, &mut status, libc::__WALL) } < 0 {
        if std::io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            return None;
        }
    }
    Some(status)
}

/// Whether this process has a filter. Where it cannot be told it may have one.
fn has_filter() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mode = status.lines().find_map(|line| line.strip_prefix("Seccomp:"));
    mode.is_none_or(|mode| mode.trim() != "0")
}

/// In the child: makes the calls, and says which it has come to.
fn try_all(reached: &AtomicUsize) -> Infallible {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: what ends this process is to leave no core file, and no message.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &none);
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
    }
    for (index, own) in all_calls().enumerate() {
        reached.store(index, Ordering::SeqCst);
        let second = own.second.unwrap_or(0);
        // SAFETY: no descriptor, no length and no address that is valid; what a call makes all the
        // same ends with this process.
        unsafe { libc::syscall(own.number as libc::c_long, -1_isize, second, 1, 0, 0, 0) };
    }
    // SAFETY: runs nothing of this process's.
    unsafe { libc::_exit(0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_call_ends_a_process_or_sleeps_without_a_filter() {
        assert_eq!(deadly_call(), None);
        static REACHED: AtomicUsize = AtomicUsize::new(0);
        let status = status_of_child(|| try_all(&REACHED)).expect("a child");
        assert!(libc::WIFEXITED(status), "{status:#x}");
    }
}
