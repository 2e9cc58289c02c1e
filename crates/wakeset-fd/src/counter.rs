//! Eventfds by descriptor number.

use crate::count::count;
use crate::escape;
use crate::section::{Moment, Section};
use crate::stats::Stat;
use crate::steps::{step, step_lock, step_waited};
use crate::sys::{self, Errno};
use crate::table::{self, Entry, Slot, SlotHead, Using};
use crate::timer;
use crate::user;
use crate::verdict::Verdict::{self, Done, Kernel};
use core::ffi::{c_int, c_uint};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use wakeset::{Counter, CounterFlags, Error, Events, Source, WaitQueue};

/// Where the truth about a counter is, once its value word says "sealed".
pub(crate) mod whereabouts {
    /// In the value word.
    pub(crate) const HERE: u32 = 0;
    /// On its way into the kernel object; a few instructions and one system call.
    pub(crate) const MOVING: u32 = 1;
    /// In the kernel object.
    pub(crate) const IN_KERNEL: u32 = 2;
    /// Nowhere: the number has been closed.
    pub(crate) const CLOSED: u32 = 3;
}

/// An eventfd whose state lives here while only this process can reach it. Its number belongs to a real kernel
/// eventfd, whose value is 0 until the state moves there.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct FdCounter {
    head: SlotHead,
    /// [`whereabouts`].
    pub(crate) place: AtomicU32,
    /// The value on its way, valid while `MOVING`.
    pub(crate) carried: AtomicU64,
    pub(crate) counter: Counter,
}

// SAFETY: `repr(C)` with the head first.
unsafe impl Slot for FdCounter {
    const KIND: usize = table::KIND_COUNTER;

    fn head(&self) -> &SlotHead {
        &self.head
    }

    fn allocate(head: SlotHead) -> Option<&'static Self> {
        let counter = Counter::new(0, CounterFlags::empty());
        counter.seal();
        crate::memory::leak(Self {
            head,
            place: AtomicU32::new(whereabouts::CLOSED),
            carried: AtomicU64::new(0),
            counter,
        })
    }

    fn lose_number(&self) {
        // A late call finds it sealed and asks the kernel; one that sleeps in it sleeps on, as in Linux.
        let (here, closed) = (whereabouts::HERE, whereabouts::CLOSED);
        let _ = self.place.compare_exchange(here, closed, Ordering::SeqCst, Ordering::SeqCst);
        self.counter.seal();
        self.counter.wait_queue().close();
    }

    fn finalize(&self) {
        self.lose_number();
    }
}

impl FdCounter {
    pub(crate) fn fd(&self) -> c_int {
        self.head.fd()
    }

    pub(crate) fn counter_queue(&self) -> &WaitQueue {
        self.counter.wait_queue()
    }

    /// Waits until the kernel object has the state, after an operation found it sealed.
    pub(crate) fn settle(&self) {
        while self.place.load(Ordering::SeqCst) == whereabouts::MOVING {
            step_lock!(Waiting, &self.place);
            sys::futex_wait(&self.place, whereabouts::MOVING);
        }
        step_waited!();
    }
}

impl Source for FdCounter {
    fn poll(&self) -> Events {
        if let Some(value) = self.counter.value() {
            return Counter::events_of(value);
        }
        // Its watches are being moved: until they are gone they see what the program would.
        match self.place.load(Ordering::SeqCst) {
            whereabouts::MOVING => Counter::events_of(self.carried.load(Ordering::SeqCst)),
            whereabouts::IN_KERNEL => {
                let now = sys::poll_now(self.fd(), libc::POLLIN | libc::POLLOUT);
                Events::from_bits_retain(u32::from(now as u16))
            }
            _ => Events::empty(),
        }
    }

    fn wait_queue(&self) -> &WaitQueue {
        self.counter.wait_queue()
    }
}

/// eventfd(2).
///
/// # Errors
/// As eventfd(2): EINVAL, EMFILE, ENFILE, ENODEV, ENOMEM.
pub fn eventfd(initial: c_uint, flags: c_int) -> Result<c_int, Errno> {
    let may_be_ours = crate::fork::may_make_objects();
    let gate = escape::look_at_gate();
    if !may_be_ours || !gate.is_open {
        return sys::eventfd(initial, flags);
    }
    let fd = sys::eventfd(0, flags)?;
    let _section = crate::section::Section::enter();
    let slot = if table::has_room_for_bytes(fd) { table::slot_for::<FdCounter>(fd) } else { None };
    let Some(slot) = slot else {
        let value = u64::from(initial);
        if value > 0 {
            sys::write(fd, (&raw const value).cast(), 8)?;
        }
        return Ok(fd);
    };
    slot.place.store(whereabouts::HERE, Ordering::SeqCst);
    let mode = CounterFlags::from_bits_truncate(flags as u32);
    slot.counter.unseal(u64::from(initial), mode);
    table::put_counter(fd, slot);
    count(Stat::CountersMade, 1);
    escape::recheck_gate(fd, gate);
    Ok(fd)
}

/// The part of write(2) that needs nothing but a look-up and one compare-and-swap: whether it was done.
///
/// # Safety
/// As write(2): `buffer` is the caller's to give, for `len` bytes.
#[inline(always)]
pub unsafe fn write_fast(fd: c_int, buffer: *const u8, len: usize) -> bool {
    match table::counter(fd) {
        Some(slot) if len == 8 && sys::is_plausible(buffer, len) => {
            // SAFETY: the caller gives the memory.
            let Some(n) = (unsafe { user::load_u64(buffer.cast()) }) else { return false };
            step!(write_before_moment);
            let moment = Moment::enter();
            step!(write_in_moment);
            let done = slot.counter.try_write(n).is_ok();
            step!(write_moment_done);
            drop(moment);
            step!(write_moment_over);
            if crate::count::is_on() && done {
                count(Stat::SyscallsAvoided, 1);
            }
            done
        }
        _ => false,
    }
}

/// The part of read(2) that needs nothing but a look-up and one compare-and-swap: 8 if it was done, 0 if not, or a
/// negative errno: as in Linux the value is gone when the buffer turns out not to be there.
///
/// # Safety
/// As read(2): `buffer` is the caller's to give, for `len` bytes.
#[inline(always)]
pub unsafe fn read_fast(fd: c_int, buffer: *mut u8, len: usize) -> isize {
    match table::counter(fd) {
        Some(slot) if len >= 8 && sys::is_plausible(buffer, len) => match in_a_moment(|| slot.counter.try_read()) {
            Ok(value) => {
                if crate::count::is_on() {
                    count(Stat::SyscallsAvoided, 1);
                }
                // SAFETY: the caller gives the memory.
                if unsafe { user::store_u64(buffer.cast(), value) } { 8 } else { -(libc::EFAULT as isize) }
            }
            Err(_) => 0,
        },
        _ => 0,
    }
}

/// write(2) as far as it concerns in-process objects.
///
/// # Safety
/// As write(2): `buffer` is the caller's to give, for `len` bytes, or `len` is 0.
pub unsafe fn write(fd: c_int, buffer: *const u8, len: usize) -> Verdict<usize> {
    loop {
        let slot = match table::get(fd) {
            Entry::Counter(slot) => slot,
            Entry::Bell => return Done(Err(Errno::EBADF)),
            // SAFETY: the same contract.
            Entry::Pipe(_) => return unsafe { crate::pipe::write(fd, buffer, len, true) },
            // A timer takes no writes, as the kernel says.
            Entry::Set(_) | Entry::Timer(_) | Entry::Kernel => return Kernel,
        };
        if len < 8 {
            // EINVAL or EFAULT, whatever the state is: the kernel knows which comes first.
            return Kernel;
        }
        // Longer writes: some kernels take the first 8 bytes, newer ones refuse. Ours will know.
        if len != 8 || !sys::is_plausible(buffer, len) {
            escape::fd(fd, Stat::MovedOddArgument);
            return Kernel;
        }
        // SAFETY: the caller gives the memory.
        let Some(n) = (unsafe { user::load_u64(buffer.cast()) }) else { return Done(Err(Errno::EFAULT)) };
        if let Some(verdict) =
            carry_out(fd, slot, |counter| counter.try_write(n), |counter, again| counter.block_writer(again))
        {
            return verdict.map(|()| 8);
        }
    }
}

/// read(2) as far as it concerns in-process objects.
///
/// # Safety
/// As read(2): `buffer` is the caller's to give, for `len` bytes, or `len` is 0.
pub unsafe fn read(fd: c_int, buffer: *mut u8, len: usize) -> Verdict<usize> {
    loop {
        let slot = match table::get(fd) {
            Entry::Counter(slot) => slot,
            // SAFETY: the caller gives the memory.
            Entry::Timer(slot) if len >= 8 && sys::is_plausible(buffer, len) => unsafe {
                return timer::read(fd, slot, buffer);
            },
            Entry::Timer(_) if len >= 8 => {
                escape::fd(fd, Stat::MovedOddArgument);
                return Kernel;
            }
            Entry::Bell => return Done(Err(Errno::EBADF)),
            // SAFETY: the same contract.
            Entry::Pipe(_) => return unsafe { crate::pipe::read(fd, buffer, len, true) },
            Entry::Set(_) | Entry::Timer(_) | Entry::Kernel => return Kernel,
        };
        if len < 8 {
            // EINVAL or EFAULT, whatever the state is: the kernel knows which comes first.
            return Kernel;
        }
        if !sys::is_plausible(buffer, len) {
            escape::fd(fd, Stat::MovedOddArgument);
            return Kernel;
        }
        if let Some(verdict) = carry_out(fd, slot, Counter::try_read, |counter, again| counter.block_reader(again)) {
            return match verdict {
                // SAFETY: the caller gives the memory.
                Done(Ok(value)) if unsafe { user::store_u64(buffer.cast(), value) } => Done(Ok(8)),
                Done(Ok(_)) => Done(Err(Errno::EFAULT)),
                Done(Err(error)) => Done(Err(error)),
                Kernel => Kernel,
            };
        }
    }
}

fn in_a_moment<T>(f: impl FnOnce() -> T) -> T {
    step!(read_before_moment);
    let _moment = Moment::enter();
    step!(read_in_moment);
    f()
}

/// Tries an operation, and sleeps for it if the counter blocks. `None`: the number stands for something else by now.
fn carry_out<T>(
    fd: c_int,
    slot: &'static FdCounter,
    attempt: impl Fn(&Counter) -> Result<T, Error>,
    blocking: impl Fn(&Counter, &dyn Fn() -> Result<T, Error>) -> Result<T, Error>,
) -> Option<Verdict<T>> {
    let attempt = || {
        step!(attempt_before_section);
        let _section = Section::enter();
        step!(attempt_in_section);
        attempt(&slot.counter)
    };
    let mut result = attempt();
    if matches!(result, Err(Error::WouldBlock)) && !slot.counter.flags().contains(CounterFlags::NONBLOCK) {
        let _using = Using::begin(fd, slot)?;
        result = blocking(&slot.counter, &attempt);
        while matches!(result, Err(Error::Sealed)) && slot.place.load(Ordering::SeqCst) == whereabouts::CLOSED {
            // Closed under its feet. In Linux the call still has the file, and sleeps until a signal comes.
            if sys::pause().is_err() {
                result = Err(Error::Interrupted);
            }
        }
    }
    Some(match result {
        Ok(value) => {
            count(Stat::SyscallsAvoided, 1);
            Done(Ok(value))
        }
        Err(Error::Sealed) => {
            step!(attempt_sealed);
            slot.settle();
            step!(attempt_settled);
            Kernel
        }
        Err(error) => Done(Err(Errno::new(error.errno()))),
    })
}

/// Takes note of a change of `O_NONBLOCK` that the kernel object has made: fcntl(`F_SETFL`), ioctl(`FIONBIO`).
pub fn note_nonblocking(fd: c_int, nonblocking: bool) {
    match table::get(fd) {
        Entry::Counter(slot) => slot.counter.set_nonblocking(nonblocking),
        Entry::Timer(slot) => slot.timer.set_nonblocking(nonblocking),
        Entry::Pipe(end) => crate::pipe::note_nonblocking(end, nonblocking),
        Entry::Set(_) | Entry::Kernel | Entry::Bell => {}
    }
}
