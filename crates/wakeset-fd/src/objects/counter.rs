//! Eventfds by descriptor number.

use crate::migrate;
use crate::objects::home::{self, Watcher};
use crate::objects::migratable::{Attempt, Migratable, carry_out, errno, in_kernel};
use crate::objects::residence::{Residence, Whereabouts};
use crate::stats::Stat;
use crate::stats::count::{count, count_avoided, count_signal};
use crate::sys::signal_guard::{FastSignalGuard, SignalGuard};
use crate::sys::steps::step;
use crate::sys::user;
use crate::sys::verdict::Verdict::{self, Done, Kernel};
use crate::sys::{self, Errno};
use crate::table::gate::Gate;
use crate::table::kept::KeptFile;
use crate::table::process;
use crate::table::slot::{end_use_guarded, slot_for};
use crate::table::{self, Slot, SlotHead, away, left};
use core::ffi::{c_int, c_uint};
use core::sync::atomic::{AtomicU64, Ordering};
use libc::pollfd;
use wakeset::{Counter, CounterFlags, Error, Events, Source, WaitQueue};

/// An eventfd whose state lives here while only this process can reach it. Its number belongs to a
/// real kernel eventfd, whose value is 0 until the state moves there.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct FdCounter {
    head: SlotHead,
    residence: Residence,
    /// For calls that sleep in it when another file gets its number.
    kept: KeptFile,
    /// The value on its way, valid while it migrates.
    carried: AtomicU64,
    counter: Counter,
}

// SAFETY: `repr(C)` with the head first.
unsafe impl Slot for FdCounter {
    const KIND: usize = table::COUNTER;

    fn allocate(head: SlotHead) -> Option<&'static Self> {
        let counter = Counter::new(0, CounterFlags::empty());
        counter.seal();
        sys::memory::leak(Self {
            head,
            residence: Residence::nowhere(),
            kept: KeptFile::none(),
            carried: AtomicU64::new(0),
            counter,
        })
    }
}

impl Migratable for FdCounter {
    const POLLED: i16 = libc::POLLIN | libc::POLLOUT;

    fn slot_head(&self) -> &SlotHead {
        &self.head
    }

    fn residence(&self) -> Option<&Residence> {
        Some(&self.residence)
    }

    fn poll_here(&self) -> Option<Events> {
        self.counter.value().map(Counter::events_of)
    }

    fn poll_carried(&self) -> Events {
        Counter::events_of(self.carried.load(Ordering::SeqCst))
    }

    fn seal_words(&self) {
        // Release is what the seal does after it: who finds that sees this.
        self.counter.seal_with(|value| self.carried.store(value, Ordering::Relaxed));
    }

    fn wake_blocked(&self) -> usize {
        self.counter.wake_sealed()
    }

    fn has_state(&self) -> bool {
        self.carried.load(Ordering::SeqCst) > 0
    }

    fn give_to_kernel(&self) {
        let value = self.carried.load(Ordering::SeqCst);
        // The kernel eventfd is at 0, so there is room for any value and the write does not block.
        let _ = sys::write(self.head.fd(), (&raw const value).cast(), 8);
        step!(move_values_written);
    }

    fn kept_file(&self) -> Option<&KeptFile> {
        Some(&self.kept)
    }

    fn change_nonblocking(&self, nonblocking: bool) {
        self.counter.set_nonblocking(nonblocking);
    }

    fn takes_one(&self) -> bool {
        self.counter.flags().contains(CounterFlags::SEMAPHORE)
    }

    fn is_sealed(&self) -> bool {
        self.residence.now() != Whereabouts::Here
    }
}

impl Source for FdCounter {
    fn poll(&self) -> Events {
        self.poll_anywhere()
    }

    fn wait_queue(&self) -> &WaitQueue {
        self.counter.wait_queue()
    }
}

impl FdCounter {
    fn may_block(&self) -> bool {
        !self.counter.flags().contains(CounterFlags::NONBLOCK)
    }
}

/// eventfd(2).
///
/// # Errors
/// As eventfd(2): EINVAL, EMFILE, ENFILE, ENODEV, ENOMEM.
pub fn eventfd(initial: c_uint, flags: c_int) -> Result<c_int, Errno> {
    let may_be_ours = process::may_be_ours();
    let gate = Gate::now();
    if !may_be_ours || !gate.is_open {
        let fd = sys::eventfd(initial, flags)?;
        left::note(fd);
        return Ok(fd);
    }
    let fd = sys::eventfd(0, flags)?;
    migrate::number_is_new(fd);
    let _guard = SignalGuard::enter();
    let slot = if table::has_room_for_bytes(fd) { slot_for::<FdCounter>(fd) } else { None };
    let Some(slot) = slot else {
        let value = u64::from(initial);
        if value > 0 {
            sys::write(fd, (&raw const value).cast(), 8)?;
        }
        left::note(fd);
        return Ok(fd);
    };
    let mode = CounterFlags::from_bits_truncate(flags as u32);
    slot.counter.unseal(u64::from(initial), mode);
    slot.residence.begin_here();
    table::put_object(fd, slot);
    count(Stat::CountersMade, 1);
    migrate::recheck_gate(fd, gate);
    Ok(fd)
}

/// Makes an object of an eventfd that comes home: of the kernel's, which nobody else has, and in
/// which no call is. Whether that was done; else the kernel's is as it was.
pub(crate) fn come_home(fd: c_int, is_semaphore: bool, watcher: Option<Watcher>) -> bool {
    // What is not known is not guessed. An edge may have been reported already, and would be again.
    let has_edges = watcher.is_some_and(|watcher| watcher.asked.events.contains(Events::ET));
    let Some(nonblocking) = home::is_nonblocking(fd) else { return false };
    if has_edges && !is_empty(fd) {
        return false;
    }
    let mut mode = CounterFlags::empty();
    mode.set(CounterFlags::SEMAPHORE, is_semaphore);
    mode.set(CounterFlags::NONBLOCK, nonblocking);
    let Some(slot) = slot_for::<FdCounter>(fd) else { return false };
    // The watch is that of this very file, or there is none.
    let is_same = watcher.map_or_else(|| away::is_known(fd), |watcher| watcher.give_up(fd));
    if !is_same || !begin_at_home(slot, mode, watcher) {
        end_use_guarded(slot);
        return false;
    }
    left::forget(fd);
    table::put_object(fd, slot);
    count(Stat::HomeFork, 1);
    true
}

/// Opens the words of an object that comes home, with what the kernel's has, and has it watched
/// here. Where that cannot be done, all is left in the kernel.
fn begin_at_home(slot: &'static FdCounter, mode: CounterFlags, watcher: Option<Watcher>) -> bool {
    let fd = slot.head.fd();
    let taken = take_from_kernel(fd, mode.contains(CounterFlags::SEMAPHORE));
    let is_here = taken.is_some_and(|count| {
        slot.counter.unseal(count, mode);
        slot.residence.begin_here();
        let is_here = watcher.is_none_or(|watcher| watcher.take_back(fd, &slot.head));
        if !is_here {
            give_back(fd, count);
        }
        is_here
    });
    if let Some(watcher) = watcher.filter(|_| !is_here) {
        watcher.leave(fd);
    }
    is_here
}

/// Whether the kernel says that an eventfd has nothing to read.
fn is_empty(fd: c_int) -> bool {
    let mut entry = [pollfd { fd, events: libc::POLLIN, revents: 0 }];
    sys::poll_all_now(&mut entry) && entry.iter().all(|entry| entry.revents == 0)
}

/// A semaphore that comes home has at most so much: one by one, because no call takes all of it.
const MOST_TAKEN: u64 = 64;

/// Takes all that a kernel eventfd has, without ever waiting. `None`: that is not to be done, and
/// all of it is still there.
fn take_from_kernel(fd: c_int, is_semaphore: bool) -> Option<u64> {
    let mut taken = 0;
    while taken <= MOST_TAKEN {
        match home::read_now(fd) {
            Ok(value) if is_semaphore => taken += value,
            Ok(value) => return Some(value),
            Err(Errno::EAGAIN) => return Some(taken),
            _ => break,
        }
    }
    give_back(fd, taken);
    None
}

/// Puts what was taken into the kernel eventfd again.
fn give_back(fd: c_int, count: u64) {
    if count > 0 {
        let _ = sys::write(fd, (&raw const count).cast(), 8);
    }
}

/// The part of write(2) that needs nothing but a look-up and one compare-and-swap: whether it was
/// done.
///
/// # Safety
/// As write(2): `buffer` is the caller's to give, for `len` bytes.
#[inline(always)]
pub unsafe fn write_fast(fd: c_int, buffer: *const u8, len: usize) -> bool {
    match table::find_relaxed::<FdCounter>(fd) {
        Some(slot) if len == 8 && sys::is_plausible(buffer, 8) => {
            // SAFETY: the caller gives the memory.
            let Some(n) = (unsafe { user::load_u64(buffer.cast()) }) else { return false };
            step!(write_before_moment);
            let moment = FastSignalGuard::enter();
            step!(write_in_moment);
            let done = slot.counter.try_write(n).is_ok();
            step!(write_moment_done);
            drop(moment);
            step!(write_moment_over);
            if done {
                count_signal();
            }
            done
        }
        _ => false,
    }
}

/// The part of read(2) that needs nothing but a look-up and one compare-and-swap: 8 if it was done,
/// 0 if not, or a negative errno: as in Linux the value is gone when the buffer turns out not to be
/// there.
///
/// # Safety
/// As read(2): `buffer` is the caller's to give, for `len` bytes.
#[inline(always)]
pub unsafe fn read_fast(fd: c_int, buffer: *mut u8, len: usize) -> isize {
    match table::find_relaxed::<FdCounter>(fd) {
        Some(slot) if len >= 8 && sys::is_plausible(buffer, len) => {
            match with_signals_deferred(|| slot.counter.try_read()) {
                Ok(value) => {
                    count_avoided();
                    // SAFETY: the caller gives the memory.
                    if unsafe { user::store_u64(buffer.cast(), value) } {
                        8
                    } else {
                        -(libc::EFAULT as isize)
                    }
                }
                Err(_) => 0,
            }
        }
        _ => 0,
    }
}

/// write(2) of an eventfd, `len` bytes, of which there are at least 8. `None`: the number stands
/// for something else by now.
///
/// # Safety
/// As write(2).
pub(crate) unsafe fn write(
    fd: c_int,
    slot: &'static FdCounter,
    buffer: *const u8,
    len: usize,
) -> Option<Verdict<usize>> {
    // Longer writes: some kernels take the first 8 bytes, newer ones refuse. Ours will know.
    if len != 8 || !sys::is_plausible(buffer, 8) {
        migrate::fd(fd, Stat::MigratedOddArgument);
        return Some(Kernel);
    }
    // SAFETY: the caller gives the memory.
    let Some(n) = (unsafe { user::load_u64(buffer.cast()) }) else {
        return Some(Done(Err(Errno::EFAULT)));
    };
    let attempt = || slot.counter.try_write(n);
    let block = slot
        .may_block()
        .then_some(|again: &dyn Fn() -> Result<(), Error>| slot.counter.block_writer(again));
    Some(match carry_out(fd, slot, attempt, block) {
        Err(kept) => Done(kept.call(|number| sys::write(number, buffer, len))),
        Ok(Attempt::Done(())) => {
            count(Stat::Signals, 1);
            Done(Ok(8))
        }
        Ok(Attempt::InKernel) => return in_kernel(fd, slot),
        Ok(Attempt::Again) => return None,
        Ok(Attempt::Failed(error)) => Done(Err(errno(error))),
    })
}

/// read(2) of an eventfd into at least 8 bytes. `None`: the number stands for something else by
/// now.
///
/// # Safety
/// As read(2).
pub(crate) unsafe fn read(
    fd: c_int,
    slot: &'static FdCounter,
    buffer: *mut u8,
) -> Option<Verdict<usize>> {
    let attempt = || slot.counter.try_read();
    let block = slot
        .may_block()
        .then_some(|again: &dyn Fn() -> Result<u64, Error>| slot.counter.block_reader(again));
    Some(match carry_out(fd, slot, attempt, block) {
        Err(kept) => Done(kept.call(|number| sys::read(number, buffer, 8))),
        // SAFETY: the caller gives the memory.
        Ok(Attempt::Done(value)) if unsafe { user::store_u64(buffer.cast(), value) } => Done(Ok(8)),
        Ok(Attempt::Done(_)) => Done(Err(Errno::EFAULT)),
        Ok(Attempt::InKernel) => return in_kernel(fd, slot),
        Ok(Attempt::Again) => return None,
        Ok(Attempt::Failed(error)) => Done(Err(errno(error))),
    })
}

fn with_signals_deferred<T>(f: impl FnOnce() -> T) -> T {
    step!(read_before_moment);
    let _moment = FastSignalGuard::enter();
    step!(read_in_moment);
    f()
}
