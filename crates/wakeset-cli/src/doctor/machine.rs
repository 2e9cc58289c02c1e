//! What the kernel, its filters and its limits allow.

use std::fs;
use std::path::Path;

use super::{Check, Level};
use crate::run::{Directory, deadly_call, find_library};

pub fn checks() -> Vec<Check> {
    vec![library(), kernel(), filter(), dispatch(), comparison(), descriptors(), memory(), share()]
}

fn library() -> Check {
    match find_library() {
        Ok(path) => Check::new(Level::Good, "library", path.display().to_string()),
        Err(failure) => {
            // What it goes on with are the folders, a line each.
            let what = failure.message.split([',', '\n']).next().unwrap_or_default();
            Check::new(Level::Bad, "library", what.to_string()).means(
                "Nothing can be preloaded. Install Wakeset by `make install`; `wakeset run` says \
                 where it looks.",
            )
        }
    }
}

/// The release that everything is tested on.
const TESTED: &str = "6.18";
/// The first with all calls that are made, and the first with EPOLLEXCLUSIVE.
const WANTED: (u32, u32) = (5, 11);
const LEAST: (u32, u32) = (4, 5);

fn kernel() -> Check {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let release = release.trim();
    let check = |level| Check::new(level, "kernel", format!("Linux {release}"));
    match version(release) {
        Some(version) if version >= WANTED => check(Level::Good),
        Some(version) if version >= LEAST => check(Level::Note).means(format!(
            "There is no epoll_pwait2(2): time limits of programs that call it are rounded up to \
             milliseconds. Wakeset is tested on Linux {TESTED} only."
        )),
        Some(_) => check(Level::Note).means(format!(
            "Listeners are the kernel's, because there is no EPOLLEXCLUSIVE. Wakeset is tested on \
             Linux {TESTED} only."
        )),
        None => check(Level::Note)
            .means(format!("An unknown release. Wakeset is tested on Linux {TESTED} only.")),
    }
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(['.', '-', '+']).map(str::parse::<u32>);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn filter() -> Check {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mode = status.lines().find_map(|line| line.strip_prefix("Seccomp:")).map(str::trim);
    match (mode, deadly_call()) {
        (_, Some(call)) => {
            let what = format!("a seccomp filter ends processes that call {call}(2)");
            Check::new(Level::Bad, "filter", what).means(
                "Programs run without the library here. Allow the calls of \
                 docs/system-calls.md, or have the filter refuse them instead \
                 (systemd: SystemCallErrorNumber=EPERM).",
            )
        }
        (Some("0"), None) => Check::new(Level::Good, "filter", "no seccomp filter"),
        (_, None) => {
            Check::new(Level::Good, "filter", "a seccomp filter that Wakeset can live with")
        }
    }
}

fn dispatch() -> Check {
    const SET_DISPATCH: libc::c_int = 59;
    // SAFETY: turns off, for this thread, what is off.
    let off = unsafe { libc::prctl(SET_DISPATCH, 0, 0, 0, 0) };
    match off {
        0 => Check::new(Level::Good, "instructions", "system calls past libc can be caught"),
        _ => Check::new(Level::Note, "instructions", "the kernel has no Syscall User Dispatch")
            .means(
                "A program that makes system calls by instruction has all objects in the kernel. \
             Linux 5.11 has it, unless a filter forbids prctl(2).",
            ),
    }
}

fn comparison() -> Check {
    // SAFETY: compares a descriptor of this process with itself.
    let same = unsafe {
        let own = libc::getpid();
        libc::syscall(libc::SYS_kcmp, own, own, 0, 0, 0)
    };
    let error = std::io::Error::last_os_error().raw_os_error();
    // Without a descriptor 0 the call itself is there all the same.
    match same == 0 || error == Some(libc::EBADF) {
        true => Check::new(Level::Good, "kcmp", "descriptions can be compared"),
        false => Check::new(Level::Note, "kcmp", "kcmp(2) is missing or forbidden").means(
            "`wakeset inspect` cannot tell which processes share a set, and what a process made \
             by clone(2) makes is the kernel's.",
        ),
    }
}

fn limit(which: libc::__rlimit_resource_t) -> libc::rlimit {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: room for the answer.
    unsafe { libc::getrlimit(which, &mut limit) };
    limit
}

/// Hidden descriptors begin at this number where the limit allows.
const HIDDEN_FROM: u64 = 400;

fn descriptors() -> Check {
    let most = limit(libc::RLIMIT_NOFILE).rlim_cur;
    let check = |level| Check::new(level, "descriptors", format!("at most {most} (RLIMIT_NOFILE)"));
    match most > HIDDEN_FROM {
        true => check(Level::Good),
        false => check(Level::Note).means(format!(
            "Hidden descriptors, from number {HIDDEN_FROM} on where there is room, then take \
             numbers just below the limit, which the program reaches sooner. Raise it by \
             `ulimit -n`."
        )),
    }
}

fn memory() -> Check {
    let most = limit(libc::RLIMIT_AS).rlim_cur;
    match most == libc::RLIM_INFINITY {
        true => Check::new(Level::Good, "memory", "address space is not limited"),
        false => Check::new(Level::Note, "memory", format!("{most} bytes (RLIMIT_AS)"))
            .means("What there is no room for is the kernel's; statistics may be missing."),
    }
}

fn share() -> Check {
    match (Directory::would_be(), Path::new("/proc/self/stat").exists()) {
        (_, false) => Check::new(Level::Note, "statistics", "there is no /proc")
            .means("`wakeset run --stats` and `--share` count nothing."),
        (Ok(path), _) => {
            Check::new(Level::Good, "statistics", format!("--share would use {}", path.display()))
        }
        (Err(why), _) => Check::new(Level::Note, "statistics", why)
            .means("`wakeset run --share` shares nothing; `--stats` works."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_have_versions() {
        assert_eq!(version("6.18.5-cloud"), Some((6, 18)));
        assert_eq!(version("5.4-rc1"), Some((5, 4)));
        assert_eq!(version("six"), None);
    }
}
