//! An entry of a submission queue (`struct io_uring_sqe`), and which descriptors it names.

use core::ffi::c_int;

/// An entry as the kernel reads it: its first 64 bytes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Entry {
    /// What is to be done.
    pub opcode: u8,
    /// `IOSQE_…`.
    pub flags: u8,
    pub(super) priority: u16,
    /// The descriptor, for most.
    pub fd: c_int,
    /// An offset, or the target of epoll_ctl(2).
    pub off: u64,
    /// An address of the program's.
    pub addr: u64,
    /// A length, or the operation of epoll_ctl(2).
    pub len: u32,
    /// Flags of the operation.
    pub op_flags: u32,
    /// The program's name for the request.
    pub user_data: u64,
    pub(super) buffer: u16,
    pub(super) personality: u16,
    /// A second descriptor, or an index among the registered files.
    pub file: c_int,
    pub(super) rest: [u64; 2],
}

/// `IOSQE_FIXED_FILE`: the descriptor is an index among the registered files.
const FIXED_FILE: u8 = 1 << 0;
/// `IOSQE_IO_DRAIN`.
const DRAIN: u8 = 1 << 1;
/// `IOSQE_IO_LINK` and `IOSQE_IO_HARDLINK`: the next entry waits for this one.
const LINK: u8 = 1 << 2 | 1 << 3;
/// `IOSQE_ASYNC`.
const ASYNC: u8 = 1 << 4;
/// `IOSQE_CQE_SKIP_SUCCESS`.
const SKIP_SUCCESS: u8 = 1 << 6;

/// What an entry names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// No descriptor.
    Nothing,
    /// A descriptor. Those that are negative are none.
    File(c_int),
    /// Two.
    Files([c_int; 2]),
    /// A listener, from which connections are accepted, or a descriptor that is polled.
    Waited(c_int),
    /// A path, which may be the name of a descriptor.
    Path(u64),
    /// A socket, and a message that may pass descriptors on.
    Message(c_int, u64),
    /// A descriptor that is closed.
    Closed(c_int),
    /// So many descriptors at this address.
    List(u64, u32),
    /// What only the driver or a later kernel knows.
    Unknown,
}

mod op {
    pub(super) const NOP: u8 = 0;
    pub(super) const POLL_ADD: u8 = 6;
    pub(super) const POLL_REMOVE: u8 = 7;
    pub(super) const SENDMSG: u8 = 9;
    pub(super) const TIMEOUT: u8 = 11;
    pub(super) const TIMEOUT_REMOVE: u8 = 12;
    pub(super) const ACCEPT: u8 = 13;
    pub(super) const ASYNC_CANCEL: u8 = 14;
    pub(super) const LINK_TIMEOUT: u8 = 15;
    pub(super) const OPENAT: u8 = 18;
    pub(super) const CLOSE: u8 = 19;
    pub(super) const FILES_UPDATE: u8 = 20;
    pub(super) const MADVISE: u8 = 25;
    pub(super) const OPENAT2: u8 = 28;
    pub(super) const EPOLL_CTL: u8 = 29;
    pub(super) const SPLICE: u8 = 30;
    pub(super) const PROVIDE_BUFFERS: u8 = 31;
    pub(super) const REMOVE_BUFFERS: u8 = 32;
    pub(super) const TEE: u8 = 33;
    pub(super) const SETXATTR: u8 = 42;
    pub(super) const GETXATTR: u8 = 44;
    pub(super) const SOCKET: u8 = 45;
    pub(super) const URING_CMD: u8 = 46;
    pub(super) const SENDMSG_ZC: u8 = 48;
    pub(super) const WAITID: u8 = 50;
    pub(super) const FUTEX_WAIT: u8 = 51;
    pub(super) const FUTEX_WAKE: u8 = 52;
    pub(super) const FUTEX_WAITV: u8 = 53;
    pub(super) const FIXED_FD_INSTALL: u8 = 54;
    pub(super) const PIPE: u8 = 62;
}

impl Entry {
    /// An entry that does nothing: what the kernel makes of an index that is out of range.
    pub(super) const NONE: Self = Self {
        opcode: op::NOP,
        flags: 0,
        priority: 0,
        fd: -1,
        off: 0,
        addr: 0,
        len: 0,
        op_flags: 0,
        user_data: 0,
        buffer: 0,
        personality: 0,
        file: 0,
        rest: [0; 2],
    };

    /// What the entry names. Operations of Linux 6.18 are known.
    pub fn names(&self) -> Named {
        /// `IORING_NOP_FILE`.
        const NOP_FILE: u32 = 1 << 1;
        /// `IORING_ASYNC_CANCEL_FD`.
        const CANCEL_FILE: u32 = 1 << 1;
        let file = if self.flags & FIXED_FILE == 0 { self.fd } else { -1 };
        match self.opcode {
            op::NOP if self.op_flags & NOP_FILE != 0 => Named::File(file),
            op::ASYNC_CANCEL if self.op_flags & CANCEL_FILE != 0 => Named::File(file),
            op::NOP | op::ASYNC_CANCEL | op::POLL_REMOVE | op::TIMEOUT | op::TIMEOUT_REMOVE => {
                Named::Nothing
            }
            op::LINK_TIMEOUT | op::MADVISE | op::PROVIDE_BUFFERS | op::REMOVE_BUFFERS => {
                Named::Nothing
            }
            op::SETXATTR | op::GETXATTR | op::SOCKET | op::PIPE | op::FIXED_FD_INSTALL => {
                Named::Nothing
            }
            op::WAITID | op::FUTEX_WAIT | op::FUTEX_WAKE | op::FUTEX_WAITV => Named::Nothing,
            op::POLL_ADD | op::ACCEPT => Named::Waited(file),
            op::OPENAT | op::OPENAT2 => Named::Path(self.addr),
            op::SENDMSG | op::SENDMSG_ZC => Named::Message(file, self.addr),
            // One of the registered files, or a number. The flag has no meaning for these.
            op::CLOSE if self.file != 0 => Named::Nothing,
            op::CLOSE => Named::Closed(self.fd),
            op::EPOLL_CTL => Named::Files([self.fd, self.target()]),
            op::SPLICE | op::TEE => Named::Files([file, self.second_of_splice()]),
            op::FILES_UPDATE => Named::List(self.addr, self.len),
            op::URING_CMD => Named::Unknown,
            // Everything else is about one file; where there are two, they are directories.
            op::NOP..=op::PIPE => Named::File(file),
            _ => Named::Unknown,
        }
    }

    fn second_of_splice(&self) -> c_int {
        /// `SPLICE_F_FD_IN_FIXED`.
        const FIXED: u32 = 1 << 31;
        if self.op_flags & FIXED == 0 { self.file } else { -1 }
    }

    /// The descriptor that an epoll_ctl(2) is about.
    pub fn target(&self) -> c_int {
        self.off as c_int
    }

    /// Whether the next entry waits for this one.
    pub fn is_linked(&self) -> bool {
        self.flags & LINK != 0
    }

    /// Whether the kernel may look its descriptors up only later. Everything after a drain waits,
    /// too.
    pub fn is_late(&self) -> bool {
        self.flags & (DRAIN | ASYNC) != 0
    }

    /// Whether the entries after it may wait for it.
    pub fn drains(&self) -> bool {
        self.flags & DRAIN != 0
    }

    /// Whether it is an epoll_ctl(2) that the kernel makes at once when it takes the entry, as far
    /// as the entry says.
    pub fn is_command(&self) -> bool {
        self.opcode == op::EPOLL_CTL
            && self.flags & !SKIP_SUCCESS == 0
            && self.priority == 0
            && self.buffer == 0
            && self.personality == 0
            && self.file == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(opcode: u8) -> Entry {
        Entry { opcode, fd: 5, off: 6, addr: 7, len: 8, ..Entry::NONE }
    }

    #[test]
    fn an_entry_has_the_kernels_layout() {
        use core::mem::offset_of;
        assert_eq!(size_of::<Entry>(), 64);
        assert_eq!(offset_of!(Entry, fd), 4);
        assert_eq!(offset_of!(Entry, len), 24);
        assert_eq!(offset_of!(Entry, op_flags), 28);
        assert_eq!(offset_of!(Entry, buffer), 40);
        assert_eq!(offset_of!(Entry, file), 44);
    }

    #[test]
    fn what_an_entry_names() {
        assert_eq!(entry(22).names(), Named::File(5), "READ");
        assert_eq!(Entry { flags: FIXED_FILE, ..entry(22) }.names(), Named::File(-1));
        assert_eq!(entry(op::NOP).names(), Named::Nothing);
        assert_eq!(Entry { op_flags: 2, ..entry(op::NOP) }.names(), Named::File(5));
        assert_eq!(entry(op::PROVIDE_BUFFERS).names(), Named::Nothing, "a number of buffers");
        assert_eq!(entry(op::SOCKET).names(), Named::Nothing, "a domain");
        assert_eq!(entry(op::POLL_ADD).names(), Named::Waited(5));
        assert_eq!(entry(op::SENDMSG).names(), Named::Message(5, 7));
        assert_eq!(entry(op::OPENAT2).names(), Named::Path(7));
        assert_eq!(entry(op::FILES_UPDATE).names(), Named::List(7, 8));
        assert_eq!(entry(op::CLOSE).names(), Named::Closed(5));
        assert_eq!(Entry { file: 1, ..entry(op::CLOSE) }.names(), Named::Nothing);
        let splice = Entry { file: 9, ..entry(op::SPLICE) };
        assert_eq!(splice.names(), Named::Files([5, 9]));
        assert_eq!(Entry { op_flags: 1 << 31, ..splice }.names(), Named::Files([5, -1]));
        // epoll_ctl(2) takes numbers, whatever the flag says.
        let command = Entry { flags: FIXED_FILE, ..entry(op::EPOLL_CTL) };
        assert_eq!(command.names(), Named::Files([5, 6]));
        assert_eq!(entry(op::URING_CMD).names(), Named::Unknown);
        assert_eq!(entry(op::PIPE + 1).names(), Named::Unknown);
    }

    #[test]
    fn only_a_plain_command_is_made_at_once() {
        let command = entry(op::EPOLL_CTL);
        assert!(command.is_command());
        assert!(Entry { flags: SKIP_SUCCESS, ..command }.is_command());
        for flags in [FIXED_FILE, DRAIN, 1 << 2, 1 << 3, ASYNC, 1 << 5, 1 << 7] {
            assert!(!Entry { flags, ..command }.is_command(), "{flags}");
        }
        assert!(!Entry { file: 1, ..command }.is_command());
        assert!(!Entry { personality: 1, ..command }.is_command());
        assert!(!entry(22).is_command());
    }
}
