//! Whether two descriptors refer to one description: kcmp(2).
//!
//! Epoll sets, eventfds and timerfds all share one inode, so links and inodes cannot tell. kcmp(2)
//! can, and it changes nothing. It needs the right to read both processes (ptrace(2),
//! `PTRACE_MODE_READ_REALCREDS`: the same user, and neither of them set-user-ID), and a kernel that
//! was built with it.

use std::cmp::Ordering;

use super::fdinfo::Watch;

/// A number in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Number {
    pub pid: i32,
    pub fd: i32,
}

/// `enum kcmp_type`.
const FILE: i32 = 0;
const EPOLL_TFD: i32 = 7;

/// `struct kcmp_epoll_slot`.
#[repr(C)]
struct Slot {
    set: u32,
    number: u32,
    before: u32,
}

/// The order of the descriptions of two numbers, `Equal` if it is one; `None` if kcmp(2) does not
/// say. The order stays the same while both are open.
pub fn compare(a: Number, b: Number) -> Option<Ordering> {
    if a == b {
        return Some(Ordering::Equal);
    }
    // SAFETY: this kind takes two numbers, and reads no memory of ours.
    match unsafe { libc::syscall(libc::SYS_kcmp, a.pid, b.pid, FILE, a.fd as u64, b.fd as u64) } {
        0 => Some(Ordering::Equal),
        1 => Some(Ordering::Less),
        2 => Some(Ordering::Greater),
        _ => None,
    }
}

/// Whether a number is the description that an entry of a set watches.
pub fn is_watched(number: Number, set: Number, watch: &Watch) -> Option<bool> {
    let slot = Slot { set: set.fd as u32, number: watch.number as u32, before: watch.before };
    let slot: *const Slot = &slot;
    // SAFETY: this kind reads a `struct kcmp_epoll_slot`, which `slot` points to.
    let order = unsafe {
        libc::syscall(libc::SYS_kcmp, number.pid, set.pid, EPOLL_TFD, number.fd as u64, slot)
    };
    match order {
        -1 => None,
        order => Some(order == 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A copy is the same description, a second one of the same kind is not.
    #[test]
    fn copies_are_one_description() {
        // SAFETY: these make descriptors and copy one.
        let (a, b, other) = unsafe {
            let a = libc::epoll_create1(0);
            (a, libc::dup(a), libc::epoll_create1(0))
        };
        let pid = std::process::id() as i32;
        let [a, b, other] = [a, b, other].map(|fd| Number { pid, fd });
        if let Some(order) = compare(a, other) {
            assert_ne!(order, Ordering::Equal);
            assert_eq!(compare(other, a), Some(order.reverse()));
            assert_eq!(compare(a, b), Some(Ordering::Equal));
        }
        // SAFETY: the three are this test's.
        unsafe { [a, b, other].iter().for_each(|number| _ = libc::close(number.fd)) };
    }
}
