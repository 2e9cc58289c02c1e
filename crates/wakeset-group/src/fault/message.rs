//! What a userfaultfd reports.

/// An event of a userfaultfd: `struct uffd_msg` of userfaultfd(2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Message([u64; 4]);

/// `UFFD_EVENT_PAGEFAULT`: a thread waits for a page.
pub const EVENT_PAGEFAULT: u8 = 0x12;
/// `UFFD_EVENT_FORK`: the process has forked.
pub const EVENT_FORK: u8 = 0x13;
/// `UFFD_EVENT_REMAP`: mremap(2) has moved a mapping.
pub const EVENT_REMAP: u8 = 0x14;
/// `UFFD_EVENT_REMOVE`: madvise(2) has dropped pages.
pub const EVENT_REMOVE: u8 = 0x15;
/// `UFFD_EVENT_UNMAP`: a mapping is gone.
pub const EVENT_UNMAP: u8 = 0x16;

impl Message {
    /// What has happened: one of the constants of this module, for example [`EVENT_PAGEFAULT`].
    #[must_use]
    pub fn event(&self) -> u8 {
        self.0[0].to_ne_bytes()[0]
    }

    /// The three words of the event. For a page fault: the flags, the address, and the thread in
    /// the low half of the third word. For a fork: the new userfaultfd in the low half of the
    /// first word. For a remap: the old address, the new address, and the length. For a remove
    /// or an unmap: start and end.
    #[must_use]
    pub fn words(&self) -> [u64; 3] {
        [self.0[1], self.0[2], self.0[3]]
    }

    /// The address of a page fault. Meaningless for other events.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.0[2]
    }
}
