//! Where this process counts for `wakeset run --stats`: see [`wakeset_fd::stats`] and
//! `docs/design/statistics.md`.
//!
//! A new program finds the area through the environment and maps its beginning; a forked child has
//! that mapping, and takes a slot. No descriptor stays open. Where something is not to be had, the
//! process runs on without being counted.
//!
//! | file | concept |
//! |---|---|
//! | `place` | where the area is, as the environment says it |
//! | `making` | a new area, for a program that was started without `wakeset run` |

mod making;
mod place;

use crate::environment;
use core::ffi::CStr;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use core::{ptr, str};
use place::Place;
use syscalls::{Errno, Sysno, syscall};
use wakeset_fd::stats::area::{
    AREA_VARIABLE, Area, CONTROL_BYTES, Claim, Holder, LOOKS, Nonce, Refusal, SLOT_BYTES, SLOTS,
};
use wakeset_fd::{count, fork, migrate, notice};

/// The mapping that this process takes slots from: its address plus the number of its slots, which
/// is less than the alignment. 0: there is none.
static MAPPING: AtomicUsize = AtomicUsize::new(0);
const ALIGNMENT: usize = 4096;
const _: () = assert!(SLOTS < ALIGNMENT);

/// Whether the collector knows this process by what getpid(2) says, and therefore its children too.
static IS_KNOWN: AtomicBool = AtomicBool::new(false);

/// Slots that a new program maps. A process that finds all of them taken maps twice as many.
const FIRST_SLOTS: usize = 16;

/// Whether this process has to do with statistics, so that a fork of it is something to us.
pub(crate) fn is_on() -> bool {
    MAPPING.load(Ordering::Relaxed) != 0
}

/// The variable that says where to count, which is [`AREA_VARIABLE`], and the same without a value.
const VARIABLE: &CStr = c"WAKESET_STATS";
const EMPTY: &CStr = c"WAKESET_STATS=";
const _: () = assert!(VARIABLE.count_bytes() == AREA_VARIABLE.len());

/// Begins to count, if `wakeset run --stats` or `--share` asked for it, or `WAKESET_STATS=shared`.
/// To be called before main.
pub(super) fn start() {
    let Some(place) = place() else { return };
    let (start, slots) = match map_beginning(&place) {
        Ok(mapped) => mapped,
        Err(errno) => {
            // There is nothing in which this could be counted.
            notice::say(format_args!("no statistics of a process: their memory: {errno}"));
            return;
        }
    };
    MAPPING.store(start.expose_provenance() + slots, Ordering::Release);
    let (holder, name) = own_identity();
    // SAFETY: just mapped, and never unmapped; nothing makes that file shorter.
    let area = unsafe { Area::at(start, bytes_of(slots)) };
    let agrees = area.is_some_and(|area| !area.is_shared() || area.name_space() == name_space());
    let holder = Holder { known: holder.known && agrees, ..holder };
    IS_KNOWN.store(holder.known && holder.pid == pid(), Ordering::Relaxed);
    // The memory is this process's from here on, so that each of its forks is noticed.
    fork::may_make_objects();
    count::set_restart(restart);
    take_slot(holder, &name);
}

/// Where this process is to count. With `shared` the place is made here.
fn place() -> Option<Place> {
    let value = environment::setting(VARIABLE)?;
    if value.to_bytes() == b"shared" {
        let (holder, _) = own_identity();
        return match making::make(holder) {
            Ok(place) => Some(place),
            Err(why) => {
                notice::warn(format_args!("nothing is shared: {why}"));
                // What this program starts would be refused, too.
                environment::replace(EMPTY);
                None
            }
        };
    }
    let place = value.to_str().ok().and_then(Place::parse);
    if place.is_none() {
        environment::unknown(EMPTY, value, "nothing is counted (shared counts for others)");
    }
    place
}

/// In a forked child: takes a slot of its own.
fn restart() {
    count::set_page(None);
    if !is_on() {
        return;
    }
    // A parent that this process does not see is in another PID namespace, which knows it by
    // another id.
    // SAFETY: has no arguments.
    let has_parent = unsafe { syscall!(Sysno::getppid) } != Ok(0);
    if !has_parent {
        IS_KNOWN.store(false, Ordering::Relaxed);
    }
    let holder = Holder { pid: pid(), known: IS_KNOWN.load(Ordering::Relaxed) };
    let mut name = [0_u8; 16];
    // SAFETY: PR_GET_NAME writes at most 16 bytes.
    let _ = unsafe { syscall!(Sysno::prctl, libc::PR_GET_NAME, name.as_mut_ptr()) };
    take_slot(holder, &name);
}

/// After a call that may have forked without handlers: a child that has its own memory begins anew.
pub(crate) fn note_fork() {
    if is_on() {
        fork::may_make_objects();
    }
}

fn pid() -> u32 {
    // SAFETY: has no arguments.
    unsafe { syscall!(Sysno::getpid) }.unwrap_or_default() as u32
}

/// Takes a slot and counts in it from here on. Without one the process is counted as not counted.
fn take_slot(holder: Holder, name: &[u8]) {
    // Where a filter may kill for the calls that Wakeset makes, none is made that can wait.
    let may_fold = !migrate::is_for_good();
    let mut is_full = false;
    let mut has_mapped_all = false;
    loop {
        let mapping = MAPPING.load(Ordering::Acquire);
        let (start, slots) = (mapping / ALIGNMENT * ALIGNMENT, mapping % ALIGNMENT);
        // SAFETY: mapped by `map_beginning` or `map_more`, and never unmapped; nothing can make
        // that file shorter.
        let area = unsafe { Area::at(ptr::with_exposed_provenance(start), bytes_of(slots)) };
        let Some(area) = area else { return };
        // A fold looks at all slots that have ever been in use, also those of processes that have
        // mapped more than the parent of this one.
        if may_fold && area.is_shared() && area.reach() > slots && !has_mapped_all {
            has_mapped_all = true;
            if map_more(start, slots, area.reach()) {
                continue;
            }
        }
        if area.has_ended() {
            // Nobody reads the counts, so forks need not care any more.
            MAPPING.store(0, Ordering::Relaxed);
            return;
        }
        match area.claim(holder) {
            Claim::Page(page) => {
                page.start(holder.pid, name);
                count::set_page(Some(page));
                if may_fold {
                    area.fold(holder, Some(page), LOOKS);
                }
                return;
            }
            Claim::Full => {
                if is_full || !may_fold || area.fold(holder, None, slots) == 0 {
                    area.refuse(Refusal::TooMany);
                    return;
                }
                is_full = true;
            }
            Claim::Refused(_) => return,
            Claim::MapMore => {
                if !map_more(start, slots, 0) {
                    area.refuse(Refusal::NoAddressSpace);
                    return;
                }
            }
        }
    }
}

/// Maps the area with twice as many slots as before, and at least so many. The descriptor is long
/// closed: a second mapping comes from the first, which stays, because threads may count in it.
fn map_more(start: usize, slots: usize, least: usize) -> bool {
    let more = (2 * slots.max(1)).max(least).min(SLOTS);
    let bytes = bytes_of(more);
    // SAFETY: an old size of 0 leaves the old mapping as it is.
    let mapped = unsafe { syscall!(Sysno::mremap, start, 0, bytes, libc::MREMAP_MAYMOVE) };
    if let Ok(mapped) = mapped {
        MAPPING.store(mapped + more, Ordering::Release);
    }
    mapped.is_ok()
}

/// The size of a mapping with this many slots.
fn bytes_of(slots: usize) -> usize {
    CONTROL_BYTES + slots * SLOT_BYTES
}

/// Maps the beginning of the area. Returns where it is, and how many slots it has.
fn map_beginning(place: &Place) -> Result<(*const u8, usize), Errno> {
    // First by the name alone: to open what another program has put under that number might have
    // effects.
    let look = open(place, libc::O_PATH)?;
    close(look.fd);
    let file = open(place, libc::O_RDWR | libc::O_NONBLOCK | libc::O_NOCTTY)?;
    let result = map_file(&file, place.nonce);
    close(file.fd);
    result
}

fn map_file(file: &Opened, nonce: Nonce) -> Result<(*const u8, usize), Errno> {
    let slots = ((file.bytes - CONTROL_BYTES) / SLOT_BYTES).min(FIRST_SLOTS);
    let (start, slots) = match map(file.fd, bytes_of(slots)) {
        Ok(start) => (start, slots),
        // Room for the number of those that are not counted, at least.
        Err(_) => (map(file.fd, CONTROL_BYTES)?, 0),
    };
    let bytes = bytes_of(slots);
    // SAFETY: mapped, for good if this is the area; then nothing can make it shorter. If it is
    // not, the owner of the run has made it, and nothing is done with it but this look.
    let area = unsafe { Area::at(start, bytes) };
    if area.is_some_and(|area| area.is_open(nonce)) {
        return Ok((start, slots));
    }
    // SAFETY: this mapping, which nothing refers to any more.
    let _ = unsafe { syscall!(Sysno::munmap, start, bytes) };
    Err(Errno::ESTALE)
}

fn map(fd: usize, bytes: usize) -> Result<*const u8, Errno> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a fresh mapping of our own descriptor.
    let start = unsafe { syscall!(Sysno::mmap, 0, bytes, protection, libc::MAP_SHARED, fd, 0) }?;
    Ok(ptr::with_exposed_provenance(start))
}

/// The inode of the PID name space that this process is in; 0 where it is not known.
fn name_space() -> u64 {
    let (path, flags) = (c"/proc/self/ns/pid".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
    // SAFETY: a C string.
    let opened = unsafe { syscall!(Sysno::openat, libc::AT_FDCWD, path, flags) };
    let Ok(fd) = opened else { return 0 };
    let inode = status(fd).map_or(0, |status| status.st_ino);
    close(fd);
    inode
}

fn status(fd: usize) -> Result<libc::stat, Errno> {
    let mut status = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: our own descriptor and memory for the answer; an all-zero one is valid too.
    unsafe {
        syscall!(Sysno::fstat, fd, status.as_mut_ptr())?;
        Ok(status.assume_init())
    }
}

/// A file that may be the area: a regular one of the owner of the run, large enough.
struct Opened {
    fd: usize,
    bytes: usize,
}

fn open(place: &Place, flags: i32) -> Result<Opened, Errno> {
    let flags = flags | libc::O_CLOEXEC;
    // SAFETY: the path ends with a zero byte.
    let fd = unsafe { syscall!(Sysno::openat, libc::AT_FDCWD, place.path.as_ptr(), flags) }?;
    match status(fd) {
        Ok(status)
            if status.st_mode & libc::S_IFMT == libc::S_IFREG
                && status.st_uid == place.owner
                && status.st_size as usize >= CONTROL_BYTES =>
        {
            Ok(Opened { fd, bytes: status.st_size as usize })
        }
        other => {
            close(fd);
            Err(other.err().unwrap_or(Errno::ESTALE))
        }
    }
}

fn close(fd: usize) {
    // SAFETY: our own descriptor.
    let _ = unsafe { syscall!(Sysno::close, fd) };
}

/// Which process this is to the collector, and its short name. `/proc` is the one that led to the
/// area, so what it says of the process id is what the collector says.
fn own_identity() -> (Holder, [u8; 16]) {
    let mut bytes = [0_u8; 128];
    let (holder, name) =
        read_identity(&mut bytes).unwrap_or((Holder { pid: pid(), known: false }, b"".as_slice()));
    let mut padded = [0; 16];
    for (to, from) in padded.iter_mut().zip(name) {
        *to = *from;
    }
    (holder, padded)
}

/// From the first two words of `/proc/self/stat`: the process id, and the name in parentheses.
fn read_identity(bytes: &mut [u8; 128]) -> Option<(Holder, &[u8])> {
    let path = c"/proc/self/stat".as_ptr();
    // SAFETY: a C string; our own descriptor; memory for what is read.
    let read = unsafe {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        let fd = syscall!(Sysno::openat, libc::AT_FDCWD, path, flags).ok()?;
        let read = syscall!(Sysno::read, fd, bytes.as_mut_ptr(), bytes.len());
        close(fd);
        read.ok()?
    };
    let text = bytes.get(..read)?;
    let begin = text.iter().position(|byte| *byte == b'(')?;
    let end = text.iter().rposition(|byte| *byte == b')')?;
    let pid = str::from_utf8(text.get(..begin)?).ok()?.trim_ascii().parse().ok()?;
    Some((Holder { pid, known: true }, text.get(begin + 1..end)?))
}
