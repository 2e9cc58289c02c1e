//! An io_uring that carries out epoll_ctl(2) commands, some dozens for one system call.
//!
//! It has no descriptor (`IORING_SETUP_REGISTERED_FD_ONLY`): only the thread that made it knows it,
//! by an index, so it is no second way to the program's descriptors. Its memory is left out of
//! forks. Making one costs some 20 µs, so only large batches do, and it then stays with its thread
//! for the next batch ([`thread_rings`](super::thread_rings)).
//!
//! It needs Linux 6.6. Where the kernel has no such io_uring, or does not allow one,
//! [`CommandUring::open`] says so and the caller makes single calls.

mod run;
mod set_up;

pub(crate) use run::{Order, Task};

use super::sizes::KEPT_COMMAND_URINGS;
use super::thread_rings::{Thread, ThreadRing, ThreadRings};
use crate::sys;
use crate::table::lifecycle::{self, Participant, Rank};
use crate::table::process;
use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::AtomicU32;
use set_up::Offsets;

/// Commands in one submission. The entries and the ring fit in a page each, which kernels before
/// 6.13 demand; more at a time are no faster.
pub(crate) const ENTRIES: usize = 64;
const PAGE: usize = 4096;
/// The bytes of an io_uring's memory.
const MEMORY: usize = 2 * PAGE;

pub(crate) static KEPT: ThreadRings<Kept, KEPT_COMMAND_URINGS> = ThreadRings::new();

pub(crate) static COMMANDS: Participant = Participant {
    rank: Rank::Commands,
    begin_anew: forget_in_child,
    renumber: None,
    before_close: None,
};

fn forget_in_child() {
    // SAFETY: a forked child has one thread, which is here. Another of its parent's may have been
    // at the slots.
    unsafe { KEPT.forget_in_child() };
}

/// What a thread keeps of its io_uring between batches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    thread: Thread,
    /// A batch of the thread is under way. A batch that one of its signal handlers makes meanwhile
    /// does without.
    in_use: bool,
    /// Two pages: the entries to submit, and the ring itself with the completions. Null for none.
    memory: *mut u8,
    /// What the thread knows the io_uring by, below 0 for none.
    index: c_int,
    offsets: Offsets,
    /// Counts submissions, so that no completion of an earlier one is taken for this one's.
    submission: u32,
}

impl Kept {
    /// The calling thread is about to make one.
    fn nothing_yet() -> Self {
        Self {
            thread: Thread::current(),
            in_use: true,
            memory: ptr::null_mut(),
            index: -1,
            offsets: Offsets::NONE,
            submission: 0,
        }
    }

    fn unmap(&mut self) {
        if !self.memory.is_null() {
            let _ = sys::raw!(munmap, self.memory, MEMORY);
            self.memory = ptr::null_mut();
        }
    }
}

impl ThreadRing for Kept {
    fn thread(&self) -> Thread {
        self.thread
    }

    /// The kernel has ended the io_uring with its thread; the memory is still mapped.
    fn let_go(mut self) {
        self.unmap();
    }
}

/// The calling thread's io_uring, for the length of a batch.
#[derive(Debug)]
pub(crate) struct CommandUring {
    kept: Kept,
}

impl CommandUring {
    /// The calling thread's io_uring, if it has one that is not in use or the kernel gives it one
    /// now.
    pub(crate) fn open() -> Option<Self> {
        // A vfork(2) child is not the thread that its memory says it is.
        if set_up::is_unavailable() || !process::may_make_objects() {
            return None;
        }
        lifecycle::sign_up(&COMMANDS);
        let kept = KEPT.with_slot(
            |_| true,
            |slot| match slot {
                Some(kept) if kept.in_use => None,
                Some(kept) => {
                    kept.in_use = true;
                    Some(*kept)
                }
                None => Some(*slot.insert(Kept::nothing_yet())),
            },
        );
        // Dropped on each way out, which gives the slot back.
        let mut uring = Self { kept: kept.flatten()? };
        (uring.kept.index >= 0 || uring.set_up().is_some()).then_some(uring)
    }

    fn word(&self, offset: u32) -> &AtomicU32 {
        // SAFETY: the kernel's offsets lie in the second page, which lives as long as the ring;
        // both sides use it atomically.
        unsafe { &*self.kept.memory.add(PAGE + offset as usize).cast::<AtomicU32>() }
    }
}

impl Drop for CommandUring {
    fn drop(&mut self) {
        self.kept.in_use = false;
        let is_open = self.kept.index >= 0;
        if !is_open {
            self.kept.unmap();
        }
        KEPT.with_slot(
            |_| true,
            |slot| {
                // None in a child that a signal handler has forked in the midst of a batch.
                if slot.is_some() {
                    *slot = is_open.then_some(self.kept);
                }
            },
        );
    }
}
