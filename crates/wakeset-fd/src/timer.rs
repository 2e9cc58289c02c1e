//! Timerfds by descriptor number.
//!
//! In process are timers on `CLOCK_MONOTONIC`, and those on `CLOCK_REALTIME` while they are set once and by the time from now, which Linux
//! measures on `CLOCK_MONOTONIC` too. What depends on a clock that can be set, or that goes on while the machine is suspended, is the
//! kernel's: `TFD_TIMER_ABSTIME` on `CLOCK_REALTIME` (with `TFD_TIMER_CANCEL_ON_SET` or without), `CLOCK_BOOTTIME`, and the alarm clocks.
//!
//! A call that would sleep is the kernel's as well: it has the timer moved there first.

use crate::count::count;
use crate::counter::whereabouts;
use crate::escape;
use crate::section::Section;
use crate::stats::Stat;
use crate::steps::{step_lock, step_waited};
use crate::sys::{self, Errno};
use crate::table::{self, Entry, Slot, SlotHead};
use crate::user;
use crate::verdict::Verdict::{self, Done, Kernel};
use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use libc::{CLOCK_MONOTONIC, CLOCK_REALTIME, TFD_NONBLOCK, TFD_TIMER_ABSTIME, itimerspec, timespec};
use wakeset::{Deadline, Error, Events, Expiry, Source, Timer, TimerFlags, TimerSpec, WaitQueue, mutated};

/// How many nanoseconds a move waits for the kernel to show as expired a timer that was set to a time that is past. It takes some thousand.
const PATIENCE: u64 = 5_000_000;

/// A timerfd whose state lives here while only this process can reach it. Its number belongs to a real kernel timerfd, which is not
/// set until the state moves there.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct FdTimer {
    head: SlotHead,
    /// [`whereabouts`].
    pub(crate) place: AtomicU32,
    /// The clock it was made with.
    clock: AtomicI32,
    /// The state on its way, valid while `MOVING`: an [`Expiry`].
    carried: [AtomicU64; 2],
    /// A watch with `EPOLLEXCLUSIVE` has been put on it.
    exclusive: AtomicBool,
    pub(crate) timer: Timer,
}

// SAFETY: `repr(C)` with the head first.
unsafe impl Slot for FdTimer {
    const KIND: usize = table::KIND_TIMER;

    fn head(&self) -> &SlotHead {
        &self.head
    }

    fn allocate(head: SlotHead) -> Option<&'static Self> {
        let timer = Timer::new(TimerFlags::empty());
        timer.seal();
        crate::memory::leak(Self {
            head,
            place: AtomicU32::new(whereabouts::CLOSED),
            clock: AtomicI32::new(CLOCK_MONOTONIC),
            carried: [AtomicU64::new(0), AtomicU64::new(0)],
            exclusive: AtomicBool::new(false),
            timer,
        })
    }

    fn lose_number(&self) {
        // A late call finds it sealed and asks the kernel.
        let (here, closed) = (whereabouts::HERE, whereabouts::CLOSED);
        let _ = self.place.compare_exchange(here, closed, Ordering::SeqCst, Ordering::SeqCst);
        self.timer.seal();
        self.timer.wait_queue().close();
    }

    fn finalize(&self) {
        self.lose_number();
    }
}

impl FdTimer {
    pub(crate) fn fd(&self) -> c_int {
        self.head.fd()
    }

    /// Before a watch for `events` is added. Linux tells one of several sets with `EPOLLEXCLUSIVE`; here each looks at the clock for itself,
    /// so a timer in such company is the kernel's: see [`is_herded`](Self::is_herded).
    pub(crate) fn before_add(&self, events: Events) {
        if events.contains(Events::EXCLUSIVE) {
            self.exclusive.store(true, Ordering::SeqCst);
        }
    }

    /// Whether several watches are on it, one of them exclusive. To be asked after an add.
    pub(crate) fn is_herded(&self) -> bool {
        self.exclusive.load(Ordering::SeqCst) && self.timer.wait_queue().has_several_watches()
    }

    /// The first part of a move: takes the state out.
    pub(crate) fn seal(&self) {
        self.timer.seal_with(|Expiry { next, interval }| {
            self.carried[0].store(next, Ordering::SeqCst);
            self.carried[1].store(interval, Ordering::SeqCst);
        });
    }

    /// The state taken out.
    fn carried(&self) -> Expiry {
        let [next, interval] = self.carried.each_ref().map(|word| word.load(Ordering::SeqCst));
        Expiry { next, interval }
    }

    /// Whether what it carries had expired by now: nothing more comes of it until it is read.
    pub(crate) fn carries_expiration(&self) -> bool {
        self.carried().has_expired(now())
    }

    /// The second part of a move: sets the kernel timer. Of several expirations the kernel then counts the first, as it would have, and the
    /// rest when it is read: it reckons from when the timer was to expire, as we do. Returns when the kernel shows as expired what is, or
    /// after [`PATIENCE`]: somebody else may have read it by then, and whoever holds the moves lock must not wait for what does not come.
    /// If the kernel shows it later still, an edge that has been reported is reported again.
    pub(crate) fn set_kernel_timer(&self) {
        let expiry = self.carried();
        let mut value = time_of(expiry.next);
        let mut flags = TFD_TIMER_ABSTIME;
        if !expiry.is_armed() || mutated!("timer_moves_unread") && self.carries_expiration() {
            value = time_of(0);
        } else if self.clock.load(Ordering::Relaxed) != CLOCK_MONOTONIC {
            // Once, and relative, or it would not be here. At the latest by the length of the call too late.
            flags = 0;
            value = time_of(expiry.next.saturating_sub(now()).max(1));
        }
        let interval = if mutated!("timer_moves_without_interval") { 0 } else { expiry.interval };
        let new = itimerspec { it_value: value, it_interval: time_of(interval) };
        match sys::timerfd_settime(self.fd(), flags, &raw const new, core::ptr::null_mut()) {
            Err(error) => escape::complain_of_timer(self.fd(), error),
            Ok(()) if self.carries_expiration() => {
                // Again, because a handler may end a call early.
                let end = now() + PATIENCE;
                while sys::poll_within(self.fd(), libc::POLLIN, Duration::from_millis(1)) == 0 && now() < end {}
            }
            Ok(()) => {}
        }
    }

    /// Whether its state has left, or is leaving.
    pub(crate) fn is_moving(&self) -> bool {
        self.place.load(Ordering::SeqCst) != whereabouts::HERE
    }

    /// Waits until the kernel object has the state, after an operation found it sealed.
    fn settle(&self) {
        while self.place.load(Ordering::SeqCst) == whereabouts::MOVING {
            step_lock!(Waiting, &self.place);
            sys::futex_wait(&self.place, whereabouts::MOVING);
        }
        step_waited!();
    }
}

impl Source for FdTimer {
    fn poll(&self) -> Events {
        let here = self.timer.poll();
        if !here.is_empty() {
            return here;
        }
        // Its watches are being moved: until they are gone they see what the program would.
        match self.place.load(Ordering::SeqCst) {
            whereabouts::MOVING if self.carries_expiration() => Events::IN,
            whereabouts::IN_KERNEL => {
                let now = sys::poll_now(self.fd(), libc::POLLIN);
                Events::from_bits_retain(u32::from(now as u16))
            }
            _ => Events::empty(),
        }
    }

    fn wait_queue(&self) -> &WaitQueue {
        self.timer.wait_queue()
    }

    fn as_timer(&self) -> Option<&Timer> {
        Some(&self.timer)
    }
}

fn now() -> u64 {
    Deadline::now().since_boot().as_nanos() as u64
}

fn time_of(nanos: u64) -> timespec {
    timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as i64 }
}

/// As Linux takes it; `None` is EINVAL.
fn duration_of(time: timespec) -> Option<Duration> {
    match (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec)) {
        (Ok(seconds), Ok(nanos @ 0..=999_999_999)) => Some(Duration::new(seconds, nanos)),
        _ => None,
    }
}

fn itimerspec_of(spec: TimerSpec) -> itimerspec {
    let time = |time: Duration| time_of(time.as_nanos() as u64);
    itimerspec { it_value: time(spec.value), it_interval: time(spec.interval) }
}

/// Whether all timers are the kernel's.
static LEFT_TO_KERNEL: AtomicBool = AtomicBool::new(false);

/// Leaves all timers to the kernel from now on: a set's number is polled by somebody who does not know when its timers expire. The caller
/// holds the moves lock.
pub(crate) fn leave_to_kernel_held() {
    if !leave_to_kernel() {
        return;
    }
    for fd in table::numbers() {
        if matches!(table::get(fd), Entry::Timer(_)) {
            escape::fd_held(fd, Stat::MovedPoll);
        }
    }
}

/// The same for new timers; whether there is something to be done about those there are.
pub(crate) fn leave_to_kernel() -> bool {
    !LEFT_TO_KERNEL.swap(true, Ordering::SeqCst)
}

/// timerfd_create(2).
///
/// # Errors
/// As timerfd_create(2): EINVAL, EMFILE, ENFILE, ENODEV, ENOMEM, EPERM.
pub fn timerfd_create(clock: c_int, flags: c_int) -> Result<c_int, Errno> {
    let may_be_ours = matches!(clock, CLOCK_MONOTONIC | CLOCK_REALTIME)
        && crate::fork::may_make_objects()
        && !LEFT_TO_KERNEL.load(Ordering::SeqCst);
    let gate = escape::look_at_gate();
    let fd = sys::timerfd_create(clock, flags)?;
    if !may_be_ours || !gate.is_open || !table::has_room_for_bytes(fd) {
        return Ok(fd);
    }
    let _section = Section::enter();
    let Some(slot) = table::slot_for::<FdTimer>(fd) else { return Ok(fd) };
    slot.place.store(whereabouts::HERE, Ordering::SeqCst);
    slot.carried.iter().for_each(|word| word.store(0, Ordering::SeqCst));
    slot.clock.store(clock, Ordering::Relaxed);
    slot.exclusive.store(false, Ordering::SeqCst);
    let nonblocking = flags & TFD_NONBLOCK != 0;
    slot.timer.unseal(if nonblocking { TimerFlags::NONBLOCK } else { TimerFlags::empty() });
    table::put_timer(fd, slot);
    count(Stat::TimersMade, 1);
    escape::recheck_gate(fd, gate);
    if LEFT_TO_KERNEL.load(Ordering::SeqCst) {
        // Since we looked.
        escape::fd(fd, Stat::MovedPoll);
    }
    Ok(fd)
}

/// timerfd_settime(2) as far as it concerns in-process timers.
///
/// # Safety
/// As timerfd_settime(2): `new` and `old` are valid unless the kernel says EFAULT; `old` may be null.
pub unsafe fn timerfd_settime(fd: c_int, flags: c_int, new: *const itimerspec, old: *mut itimerspec) -> Verdict<()> {
    let slot = match table::get(fd) {
        Entry::Timer(slot) => slot,
        Entry::Bell => return Done(sys::timerfd_settime(-1, flags, new, old)),
        _ => return Kernel,
    };
    if !sys::is_user(new, size_of::<itimerspec>()) {
        return Done(Err(Errno::EFAULT));
    }
    // SAFETY: any bits are an itimerspec.
    let Some(itimerspec { it_value, it_interval }) = (unsafe { user::load(new) }) else {
        return Done(Err(Errno::EFAULT));
    };
    let (Some(value), Some(interval)) = (duration_of(it_value), duration_of(it_interval)) else { return Kernel };
    let absolute = flags & TFD_TIMER_ABSTIME != 0 && !mutated!("timer_takes_points_for_spans");
    if flags & !(TFD_TIMER_ABSTIME | libc::TFD_TIMER_CANCEL_ON_SET) != 0 {
        // EINVAL.
        return Kernel;
    }
    if slot.clock.load(Ordering::Relaxed) != CLOCK_MONOTONIC
        && !mutated!("timer_of_any_clock")
        && (absolute || interval > Duration::ZERO)
    {
        escape::fd(fd, Stat::MovedOddArgument);
        return Kernel;
    }
    let result = {
        let _section = Section::enter();
        if absolute { slot.timer.set_at(value, interval) } else { slot.timer.set(TimerSpec { value, interval }) }
    };
    let unwanted = old.is_null() || mutated!("timer_forgets_what_it_was");
    // SAFETY: the caller gives the memory.
    answer(slot, result, |before| unwanted || unsafe { store_spec(old, before) })
}

/// timerfd_gettime(2) as far as it concerns in-process timers.
///
/// # Safety
/// As timerfd_gettime(2).
pub unsafe fn timerfd_gettime(fd: c_int, current: *mut itimerspec) -> Verdict<()> {
    let slot = match table::get(fd) {
        Entry::Timer(slot) => slot,
        Entry::Bell => return Done(sys::timerfd_gettime(-1, current)),
        _ => return Kernel,
    };
    let expiry = slot.timer.expiry();
    if expiry.interval != 0 && expiry.has_expired(now()) && !mutated!("timer_looked_at_stays") {
        // Linux begins the next interval then, whose end is an edge of its own, though nothing has been read.
        escape::fd(fd, Stat::MovedOddArgument);
        return Kernel;
    }
    // SAFETY: the caller gives the memory.
    answer(slot, slot.timer.get(), |spec| unsafe { store_spec(current, spec) })
}

/// What a call gives that has been carried out here, or found the timer gone.
fn answer<T>(slot: &'static FdTimer, result: Result<T, Error>, store: impl FnOnce(T) -> bool) -> Verdict<()> {
    match result {
        Ok(value) => {
            count(Stat::SyscallsAvoided, 1);
            Done(if store(value) { Ok(()) } else { Err(Errno::EFAULT) })
        }
        Err(_) => {
            slot.settle();
            Kernel
        }
    }
}

/// # Safety
/// The memory, if it is there, is the caller's to give.
unsafe fn store_spec(place: *mut itimerspec, spec: TimerSpec) -> bool {
    let spec = itimerspec_of(spec);
    let words = [spec.it_interval.tv_sec, spec.it_interval.tv_nsec, spec.it_value.tv_sec, spec.it_value.tv_nsec];
    let place = place.cast::<u64>();
    sys::is_user(place, size_of::<itimerspec>())
        // SAFETY: by the caller.
        && words.iter().enumerate().all(|(i, word)| unsafe { user::store_u64(place.wrapping_add(i), *word as u64) })
}

/// read(2) on a timer, of at least 8 bytes into plausible memory. `None`: the number stands for something else by now.
///
/// # Safety
/// As read(2).
pub(crate) unsafe fn read(fd: c_int, slot: &'static FdTimer, buffer: *mut u8) -> Verdict<usize> {
    let result = {
        let _section = Section::enter();
        slot.timer.try_read()
    };
    match result {
        Ok(expirations) => {
            count(Stat::SyscallsAvoided, 1);
            // As Linux has it since 6.10: what the memory is there for. Before, EFAULT; the expirations are gone either way.
            // SAFETY: the caller gives the memory.
            match unsafe { user::store_part(buffer, &expirations.to_ne_bytes()) } {
                0 => Done(Err(Errno::EFAULT)),
                stored => Done(Ok(stored)),
            }
        }
        Err(Error::WouldBlock) if slot.timer.flags().contains(TimerFlags::NONBLOCK) => Done(Err(Errno::EAGAIN)),
        Err(Error::WouldBlock) => {
            escape::fd(fd, Stat::MovedBlocking);
            Kernel
        }
        Err(_) => {
            slot.settle();
            Kernel
        }
    }
}
