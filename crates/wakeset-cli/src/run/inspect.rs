//! Tells beforehand whether LD_PRELOAD reaches a program.
//!
//! It does not reach a static program, which has no dynamic loader; one that gains privileges
//! (ld.so(8), secure-execution mode); and one of another word size or another C library. For a
//! script the question is about its interpreter, as execve(2) finds it.

mod elf;

use std::ffi::{CString, OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use elf::Loader;

/// execve(2): interpreters may be scripts in turn, at most this deep.
const SCRIPT_DEPTH: usize = 5;
/// execve(2): the kernel reads no more of a script's first line.
const SCRIPT_LINE: usize = 255;

/// Why the interposer will not get into a program.
#[derive(Debug, PartialEq, Eq)]
pub struct Obstacle {
    program: PathBuf,
    reason: Reason,
    /// Whether to preload all the same, because programs that it starts may be reached. False
    /// where the loader would complain, or load a library that cannot work.
    pub preload: bool,
}

impl Obstacle {
    /// Whether it is none for the user who runs the program now.
    pub fn is_served(&self) -> bool {
        matches!(self.reason, Reason::PrivilegedForOthers(_))
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Reason {
    Static,
    Privileged(&'static str),
    /// Privileged for other users, but not for the one that runs it now.
    PrivilegedForOthers(&'static str),
    OtherClass,
    OtherLoader(String),
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.program.display())?;
        match &self.reason {
            Reason::Static => write!(
                f,
                "is statically linked, which LD_PRELOAD does not reach: \
                 it runs on the kernel's epoll"
            ),
            Reason::Privileged(how) => write!(
                f,
                "{how}, and the dynamic loader ignores LD_PRELOAD for such programs: \
                 it runs on the kernel's epoll"
            ),
            Reason::PrivilegedForOthers(how) => write!(
                f,
                "{how}: Wakeset reaches it for you, since it gains no privileges by it, but \
                 the dynamic loader ignores LD_PRELOAD where it does"
            ),
            Reason::OtherClass => write!(
                f,
                "is built for another word size or processor than Wakeset's library: \
                 it runs on the kernel's epoll"
            ),
            Reason::OtherLoader(loader) => write!(
                f,
                "uses another C library (its loader is {loader}) than Wakeset's library: \
                 it runs on the kernel's epoll"
            ),
        }
    }
}

/// Where execvp(3) would find a program, if it is an executable regular file.
pub fn look_up(program: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(program)).filter(|path| is_executable(path));
    }
    if program.is_empty() {
        return None;
    }
    // glibc's default when PATH is unset; an empty component is the current directory.
    let list = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/bin:/usr/bin"));
    std::env::split_paths(&list)
        .map(|directory| match directory.as_os_str().is_empty() {
            true => Path::new(".").join(program),
            false => directory.join(program),
        })
        .find(|path| is_executable(path))
}

fn is_executable(path: &Path) -> bool {
    let Ok(name) = CString::new(path.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: a zero-terminated string.
    let allowed = unsafe { libc::access(name.as_ptr(), libc::X_OK) == 0 };
    allowed && path.metadata().is_ok_and(|m| m.is_file())
}

/// What keeps the interposer out of the program at `path`, if anything does.
///
/// A file that cannot be read is judged by its privileges alone: a warning must not be wrong.
pub fn obstacle(path: &Path) -> Option<Obstacle> {
    let mut path = path.to_path_buf();
    for _ in 0..SCRIPT_DEPTH {
        let mut start = Vec::new();
        let Ok(file) = File::open(&path) else {
            let reason = privileges(&path)?;
            return Some(Obstacle { program: path, reason, preload: true });
        };
        file.take(SCRIPT_LINE as u64).read_to_end(&mut start).ok()?;
        if start.starts_with(b"\x7fELF") {
            return binary_obstacle(path);
        }
        let Some(line) = Shebang::parse(&start) else {
            // execvp(3) passes a file that the kernel refuses to the shell.
            return binary_obstacle(PathBuf::from("/bin/sh"));
        };
        path = match line.program_of_env().and_then(|name| look_up(&name)) {
            // env comes first. A static env would pass the variable on all the same.
            Some(program) => match binary_obstacle(line.interpreter) {
                Some(obstacle) if !obstacle.preload => return Some(obstacle),
                _ => program,
            },
            None => line.interpreter,
        };
    }
    None
}

/// The binary that runs for the program at `path`: for a script its interpreter. `None` if a file
/// cannot be read.
pub fn binary_of(path: &Path) -> Option<PathBuf> {
    let mut path = path.to_path_buf();
    for _ in 0..SCRIPT_DEPTH {
        let mut start = Vec::new();
        File::open(&path).ok()?.take(SCRIPT_LINE as u64).read_to_end(&mut start).ok()?;
        if start.starts_with(b"\x7fELF") {
            return Some(path);
        }
        path = match Shebang::parse(&start) {
            Some(line) => {
                line.program_of_env().and_then(|name| look_up(&name)).unwrap_or(line.interpreter)
            }
            None => PathBuf::from("/bin/sh"),
        };
    }
    None
}

fn binary_obstacle(program: PathBuf) -> Option<Obstacle> {
    let own = own_loader();
    let reason = match (elf::loader(&mut File::open(&program).ok()?).ok()?, own) {
        (Loader::Foreign, _) => Reason::OtherClass,
        (Loader::None, _) => Reason::Static,
        (Loader::At(theirs), Some(ours)) if theirs.file_name() != ours.file_name() => {
            Reason::OtherLoader(theirs.display().to_string())
        }
        _ => privileges(&program)?,
    };
    let preload = !matches!(reason, Reason::OtherClass | Reason::OtherLoader(_));
    Some(Obstacle { program, reason, preload })
}

/// The dynamic loader of this very program, which is the preload library's too.
pub fn own_loader() -> Option<PathBuf> {
    let mut own = File::open("/proc/self/exe").ok()?;
    match elf::loader(&mut own).ok()? {
        Loader::At(path) => Some(path),
        _ => None,
    }
}

/// Set-user-ID, set-group-ID and file capabilities, and whether they change anything for us.
fn privileges(path: &Path) -> Option<Reason> {
    let metadata = path.metadata().ok()?;
    let mode = metadata.permissions().mode();
    // SAFETY: these two cannot fail.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    let (how, gains) = if mode & libc::S_ISUID != 0 {
        ("is set-user-ID", metadata.uid() != user)
    } else if mode & libc::S_ISGID != 0 && mode & libc::S_IXGRP != 0 {
        // Without group execution the bit means mandatory locking, not privileges.
        ("is set-group-ID", metadata.gid() != group)
    } else if has_capabilities(path) {
        ("has file capabilities", user != 0)
    } else {
        return None;
    };
    Some(match gains {
        true => Reason::Privileged(how),
        false => Reason::PrivilegedForOthers(how),
    })
}

fn has_capabilities(path: &Path) -> bool {
    let Ok(name) = CString::new(path.as_os_str().as_bytes()) else {
        return false;
    };
    let attribute = c"security.capability";
    // SAFETY: zero-terminated strings, and a size of 0 asks for the length only.
    let length =
        unsafe { libc::getxattr(name.as_ptr(), attribute.as_ptr(), std::ptr::null_mut(), 0) };
    length > 0
}

/// A script's first line.
struct Shebang {
    interpreter: PathBuf,
    /// Everything after the interpreter, one argument for the kernel.
    argument: Vec<u8>,
}

impl Shebang {
    fn parse(start: &[u8]) -> Option<Self> {
        let line = start.strip_prefix(b"#!")?.split(|&b| b == b'\n').next()?;
        let line = line.trim_ascii();
        let end = line.iter().position(|b| b" \t".contains(b));
        let (interpreter, argument) = line.split_at(end.unwrap_or(line.len()));
        (!interpreter.is_empty()).then(|| Shebang {
            interpreter: PathBuf::from(OsStr::from_bytes(interpreter)),
            argument: argument.trim_ascii().to_vec(),
        })
    }

    /// For `#!/usr/bin/env X` and `#!/usr/bin/env -S NAME=VALUE X ARGS`: X.
    fn program_of_env(&self) -> Option<OsString> {
        if self.interpreter.file_name() != Some(OsStr::new("env")) {
            return None;
        }
        let argument = match self.argument.strip_prefix(b"-S") {
            Some(words) => words,
            None => &self.argument,
        };
        argument
            .split(|b| b" \t".contains(b))
            .filter(|word| !word.is_empty())
            .find(|word| !word.starts_with(b"-") && !word.contains(&b'='))
            .map(|word| OsStr::from_bytes(word).to_os_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_lines() {
        let parse = |line: &str| {
            let line = Shebang::parse(line.as_bytes())?;
            let program = line.program_of_env();
            Some((
                line.interpreter.display().to_string(),
                program.map(|p| p.into_string().expect("ASCII")),
            ))
        };
        let is = |interpreter: &str, program: Option<&str>| {
            Some((interpreter.to_string(), program.map(str::to_string)))
        };
        assert_eq!(parse("#!/bin/sh\nexit"), is("/bin/sh", None));
        assert_eq!(parse("#! /bin/awk -f\n"), is("/bin/awk", None));
        assert_eq!(parse("#!/usr/bin/env python3"), is("/usr/bin/env", Some("python3")));
        assert_eq!(parse("#!/usr/bin/env -S A=1 node --flag\n"), is("/usr/bin/env", Some("node")));
        assert_eq!(parse("#!\n/bin/sh"), None);
        assert_eq!(parse("echo"), None);
    }

    #[test]
    fn this_test_has_no_obstacle() {
        let own = std::env::current_exe().expect("our own path");
        assert_eq!(obstacle(&own), None);
    }
}
