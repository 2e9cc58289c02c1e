//! How much a new socket pair holds: asked of the kernel, once, because it depends on what a
//! message counts for there.

use crate::sys;
use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};
use libc::{MSG_DONTWAIT, MSG_NOSIGNAL, SOL_SOCKET};
use wakeset::{LONGEST_MESSAGE, Room};

/// What a message of up to [`LONGEST_MESSAGE`] bytes counts for in this kernel: 0 is not known, the
/// largest number not to be had.
static COST: AtomicU32 = AtomicU32::new(0);
const NO_COST: u32 = u32::MAX;

/// SIOCOUTQ: what the messages that a socket has sent, and that have not been read, count for.
const SIOCOUTQ: c_int = 0x5411;

/// How many messages fit into a new socket pair; `None` if that cannot be told.
pub(super) fn room_of(fds: [c_int; 2]) -> Option<Room> {
    let cost = match COST.load(Ordering::Relaxed) {
        0 => {
            let cost = measure(fds).filter(|cost| *cost != 0).unwrap_or(NO_COST);
            COST.store(cost, Ordering::Relaxed);
            cost
        }
        cost => cost,
    };
    if cost == NO_COST {
        return None;
    }
    let (mut limit, mut len) = (0_u32, size_of::<u32>() as libc::socklen_t);
    sys::raw!(getsockopt, fds[0], SOL_SOCKET, libc::SO_SNDBUF, &raw mut limit, &raw mut len)
        .ok()?;
    // Linux lets a message in while those in it count for less than the limit. It calls the socket
    // writable while they, and one that it counts for the socket itself, are at most a quarter;
    // and tells that from inside the release of a message, when one more is counted.
    let quarter = limit / 4;
    Some(Room::Messages {
        most: limit.div_ceil(cost),
        writable: quarter.checked_sub(1)? / cost,
        telling: quarter.checked_sub(2)? / cost,
    })
}

/// Asks the kernel, by way of a pair that nobody uses yet. All lengths must count for the same.
fn measure(fds: [c_int; 2]) -> Option<u32> {
    let nowhere = ptr::null::<c_void>();
    let mut bytes = [0_u8; LONGEST_MESSAGE];
    let flags = MSG_DONTWAIT | MSG_NOSIGNAL;
    let sent = || {
        let mut sent = 0_u32;
        sys::raw!(ioctl, fds[0], SIOCOUTQ, &raw mut sent).ok().map(|_| sent)
    };
    let mut costs = [1, LONGEST_MESSAGE].into_iter().map(|len| {
        sys::raw!(sendto, fds[0], bytes.as_ptr(), len, flags, nowhere, 0).ok()?;
        sent()
    });
    let (one, both) = (costs.next()?, costs.next()?);
    for len in [1, LONGEST_MESSAGE] {
        sys::raw!(recvfrom, fds[1], bytes.as_mut_ptr(), len, MSG_DONTWAIT, nowhere, nowhere)
            .ok()?;
    }
    let (one, both) = (one?, both?);
    (both == 2 * one && sent() == Some(0)).then_some(one)
}
