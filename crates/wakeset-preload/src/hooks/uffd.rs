//! userfaultfds: threads that read or poll the same one take turns ([`wakeset_group::turn`]), so that a fault wakes one of them.
//!
//! A number is taken for a userfaultfd from userfaultfd(2) or `USERFAULTFD_IOC_NEW` on, or once an ioctl(2) that only a userfaultfd answers has
//! succeeded on it, as every program that serves faults makes them; until its next close. So one that was inherited, received or duplicated needs no
//! look at each number that the program reads from.
//!
//! | call | who has the turn | the others |
//! |---|---|---|
//! | read(2), blocking | is in read(2); passes the turn when it returns | sleep on a futex each |
//! | read(2) with `O_NONBLOCK` | not asked for; passes on the turn of whoever was told of this message | – |
//! | poll(2), ppoll(2) | is in that call; keeps the turn in its hand when told of a message, until that is read | on a futex, or in ppoll(2) on the other descriptors and a bell |
//!
//! **Signals.** Before a handler of the program runs, [`before_handler`] gives up what the thread has or waits for: the handler may take its time, touch a
//! page that another thread has to bring, read the same userfaultfd, or never come back (siglongjmp(3)).
//!
//! **Rescue.** A thread that was told of a message and does not read it (it died, or does something else) keeps the others waiting for
//! [`RESCUE`] at most: then one takes the turn over. The clock is the group's, so it goes on while their calls end and begin again.
//!
//! The groups lie in a page that a fork wipes (`MADV_WIPEONFORK`): a child has none of these threads. What two processes share they both wait
//! for in the kernel.

use crate::outcome::fail;
use crate::real::real;
use core::cell::Cell;
use core::ffi::{c_char, c_int, c_long, c_uint, c_void};
use core::mem::ManuallyDrop;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use core::time::Duration;
use libc::{nfds_t, pollfd, sigset_t, size_t, ssize_t, timespec};
use syscalls::{Errno, Sysno, syscall as raw};
use wakeset_fd::bell::{self, Lent};
use wakeset_fd::count::count;
use wakeset_fd::listeners::{LastLook, RESCUE};
use wakeset_fd::section::Section;
use wakeset_fd::stats::Stat;
use wakeset_fd::{fork, user};
use wakeset_group::Order;
use wakeset_group::turn::{Turns, Waiter, Woken};

/// userfaultfds of a process that are known at a time; more are the kernel's.
const MOST: usize = 64;
/// Descriptors in a poll(2) beside a userfaultfd; with more the call is the kernel's.
const MOST_POLLED: usize = 64;

/// The number of each group's userfaultfd plus one; 0 for none.
static NUMBERS: [AtomicI32; MOST] = [const { AtomicI32::new(0) }; MOST];
/// How many of them have ever been used: nothing else is looked at.
static USED: AtomicUsize = AtomicUsize::new(0);
static SHARED: AtomicPtr<Shared> = AtomicPtr::new(ptr::null_mut());

/// Whether each group's userfaultfd has `O_NONBLOCK`, in the lowest bit; above it the version in which that was asked.
static FLAGS: [AtomicU32; MOST] = [const { AtomicU32::new(0) }; MOST];
/// Counts up when any flags have been set: through which number of which description, is not asked.
static FLAGS_VERSION: AtomicU32 = AtomicU32::new(1);

const FIFO: u32 = 0;
const LIFO: u32 = 1;
static ORDER: AtomicU32 = AtomicU32::new(FIFO);
/// Everything is the kernel's: `--order kernel`, or from the first pthread_cancel(3) on.
static OFF: AtomicBool = AtomicBool::new(false);

/// The threads of one userfaultfd. All zeros to begin with, and in a forked child.
struct Group {
    turns: Turns,
    /// Threads in a call.
    users: AtomicU32,
    /// A duplicate, plus one, for calls that are under way when the number is closed: in Linux they have the file.
    after_close: AtomicI32,
    /// When somebody was last told of a message that he had not been told of before.
    told: LastLook,
}

/// What a fork wipes.
struct Shared {
    groups: [Group; MOST],
}

/// What this thread has to give up before a handler runs. Both null: nothing.
struct Call {
    group: Cell<*const Group>,
    /// Its place in the queue; null while it has the turn.
    waiter: Cell<*const Waiter>,
    /// Its bell, and in which group's queue it waits with it.
    bell: Cell<Option<(ManuallyDrop<Lent>, &'static Group)>>,
    /// It was told of a message and has not read since.
    told: Cell<bool>,
}

impl Call {
    /// Gives the bell back, if the thread still has it. It is out of the queue.
    fn return_bell(&self) {
        if let Some((bell, group)) = self.bell.take() {
            // Whoever was about to ring it has done so.
            group.turns.stamp();
            drop(ManuallyDrop::into_inner(bell));
        }
    }

    /// What a section or a handler does with the bell; `None` if a handler has had to give it back.
    fn with_bell<T>(&self, f: impl FnOnce(&Lent) -> T) -> Option<T> {
        let (bell, group) = self.bell.take()?;
        let result = f(&bell);
        self.bell.set(Some((bell, group)));
        Some(result)
    }

    fn has_bell(&self) -> bool {
        self.with_bell(|_| ()).is_some()
    }
}

thread_local! {
    // No destructor and no lazy part: a plain block in the thread's static TLS, safe in a handler.
    static CALL: Call =
        const { Call { group: Cell::new(ptr::null()), waiter: Cell::new(ptr::null()), bell: Cell::new(None), told: Cell::new(false) } };
}

/// A number that no other live thread has: where its block is.
fn me() -> usize {
    CALL.with(|call| ptr::from_ref(call).addr())
}

fn order() -> Order {
    if ORDER.load(Ordering::Relaxed) == LIFO { Order::Lifo } else { Order::Fifo }
}

fn is_off() -> bool {
    OFF.load(Ordering::SeqCst)
}

/// Before main: the order that `wakeset run` was given.
pub(crate) fn start() {
    // SAFETY: a C string; the environment is only read.
    let order = unsafe { libc::getenv(c"WAKESET_ORDER".as_ptr().cast::<c_char>()) };
    if order.is_null() {
        return;
    }
    // SAFETY: getenv returns a C string.
    match unsafe { core::ffi::CStr::from_ptr(order) }.to_bytes() {
        b"lifo" => ORDER.store(LIFO, Ordering::Relaxed),
        b"kernel" => OFF.store(true, Ordering::SeqCst),
        _ => {}
    }
}

/// From now on these calls are the kernel's, also those that sleep: blocking calls are cancellation points, and libc's own are exact about it.
pub(crate) fn leave_to_kernel() {
    OFF.store(true, Ordering::SeqCst);
    disband_all();
}

fn disband_all() {
    for group in 0..USED.load(Ordering::SeqCst) {
        if let Some(group) = group_at(group) {
            let _section = Section::enter();
            group.turns.disband();
        }
    }
}

fn shared() -> Option<&'static Shared> {
    // SAFETY: null, or a mapping of that size that stays; all zeros are valid.
    unsafe { SHARED.load(Ordering::Acquire).as_ref() }
}

fn group_at(place: usize) -> Option<&'static Group> {
    shared()?.groups.get(place)
}

/// Makes the groups' memory; whether it is there.
fn make_groups() -> bool {
    if shared().is_some() {
        return true;
    }
    bell::set_recall(disband_all);
    let len = size_of::<Shared>().next_multiple_of(4096);
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a fresh private mapping, and advice on it.
    let mapped = unsafe {
        let Ok(mapped) = raw!(Sysno::mmap, 0, len, protection, flags, -1_isize, 0) else { return false };
        // Where a fork cannot wipe them (before Linux 4.14) a child could wait for threads that it does not have.
        if raw!(Sysno::madvise, mapped, len, libc::MADV_WIPEONFORK).is_err() {
            let _ = raw!(Sysno::munmap, mapped, len);
            return false;
        }
        mapped
    };
    let made = ptr::with_exposed_provenance_mut(mapped);
    if SHARED.compare_exchange(ptr::null_mut(), made, Ordering::SeqCst, Ordering::SeqCst).is_err() {
        // SAFETY: nobody knows it.
        let _ = unsafe { raw!(Sysno::munmap, mapped, len) };
    }
    true
}

fn find(fd: c_int) -> Option<usize> {
    let used = USED.load(Ordering::Acquire);
    if used == 0 || fd < 0 {
        return None;
    }
    NUMBERS[..used].iter().position(|number| number.load(Ordering::SeqCst) == fd + 1)
}

/// A number that is known to be a userfaultfd's.
pub(crate) fn recognise(fd: c_int) {
    if fd < 0 || is_off() || find(fd).is_some() || !make_groups() {
        return;
    }
    for (place, number) in NUMBERS.iter().enumerate() {
        let Some(group) = group_at(place) else { return };
        if group.users.load(Ordering::SeqCst) == 0
            && number.compare_exchange(0, fd + 1, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        {
            FLAGS[place].store(0, Ordering::SeqCst);
            USED.fetch_max(place + 1, Ordering::SeqCst);
            return;
        }
    }
}

/// After an ioctl(2).
pub(crate) fn after_ioctl(fd: c_int, request: u32, result: c_long) {
    const CLASS: u32 = 0xaa;
    /// `USERFAULTFD_IOC_NEW`, on /dev/userfaultfd.
    const NEW: u32 = 0xaa00;
    if request >> 8 & 0xff != CLASS || result < 0 {
        return;
    }
    recognise(if request == NEW { result as c_int } else { fd });
}

/// After flags of a descriptor were set: `O_NONBLOCK` may have come or gone.
pub(crate) fn forget_flags() {
    FLAGS_VERSION.fetch_add(1, Ordering::SeqCst);
}

/// Changes when flags of any descriptor may have changed.
pub(super) fn flags_version() -> u32 {
    FLAGS_VERSION.load(Ordering::Relaxed)
}

/// Before a close: the number is no userfaultfd's any more.
pub(crate) fn before_close(fd: c_int) {
    let Some(place) = find(fd) else { return };
    if fork::is_foreign() {
        return;
    }
    let _section = Section::enter();
    let Some(group) = group_at(place) else { return };
    if group.users.load(Ordering::SeqCst) != 0 {
        // SAFETY: numbers only.
        let duplicate = unsafe { raw!(Sysno::fcntl, fd, libc::F_DUPFD_CLOEXEC, 0) };
        group.after_close.store(duplicate.map_or(0, |fd| fd as c_int + 1), Ordering::SeqCst);
    }
    NUMBERS[place].store(0, Ordering::SeqCst);
    group.close_if_unused(place);
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

/// Before a handler of the program runs on this thread.
pub(crate) fn before_handler() {
    CALL.with(|call| {
        if call.group.get().is_null() && !call.has_bell() {
            return;
        }
        let _section = Section::enter();
        // SAFETY: a group, for ever.
        if let Some(group) = unsafe { call.group.replace(ptr::null()).as_ref() } {
            // SAFETY: the waiter is on this thread's stack, in a call that is under way.
            match unsafe { call.waiter.replace(ptr::null()).as_ref() } {
                Some(waiter) => group.turns.leave(waiter, order()),
                None => group.turns.pass(order()),
            }
        }
        call.return_bell();
    });
}

impl Group {
    /// The last call under way gives up the file that it had.
    fn close_if_unused(&self, place: usize) {
        if NUMBERS[place].load(Ordering::SeqCst) == 0 && self.users.load(Ordering::SeqCst) == 0 {
            let duplicate = self.after_close.swap(0, Ordering::SeqCst) - 1;
            if duplicate >= 0 {
                // SAFETY: ours.
                let _ = unsafe { raw!(Sysno::close, duplicate) };
            }
        }
    }
}

/// A call on a userfaultfd under way.
struct Using {
    group: &'static Group,
    place: usize,
    fd: c_int,
}

impl Using {
    fn begin(fd: c_int) -> Option<Self> {
        let place = find(fd)?;
        if is_off() {
            return None;
        }
        let group = group_at(place)?;
        group.users.fetch_add(1, Ordering::SeqCst);
        let using = Self { group, place, fd };
        // Closed meanwhile: then the number is the kernel's, and whatever it stands for.
        (NUMBERS[place].load(Ordering::SeqCst) == fd + 1).then_some(using)
    }

    /// The userfaultfd's number now.
    fn fd(&self) -> c_int {
        if NUMBERS[self.place].load(Ordering::SeqCst) == self.fd + 1 {
            return self.fd;
        }
        match self.group.after_close.load(Ordering::SeqCst) {
            0 => self.fd,
            number => number - 1,
        }
    }

    /// Takes the turn, or a place in the queue. Whether it has the turn.
    fn join(&self, waiter: &Waiter) -> bool {
        let _section = Section::enter();
        // SAFETY: the waiter stays on the stack until `leave`, `take`, or a handler has taken it out; who gives it the turn takes it out, too.
        let given = unsafe { self.group.turns.join(waiter, me()) };
        CALL.with(|call| {
            call.waiter.set(if given { ptr::null() } else { waiter });
            call.group.set(self.group);
        });
        given
    }

    /// Takes the turn that the thread was given; `false` if a handler had to give it away.
    fn take(&self, waiter: &Waiter) -> bool {
        let _section = Section::enter();
        let given = waiter.is_given();
        count(Stat::UffdWakes, usize::from(given));
        CALL.with(|call| {
            call.waiter.set(ptr::null());
            call.group.set(if given { self.group } else { ptr::null() });
        });
        given
    }

    /// Takes the turn from a hand that has kept it too long; whether it did.
    fn rescue(&self, waiter: &Waiter, stamp: u32) -> bool {
        let _section = Section::enter();
        let taken = self.group.turns.rescue(waiter, stamp);
        if taken {
            CALL.with(|call| call.waiter.set(ptr::null()));
        }
        taken
    }

    /// Leaves the queue.
    fn leave(&self, waiter: &Waiter) {
        let _section = Section::enter();
        self.group.turns.leave(waiter, order());
        CALL.with(|call| {
            call.waiter.set(ptr::null());
            call.group.set(ptr::null());
        });
    }

    /// Gives up the turn, unless a handler had to; keeps it in hand if the thread was told of a message.
    fn finish(&self, told: bool) {
        let _section = Section::enter();
        let (had, again) = CALL.with(|call| (!call.group.replace(ptr::null()).is_null(), call.told.get()));
        if told && !again {
            // Before the turn is in the hand: see `Polling::sleep`.
            self.group.told.note();
        }
        match (had, told) {
            (true, true) => self.group.turns.hold(me(), order()),
            (true, false) => self.group.turns.pass(order()),
            (false, _) => {}
        }
    }

    /// A read that takes no turn has come back, with so many bytes or an error.
    fn after_read(&self, buffer: *const c_void, got: ssize_t) {
        let empty = got < 0 && errno() == libc::EAGAIN;
        if got <= 0 && !empty {
            return;
        }
        let _section = Section::enter();
        let told = CALL.with(|call| call.told.replace(false));
        note_messages(buffer, got);
        count(Stat::UffdSpuriousWakes, usize::from(empty && told));
        self.group.turns.taken(order());
    }

    fn is_nonblocking(&self) -> bool {
        let version = FLAGS_VERSION.load(Ordering::SeqCst);
        let known = FLAGS[self.place].load(Ordering::Relaxed);
        if known >> 1 == version & u32::MAX >> 1 {
            return known & 1 != 0;
        }
        let nonblocking = self.ask_nonblocking();
        FLAGS[self.place].store(version << 1 | u32::from(nonblocking), Ordering::Relaxed);
        nonblocking
    }

    fn ask_nonblocking(&self) -> bool {
        super::is_nonblocking(self.fd()) == Some(true)
    }
}

impl Drop for Using {
    fn drop(&mut self) {
        self.group.users.fetch_sub(1, Ordering::SeqCst);
        self.group.close_if_unused(self.place);
    }
}

type Read = unsafe extern "C-unwind" fn(c_int, *mut c_void, size_t) -> ssize_t;

/// The size of `struct uffd_msg`.
const MESSAGE: size_t = 32;

fn errno() -> c_int {
    // SAFETY: this thread's errno.
    unsafe { *libc::__errno_location() }
}

/// read(2) on a userfaultfd; `None` for what is none, or the kernel's.
///
/// # Safety
/// As read(2).
#[inline]
pub(crate) unsafe fn read(fd: c_int, buffer: *mut c_void, len: size_t) -> Option<ssize_t> {
    if USED.load(Ordering::Acquire) == 0 {
        return None;
    }
    // SAFETY: the caller's contract.
    unsafe { read_in_turn(&Using::begin(fd)?, buffer, len) }
}

unsafe fn read_in_turn(using: &Using, buffer: *mut c_void, len: size_t) -> Option<ssize_t> {
    // SAFETY: the caller's contract.
    let call = || unsafe { real!(read: Read)(using.fd(), buffer, len) };
    let version = FLAGS_VERSION.load(Ordering::SeqCst);
    if len < MESSAGE || using.is_nonblocking() {
        let got = call();
        using.after_read(buffer, got);
        return Some(got);
    }
    loop {
        let waiter = Waiter::patient();
        let mut has_turn = using.join(&waiter);
        if is_off() {
            // Whoever switched it off may have looked at the queue before we were in it.
            if has_turn {
                using.finish(false)
            } else {
                using.leave(&waiter)
            }
            return None;
        }
        if !has_turn {
            has_turn = match waiter.sleep(None) {
                Woken::Given | Woken::Out => using.take(&waiter),
                Woken::Interrupted | Woken::TimedOut => {
                    using.leave(&waiter);
                    return Some(fail(libc::EINTR));
                }
            };
        }
        if !has_turn {
            continue;
        }
        let got = call();
        let error = errno();
        using.finish(false);
        count(Stat::UffdWakes, usize::from(got > 0));
        note_messages(buffer, got);
        if got < 0 {
            let set_here = FLAGS_VERSION.load(Ordering::SeqCst) != version;
            if error == libc::EAGAIN && (set_here || !using.ask_nonblocking()) {
                // It blocked when the call began, and in Linux that is what counts.
                wait_for_message(using.fd());
                continue;
            }
            if error == libc::EAGAIN {
                // It did not: another process, which has it too, has set the flag.
                forget_flags();
            }
            fail(error);
        }
        return Some(got);
    }
}

/// Looks at what a read has brought: a message of a fork brings the child's userfaultfd, which is one, too.
fn note_messages(buffer: *const c_void, got: ssize_t) {
    /// `UFFD_EVENT_FORK`.
    const FORK: u8 = 0x13;
    let messages = usize::try_from(got).unwrap_or(0) / MESSAGE;
    count(Stat::UffdMessages, messages);
    for i in 0..messages {
        let message = buffer.wrapping_byte_add(i * MESSAGE);
        // SAFETY: any bits are a message.
        let Some(words) = (unsafe { user::load(message.cast::<[u64; 2]>()) }) else { return };
        if words[0].to_ne_bytes()[0] == FORK {
            recognise(words[1] as c_int);
        }
    }
}

fn wait_for_message(fd: c_int) {
    let mut entry = pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, no limit, no mask.
    let _ = unsafe { raw!(Sysno::ppoll, &raw mut entry, 1, 0, 0, 0) };
}

/// After a read into `buffer` that is the kernel's in any case: readv(2).
pub(crate) fn after_read(fd: c_int, buffer: *const c_void, got: ssize_t) {
    if USED.load(Ordering::Acquire) != 0
        && let Some(using) = Using::begin(fd)
    {
        using.after_read(buffer, got);
    }
}

/// syscall(2), the function: what has to be done before the others do their part.
pub(crate) fn before_syscall(number: Sysno, [a, b, c]: [usize; 3]) {
    match number {
        Sysno::close => before_close(a as c_int),
        Sysno::close_range => before_close_range(a as c_uint, b as c_uint, c as c_int),
        Sysno::dup2 | Sysno::dup3 => before_dup_to(a as c_int, b as c_int),
        _ => {}
    }
}

/// syscall(2), the function, for calls that come to the kernel: answered, or not.
///
/// # Safety
/// As that call.
pub(crate) unsafe fn syscall(number: Sysno, [a, b, c]: [usize; 3]) -> Option<c_long> {
    if number != Sysno::read {
        return None;
    }
    // SAFETY: the caller's contract.
    unsafe { read(a as c_int, ptr::with_exposed_provenance_mut(b), c) }.map(|got| got as c_long)
}

/// A call of poll(2) or ppoll(2) as it was made.
struct Polling<'a> {
    fds: *mut pollfd,
    /// Which entry is the userfaultfd's.
    place: usize,
    limit: Option<Duration>,
    mask: *const sigset_t,
    /// The call itself, with what is left of its time.
    call: &'a mut dyn FnMut(Option<Duration>) -> c_int,
}

/// poll(2) on descriptors one of which is a userfaultfd; `None` for what is the kernel's.
///
/// # Safety
/// As poll(2).
#[inline]
pub(crate) unsafe fn poll_for(
    fds: *mut pollfd,
    n: nfds_t,
    timeout: c_int,
    call: &mut dyn FnMut(c_int) -> c_int,
) -> Option<c_int> {
    if USED.load(Ordering::Acquire) == 0 || timeout == 0 {
        return None;
    }
    let limit = u64::try_from(timeout).ok().map(Duration::from_millis);
    let mut call = |left: Option<Duration>| {
        call(left.map_or(-1, |left| left.as_nanos().div_ceil(1_000_000).min(c_int::MAX as u128) as c_int))
    };
    // SAFETY: the caller's contract.
    unsafe { poll(fds, n, limit, ptr::null(), &mut call) }
}

/// ppoll(2), as [`poll_for`].
///
/// # Safety
/// As ppoll(2).
#[inline]
pub(crate) unsafe fn poll_until(
    fds: *mut pollfd,
    n: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    call: &mut dyn FnMut(*const timespec) -> c_int,
) -> Option<c_int> {
    if USED.load(Ordering::Acquire) == 0 {
        return None;
    }
    let limit = if timeout.is_null() {
        None
    } else {
        // SAFETY: any bits are a timespec.
        let timespec { tv_sec, tv_nsec } = unsafe { user::load(timeout) }?;
        let nanoseconds = u32::try_from(tv_nsec).ok().filter(|n| *n < 1_000_000_000)?;
        let limit = Duration::new(u64::try_from(tv_sec).ok()?, nanoseconds);
        Some(limit).filter(|limit| !limit.is_zero())?.into()
    };
    let mut call = |left: Option<Duration>| {
        let left = left.map(to_timespec);
        call(left.as_ref().map_or(ptr::null(), ptr::from_ref))
    };
    // SAFETY: the caller's contract.
    unsafe { poll(fds, n, limit, mask, &mut call) }
}

unsafe fn poll(
    fds: *mut pollfd,
    n: nfds_t,
    limit: Option<Duration>,
    mask: *const sigset_t,
    call: &mut dyn FnMut(Option<Duration>) -> c_int,
) -> Option<c_int> {
    let n = usize::try_from(n).ok().filter(|n| *n <= MOST_POLLED)?;
    let mut copies = [pollfd { fd: -1, events: 0, revents: 0 }; MOST_POLLED + 1];
    let mut found = None;
    for (i, copy) in copies.iter_mut().enumerate().take(n) {
        // SAFETY: any bits are a pollfd.
        *copy = unsafe { user::load(fds.wrapping_add(i)) }?;
        if find(copy.fd).is_some() {
            // Two of them, or one asked for something else.
            if found.is_some() || copy.events & libc::POLLIN == 0 {
                return None;
            }
            found = Some(i);
        }
    }
    let place = found?;
    let using = Using::begin(copies[place].fd)?;
    if !using.is_nonblocking() {
        // poll(2) says POLLERR at once.
        return None;
    }
    // Others sleep here: by a bell we can tell them while they do.
    let bell = if n > 1 || !mask.is_null() { Some(borrow_bell(using.group)?) } else { None };
    copies[place] = pollfd { fd: bell.unwrap_or(-1), events: libc::POLLIN, revents: 0 };
    let result = Polling { fds, place, limit, mask, call }.run(&using, bell, &mut copies[..n]);
    let _section = Section::enter();
    CALL.with(Call::return_bell);
    result
}

/// How a sleep in the queue ended.
enum Slept {
    Given,
    /// The turn was taken from a hand that had kept it too long.
    Rescued,
    Out,
    Interrupted,
    /// Another descriptor of the call is ready, or something is wrong with the call: let it tell.
    Look,
    TimeUp,
}

impl Polling<'_> {
    fn run(self, using: &Using, bell: Option<c_int>, copies: &mut [pollfd]) -> Option<c_int> {
        let deadline = self.limit.map(|limit| now().saturating_add(limit));
        let left = || deadline.map(|deadline| deadline.saturating_sub(now()));
        loop {
            let waiter = Waiter::new(bell);
            let mut has_turn = using.join(&waiter);
            if is_off() {
                if has_turn {
                    using.finish(false)
                } else {
                    using.leave(&waiter)
                }
                return Some((self.call)(left()));
            }
            if bell.is_some() && !has_bell() {
                // A handler has run.
                if has_turn {
                    using.finish(false)
                } else {
                    using.leave(&waiter)
                }
                return Some(fail(libc::EINTR) as c_int);
            }
            if !has_turn {
                match self.sleep(using, &waiter, bell, copies, deadline) {
                    Slept::Rescued => has_turn = true,
                    Slept::Given | Slept::Out => has_turn = using.take(&waiter),
                    Slept::Interrupted => {
                        using.leave(&waiter);
                        return Some(fail(libc::EINTR) as c_int);
                    }
                    Slept::TimeUp => {
                        using.leave(&waiter);
                        return Some((self.call)(Some(Duration::ZERO)));
                    }
                    Slept::Look => {
                        using.leave(&waiter);
                        let found = (self.call)(Some(Duration::ZERO));
                        if found != 0 {
                            return Some(found);
                        }
                    }
                }
            }
            if has_turn {
                let found = (self.call)(left());
                let error = errno();
                let told = found > 0 && self.was_told();
                using.finish(told);
                CALL.with(|call| call.told.set(told));
                count(Stat::UffdWakes, usize::from(told));
                if found < 0 {
                    fail(error);
                }
                return Some(found);
            }
        }
    }

    /// Whether the call has reported a message.
    fn was_told(&self) -> bool {
        // SAFETY: any bits are a pollfd.
        let entry = unsafe { user::load(self.fds.wrapping_add(self.place).cast_const()) };
        entry.is_some_and(|entry| entry.revents & libc::POLLIN != 0)
    }

    fn sleep(
        &self,
        using: &Using,
        waiter: &Waiter,
        bell: Option<c_int>,
        copies: &mut [pollfd],
        deadline: Option<Duration>,
    ) -> Slept {
        loop {
            let left = deadline.map(|deadline| deadline.saturating_sub(now()));
            if left == Some(Duration::ZERO) {
                return Slept::TimeUp;
            }
            // In this order: a hand that has got the turn since has another stamp.
            let stamp = using.group.stamp();
            let until = Some(using.group.told.until_next()).filter(|until| !until.is_zero());
            if until.is_none() && using.rescue(waiter, stamp) {
                return Slept::Rescued;
            }
            let until = until.unwrap_or(RESCUE);
            let limit = to_timespec(left.map_or(until, |left| left.min(until)));
            let ended = match bell {
                None => match waiter.sleep(Some(&limit)) {
                    Woken::Given => Some(Slept::Given),
                    Woken::Out => Some(Slept::Out),
                    Woken::Interrupted => Some(Slept::Interrupted),
                    Woken::TimedOut => None,
                },
                Some(_) => self.sleep_on_bell(waiter, copies, &limit),
            };
            if let Some(ended) = ended {
                return ended;
            }
        }
    }

    fn sleep_on_bell(&self, waiter: &Waiter, copies: &mut [pollfd], limit: &timespec) -> Option<Slept> {
        let (entries, n) = (copies.as_mut_ptr(), copies.len());
        // What `ppoll` writes back is not looked at but for the bell's entry, and the limit is ours.
        let mut limit = *limit;
        // SAFETY: entries of ours, a limit, and the caller's mask or null.
        let slept = unsafe { raw!(Sysno::ppoll, entries, n, &raw mut limit, self.mask, 8) };
        if copies[self.place].revents != 0 {
            silence_bell();
        }
        match slept {
            Err(Errno::EINTR) => Some(Slept::Interrupted),
            _ if !has_bell() => Some(Slept::Interrupted),
            _ if waiter.is_given() => Some(Slept::Given),
            _ if !waiter.is_queued() => Some(Slept::Out),
            Err(_) => Some(Slept::Look),
            Ok(found) if found > usize::from(copies[self.place].revents != 0) => Some(Slept::Look),
            Ok(_) => None,
        }
    }
}

impl Group {
    fn stamp(&self) -> u32 {
        let _section = Section::enter();
        self.turns.stamp()
    }
}

/// A bell for this thread, until [`Call::return_bell`]: at the end of the call, or before a handler runs. Its number.
fn borrow_bell(group: &'static Group) -> Option<c_int> {
    let _section = Section::enter();
    let bell = bell::lend()?;
    let fd = bell.fd();
    CALL.with(|call| call.bell.set(Some((ManuallyDrop::new(bell), group))));
    Some(fd)
}

/// Whether no handler has run since [`borrow_bell`].
fn has_bell() -> bool {
    let _section = Section::enter();
    CALL.with(Call::has_bell)
}

fn silence_bell() {
    let _section = Section::enter();
    CALL.with(|call| {
        call.with_bell(|bell| {
            let mut rings = 0_u64;
            // SAFETY: a place for eight bytes. It does not block.
            let _ = unsafe { raw!(Sysno::read, bell.fd(), &raw mut rings, 8) };
        })
    });
}

fn now() -> Duration {
    let mut time = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a place for the time. It cannot fail.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn to_timespec(time: Duration) -> timespec {
    let seconds = time.as_secs().min(libc::time_t::MAX as u64) as libc::time_t;
    timespec { tv_sec: seconds, tv_nsec: time.subsec_nanos().into() }
}
