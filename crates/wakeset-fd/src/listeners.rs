//! Which numbers are listening sockets, and what is done for those who wait on them ([`wakeset_group::listener`]).
//!
//! What a number stands for is asked once, with getsockopt(2), and remembered until a call that we see gives it away. Calls that we do
//! not see may do so too. A listener that is taken for something else is left to the kernel; something else that is taken
//! for a listener is found out when it is to be watched as one.

use crate::bell;
use crate::count;
use crate::escape;
use crate::section::Section;
use crate::stats::ADDRESS_BYTES;
pub use crate::stats::ListenerStat;
use crate::sys;
use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;
use wakeset::Deadline;
use wakeset_group::listener;
pub use wakeset_group::listener::{Fired, MOST, Numbers, Obstacle, Order, RESCUE, Sleeper, Wanted, inode, is_ready};

/// As many as the table of objects has.
const NUMBERS: usize = 1 << 20;

/// What each number is: one of the three below, or a listener with a place in the page of counts.
static KINDS: [AtomicU8; NUMBERS] = [const { AtomicU8::new(UNKNOWN) }; NUMBERS];
const UNKNOWN: u8 = 0;
const OTHER: u8 = 1;
const LISTENER: u8 = 2;
/// From here on: a listener, and its place.
const COUNTED: u8 = 3;
/// One above the highest number that is known.
static END: AtomicU32 = AtomicU32::new(0);

/// The order in which waiters are woken: 0 is the kernel's, so nothing is done.
static ORDER: AtomicU8 = AtomicU8::new(0);

/// Chooses the order for this process; `None` leaves everything to the kernel.
pub fn set_order(order: Option<Order>) {
    let word = match order {
        None => 0,
        Some(Order::Fifo) => 1,
        Some(Order::Lifo) => 2,
        Some(Order::Turns) => 3,
    };
    ORDER.store(word, Ordering::SeqCst);
}

/// The order, `None` where everything is left to the kernel: because it was chosen, because the kernel knows no
/// exclusive watches, or because the process has done something after which everything is.
#[inline]
pub fn order() -> Option<Order> {
    let order = match ORDER.load(Ordering::Relaxed) {
        1 => Order::Fifo,
        2 => Order::Lifo,
        3 => Order::Turns,
        _ => return None,
    };
    escape::gate_may_open().then_some(order)
}

/// How a thread finds out how many signals it has handled: a `fn() -> u32`, 0 for none.
static HANDLED: AtomicUsize = AtomicUsize::new(0);

/// Installs how a thread finds out how many signals it has handled.
pub fn set_handled(handled: fn() -> u32) {
    HANDLED.store(handled as *const () as usize, Ordering::Release);
}

/// How many signals this thread has handled: a wait that sleeps in pieces ends with EINTR if it was one more between two.
pub(crate) fn handled() -> u32 {
    let handled = HANDLED.load(Ordering::Acquire);
    if handled == 0 {
        return 0;
    }
    // SAFETY: only `set_handled` stores here, and it stores a `fn() -> u32`.
    unsafe { core::mem::transmute::<*const (), fn() -> u32>(handled as *const ())() }
}

fn kind(fd: c_int) -> Option<&'static AtomicU8> {
    KINDS.get(fd as u32 as usize)
}

fn remember(fd: c_int, now: u8) {
    if let Some(kind) = kind(fd) {
        END.fetch_max(fd as u32 + 1, Ordering::Relaxed);
        kind.store(now, Ordering::Relaxed);
    }
}

/// Whether a number is a listening socket, as far as is known.
pub fn is_listener(fd: c_int) -> bool {
    let Some(kind) = kind(fd) else { return false };
    match kind.load(Ordering::Relaxed) {
        UNKNOWN => {}
        now => return now >= LISTENER,
    }
    match listener::is_listening(fd) {
        Ok(listening) => remember(fd, if listening { LISTENER } else { OTHER }),
        Err(sys::Errno::ENOTSOCK) => remember(fd, OTHER),
        // Closed: what comes next under this number is not known.
        Err(_) => return false,
    }
    kind.load(Ordering::Relaxed) >= LISTENER
}

/// Whether a number is a listening socket, and not only was when that was remembered.
pub(crate) fn confirm(fd: c_int) -> bool {
    is_listener(fd) && {
        forget(fd);
        is_listener(fd)
    }
}

/// Counts for a listener, if somebody counts.
#[inline]
pub fn count(fd: c_int, stat: ListenerStat) {
    if count::is_on() {
        count_for(fd, stat);
    }
}

#[cold]
fn count_for(fd: c_int, stat: ListenerStat) {
    if !is_listener(fd) {
        return;
    }
    let Some(kind) = kind(fd) else { return };
    let known = kind.load(Ordering::Relaxed).checked_sub(COUNTED).map(usize::from);
    let place = count::count_listener(stat, known, |page| {
        let mut address = [0_u8; ADDRESS_BYTES];
        let mut len = address.len() as libc::socklen_t;
        sys::raw!(getsockname, fd, address.as_mut_ptr(), &raw mut len).ok()?;
        page.place_of_listener(address.get(..len as usize)?)
    });
    if let (None, Some(place)) = (known, place) {
        kind.store(COUNTED + place as u8, Ordering::Relaxed);
    }
}

/// The places are those of another page from now on.
pub(crate) fn forget_places() {
    for kind in KINDS.iter().take(END.load(Ordering::Relaxed) as usize) {
        if kind.load(Ordering::Relaxed) >= COUNTED {
            kind.store(LISTENER, Ordering::Relaxed);
        }
    }
}

/// A number is, or is about to be, something else.
#[inline]
pub fn forget(fd: c_int) {
    if let Some(kind) = kind(fd)
        && kind.load(Ordering::Relaxed) != UNKNOWN
        && kind.swap(UNKNOWN, Ordering::Relaxed) >= LISTENER
    {
        GENERATION.fetch_add(1, Ordering::Relaxed);
    }
}

/// A socket is about to be connected, and no listener afterwards.
#[inline]
pub fn forget_listener(fd: c_int) {
    if kind(fd).is_some_and(|kind| kind.load(Ordering::Relaxed) >= LISTENER) {
        forget(fd);
    }
}

/// Counts up when a number may no longer be the listener that it was.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Changes when any number may no longer be the listener that it was.
pub fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// [`forget`] for all numbers from `first` to `last`.
pub fn forget_range(first: u32, last: u32) {
    for fd in first..last.saturating_add(1).min(END.load(Ordering::Relaxed)) {
        forget(fd as c_int);
    }
}

/// A number has come from accept(2): a connection does not listen.
pub fn note_connection(fd: c_int) {
    remember(fd, OTHER);
}

/// The listeners that somebody takes turns on. A process shares this page with those that it forks, as a hint to threads that block in accept(2):
/// these need not look for themselves if they are among themselves. Bits are only ever set, so no process that dies leaves anything behind, and one too many
/// costs a few system calls.
struct InTurn {
    any: AtomicU64,
    /// By inode.
    listeners: [AtomicU64; IN_TURN_WORDS],
}

const IN_TURN_WORDS: usize = 4096 / 8 - 1;
/// Null where there is no memory for it.
static IN_TURN: AtomicPtr<InTurn> = AtomicPtr::new(ptr::null_mut());

/// Before main: from here on forked processes know of each other's listeners.
pub fn share_hint() {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    if let Ok(page) = sys::raw!(mmap, 0, size_of::<InTurn>(), protection, flags, -1_isize, 0) {
        IN_TURN.store(ptr::with_exposed_provenance_mut(page), Ordering::Release);
    }
}

impl InTurn {
    fn shared() -> Option<&'static Self> {
        // SAFETY: null, or a mapping of this size that stays; all zeros are valid.
        unsafe { IN_TURN.load(Ordering::Acquire).as_ref() }
    }

    fn place(&self, fd: c_int) -> Option<(&AtomicU64, u64)> {
        let inode = inode(fd)?;
        let word = self.listeners.get((inode / 64) as usize % IN_TURN_WORDS)?;
        Some((word, 1 << (inode % 64)))
    }
}

/// A listener is about to be watched with `EPOLLEXCLUSIVE`.
pub fn note_in_turn(fd: c_int) {
    if let Some(hint) = InTurn::shared()
        && let Some((word, bit)) = hint.place(fd)
    {
        word.fetch_or(bit, Ordering::SeqCst);
        hint.any.store(1, Ordering::SeqCst);
    }
}

/// Whether any listener has been watched in turn by this process or its relatives.
#[inline]
pub fn any_in_turn() -> bool {
    InTurn::shared().is_some_and(|hint| hint.any.load(Ordering::Relaxed) != 0)
}

/// Whether this one may have been.
pub fn is_in_turn(fd: c_int) -> bool {
    let place = InTurn::shared().and_then(|hint| hint.place(fd));
    place.is_some_and(|(word, bit)| word.load(Ordering::SeqCst) & bit != 0)
}

/// The sets that threads sleep in, by owner. The program does not see their numbers, which may change (`bell`).
struct Private {
    /// The thread, 0 for none.
    owner: AtomicI32,
    /// The set, -1 for none.
    set: AtomicI32,
}

/// When somebody last looked at the listeners he waits for, instead of waiting to be told: one look is due in each [`RESCUE`].
#[derive(Debug)]
pub struct LastLook(AtomicU64);

impl LastLook {
    /// Never.
    pub const fn never() -> Self {
        Self(AtomicU64::new(0))
    }

    /// How long until the next is due.
    pub fn until_next(&self) -> Duration {
        let since = Deadline::now().since_boot().saturating_sub(Duration::from_nanos(self.0.load(Ordering::Relaxed)));
        RESCUE.saturating_sub(since)
    }

    /// As [`never`](Self::never).
    fn forget(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// It is now.
    pub fn note(&self) {
        self.0.store(Deadline::now().since_boot().as_nanos() as u64, Ordering::Relaxed);
    }
}

/// Threads that can wait on a listener with poll(2) and its kin at a time; any more are left to the kernel.
const SETS: usize = 256;
static PRIVATE: [Private; SETS] = [const { Private { owner: AtomicI32::new(0), set: AtomicI32::new(-1) } }; SETS];

/// When a thread last found all places taken by threads that live, which takes a system call for each.
static FULL: LastLook = LastLook::never();

/// This thread's place for a set, which it keeps; also one of a thread that is no more. `None` if all are taken, or were a moment ago.
pub fn claim_place() -> Option<usize> {
    if !FULL.until_next().is_zero() {
        return None;
    }
    let own = sys::gettid();
    let owned_by = |tid: c_int| PRIVATE.iter().position(|private| private.owner.load(Ordering::SeqCst) == tid);
    let claim = |private: &Private, owner: c_int| {
        private.owner.compare_exchange(owner, own, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    };
    let free = || PRIVATE.iter().position(|private| claim(private, 0));
    let left = || {
        PRIVATE.iter().position(|private| {
            let owner = private.owner.load(Ordering::SeqCst);
            !sys::is_thread(owner) && claim(private, owner)
        })
    };
    let place = owned_by(own).or_else(free).or_else(left);
    if place.is_none() {
        FULL.note();
    }
    place
}

/// The number of the set at a place.
#[inline]
pub fn private_set(place: usize) -> Option<c_int> {
    PRIVATE.get(place).map(|private| private.set.load(Ordering::SeqCst)).filter(|set| *set >= 0)
}

impl Private {
    /// Closes the set, with the moves lock held; whether there was one.
    fn close(&self) -> bool {
        let set = self.set.swap(-1, Ordering::SeqCst);
        if set >= 0 {
            bell::disclose(set);
            let _ = sys::close(set);
        }
        set >= 0
    }
}

/// A new set for a place, which is this thread's; the old one is closed. The sleeper goes on with it. `None` if there is none to be had, or no number would be left.
pub fn renew_private_set(place: usize, sleeper: &mut Sleeper) -> Option<()> {
    let private = PRIVATE.get(place)?;
    let _section = Section::enter();
    let _moving = escape::hold_moves();
    private.close();
    let set = bell::hide(sys::epoll_create1(libc::EPOLL_CLOEXEC).ok()?);
    private.set.store(set, Ordering::SeqCst);
    // The last number is the program's: it may be about to accept a connection.
    let Ok(spare) = sys::fcntl(set, libc::F_DUPFD_CLOEXEC, 0) else {
        private.close();
        return None;
    };
    let _ = sys::close(spare);
    sleeper.adopt(set);
    Some(())
}

/// Closes the set at a place, which is this thread's; whether there was one.
pub fn close_private_set(place: usize) -> bool {
    let _section = Section::enter();
    let _moving = escape::hold_moves();
    PRIVATE.get(place).is_some_and(Private::close)
}

/// A set has got another number.
pub(crate) fn renumber(old: c_int, new: c_int) {
    for private in &PRIVATE {
        let _ = private.set.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst);
    }
}

/// In a forked child, which has closed all hidden numbers.
pub(crate) fn forget_private() {
    FULL.forget();
    for private in &PRIVATE {
        private.owner.store(0, Ordering::SeqCst);
        private.set.store(-1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;

    /// Every poll(2) of a thread without a place asked for each of 256 threads whether it lives.
    #[test]
    fn a_full_table_is_not_searched_again_at_once() {
        // Not on the main thread, which has all the places here.
        let claims = || {
            PRIVATE.iter().for_each(|private| private.owner.store(sys::getpid(), Ordering::SeqCst));
            assert_eq!(claim_place(), None);
            // No thread has such a number.
            PRIVATE[7].owner.store(c_int::MAX, Ordering::SeqCst);
            assert_eq!(claim_place(), None, "it has looked");
            FULL.forget();
            assert_eq!(claim_place(), Some(7));
            assert_eq!(claim_place(), Some(7), "its own");
            FULL.note();
            forget_private();
            assert_eq!(claim_place(), Some(0), "in a forked child");
            forget_private();
        };
        std::thread::scope(|scope| scope.spawn(claims).join()).unwrap();
    }
}
