//! The system call instructions of an object that is not loaded yet.
//!
//! The file is mapped as the loader would map it, but to be read only, and unmapped again.

use super::Range;
use super::objects::Loaded;
use core::ffi::CStr;
use core::mem::MaybeUninit;
use libc::{Elf64_Ehdr, Elf64_Phdr};
use syscalls::{Errno, Sysno, syscall};

const PAGE: usize = 4096;
/// More headers than any linker makes.
const HEADERS: usize = 32;

/// Whether the object in a file has system call instructions. `false` if it cannot be loaded
/// anyhow.
pub(crate) fn file_has_instruction(path: &CStr) -> bool {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: a C string.
    let Ok(fd) = (unsafe { syscall!(Sysno::open, path.as_ptr(), flags) }) else { return false };
    let found = has_instruction(fd).unwrap_or(false);
    // SAFETY: our own descriptor.
    let _ = unsafe { syscall!(Sysno::close, fd) };
    found
}

/// Reads a value from a place in a file.
fn read<T: Copy>(fd: usize, offset: usize) -> Option<T> {
    let mut value = MaybeUninit::<T>::uninit();
    let len = size_of::<T>();
    // SAFETY: memory for the value.
    let got = unsafe { syscall!(Sysno::pread64, fd, value.as_mut_ptr(), len, offset) };
    // SAFETY: all of it was written; the types here are plain numbers.
    (got == Ok(len)).then(|| unsafe { value.assume_init() })
}

fn has_instruction(fd: usize) -> Option<bool> {
    let head: Elf64_Ehdr = read(fd, 0)?;
    let is_ours = head.e_ident.starts_with(b"\x7fELF\x02") && head.e_machine == libc::EM_X86_64;
    let count = usize::from(head.e_phnum);
    if !is_ours || count > HEADERS {
        return None;
    }
    // SAFETY: all-zero is a header that says nothing.
    let mut headers: [Elf64_Phdr; HEADERS] = unsafe { core::mem::zeroed() };
    let headers = headers.get_mut(..count)?;
    for (index, header) in headers.iter_mut().enumerate() {
        *header = read(fd, head.e_phoff as usize + index * size_of::<Elf64_Phdr>())?;
    }
    let loads = || headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
    let end = loads().map(|header| header.p_vaddr.saturating_add(header.p_memsz)).max()? as usize;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: fresh memory, where there is some.
    let base = unsafe { syscall!(Sysno::mmap, 0, end, libc::PROT_NONE, kind, -1_isize, 0) }.ok()?;
    let whole = Range { start: base, end: base + end.next_multiple_of(PAGE) };
    let is_mapped = loads().all(|header| map(fd, header, whole).is_ok());
    let found = is_mapped && Loaded { base, headers }.has_instruction();
    // SAFETY: our own mapping.
    let _ = unsafe { syscall!(Sysno::munmap, base, end) };
    Some(found)
}

/// Maps what the file has of a segment into its place.
fn map(fd: usize, header: &Elf64_Phdr, whole: Range) -> Result<(), Errno> {
    let start = header.p_vaddr as usize & !(PAGE - 1);
    let before = header.p_vaddr as usize - start;
    let len = (header.p_filesz as usize).saturating_add(before).next_multiple_of(PAGE);
    let Some(offset) = (header.p_offset as usize).checked_sub(before) else {
        return Err(Errno::EINVAL);
    };
    let place = whole.start + start;
    if len > whole.end.saturating_sub(place) {
        return Err(Errno::EINVAL);
    }
    let kind = libc::MAP_PRIVATE | libc::MAP_FIXED;
    // SAFETY: inside our own mapping.
    unsafe { syscall!(Sysno::mmap, place, len, libc::PROT_READ, kind, fd, offset) }.map(drop)
}
