//! The area of a program that was started with `WAKESET_STATS=shared` and without `wakeset run`,
//! which would have made it.
//!
//! It is where `wakeset run --share` would have put it, under the same conditions: in the directory
//! `wakeset` of the user's runtime directory, which must be the user's alone and in memory. What
//! the program starts finds its place in the environment, so the tree of processes is one run.
//! Nothing that a process does at its end can be relied on: whoever makes the next area removes
//! those of runs that have ended, here and in `wakeset run --share`.

use super::place::{Place, Text};
use super::{CONTROL_BYTES, bytes_of, close, map, name_space, status};
use crate::environment;
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_int};
use core::fmt::{self, Write};
use core::mem::MaybeUninit;
use core::ptr;
use syscalls::{Errno, Sysno, syscall};
use wakeset_fd::stats::area::{Area, Holder, Nonce, SLOTS, is_alive};

/// What every file's name begins with; the process id of the run and a random number follow.
const PREFIX: &[u8] = b"run-";
/// Files that are looked at for old ones.
const MOST_OLD: usize = 256;
/// The names that fit into one answer of getdents64(2).
const ENTRIES_BYTES: usize = 2048;

/// Why there is no area.
pub(super) enum Why {
    /// There is no runtime directory that is in memory and this user's alone.
    NoRuntimeDirectory,
    /// The directory is somebody else's, or others may look into it.
    Refused,
    /// The size of files is limited (`RLIMIT_FSIZE`).
    Limited,
    /// The path is too long.
    TooLong,
    /// This call has failed.
    Failed(&'static str, Errno),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::NoRuntimeDirectory => f.write_str(
                "no runtime directory is in memory and this user's alone; set \
                     XDG_RUNTIME_DIR to a directory of your own on a tmpfs, with mode 700",
            ),
            Why::Refused => f.write_str(
                "the directory wakeset in the runtime directory is refused: it is not this user's \
                 with mode 700",
            ),
            Why::Limited => f.write_str("the size of files is limited"),
            Why::TooLong => f.write_str("the runtime directory's path is too long"),
            Why::Failed(call, errno) => write!(f, "{call}(2): {errno}"),
        }
    }
}

impl From<fmt::Error> for Why {
    fn from(_: fmt::Error) -> Self {
        Why::TooLong
    }
}

/// A descriptor of ours, closed at the end.
struct Descriptor(usize);

impl Drop for Descriptor {
    fn drop(&mut self) {
        close(self.0);
    }
}

/// Makes an area, and puts its place into the environment of what the program starts.
pub(super) fn make(holder: Holder) -> Result<Place, Why> {
    // SAFETY: has no arguments.
    let owner = unsafe { syscall!(Sysno::geteuid) }.unwrap_or_default() as u32;
    let (directory, mut path) = directory(owner)?;
    if holder.known {
        remove_old(&directory, owner);
    }
    let [number, nonce @ ..] = random()?;
    let mut name = Text::EMPTY;
    write!(name, "run-{}-{number:016x}", holder.pid)?;
    write!(path, "/{}", name.as_str())?;
    let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR;
    let file = open_at(directory.0, name.as_ptr(), flags).map_err(|e| Why::Failed("open", e))?;
    if let Err(why) = fill(&file, nonce) {
        unlink(&directory, name.as_ptr());
        return Err(why);
    }
    let place = Place { path, owner, nonce };
    publish(&place);
    Ok(place)
}

/// The directory of the runs of this user, made if need be, and its path.
fn directory(owner: u32) -> Result<(Descriptor, Text), Why> {
    let named = environment::setting(c"XDG_RUNTIME_DIR").and_then(|path| path.to_str().ok());
    let mut own = Text::EMPTY;
    write!(own, "/run/user/{owner}")?;
    let places = [
        named.filter(|path| path.starts_with('/')),
        Some(own.as_str()),
        (owner == 0).then_some("/run"),
    ];
    for parent in places.into_iter().flatten() {
        let mut path = Text::EMPTY;
        path.write_str(parent)?;
        let opened = open_at(libc::AT_FDCWD as usize, path.as_ptr(), libc::O_DIRECTORY);
        let Some(parent) = opened.ok().filter(|parent| suits(parent, owner)) else { continue };
        path.write_str("/wakeset")?;
        let name = c"wakeset".as_ptr();
        // SAFETY: a C string. One that is there is looked at below.
        let made = unsafe { syscall!(Sysno::mkdirat, parent.0, name, 0o700) };
        if let Err(errno) = made
            && errno != Errno::EEXIST
        {
            return Err(Why::Failed("mkdir", errno));
        }
        let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
        let Ok(directory) = open_at(parent.0, name.cast(), flags) else { return Err(Why::Refused) };
        // One that is there and hostile is said, and not gone around.
        return match status(directory.0) {
            Ok(it) if it.st_uid == owner && it.st_mode & 0o077 == 0 => Ok((directory, path)),
            _ => Err(Why::Refused),
        };
    }
    Err(Why::NoRuntimeDirectory)
}

/// Whether a user's files are safe in this directory, and memory.
fn suits(directory: &Descriptor, owner: u32) -> bool {
    const RAMFS: i64 = 0x8584_58f6;
    let mut system = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: our own descriptor, and room for the answer; an all-zero one is valid.
    let kind = unsafe {
        let _ = syscall!(Sysno::fstatfs, directory.0, system.as_mut_ptr());
        system.assume_init().f_type
    };
    let is_own = status(directory.0).is_ok_and(|it| it.st_uid == owner && it.st_mode & 0o022 == 0);
    is_own && (kind == libc::TMPFS_MAGIC || kind == RAMFS)
}

/// Gives an empty file its size, and makes it an area.
fn fill(file: &Descriptor, nonce: Nonce) -> Result<(), Why> {
    let sizes = [SLOTS, 256, super::FIRST_SLOTS].map(bytes_of);
    // A file that becomes longer than it may ends the process with SIGXFSZ.
    let limit = file_limit();
    let bytes = sizes.into_iter().find(|bytes| *bytes as u64 <= limit).ok_or(Why::Limited)?;
    // SAFETY: our own descriptor. The process that takes a slot makes its memory present.
    unsafe {
        syscall!(Sysno::fchmod, file.0, 0o600).map_err(|e| Why::Failed("fchmod", e))?;
        syscall!(Sysno::ftruncate, file.0, bytes).map_err(|e| Why::Failed("ftruncate", e))?;
        syscall!(Sysno::fallocate, file.0, 0, 0, CONTROL_BYTES)
            .map_err(|e| Why::Failed("fallocate", e))?;
    }
    let start = map(file.0, bytes).map_err(|e| Why::Failed("mmap", e))?;
    // SAFETY: just mapped, of a file that nobody else knows.
    if let Some(area) = unsafe { Area::at(start, bytes) } {
        // Without a number of its own no process knows the others by theirs.
        let space = name_space();
        area.share(if space == 0 { u64::MAX } else { space });
        area.start(nonce);
    }
    // SAFETY: this mapping, which nothing refers to any more.
    let _ = unsafe { syscall!(Sysno::munmap, start, bytes) };
    Ok(())
}

/// The longest file that this process may make.
fn file_limit() -> u64 {
    let mut limit = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    let none = ptr::null::<u8>();
    // SAFETY: memory for the answer.
    let _ = unsafe { syscall!(Sysno::prlimit64, 0, libc::RLIMIT_FSIZE, none, &raw mut limit) };
    limit.rlim_cur
}

/// A number for the file's name, and a nonce.
fn random() -> Result<[u64; 3], Why> {
    let mut words = [0_u64; 3];
    // SAFETY: memory for the bytes.
    match unsafe { syscall!(Sysno::getrandom, words.as_mut_ptr(), size_of_val(&words), 0) } {
        Ok(read) if read == size_of_val(&words) => Ok(words),
        other => Err(Why::Failed("getrandom", other.err().unwrap_or(Errno::EIO))),
    }
}

/// Has what the program starts count there, too.
fn publish(place: &Place) {
    struct Entry(UnsafeCell<Text>);
    // SAFETY: written once, by the thread that starts this library, before anything refers to it.
    unsafe impl Sync for Entry {}
    static ENTRY: Entry = Entry(UnsafeCell::new(Text::EMPTY));
    // SAFETY: see `Entry`.
    let entry = unsafe { &mut *ENTRY.0.get() };
    if write!(entry, "WAKESET_STATS={place}").is_ok() {
        // SAFETY: it ends with a zero byte, and is not changed any more.
        environment::replace(unsafe { CStr::from_ptr(entry.as_ptr().cast()) });
    }
}

/// Removes the files of runs all of whose processes have ended. A run's own process has its number
/// from before the file exists, so a fresh one is never taken for old.
fn remove_old(directory: &Descriptor, owner: u32) {
    #[repr(align(8))]
    struct Entries([u8; ENTRIES_BYTES]);
    let mut entries = Entries([0; ENTRIES_BYTES]);
    let mut left = MOST_OLD;
    while left > 0 {
        let bytes = &mut entries.0;
        // SAFETY: our own descriptor, and memory for the answer.
        let read =
            unsafe { syscall!(Sysno::getdents64, directory.0, bytes.as_mut_ptr(), ENTRIES_BYTES) };
        let Some(mut rest) = read.ok().and_then(|read| bytes.get(..read)) else { return };
        if rest.is_empty() {
            return;
        }
        while let Some((name, after)) = first_name(rest) {
            rest = after;
            left = left.saturating_sub(1);
            if is_of_ended_run(directory, name, owner) {
                unlink(directory, name.as_ptr().cast());
            }
        }
    }
}

/// The first name in an answer of getdents64(2), and what follows that entry.
fn first_name(entries: &[u8]) -> Option<(&CStr, &[u8])> {
    const NAME: usize = 19;
    let length = u16::from_ne_bytes(entries.get(16..18)?.try_into().ok()?).into();
    let name = CStr::from_bytes_until_nul(entries.get(NAME..length)?).ok()?;
    Some((name, entries.get(length..)?))
}

/// Whether this is the name of a file of a run that is over.
fn is_of_ended_run(directory: &Descriptor, name: &CStr, owner: u32) -> bool {
    let number = name.to_bytes().strip_prefix(PREFIX);
    let number = number.and_then(|rest| str::from_utf8(rest).ok()?.split('-').next()?.parse().ok());
    let Some(pid) = number else { return false };
    if is_alive(pid) {
        return false;
    }
    // Neither a link nor a fifo is followed or waited for.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let Ok(file) = open_at(directory.0, name.as_ptr().cast(), flags) else { return false };
    let is_own = status(file.0).is_ok_and(|it| {
        it.st_mode & libc::S_IFMT == libc::S_IFREG && it.st_uid == owner && it.st_mode & 0o077 == 0
    });
    is_own && has_ended(&file)
}

/// Whether nothing in this file says that a process counts there. It is read and not mapped: what
/// somebody does to it meanwhile is no signal.
fn has_ended(file: &Descriptor) -> bool {
    let (access, kind) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a fresh mapping, undone below, which nothing refers to then.
    unsafe {
        let Ok(start) = syscall!(Sysno::mmap, 0, CONTROL_BYTES, access, kind, usize::MAX, 0) else {
            return false;
        };
        let read = syscall!(Sysno::pread64, file.0, start, CONTROL_BYTES, 0);
        let area = Area::at(ptr::with_exposed_provenance(start), CONTROL_BYTES);
        // Fewer bytes, or none that are of this version: left by a run that was killed before it
        // had begun, or by another version.
        let is_used = read == Ok(CONTROL_BYTES)
            && area.is_some_and(|area| {
                area.is_started() && (area.name_space() != name_space() || area.is_in_use())
            });
        let _ = syscall!(Sysno::munmap, start, CONTROL_BYTES);
        !is_used
    }
}

fn open_at(directory: usize, name: *const u8, flags: c_int) -> Result<Descriptor, Errno> {
    let flags = flags | libc::O_CLOEXEC;
    // SAFETY: a C string.
    unsafe { syscall!(Sysno::openat, directory, name, flags, 0o600) }.map(Descriptor)
}

fn unlink(directory: &Descriptor, name: *const u8) {
    // SAFETY: a C string.
    let _ = unsafe { syscall!(Sysno::unlinkat, directory.0, name, 0) };
}
