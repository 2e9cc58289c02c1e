//! Makes the memory that the processes count in ([`wakeset_fd::stats::area`]).
//!
//! For `wakeset run --stats` it is a memfd, so it has no name that anybody could take over, takes
//! nothing from the room in `/dev/shm`, and ends with the processes. The processes open it as this
//! process's descriptor, below `/proc`. Sealed, it becomes no shorter, whoever writes to it.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::ptr;

use wakeset_fd::stats::area::{Area, CONTROL_BYTES, Nonce, SLOT_BYTES, SLOTS};

/// Slots whose memory is there before the program runs.
const FIRST_SLOTS: usize = 16;

/// The memory of this run, mapped for as long as this process lives.
pub struct Memory {
    pub area: Area<'static>,
    /// What [`AREA_VARIABLE`](wakeset_fd::stats::area::AREA_VARIABLE) says of it.
    pub place: String,
    /// Whether processes know themselves by the same process ids as this process does.
    pub agrees: bool,
    /// Open, for the processes to open it again.
    _file: File,
}

/// Makes the memory; an error says what there is not.
pub fn make() -> io::Result<Memory> {
    let file = open()?;
    let bytes = with_any_file_size(|| reserve(&file))?;
    // A file of `/dev/shm` cannot be sealed. Only processes of this user can open that one.
    // SAFETY: our own descriptor.
    unsafe {
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals);
    }
    let area = map(&file, bytes)?;
    let nonce = random()?;
    area.start(nonce);
    // As `/proc` has it, which may be that of another PID namespace.
    let pid = fs::read_link("/proc/self").map_err(|e| explain("there is no /proc", e))?;
    let pid = pid.display().to_string();
    let path = format!("/proc/{pid}/fd/{}", file.as_raw_fd());
    let owner = file.metadata()?.uid();
    Ok(Memory {
        area,
        place: format!("{owner} {:016x}{:016x} {path}", nonce[0], nonce[1]),
        agrees: pid == std::process::id().to_string(),
        _file: file,
    })
}

/// Makes an area without a collector of an empty file, for `--share`. Returns what
/// [`AREA_VARIABLE`](wakeset_fd::stats::area::AREA_VARIABLE) says of it.
pub fn make_shared(file: &File, path: &Path) -> io::Result<String> {
    let bytes = with_any_file_size(|| reserve(file))?;
    let area = map(file, bytes)?;
    let nonce = random()?;
    // Without a number of its own no process knows the others by theirs.
    let name_space = fs::metadata("/proc/self/ns/pid").map_or(u64::MAX, |inode| inode.ino());
    area.share(name_space);
    area.start(nonce);
    let owner = file.metadata()?.uid();
    Ok(format!("{owner} {:016x}{:016x} {}", nonce[0], nonce[1], path.display()))
}

fn explain(what: &str, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

/// An empty file without a name.
fn open() -> io::Result<File> {
    // Linux 6.3 wants to be told that nothing in it will be run; earlier ones do not know the flag.
    let [newer, older] =
        [libc::MFD_NOEXEC_SEAL, 0].map(|flag| flag | libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
    // SAFETY: C strings; the calls return a descriptor of ours, or a negative number.
    unsafe {
        let mut fd = libc::memfd_create(c"wakeset-stats".as_ptr(), newer);
        if fd < 0 {
            fd = libc::memfd_create(c"wakeset-stats".as_ptr(), older);
        }
        if fd < 0 {
            // Where a filter refuses that call.
            let flags = libc::O_TMPFILE | libc::O_RDWR | libc::O_CLOEXEC;
            fd = libc::open(c"/dev/shm".as_ptr(), flags, 0o600);
        }
        if fd < 0 {
            return Err(explain("no memory file", io::Error::last_os_error()));
        }
        Ok(File::from_raw_fd(fd))
    }
}

/// Gives the file its size, and the memory that the first processes need. Returns the size.
fn reserve(file: &File) -> io::Result<usize> {
    // Fewer slots where a limit on the size of files allows no more.
    let sizes = [SLOTS, 256, FIRST_SLOTS].map(|slots| CONTROL_BYTES + slots * SLOT_BYTES);
    let mut result = Err(io::ErrorKind::OutOfMemory.into());
    for bytes in sizes {
        result = file.set_len(bytes as u64);
        if result.is_ok() {
            let first = CONTROL_BYTES + FIRST_SLOTS * SLOT_BYTES;
            // SAFETY: our own descriptor.
            if unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, first as i64) } != 0 {
                return Err(explain("no memory", io::Error::last_os_error()));
            }
            return Ok(bytes);
        }
    }
    result.map_err(|error| explain("the size of files is limited", error)).map(|()| 0)
}

/// Calls `make` with as high a limit on the size of files (`RLIMIT_FSIZE`) as this process may
/// have, and without the signal that ends a process which exceeds it. The program finds both as
/// they were.
fn with_any_file_size<T>(make: impl FnOnce() -> T) -> T {
    let any = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    let mut before = any;
    // SAFETY: memory for the limits; this process has one thread, and no handler.
    unsafe {
        let action = libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        libc::getrlimit(libc::RLIMIT_FSIZE, &mut before);
        if libc::setrlimit(libc::RLIMIT_FSIZE, &any) != 0 {
            let most = libc::rlimit { rlim_cur: before.rlim_max, ..before };
            libc::setrlimit(libc::RLIMIT_FSIZE, &most);
        }
        let made = make();
        libc::setrlimit(libc::RLIMIT_FSIZE, &before);
        libc::signal(libc::SIGXFSZ, action);
        made
    }
}

/// Maps the area, or as much of it as this process may map.
fn map(file: &File, bytes: usize) -> io::Result<Area<'static>> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let least = CONTROL_BYTES + FIRST_SLOTS * SLOT_BYTES;
    for bytes in [bytes, bytes.min(CONTROL_BYTES + 256 * SLOT_BYTES), least] {
        // SAFETY: a fresh mapping, which is never undone.
        let area = unsafe {
            let fd = file.as_raw_fd();
            let start = libc::mmap(ptr::null_mut(), bytes, protection, libc::MAP_SHARED, fd, 0);
            if start == libc::MAP_FAILED { None } else { Area::at(start.cast(), bytes) }
        };
        if let Some(area) = area {
            return Ok(area);
        }
    }
    Err(explain("it cannot be mapped", io::Error::last_os_error()))
}

fn random() -> io::Result<Nonce> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact_at(&mut bytes, 0)?;
    let (high, low) = bytes.split_at(8);
    let word = |half: &[u8]| u64::from_ne_bytes(half.try_into().unwrap_or_default());
    Ok([word(high), word(low)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_is_there_and_nothing_makes_it_shorter() {
        let memory = make().expect("memory");
        let file = memory.place.rsplit(' ').next().expect("a path");
        let file = File::options().write(true).open(file).expect("our own descriptor");
        let metadata = file.metadata().expect("its size");
        assert_eq!(metadata.len() as usize, CONTROL_BYTES + SLOTS * SLOT_BYTES);
        let allocated = metadata.blocks() as usize * 512;
        assert!(allocated >= CONTROL_BYTES + FIRST_SLOTS * SLOT_BYTES, "{allocated}");
        assert!(file.set_len(0).is_err());
        assert!(file.set_len(metadata.len() + 1).is_err());
    }
}
