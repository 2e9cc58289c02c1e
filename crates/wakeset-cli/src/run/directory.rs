//! Where `wakeset run --share` puts what processes count, and where others find it: the directory
//! `wakeset` in the user's runtime directory. Nobody else can make, read or replace anything there.

use std::ffi::{CString, OsStr};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// What every file's name begins with; the process id of the run and a random number follow.
const PREFIX: &str = "run-";

/// A directory that only its user can look into.
pub struct Directory {
    pub path: PathBuf,
    handle: File,
    user: u32,
}

pub fn own_user() -> u32 {
    // SAFETY: it cannot fail.
    unsafe { libc::geteuid() }
}

/// What to do where there is no runtime directory.
const REMEDY: &str = "set XDG_RUNTIME_DIR to a directory of your own on a tmpfs, that others \
                      cannot write to, here and for `wakeset top`";

/// The runtime directory that a process was started with. A service of systemd whose unit names a
/// user has one of its own or none.
pub fn runtime_directory_of(pid: u32) -> Option<PathBuf> {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mut variables = environment.split(|byte| *byte == 0);
    let value = variables.find_map(|variable| variable.strip_prefix(b"XDG_RUNTIME_DIR="))?;
    Some(OsStr::from_bytes(value).into())
}

/// The runtime directories of a user, the likeliest first.
fn runtime_directories(user: u32) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    if user == own_user() {
        let named = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        paths.extend(named.filter(|path| path.is_absolute()));
    }
    paths.push(format!("/run/user/{user}").into());
    if user == 0 {
        paths.push("/run".into());
    }
    paths.dedup();
    paths
}

fn no_directory(why: &[String]) -> String {
    format!("no runtime directory: {}; {REMEDY}", why.join("; "))
}

impl Directory {
    /// The directories of a user that exist, in a runtime directory that is `named` too. One that
    /// others can look into or replace is an error.
    pub fn of(user: u32, named: Option<PathBuf>) -> Vec<Result<Self, String>> {
        let mut parents = runtime_directories(user);
        parents.extend(named.filter(|path| path.is_absolute() && !parents.contains(path)));
        let paths = parents.into_iter().map(|path| path.join("wakeset"));
        let opened = paths.map(|path| Self::open(path, user));
        opened.filter_map(Result::transpose).collect()
    }

    /// The directory in which this user's runs are to be shared, made if need be.
    pub fn make() -> Result<Self, String> {
        let user = own_user();
        let mut why = Vec::new();
        for parent in runtime_directories(user) {
            if let Err(fault) = suits(&parent, user) {
                why.push(format!("{} {fault}", parent.display()));
                continue;
            }
            let path = parent.join("wakeset");
            if let Err(error) = DirBuilder::new().mode(0o700).create(&path)
                && error.kind() != io::ErrorKind::AlreadyExists
            {
                why.push(format!("{}: {error}", path.display()));
                continue;
            }
            // One that is there and hostile is said, and not gone around.
            return match Self::open(path.clone(), user)? {
                Some(directory) => Ok(directory),
                None => Err(format!("{} has just been removed", path.display())),
            };
        }
        Err(no_directory(&why))
    }

    /// Where [`make`](Self::make) would make it; nothing is made.
    pub fn would_be() -> Result<PathBuf, String> {
        let user = own_user();
        let mut why = Vec::new();
        for parent in runtime_directories(user) {
            match suits(&parent, user) {
                Ok(()) => {
                    let path = parent.join("wakeset");
                    return Self::open(path.clone(), user).map(|_| path);
                }
                Err(fault) => why.push(format!("{} {fault}", parent.display())),
            }
        }
        Err(no_directory(&why))
    }

    fn open(path: PathBuf, user: u32) -> Result<Option<Self>, String> {
        let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
        let handle = match OpenOptions::new().read(true).custom_flags(flags).open(&path) {
            Ok(handle) => handle,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(format!("{}: {error}", path.display())),
        };
        let data = handle.metadata().map_err(|error| format!("{}: {error}", path.display()))?;
        match data.uid() == user && data.mode() & 0o077 == 0 {
            true => Ok(Some(Directory { path, handle, user })),
            false => Err(format!(
                "{} is refused: it belongs to user {} and has mode {:o}, not to user {user} with \
                 mode 700",
                path.display(),
                data.uid(),
                data.mode() & 0o7777
            )),
        }
    }

    /// A new file for a run of this process.
    pub fn create(&self) -> io::Result<(PathBuf, File)> {
        let name = format!("{PREFIX}{}-{:016x}", std::process::id(), fastrand::u64(..));
        let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR;
        let file = self.open_at(OsStr::new(&name), flags)?;
        // SAFETY: our own descriptor.
        if unsafe { libc::fchmod(file.as_raw_fd(), 0o600) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((self.path.join(name), file))
    }

    fn open_at(&self, name: &OsStr, flags: libc::c_int) -> io::Result<File> {
        let name = CString::new(name.as_bytes())?;
        let flags = flags | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
        // SAFETY: a C string and our own descriptor; the call returns one of ours.
        unsafe {
            match libc::openat(self.handle.as_raw_fd(), name.as_ptr(), flags, 0o600) {
                fd if fd < 0 => Err(io::Error::last_os_error()),
                fd => Ok(File::from_raw_fd(fd)),
            }
        }
    }

    /// The runs: the process id of each, its path, and the file or why it is refused.
    pub fn runs(&self) -> impl Iterator<Item = (u32, PathBuf, Result<File, String>)> {
        let entries = std::fs::read_dir(&self.path).into_iter().flatten().flatten();
        entries.filter_map(|entry| {
            let name = entry.file_name();
            let pid = name.to_str()?.strip_prefix(PREFIX)?.split('-').next()?.parse().ok()?;
            let path = entry.path();
            let file =
                self.open_run(&name).map_err(|why| format!("{} is refused: {why}", path.display()));
            Some((pid, path, file))
        })
    }

    fn open_run(&self, name: &OsStr) -> Result<File, String> {
        let file = self.open_at(name, libc::O_RDONLY).map_err(|error| error.to_string())?;
        let data = file.metadata().map_err(|error| error.to_string())?;
        match data {
            _ if !data.is_file() => Err("it is no regular file".into()),
            _ if data.uid() != self.user => Err(format!("it belongs to user {}", data.uid())),
            _ if data.mode() & 0o077 != 0 => Err("others may open it".into()),
            _ => Ok(file),
        }
    }
}

/// Whether a user's files are safe in this directory, and memory. On a disk, memory that is shared
/// can be missing when it is written (SIGBUS), and is written to the disk.
fn suits(path: &Path, user: u32) -> Result<(), String> {
    let data = path.metadata().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => "is not there".to_string(),
        _ => format!("is refused: {error}"),
    })?;
    if data.uid() != user || data.mode() & 0o022 != 0 {
        return Err("is not this user's alone".into());
    }
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
    let mut system = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: a C string, and room for the answer; an all-zero one is valid.
    let kind = unsafe {
        libc::statfs(name.as_ptr(), system.as_mut_ptr());
        system.assume_init().f_type
    };
    const RAMFS: i64 = 0x8584_58f6;
    match kind == libc::TMPFS_MAGIC || kind == RAMFS {
        true => Ok(()),
        false => Err("is not in memory (a tmpfs)".into()),
    }
}
