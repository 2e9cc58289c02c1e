//! The two sides' memory: a file's, mapped by each.

use crate::error::Error;
use crate::set::shared_ring::layout::{Header, MOST_ENTRIES, Slot};
use core::ptr::NonNull;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// The slots begin on a page of their own.
const SLOTS_AT: usize = 4096;

/// The memory, as this process has it.
pub(in crate::set) struct Memory {
    memory: NonNull<u8>,
    entries: u32,
    /// The side that made it keeps the file.
    file: Option<OwnedFd>,
}

// SAFETY: shared memory that is accessed through atomics only.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

fn refused(error: Errno) -> Error {
    if error == Errno::NOMEM { Error::NoMemory } else { Error::Os(error.raw_os_error()) }
}

impl Memory {
    fn length(entries: u32) -> usize {
        SLOTS_AT + entries as usize * size_of::<Slot>()
    }

    /// Makes a file for `entries` slots, seals its size, and maps it.
    pub(in crate::set) fn new(entries: u32) -> Result<Self, Error> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create(c"wakeset-ring", flags).map_err(refused)?;
        ftruncate(&file, Self::length(entries) as u64).map_err(refused)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .map_err(refused)?;
        let mut memory = Self::map(file.as_fd(), entries)?;
        memory.file = Some(file);
        Ok(memory)
    }

    /// Maps what `new` has made in another process.
    ///
    /// # Safety
    /// `fd` is open, and stays so for the call.
    pub(in crate::set) unsafe fn open(fd: i32) -> Result<Self, Error> {
        // SAFETY: the caller's contract.
        let file = unsafe { BorrowedFd::borrow_raw(fd) };
        let seals = fcntl_get_seals(file).map_err(|_| Error::Invalid)?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(Error::Invalid);
        }
        // From here on it does not get shorter.
        let size = fstat(file).map_err(refused)?.st_size;
        let slots = usize::try_from(size)
            .ok()
            .and_then(|size| size.checked_sub(SLOTS_AT))
            .ok_or(Error::Invalid)?;
        let entries = u32::try_from(slots / size_of::<Slot>()).map_err(|_| Error::Invalid)?;
        if !entries.is_power_of_two()
            || entries > MOST_ENTRIES
            || Self::length(entries) as i64 != size
        {
            return Err(Error::Invalid);
        }
        Self::map(file, entries)
    }

    fn map(file: BorrowedFd<'_>, entries: u32) -> Result<Self, Error> {
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let memory = unsafe {
            let access = ProtFlags::READ | ProtFlags::WRITE;
            mmap(core::ptr::null_mut(), Self::length(entries), access, MapFlags::SHARED, file, 0)
        };
        let memory = NonNull::new(memory.map_err(refused)?.cast()).ok_or(Error::NoMemory)?;
        Ok(Self { memory, entries, file: None })
    }

    pub(in crate::set) fn entries(&self) -> u32 {
        self.entries
    }

    /// The file's descriptor, below 0 on the side that did not make it.
    pub(in crate::set) fn fd(&self) -> i32 {
        self.file.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    pub(in crate::set) fn header(&self) -> &Header {
        // SAFETY: in the mapping, which is page-aligned and longer; any bits are a header.
        unsafe { self.memory.cast().as_ref() }
    }

    pub(in crate::set) fn slot(&self, at: u32) -> &Slot {
        let index = (at & (self.entries - 1)) as usize;
        // SAFETY: `entries` is a power of two, ours, and so many slots were mapped; any bits
        // are a slot.
        unsafe { self.memory.byte_add(SLOTS_AT).cast::<Slot>().add(index).as_ref() }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: ours, and nobody uses it any more.
        let _ = unsafe { munmap(self.memory.as_ptr().cast(), Self::length(self.entries)) };
    }
}
