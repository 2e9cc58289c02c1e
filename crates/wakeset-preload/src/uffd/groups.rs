//! The userfaultfds that are known by their numbers, and the group of threads of each.
//!
//! The groups lie in a page that a fork wipes (`MADV_WIPEONFORK`): a child has none of these
//! threads. What two processes share they both wait for in the kernel.

use crate::environment;
use core::ffi::{c_int, c_uint};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use syscalls::{Sysno, syscall as raw};
use wakeset_fd::deputy;
use wakeset_fd::doorbell;
use wakeset_fd::fork;
use wakeset_fd::listeners::RescueClock;
use wakeset_fd::signal_guard::SignalGuard;
use wakeset_group::Order;
use wakeset_group::leader::Leadership;

/// How many userfaultfds of a process are known at a time; further ones are the kernel's.
const MOST: usize = 64;

/// The number of each group's userfaultfd plus one; 0 for none.
pub(super) static NUMBERS: [AtomicI32; MOST] = [const { AtomicI32::new(0) }; MOST];
/// How many of them have ever been used; the search ends there.
pub(super) static USED: AtomicUsize = AtomicUsize::new(0);
/// The groups' memory, null before the first userfaultfd.
static SHARED: AtomicPtr<Shared> = AtomicPtr::new(ptr::null_mut());

/// The threads of one userfaultfd. All zeros to begin with, and in a forked child.
pub(super) struct Group {
    pub(super) leadership: Leadership,
    /// Whether the userfaultfd has `O_NONBLOCK`, in the lowest bit; above it the version of
    /// [`flags`](crate::flags) in which that was asked.
    pub(super) flags: AtomicU32,
    /// Threads in a call.
    pub(super) users: AtomicU32,
    /// A duplicate, plus one, for calls that are under way when the number is closed: in Linux
    /// they have the file.
    pub(super) after_close: AtomicI32,
    /// When a thread was last told of a message that it had not been told of before.
    pub(super) told: RescueClock,
}

/// What a fork wipes.
struct Shared {
    groups: [Group; MOST],
}

const FIFO: u32 = 0;
const LIFO: u32 = 1;
static ORDER: AtomicU32 = AtomicU32::new(FIFO);
/// Everything is the kernel's: `--order kernel`, or from the first pthread_cancel(3) on.
static OFF: AtomicBool = AtomicBool::new(false);

/// Which waiter gets the turn next.
pub(super) fn order() -> Order {
    if ORDER.load(Ordering::Relaxed) == LIFO { Order::Lifo } else { Order::Fifo }
}

/// Whether everything is the kernel's.
pub(super) fn is_off() -> bool {
    OFF.load(Ordering::SeqCst)
}

/// Before main: the order that `wakeset run` was given.
pub(crate) fn start() {
    match environment::get(c"WAKESET_ORDER").map_or(&[][..], core::ffi::CStr::to_bytes) {
        b"lifo" => ORDER.store(LIFO, Ordering::Relaxed),
        b"kernel" => OFF.store(true, Ordering::SeqCst),
        _ => {}
    }
}

/// From now on these calls are the kernel's, also those that sleep: blocking calls are cancellation
/// points, and libc's own are exact about it.
pub(crate) fn leave_to_kernel() {
    OFF.store(true, Ordering::SeqCst);
    disband_all();
}

/// Sends every thread of every queue out of it.
fn disband_all() {
    for group in 0..USED.load(Ordering::SeqCst) {
        if let Some(group) = group_at(group) {
            let _guard = SignalGuard::enter();
            group.leadership.disband();
        }
    }
}

fn shared() -> Option<&'static Shared> {
    // SAFETY: null, or a mapping of that size that stays; all zeros are valid.
    unsafe { SHARED.load(Ordering::Acquire).as_ref() }
}

/// The group at an index.
pub(super) fn group_at(index: usize) -> Option<&'static Group> {
    shared()?.groups.get(index)
}

/// Makes the groups' memory, unless it is there; whether it is there now.
fn make_groups() -> bool {
    if shared().is_some() {
        return true;
    }
    doorbell::set_recall(disband_all);
    let len = size_of::<Shared>().next_multiple_of(4096);
    let (protection, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a fresh private mapping, and advice on it.
    let mapped = unsafe {
        let Ok(mapped) = raw!(Sysno::mmap, 0, len, protection, flags, -1_isize, 0) else {
            return false;
        };
        // Where a fork cannot wipe them (before Linux 4.14) a child could wait for threads that it
        // does not have.
        if raw!(Sysno::madvise, mapped, len, libc::MADV_WIPEONFORK).is_err() {
            let _ = raw!(Sysno::munmap, mapped, len);
            return false;
        }
        mapped
    };
    let made = ptr::with_exposed_provenance_mut(mapped);
    if SHARED.compare_exchange(ptr::null_mut(), made, Ordering::SeqCst, Ordering::SeqCst).is_err() {
        // SAFETY: no other thread knows it.
        let _ = unsafe { raw!(Sysno::munmap, mapped, len) };
    }
    true
}

/// The index of the group that has this number.
pub(super) fn find(fd: c_int) -> Option<usize> {
    let used = USED.load(Ordering::Acquire);
    if used == 0 || fd < 0 {
        return None;
    }
    NUMBERS[..used].iter().position(|number| number.load(Ordering::SeqCst) == fd + 1)
}

/// Whether a number is a known userfaultfd's.
#[inline]
pub(crate) fn is_known(fd: c_int) -> bool {
    find(fd).is_some()
}

/// Whether there is one, or was.
#[inline(always)]
pub(crate) fn any() -> bool {
    USED.load(Ordering::Acquire) != 0
}

/// Takes a number for a userfaultfd's from now on.
pub(crate) fn recognise(fd: c_int) {
    if fd >= 0 {
        deputy::refuse_forks();
    }
    if fd < 0 || is_off() || find(fd).is_some() || !make_groups() {
        return;
    }
    for (index, number) in NUMBERS.iter().enumerate() {
        let Some(group) = group_at(index) else { return };
        if group.users.load(Ordering::SeqCst) == 0
            && number.compare_exchange(0, fd + 1, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        {
            group.flags.store(0, Ordering::SeqCst);
            USED.fetch_max(index + 1, Ordering::SeqCst);
            return;
        }
    }
}

/// After an ioctl(2) that has returned `result`: the number may have turned out to be a
/// userfaultfd's.
pub(crate) fn after_ioctl(fd: c_int, request: u32, result: c_int) {
    const CLASS: u32 = 0xaa;
    /// `USERFAULTFD_IOC_NEW`, on /dev/userfaultfd.
    const NEW: u32 = 0xaa00;
    if request >> 8 & 0xff != CLASS || result < 0 {
        return;
    }
    recognise(if request == NEW { result } else { fd });
}

/// Before a close: the number is no userfaultfd's any more.
#[inline]
pub(crate) fn before_close(fd: c_int) {
    if USED.load(Ordering::Acquire) != 0 {
        forget(fd);
    }
}

fn forget(fd: c_int) {
    let Some(index) = find(fd) else { return };
    if fork::is_foreign() {
        return;
    }
    let _guard = SignalGuard::enter();
    let Some(group) = group_at(index) else { return };
    if group.users.load(Ordering::SeqCst) != 0 {
        // SAFETY: numbers only.
        let duplicate = unsafe { raw!(Sysno::fcntl, fd, libc::F_DUPFD_CLOEXEC, 0) };
        group.after_close.store(duplicate.map_or(0, |fd| fd as c_int + 1), Ordering::SeqCst);
    }
    NUMBERS[index].store(0, Ordering::SeqCst);
    group.close_if_unused(index);
}

/// Before a close of several numbers.
pub(crate) fn before_close_range(first: c_uint, last: c_uint, flags: c_int) {
    const CLOEXEC: c_int = 4;
    if flags & CLOEXEC != 0 {
        return;
    }
    for number in &NUMBERS[..USED.load(Ordering::Acquire)] {
        let fd = number.load(Ordering::SeqCst) - 1;
        if fd >= 0 && (first..=last).contains(&(fd as c_uint)) {
            before_close(fd);
        }
    }
}

/// Before a descriptor is put under the number `new`.
pub(crate) fn before_dup_to(old: c_int, new: c_int) {
    // SAFETY: a number.
    if old == new || unsafe { raw!(Sysno::fcntl, old, libc::F_GETFD, 0) }.is_err() {
        return;
    }
    before_close(new);
}

impl Group {
    /// The last call under way gives up the file that it had.
    pub(super) fn close_if_unused(&self, index: usize) {
        if NUMBERS[index].load(Ordering::SeqCst) == 0 && self.users.load(Ordering::SeqCst) == 0 {
            let duplicate = self.after_close.swap(0, Ordering::SeqCst) - 1;
            if duplicate >= 0 {
                // SAFETY: ours.
                let _ = unsafe { raw!(Sysno::close, duplicate) };
            }
        }
    }
}

impl Group {
    /// The stamp of the turn, which is another one whenever a thread gets the turn.
    pub(super) fn stamp(&self) -> u32 {
        let _guard = SignalGuard::enter();
        self.leadership.stamp()
    }
}
