//! Making the io_uring of a thread.

use super::{CommandUring, ENTRIES, MEMORY, PAGE};
use crate::sys::{self, Errno};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU8, Ordering};
use rustix::io_uring::{
    IoringOp, IoringRegisterFlags, IoringRegisterOp, IoringSetupFlags, io_uring_params,
    io_uring_ptr,
};

/// Whether the kernel has what it takes.
static AVAILABLE: AtomicU8 = AtomicU8::new(UNKNOWN);
/// Not asked yet.
const UNKNOWN: u8 = 0;
const YES: u8 = 1;
const NEVER: u8 = 2;

/// Returns whether the kernel is known to have no such io_uring for this process.
pub(super) fn is_unavailable() -> bool {
    AVAILABLE.load(Ordering::Relaxed) == NEVER
}

/// Where the kernel has put its words, from the start of the second page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offsets {
    pub(super) submit_tail: u32,
    pub(super) submit_mask: u32,
    pub(super) complete_head: u32,
    pub(super) complete_tail: u32,
    pub(super) complete_mask: u32,
    pub(super) completions: u32,
}

impl Offsets {
    pub(super) const NONE: Self = Self {
        submit_tail: 0,
        submit_mask: 0,
        complete_head: 0,
        complete_tail: 0,
        complete_mask: 0,
        completions: 0,
    };
}

impl CommandUring {
    /// Makes the io_uring. On `None` there is none, but there may be memory for it.
    pub(super) fn set_up(&mut self) -> Option<()> {
        self.map()?;
        let memory = self.kept.memory;
        let mut params = io_uring_params::default();
        params.flags = IoringSetupFlags::SUBMIT_ALL
            | IoringSetupFlags::SINGLE_ISSUER
            | IoringSetupFlags::DEFER_TASKRUN
            | IoringSetupFlags::NO_MMAP
            | IoringSetupFlags::REGISTERED_FD_ONLY
            | IoringSetupFlags::NO_SQARRAY;
        params.sq_off.user_addr = io_uring_ptr::new(memory.cast::<c_void>());
        params.cq_off.user_addr = io_uring_ptr::new(memory.wrapping_add(PAGE).cast::<c_void>());
        match sys::raw!(io_uring_setup, ENTRIES, &raw mut params) {
            Ok(index) => self.kept.index = index as c_int,
            Err(error) => {
                // That the kernel does not have the call, does not allow it or is too old will not
                // change. Any other error may pass.
                if matches!(error, Errno::ENOSYS | Errno::EPERM | Errno::EACCES | Errno::EINVAL) {
                    AVAILABLE.store(NEVER, Ordering::Relaxed);
                }
                return None;
            }
        }
        self.kept.offsets = Offsets {
            submit_tail: params.sq_off.tail,
            submit_mask: params.sq_off.ring_mask,
            complete_head: params.cq_off.head,
            complete_tail: params.cq_off.tail,
            complete_mask: params.cq_off.ring_mask,
            completions: params.cq_off.cqes,
        };
        if AVAILABLE.load(Ordering::Relaxed) == UNKNOWN {
            let known = self.knows(IoringOp::EpollCtl);
            AVAILABLE.store(if known { YES } else { NEVER }, Ordering::Relaxed);
            if !known {
                self.close();
                return None;
            }
        }
        Some(())
    }

    fn map(&mut self) -> Option<()> {
        let (access, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        self.kept.memory = sys::raw!(mmap, 0, MEMORY, access, kind, -1_isize, 0).ok()? as *mut u8;
        sys::raw!(madvise, self.kept.memory, MEMORY, libc::MADV_DONTFORK).ok().map(drop)
    }

    /// Closes an io_uring that is of no use.
    fn close(&mut self) {
        /// `struct io_uring_rsrc_update`.
        #[repr(C)]
        struct Update {
            offset: u32,
            reserved: u32,
            data: u64,
        }
        let mut update = Update { offset: self.kept.index as u32, reserved: 0, data: 0 };
        let _ = self.register(IoringRegisterOp::UnregisterRingFds, (&raw mut update).cast(), 1);
        self.kept.index = -1;
    }

    fn register(
        &self,
        op: IoringRegisterOp,
        argument: *mut c_void,
        n: usize,
    ) -> Result<usize, Errno> {
        let op = op as u32 | IoringRegisterFlags::USE_REGISTERED_RING.bits();
        sys::raw!(io_uring_register, self.kept.index, op, argument, n)
    }

    /// Returns whether the kernel's io_uring has this operation.
    fn knows(&self, op: IoringOp) -> bool {
        const MOST: usize = 64;
        /// `struct io_uring_probe` with its operations: number, reserved, flags, reserved.
        #[repr(C)]
        struct Probe {
            header: [u32; 4],
            ops: [(u8, u8, u16, u32); MOST],
        }
        const SUPPORTED: u16 = 1;
        let mut probe = Probe { header: [0; 4], ops: [(0, 0, 0, 0); MOST] };
        let asked = self.register(IoringRegisterOp::RegisterProbe, (&raw mut probe).cast(), MOST);
        asked.is_ok()
            && probe.ops.get(op as usize).is_some_and(|(_, _, flags, _)| flags & SUPPORTED != 0)
    }
}
