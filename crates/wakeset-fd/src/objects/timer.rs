//! Timerfds by descriptor number.
//!
//! In process are timers on `CLOCK_MONOTONIC`, and those on `CLOCK_REALTIME` while they are set
//! once and by the time from now, which Linux measures on `CLOCK_MONOTONIC` too. What depends on a
//! clock that can be set, or that goes on while the machine is suspended, is the
//! kernel's: `TFD_TIMER_ABSTIME` on `CLOCK_REALTIME` (with `TFD_TIMER_CANCEL_ON_SET` or without),
//! `CLOCK_BOOTTIME`, and the alarm clocks.
//!
//! A call that would sleep is the kernel's as well: it has the timer moved there first.

pub(crate) mod home;
mod setting;

use crate::migrate;
use crate::objects::migratable::{Attempt, Migratable, carry_out_once, errno, in_kernel};
use crate::objects::residence::{Residence, Whereabouts};
use crate::stats::Stat;
use crate::stats::count::count;
use crate::sys::complaint;
use crate::sys::signal_guard::SignalGuard;
use crate::sys::user;
use crate::sys::verdict::Verdict::{self, Done, Kernel};
use crate::sys::{self, Errno, essential};
use crate::table::gate::{self, Gate};
use crate::table::process;
use crate::table::slot::slot_for;
use crate::table::{self, Entry, Held, Slot, SlotHead};
use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use core::time::Duration;
use libc::{CLOCK_MONOTONIC, CLOCK_REALTIME, TFD_NONBLOCK, TFD_TIMER_ABSTIME, itimerspec};
use setting::{Setting, itimerspec_of, store_spec, time_of};
use wakeset::{
    Deadline, DetachedWatch, Error, Events, Expiry, NEVER, Source, Timed, Timer, TimerFlags,
    WaitQueue, mutated,
};

/// How many nanoseconds a migration waits for the kernel to show as expired a timer that was set to
/// a time that is past. It takes some thousand.
const PATIENCE: u64 = 5_000_000;

/// A timerfd whose state lives here while only this process can reach it. Its number belongs to a
/// real kernel timerfd, which is not set until the state moves there.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct FdTimer {
    head: SlotHead,
    residence: Residence,
    /// The clock it was made with.
    clock: AtomicI32,
    /// The state on its way, valid while it migrates: an [`Expiry`].
    carried: [AtomicU64; 2],
    /// Whether that had expired when it was taken out. What expires later is the kernel's to tell.
    carries_expiration: AtomicBool,
    /// A watch with `EPOLLEXCLUSIVE` has been put on it.
    exclusive: AtomicBool,
    /// It has been set since it left, so that what it carried is not what it is set to.
    is_set_away: AtomicBool,
    timer: Timer,
}

// SAFETY: `repr(C)` with the head first.
unsafe impl Slot for FdTimer {
    const KIND: usize = table::TIMER;

    fn allocate(head: SlotHead) -> Option<&'static Self> {
        let timer = Timer::new(TimerFlags::empty());
        timer.seal();
        sys::memory::leak(Self {
            head,
            residence: Residence::nowhere(),
            clock: AtomicI32::new(CLOCK_MONOTONIC),
            carried: [AtomicU64::new(0), AtomicU64::new(0)],
            carries_expiration: AtomicBool::new(false),
            exclusive: AtomicBool::new(false),
            is_set_away: AtomicBool::new(false),
            timer,
        })
    }
}

impl Migratable for FdTimer {
    const POLLED: i16 = libc::POLLIN;

    fn slot_head(&self) -> &SlotHead {
        &self.head
    }

    fn residence(&self) -> Option<&Residence> {
        Some(&self.residence)
    }

    fn poll_here(&self) -> Option<Events> {
        let here = self.timer.poll();
        (!here.is_empty() || !self.is_sealed()).then_some(here)
    }

    fn poll_carried(&self) -> Events {
        if self.carries_expiration() { Events::IN } else { Events::empty() }
    }

    fn seal_words(&self) {
        // Where it is sealed already it may have left, and what is noted of it stays.
        self.timer.seal_with(|expiry| {
            self.is_set_away.store(false, Ordering::SeqCst);
            self.carried[0].store(expiry.next, Ordering::SeqCst);
            self.carried[1].store(expiry.interval, Ordering::SeqCst);
            self.carries_expiration.store(expiry.has_expired(now()), Ordering::SeqCst);
        });
    }

    /// Nobody: a read that would block migrates the timer.
    fn wake_blocked(&self) -> usize {
        self.timer.wake_sealed();
        0
    }

    fn has_state(&self) -> bool {
        let expiry = self.carried();
        expiry.is_armed() || expiry.interval != 0
    }

    fn give_to_kernel(&self) {
        self.set_kernel_timer();
    }

    fn change_nonblocking(&self, nonblocking: bool) {
        self.timer.set_nonblocking(nonblocking);
    }

    /// Linux wakes one of several sets with `EPOLLEXCLUSIVE`; here each set checks the clock for
    /// itself, so a timer in such company is the kernel's: see `has_company`.
    fn note_exclusive_watch(&self) {
        self.exclusive.store(true, Ordering::SeqCst);
    }

    /// Whether several watches are on it, one of them exclusive.
    fn has_company(&self) -> bool {
        self.exclusive.load(Ordering::SeqCst) && self.timer.wait_queue().has_several_watches()
    }

    fn is_sealed(&self) -> bool {
        self.residence.now() != Whereabouts::Here
    }

    /// A timer that had not expired goes on in the kernel while its watches are on their way there.
    /// What it has to report then must not be taken out again.
    fn kernel_may_report(&self, watch: &DetachedWatch) -> bool {
        watch.pending || !self.carries_expiration()
    }
}

impl FdTimer {
    /// Begins a timer in a slot for which no number stands yet.
    fn begin(&self, clock: c_int, flags: TimerFlags, expiry: Expiry) {
        self.carried.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        self.carries_expiration.store(false, Ordering::Relaxed);
        self.clock.store(clock, Ordering::Relaxed);
        self.exclusive.store(false, Ordering::Relaxed);
        self.timer.unseal(flags, expiry);
        self.residence.begin_here();
    }

    /// The state taken out.
    fn carried(&self) -> Expiry {
        let [next, interval] = self.carried.each_ref().map(|word| word.load(Ordering::SeqCst));
        Expiry { next, interval }
    }

    /// Whether what it carries had expired when it was sealed: nothing more comes of it until it is
    /// read. One that expires on its way has told nobody: the sets do not plan for a sealed timer,
    /// and a thread that was told by our clock would find that the kernel's timer has yet to
    /// expire.
    fn carries_expiration(&self) -> bool {
        if mutated!("timer_expires_on_its_way") {
            return self.carried().has_expired(now());
        }
        self.carries_expiration.load(Ordering::SeqCst)
    }

    /// Sets the kernel timer. Of several expirations the kernel then
    /// counts the first, as it would have, and the rest when it is read: it reckons from when
    /// the timer was to expire, as we do. Returns when the kernel shows as expired what is, or
    /// after [`PATIENCE`]: another reader may have taken it by then, and the thread that holds the
    /// migrations lock must not wait for what does not come. If the kernel shows it later still, an
    /// edge that has been reported is reported again.
    fn set_kernel_timer(&self) {
        let expiry = self.carried();
        let mut value = time_of(expiry.next);
        let mut flags = TFD_TIMER_ABSTIME;
        if !expiry.is_armed() || mutated!("timer_moves_unread") && self.carries_expiration() {
            value = time_of(0);
        } else if self.clock.load(Ordering::Relaxed) != CLOCK_MONOTONIC {
            // Once, and relative, or it would not be here. At the latest by the length of the call
            // too late.
            flags = 0;
            value = time_of(expiry.next.saturating_sub(now()).max(1));
        }
        let interval = if mutated!("timer_moves_without_interval") { 0 } else { expiry.interval };
        let new = itimerspec { it_value: value, it_interval: time_of(interval) };
        match sys::timerfd_settime(self.head.fd(), flags, &raw const new, core::ptr::null_mut()) {
            Err(error) => complaint::of_timer(self.head.fd(), error),
            Ok(()) if self.carries_expiration() => {
                // Again, because a handler may end a call early.
                let end = now() + PATIENCE;
                while sys::poll_within(self.head.fd(), libc::POLLIN, Duration::from_millis(1)) == 0
                    && now() < end
                {}
            }
            Ok(()) => {}
        }
    }
}

impl Source for FdTimer {
    fn poll(&self) -> Events {
        self.poll_anywhere()
    }

    fn wait_queue(&self) -> &WaitQueue {
        self.timer.wait_queue()
    }

    fn as_timed(&self) -> Option<&dyn Timed> {
        Some(self)
    }
}

impl Timed for FdTimer {
    /// A set that has looked before the timer expired, and plans after it was sealed, has that
    /// expiration to report still.
    fn plan(&self) -> u64 {
        match self.timer.plan() {
            NEVER if self.carries_expiration.load(Ordering::SeqCst) => self.carried().next,
            at => at,
        }
    }

    fn drop_plan(&self) {
        self.timer.drop_plan();
    }

    fn note_watch(&self, slot: u32) {
        self.timer.note_watch(slot);
    }
}

fn now() -> u64 {
    Deadline::now().since_boot().as_nanos() as u64
}

/// timerfd_create(2).
///
/// # Errors
/// As timerfd_create(2): EINVAL, EMFILE, ENFILE, ENODEV, ENOMEM, EPERM.
pub fn timerfd_create(clock: c_int, flags: c_int) -> Result<c_int, Errno> {
    let may_be_ours = matches!(clock, CLOCK_MONOTONIC | CLOCK_REALTIME)
        && process::may_be_ours()
        && !gate::timers_are_left_to_kernel();
    let gate = Gate::now();
    let fd = sys::timerfd_create(clock, flags)?;
    migrate::number_is_new(fd);
    if !may_be_ours || !essential::for_timers() || !gate.is_open || !table::has_room_for_bytes(fd) {
        return Ok(fd);
    }
    let _guard = SignalGuard::enter();
    let Some(slot) = slot_for::<FdTimer>(fd) else { return Ok(fd) };
    slot.begin(clock, flags_of(flags & TFD_NONBLOCK != 0), Expiry::DISARMED);
    table::put_object(fd, slot);
    count(Stat::TimersMade, 1);
    migrate::recheck_gate(fd, gate);
    if gate::timers_are_left_to_kernel() {
        // Since we looked.
        migrate::fd(fd, Stat::MigratedPoll);
    }
    Ok(fd)
}

fn flags_of(nonblocking: bool) -> TimerFlags {
    if nonblocking { TimerFlags::NONBLOCK } else { TimerFlags::empty() }
}

/// What a number stands for that is set or asked as a timer.
enum Found {
    Here(&'static FdTimer, Held),
    /// It may come home.
    Away,
    Kernel,
    /// For the program it is closed.
    Closed,
}

fn look_up(fd: c_int) -> Found {
    match table::get_held_of::<FdTimer>(fd) {
        Err(()) => Found::Away,
        Ok((Entry::Doorbell, _)) => Found::Closed,
        Ok((entry, held)) => entry.downcast().map_or(Found::Kernel, |slot| Found::Here(slot, held)),
    }
}

/// timerfd_settime(2) as far as it concerns in-process timers.
///
/// # Safety
/// As timerfd_settime(2): `new` and `old` are valid unless the kernel says EFAULT; `old` may be
/// null.
pub unsafe fn timerfd_settime(
    fd: c_int,
    flags: c_int,
    new: *const itimerspec,
    old: *mut itimerspec,
) -> Verdict<()> {
    loop {
        let (slot, _held) = match look_up(fd) {
            Found::Here(slot, held) => (slot, held),
            // SAFETY: the same contract.
            Found::Away => match unsafe { home::settime(fd, flags, new, old) } {
                Some(verdict) => return verdict,
                None => continue,
            },
            Found::Kernel => return Kernel,
            Found::Closed => return Done(sys::timerfd_settime(-1, flags, new, old)),
        };
        // SAFETY: the same contract.
        let setting = match unsafe { Setting::of(flags, new) } {
            Ok(setting) => setting,
            Err(verdict) => return verdict,
        };
        if setting.is_kernels(slot.clock.load(Ordering::Relaxed)) {
            migrate::fd(fd, Stat::MigratedOddArgument);
            return Kernel;
        }
        let unwanted = old.is_null() || mutated!("timer_forgets_what_it_was");
        let store = |before| {
            // SAFETY: the caller gives the memory.
            unwanted || unsafe { store_spec(old, itimerspec_of(before)) }
        };
        if let Some(verdict) = answer(fd, slot, || setting.set(&slot.timer), store) {
            return verdict;
        }
    }
}

/// timerfd_gettime(2) as far as it concerns in-process timers.
///
/// # Safety
/// As timerfd_gettime(2).
pub unsafe fn timerfd_gettime(fd: c_int, current: *mut itimerspec) -> Verdict<()> {
    loop {
        let (slot, _held) = match look_up(fd) {
            Found::Here(slot, held) => (slot, held),
            Found::Away => match home::gettime(fd, current) {
                Some(verdict) => return verdict,
                None => continue,
            },
            Found::Kernel => return Kernel,
            Found::Closed => return Done(sys::timerfd_gettime(-1, current)),
        };
        let expiry = slot.timer.expiry();
        if expiry.interval != 0 && expiry.has_expired(now()) && !mutated!("timer_looked_at_stays") {
            // Linux begins the next interval then, whose end is an edge of its own, though nothing
            // has been read.
            migrate::fd(fd, Stat::MigratedOddArgument);
            return Kernel;
        }
        let store = |spec| {
            // SAFETY: the caller gives the memory.
            unsafe { store_spec(current, itimerspec_of(spec)) }
        };
        if let Some(verdict) = answer(fd, slot, || slot.timer.get(), store) {
            return verdict;
        }
    }
}

/// Carries out a call that gives an answer to be stored. `None`: the number stands for another
/// object by now.
fn answer<T>(
    fd: c_int,
    slot: &'static FdTimer,
    attempt: impl Fn() -> Result<T, Error>,
    store: impl FnOnce(T) -> bool,
) -> Option<Verdict<()>> {
    match carry_out_once(slot, attempt) {
        Attempt::Done(value) => Some(Done(if store(value) { Ok(()) } else { Err(Errno::EFAULT) })),
        Attempt::InKernel => in_kernel(fd, slot),
        Attempt::Failed(_) => Some(Kernel),
        Attempt::Again => None,
    }
}

/// read(2) of a timer into at least 8 bytes of plausible memory. `None`: the number stands for
/// something else by now.
///
/// # Safety
/// As read(2).
pub(crate) unsafe fn read(
    fd: c_int,
    slot: &'static FdTimer,
    buffer: *mut u8,
) -> Option<Verdict<usize>> {
    Some(match carry_out_once(slot, || slot.timer.try_read()) {
        // SAFETY: the caller gives the memory.
        Attempt::Done(expirations) => Done(unsafe { store_expirations(buffer, expirations) }),
        Attempt::Failed(Error::WouldBlock)
            if !slot.timer.flags().contains(TimerFlags::NONBLOCK) =>
        {
            migrate::fd(fd, Stat::MigratedBlocking);
            Kernel
        }
        Attempt::InKernel => return in_kernel(fd, slot),
        Attempt::Again => return None,
        Attempt::Failed(error) => Done(Err(errno(error))),
    })
}

/// What read(2) returns of these expirations.
///
/// # Safety
/// The memory, if it is there, is the caller's to give.
unsafe fn store_expirations(buffer: *mut u8, expirations: u64) -> Result<usize, Errno> {
    // As Linux has it since 6.10: what the memory is there for. Before, EFAULT; the expirations are
    // gone either way.
    // SAFETY: by the caller.
    match unsafe { user::store_part(buffer, &expirations.to_ne_bytes()) } {
        0 => Err(Errno::EFAULT),
        stored => Ok(stored),
    }
}
