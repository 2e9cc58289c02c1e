//! How a process finds the hints and the baton of those that share its listener, where it was
//! executed and not forked: a program that is executed loses what its parent had, as the workers of
//! Python and Node do that were passed the listener.
//!
//! The hints are a file of memory (memfd_create(2)) and the baton is a pipe, both under hidden
//! numbers. They have no name but those in `/proc/PID/fd`, where a process of the same user may
//! open what another has open. So one that first binds or waits for a listener, or listens, looks
//! for them at its ancestors, nearest first, at the numbers where a process hides things.
//!
//! | they are taken for | if they are |
//! |---|---|
//! | either | linked from its number in /proc by the name of such a file or of a pipe: no other is asked for its status, which a file server may never tell |
//! | hints | a file of this user with mode [`MODE`], of that size and sealed so that it keeps it, with the layout of this version |
//! | hints of this family | and have a note of a listener that this process has: the one that it looks for, or one under a low number, which it began with |
//! | their baton | a pipe of this user with that mode, in the same process; no pipe of a program's has it |
//!
//! A process that finds none, or not both, makes its own, and is a family of its own then. That is
//! so where the ancestor has ended, is another user's or has executed another program itself, and
//! where /proc is missing or a filter refuses one of these calls. Nobody closes anything: the last
//! process that ends takes the file and the pipe with it.

use super::shared_hint::{self, BYTES, SEALS};
use crate::sys::births::Birth;
use crate::sys::path::Path;
use crate::sys::refusable::refusable;
use crate::sys::{self, Errno};
use crate::table::hidden;
use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering};
use wakeset_group::listener::inode;

/// The mode of our files and pipes: readable and writable for the user alone. The sticky bit means
/// nothing for either, and no program sets it.
pub(super) const MODE: u32 = libc::S_ISVTX | 0o600;

/// Ancestors that are looked at. Between a server and its workers there may be a shell.
const ANCESTORS: usize = 4;
/// Numbers of each that are looked at.
const NUMBERS: Range<usize> = hidden::ABOVE..hidden::ABOVE + 64;
/// What the link of a number to the hints, and to any pipe, begins with.
const HINTS_TARGET: &[u8] = b"/memfd:wakeset-listeners";
const BATON_TARGET: &[u8] = b"pipe:[";
/// Numbers under which a process may have been passed a listener.
pub(super) const INHERITED: c_int = 32;

/// Whether this process does without what others could find.
static APART: AtomicBool = AtomicBool::new(false);

/// From now on this process makes no calls to find others, or to be found: it has filtered its own
/// calls, and these may be deadly.
pub fn stay_apart() {
    APART.store(true, Ordering::Relaxed);
}

pub(super) fn is_apart() -> bool {
    APART.load(Ordering::Relaxed)
}

/// What is opened of another process's; the hints are mapped.
pub(super) struct Found {
    pub(super) hints: c_int,
    pub(super) baton: c_int,
    /// Since before they were opened.
    pub(super) birth: Birth,
}

/// Looks for the hints of those that share this listener, and maps them. The caller holds the
/// migrations lock, and has no [`Birth`]: there may be much to look through.
pub(super) fn find(listener: c_int) -> Option<Found> {
    let user = own_user()?;
    let mut own = [0; INHERITED as usize + 1];
    let numbers = (0..INHERITED).chain([listener]);
    let sockets = numbers.filter_map(|fd| status_of(fd).ok()).filter(|it| is(it, libc::S_IFSOCK));
    own.iter_mut().zip(sockets).for_each(|(own, socket)| *own = socket.st_ino);
    let own = own.split(|inode| *inode == 0).next().unwrap_or_default();
    let mut process = refusable!(getppid).ok()?;
    for _ in 0..ANCESTORS {
        if process == 0 || own.is_empty() {
            return None;
        }
        if let Some(found) = Numbers::of(process).and_then(|numbers| numbers.find(user, own)) {
            return Some(found);
        }
        process = parent_of(process)?;
    }
    None
}

/// The effective user of this process, or root's where nobody may look into it.
fn own_user() -> Option<u32> {
    let (at, mut status) = (libc::AT_FDCWD, MaybeUninit::<libc::stat>::uninit());
    refusable!(newfstatat, at, c"/proc/self".as_ptr(), status.as_mut_ptr(), 0).ok()?;
    // SAFETY: the kernel has written it.
    Some(unsafe { status.assume_init() }.st_uid)
}

/// The directory of a process's numbers, under a hidden one.
struct Numbers(c_int);

impl Drop for Numbers {
    fn drop(&mut self) {
        hidden::close(self.0);
    }
}

impl Numbers {
    fn of(process: usize) -> Option<Self> {
        let path = Path::of(format_args!("/proc/{process}/fd"))?;
        let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
        let open = || refusable!(openat, libc::AT_FDCWD, path.as_ptr(), flags).ok();
        hidden::make(|| open().map(|fd| fd as c_int)).map(Self)
    }

    /// Opens both, and maps the hints if they are of a family with one of these listeners.
    fn find(&self, user: u32, own: &[u64]) -> Option<Found> {
        let (mut hints, mut baton) = (None, None);
        for number in NUMBERS {
            if !self.may_be_kept(number) {
                continue;
            }
            let Some(status) = self.status(number) else { continue };
            let kept = match () {
                () if is_hints(&status, user) => &mut hints,
                () if is_baton(&status, user) => &mut baton,
                () => continue,
            };
            // A process has one of each.
            *kept = kept.or(Some(number));
        }
        // Both, before one is opened.
        let (hints, baton) = (hints?, baton?);
        let birth = Birth::begin();
        let (hints, baton) = (self.open(hints)?, self.open(baton));
        let is_same = |fd, is: fn(&libc::stat, u32) -> bool| {
            status_of(fd).is_ok_and(|status| is(&status, user))
        };
        let is_right = || {
            baton.is_some_and(|baton| is_same(baton, is_baton))
                && is_same(hints, is_hints)
                && is_sealed(hints)
                && shared_hint::join_hint(hints, own)
        };
        if let (true, Some(baton)) = (is_right(), baton) {
            return Some(Found { hints, baton, birth });
        }
        for fd in [Some(hints), baton].into_iter().flatten() {
            let _ = sys::close(fd);
        }
        None
    }

    /// Whether a number's name in /proc is one of those that the hints and the baton have. The name
    /// comes without the file being asked: a stat(2) of one on a file server that hangs does not
    /// return.
    fn may_be_kept(&self, number: usize) -> bool {
        let Some(name) = name_of(number) else { return false };
        let mut target = [0_u8; 64];
        let len = refusable!(readlinkat, self.0, name.as_ptr(), target.as_mut_ptr(), target.len());
        let target = len.ok().and_then(|len| target.get(..len)).unwrap_or_default();
        target.starts_with(HINTS_TARGET) || target.starts_with(BATON_TARGET)
    }

    fn status(&self, number: usize) -> Option<libc::stat> {
        let (name, mut status) = (name_of(number)?, MaybeUninit::<libc::stat>::uninit());
        refusable!(newfstatat, self.0, name.as_ptr(), status.as_mut_ptr(), 0).ok()?;
        // SAFETY: the kernel has written it.
        Some(unsafe { status.assume_init() })
    }

    fn open(&self, number: usize) -> Option<c_int> {
        let name = name_of(number)?;
        refusable!(openat, self.0, name.as_ptr(), OPEN).ok().map(|fd| fd as c_int)
    }
}

/// How both are opened: whatever it is, nothing happens to it, and nothing waits.
const OPEN: c_int = libc::O_RDWR | libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;

fn name_of(number: usize) -> Option<Path> {
    Path::of(format_args!("{number}"))
}

fn status_of(fd: c_int) -> Result<libc::stat, Errno> {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    refusable!(fstat, fd, status.as_mut_ptr())?;
    // SAFETY: the kernel has written it.
    Ok(unsafe { status.assume_init() })
}

fn is(status: &libc::stat, kind: u32) -> bool {
    status.st_mode & libc::S_IFMT == kind
}

fn is_ours(status: &libc::stat, user: u32) -> bool {
    status.st_uid == user && status.st_mode & !libc::S_IFMT == MODE
}

fn is_hints(status: &libc::stat, user: u32) -> bool {
    is(status, libc::S_IFREG) && is_ours(status, user) && status.st_size == BYTES as i64
}

fn is_baton(status: &libc::stat, user: u32) -> bool {
    is(status, libc::S_IFIFO) && is_ours(status, user)
}

/// Whether nobody can change a file's size.
fn is_sealed(file: c_int) -> bool {
    refusable!(fcntl, file, libc::F_GET_SEALS).is_ok_and(|seals| seals as c_int & SEALS == SEALS)
}

/// The parent of a process; 0 for none that this one can see.
fn parent_of(process: usize) -> Option<usize> {
    let path = Path::of(format_args!("/proc/{process}/stat"))?;
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    let birth = Birth::begin();
    let file = refusable!(openat, libc::AT_FDCWD, path.as_ptr(), flags).ok()?;
    let mut status = [0_u8; 128];
    let len = refusable!(read, file, status.as_mut_ptr(), status.len());
    let _ = refusable!(close, file);
    drop(birth);
    // The name, in parentheses, may itself contain any character. A state and the parent follow.
    let status = status.get(..len.ok()?)?;
    let end = status.iter().rposition(|byte| *byte == b')')?;
    let mut words = status.get(end + 1..)?.split(|byte| *byte == b' ').skip(2);
    str::from_utf8(words.next()?).ok()?.parse().ok()
}

/// Makes a pipe for a baton, which others may open.
pub(super) fn make_baton() -> Option<c_int> {
    let mut ends = [-1; 2];
    refusable!(pipe2, ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK).ok()?;
    // One number for both ends.
    let open = |path: Path| refusable!(openat, libc::AT_FDCWD, path.as_ptr(), OPEN).ok();
    let path = Path::of(format_args!("/proc/self/fd/{}", ends[0]));
    let opened = path.and_then(open).map(|fd| fd as c_int);
    let is_right = |pipe: &c_int| {
        // Room for two pages: one is read where it is full, and it is not to be empty then.
        let size = refusable!(fcntl, *pipe, libc::F_GETPIPE_SZ);
        inode(*pipe) == inode(ends[0])
            && size.is_ok_and(|size| size >= 2 * 4096)
            && refusable!(fchmod, *pipe, MODE).is_ok()
    };
    let made = opened.filter(is_right);
    if let (None, Some(other)) = (made, opened) {
        let _ = sys::close(other);
    }
    for end in ends {
        let _ = sys::close(end);
    }
    made
}

#[cfg(test)]
mod tests;
