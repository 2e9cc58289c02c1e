//! Where the two sides' memory is: a file's, mapped by each; for the models, the heap's, shared with a thread.

use super::{Header, Slot};
use crate::error::Error;

#[cfg(not(any(loom, shuttle)))]
pub(super) use mapped::Memory;
#[cfg(any(loom, shuttle))]
pub(super) use modelled::Memory;

#[cfg(not(any(loom, shuttle)))]
mod mapped {
    use super::super::MOST_ENTRIES;
    use super::{Error, Header, Slot};
    use core::ptr::NonNull;
    use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
    use rustix::io::Errno;
    use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

    /// The slots begin on a page of their own.
    const SLOTS_AT: usize = 4096;

    /// The memory, as this process has it.
    pub(in super::super) struct Memory {
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
        pub(in super::super) fn new(entries: u32) -> Result<Self, Error> {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let file = memfd_create(c"wakeset-ring", flags).map_err(refused)?;
            ftruncate(&file, Self::length(entries) as u64).map_err(refused)?;
            fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL).map_err(refused)?;
            let mut memory = Self::map(file.as_fd(), entries)?;
            memory.file = Some(file);
            Ok(memory)
        }

        /// Maps what `new` has made in another process.
        ///
        /// # Safety
        /// `fd` is open, and stays so for the call.
        pub(in super::super) unsafe fn open(fd: i32) -> Result<Self, Error> {
            // SAFETY: the caller's contract.
            let file = unsafe { BorrowedFd::borrow_raw(fd) };
            let seals = fcntl_get_seals(file).map_err(|_| Error::Invalid)?;
            if !seals.contains(SealFlags::SHRINK) {
                return Err(Error::Invalid);
            }
            // From here on it does not get shorter.
            let size = fstat(file).map_err(refused)?.st_size;
            let slots = usize::try_from(size).ok().and_then(|size| size.checked_sub(SLOTS_AT)).ok_or(Error::Invalid)?;
            let entries = u32::try_from(slots / size_of::<Slot>()).map_err(|_| Error::Invalid)?;
            if !entries.is_power_of_two() || entries > MOST_ENTRIES || Self::length(entries) as i64 != size {
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

        pub(in super::super) fn entries(&self) -> u32 {
            self.entries
        }

        /// The file's descriptor, below 0 on the side that did not make it.
        pub(in super::super) fn fd(&self) -> i32 {
            self.file.as_ref().map_or(-1, AsRawFd::as_raw_fd)
        }

        pub(in super::super) fn header(&self) -> &Header {
            // SAFETY: in the mapping, which is page-aligned and longer; any bits are a header.
            unsafe { self.memory.cast().as_ref() }
        }

        pub(in super::super) fn slot(&self, at: u32) -> &Slot {
            let index = (at & (self.entries - 1)) as usize;
            // SAFETY: `entries` is a power of two, ours, and so many slots were mapped; any bits are a slot.
            unsafe { self.memory.byte_add(SLOTS_AT).cast::<Slot>().add(index).as_ref() }
        }
    }

    impl Drop for Memory {
        fn drop(&mut self) {
            // SAFETY: ours, and nobody uses it any more.
            let _ = unsafe { munmap(self.memory.as_ptr().cast(), Self::length(self.entries)) };
        }
    }
}

#[cfg(any(loom, shuttle))]
mod modelled {
    use super::super::Line;
    use super::{Error, Header, Slot};
    use crate::sync::{AtomicU32, AtomicU64, SharedFutex};
    use alloc::sync::Arc;
    use alloc::vec::Vec;

    #[derive(Clone)]
    pub(in super::super) struct Memory(Arc<(Header, Vec<Slot>)>);

    impl Memory {
        pub(in super::super) fn new(entries: u32) -> Result<Self, Error> {
            let line = || Line { index: SharedFutex::new(0), sleeps: AtomicU32::new(0) };
            let slot = |_| Slot { bits: AtomicU64::new(0), data: AtomicU64::new(0) };
            Ok(Self(Arc::new((Header { writer: line(), reader: line() }, (0..entries).map(slot).collect()))))
        }

        pub(in super::super) fn entries(&self) -> u32 {
            self.0.1.len() as u32
        }

        pub(in super::super) fn header(&self) -> &Header {
            &self.0.0
        }

        pub(in super::super) fn slot(&self, at: u32) -> &Slot {
            &self.0.1[(at & (self.entries() - 1)) as usize]
        }
    }
}
