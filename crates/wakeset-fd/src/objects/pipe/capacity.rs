//! How much a pair holds. The kernel is asked before the first write, because most pairs that a
//! program makes for a while are never written to here. Nothing changes the answer meanwhile: what
//! would, a program's fcntl(2) or setsockopt(2), migrates the pair. What a message counts for is
//! asked once, by way of the first socket pair.

use super::Bound;
use crate::sys;
use crate::sys::refusable::refusable;
use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};
use libc::{MSG_DONTWAIT, MSG_NOSIGNAL};
use wakeset::{LONGEST_MESSAGE, PIPE_CAPACITY, PipeCapacity, mutated};

/// What a message of up to [`LONGEST`] bytes counts for in this kernel: 0 is not known, the largest
/// number not to be had.
static COST: AtomicU32 = AtomicU32::new(0);
const NO_COST: u32 = u32::MAX;

/// The longest message that counts for no more than one of a byte: one of [`LENGTHS`].
static LONGEST: AtomicU32 = AtomicU32::new(0);
const LENGTHS: [usize; 2] = [LONGEST_MESSAGE, 56];

/// SIOCOUTQ: what the messages that a socket has sent, and that have not been read, count for.
const SIOCOUTQ: c_int = 0x5411;

impl Bound {
    /// Before a write to a pipe whose end that writes is `fd`: asks for the room if that is not
    /// known. Nothing fits into one that has not as many pages as others: it is the kernel's.
    #[inline]
    pub(super) fn learn_room(self, fd: c_int) {
        if let Some(pipe) = self.outward().filter(|pipe| pipe.is_unasked(self.generation))
            && let Some(capacity) = self.ask_room(fd)
        {
            pipe.set_capacity(self.generation, capacity);
        }
    }

    /// `None`: the pair is the kernel's.
    #[cold]
    fn ask_room(self, fd: c_int) -> Option<PipeCapacity> {
        if self.is_socket() {
            return capacity_of(fd);
        }
        // A user with many pipes gets small ones.
        let full = refusable!(fcntl, fd, libc::F_GETPIPE_SZ) == Ok(PIPE_CAPACITY as usize);
        (full || mutated!("small_pipes_are_full_ones")).then_some(PipeCapacity::Pages)
    }
}

/// Whether a message of this length counts as every other one does that is sent here.
#[inline]
pub(super) fn is_ordinary(len: usize) -> bool {
    len <= LONGEST.load(Ordering::Relaxed) as usize
}

/// Whether it can be told how many messages fit into a socket pair. The first one is asked, which
/// is new.
pub(super) fn is_known(fds: [c_int; 2]) -> bool {
    if COST.load(Ordering::Relaxed) == 0 {
        learn_cost(fds);
    }
    COST.load(Ordering::Relaxed) != NO_COST
}

#[cold]
fn learn_cost(fds: [c_int; 2]) {
    let cost = LENGTHS.into_iter().find_map(|len| {
        let cost = measure(fds, len).filter(|cost| *cost != 0)?;
        LONGEST.store(len as u32, Ordering::Relaxed);
        Some(cost)
    });
    COST.store(cost.unwrap_or(NO_COST), Ordering::Relaxed);
    if capacity_of(fds[0]).is_none() {
        // A filter refuses it, and would refuse it of any.
        COST.store(NO_COST, Ordering::Relaxed);
    }
}

/// How many messages may be sent by a socket that are not read yet; `None` if that cannot be told.
fn capacity_of(fd: c_int) -> Option<PipeCapacity> {
    let cost = COST.load(Ordering::Relaxed);
    if matches!(cost, 0 | NO_COST) {
        return None;
    }
    let limit = sys::socket_option(fd, libc::SO_SNDBUF).ok()? as u32;
    // Linux lets a message in while those in it count for less than the limit. It calls the socket
    // writable while they, and one that it counts for the socket itself, are at most a quarter;
    // and tells that from inside the release of a message, when one more is counted.
    let quarter = limit / 4;
    Some(PipeCapacity::Messages {
        most: limit.div_ceil(cost),
        writable: quarter.checked_sub(1)? / cost,
        telling: quarter.checked_sub(2)? / cost,
    })
}

/// What the messages count for that a socket has sent, and that have not been read.
pub(super) fn unread(fd: c_int) -> Option<u32> {
    let mut sent = 0_u32;
    refusable!(ioctl, fd, SIOCOUTQ, &raw mut sent).ok().map(|_| sent)
}

/// Asks the kernel what a message of up to `longest` bytes counts for, by way of a pair that nobody
/// uses yet. `None`: not all lengths count for the same, or it does not say.
fn measure(fds: [c_int; 2], longest: usize) -> Option<u32> {
    let nowhere = ptr::null::<c_void>();
    let mut bytes = [0_u8; LONGEST_MESSAGE];
    let flags = MSG_DONTWAIT | MSG_NOSIGNAL;
    let sent = || unread(fds[0]);
    let (memory, len) = (bytes.as_mut_ptr(), bytes.len());
    let nothing = refusable!(recvfrom, fds[1], memory, len, MSG_DONTWAIT, nowhere, nowhere);
    if nothing != Err(sys::Errno::EAGAIN) {
        // A filter refuses it, and what is sent now would stay in the pair.
        return None;
    }
    let mut costs = [1, longest].into_iter().map(|len| {
        refusable!(sendto, fds[0], bytes.as_ptr(), len, flags, nowhere, 0).ok()?;
        sent()
    });
    let (one, both) = (costs.next()?, costs.next()?);
    for len in [1, longest] {
        refusable!(recvfrom, fds[1], bytes.as_mut_ptr(), len, MSG_DONTWAIT, nowhere, nowhere)
            .ok()?;
    }
    let (one, both) = (one?, both?);
    (both == 2 * one && sent() == Some(0)).then_some(one)
}
