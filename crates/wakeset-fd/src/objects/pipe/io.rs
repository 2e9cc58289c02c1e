//! read(2), write(2), send(2), recv(2) and `FIONREAD` on an end of a pair.

use super::buffers::{self, Buffers};
use super::{Bound, FdPipe, capacity};
use crate::migrate;
use crate::objects::home;
use crate::objects::migratable::{Attempt, carry_out, errno, in_kernel};
use crate::stats::Stat;
use crate::stats::count::{count, count_avoided, count_signal};
use crate::sys::signal_guard::FastSignalGuard;
use crate::sys::user;
use crate::sys::verdict::Verdict::{self, Done, Kernel};
use crate::sys::{self, Errno};
use crate::table::{self, Bytes, Entry, away, left};
use core::ffi::{c_int, c_void};
use core::ptr;
use libc::{MSG_DONTWAIT, MSG_NOSIGNAL};
use wakeset::{Error, mutated};

/// The longest write that is done here. Up to about this length two copies cost less than a system
/// call and the kernel's two; a pipe that carries more at a time carries data, which is the
/// kernel's business, and moves.
const LONGEST_HERE: usize = 512;

/// The flags of send(2) and recv(2) that are known here.
pub(super) const MODELLED: c_int = MSG_DONTWAIT | MSG_NOSIGNAL;

/// The part of write(2) that needs nothing but a look-up and one compare-and-swap: whether it was
/// done.
///
/// # Safety
/// As write(2): `buffer` is the caller's to give, for `len` bytes.
#[inline(always)]
pub unsafe fn write_fast(fd: c_int, buffer: *const u8, len: usize) -> bool {
    let Some(end) = table::find_relaxed::<FdPipe>(fd) else { return false };
    let (1, true, Some(bound)) = (len, sys::is_plausible(buffer, len), end.bound()) else {
        return false;
    };
    // SAFETY: the caller gives the memory.
    let (Some(byte), Some(pipe)) = (unsafe { user::load_u8(buffer) }, bound.outward()) else {
        return false;
    };
    let moment = FastSignalGuard::enter();
    let done = pipe.try_write_byte(bound.generation, byte).is_ok();
    if done {
        bound.written();
    }
    drop(moment);
    if done {
        count_signal();
    }
    done
}

/// The part of read(2) that needs nothing but a look-up: how many bytes it has read, 0 if it was
/// not done.
///
/// # Safety
/// As read(2): `buffer` is the caller's to give, for `len` bytes.
#[inline(always)]
pub unsafe fn read_fast(fd: c_int, buffer: *mut u8, len: usize) -> usize {
    let Some(end) = table::find_relaxed::<FdPipe>(fd) else { return 0 };
    let (1.., true, Some(bound)) = (len, sys::is_plausible(buffer, len), end.bound()) else {
        return 0;
    };
    let moment = FastSignalGuard::enter();
    // SAFETY: the caller gives the memory.
    let n = unsafe { bound.read(buffer, len) }.unwrap_or(0);
    drop(moment);
    if n != 0 {
        count_avoided();
    }
    n
}

/// write(2), and send(2) with flags of [`MODELLED`]. `None`: look the number up again.
///
/// # Safety
/// As write(2): `buffer` is the caller's to give, for `len` bytes, or `len` is 0.
pub(crate) unsafe fn write(
    fd: c_int,
    end: &'static FdPipe,
    buffer: *const u8,
    len: usize,
    flags: c_int,
) -> Option<Verdict<usize>> {
    let vectors = buffers::one(buffer.cast_mut(), len);
    // SAFETY: the same contract.
    unsafe { write_from(fd, end, Buffers::of(&vectors), len, flags) }
}

/// [`write()`] of `len` bytes from buffers. `None`, as these: they are the kernel's to judge.
///
/// # Safety
/// The buffers are the caller's to give.
pub(super) unsafe fn write_from(
    fd: c_int,
    end: &'static FdPipe,
    buffers: Option<Buffers<'_>>,
    len: usize,
    flags: c_int,
) -> Option<Verdict<usize>> {
    let Some(bound) = end.bound() else { return Some(Kernel) };
    if len == 0 || bound.outward().is_none() {
        // Nothing to do, or an error.
        end.leave_refused_write(fd, bound);
        return Some(Kernel);
    }
    bound.learn_room(fd);
    // SAFETY: the caller gives the memory.
    let attempt = || unsafe { write_once(bound, buffers.ok_or(Error::Invalid)?) };
    let waits = flags & MSG_DONTWAIT == 0 && bound.may_block();
    let pipe = bound.outward().filter(|_| waits && !mutated!("pipe_never_waits_for_room"));
    let block = pipe
        .filter(|_| !bound.is_socket())
        .map(|pipe| move |again: &dyn Fn() -> Result<(), Error>| pipe.block_writer(again));
    Some(match carry_out(fd, end, attempt, block) {
        Err(kept) => Done(kept.call(|number| match buffers {
            Some(buffers) => buffers.write(number),
            None => Err(Errno::EFAULT),
        })),
        Ok(Attempt::Done(())) => {
            count(Stat::Signals, 1);
            Done(Ok(len))
        }
        Ok(Attempt::InKernel) => return in_kernel(fd, end),
        Ok(Attempt::Again) => return None,
        Ok(Attempt::Failed(Error::WouldBlock)) if pipe.is_none() => Done(Err(Errno::EAGAIN)),
        Ok(Attempt::Failed(Error::Interrupted)) => Done(Err(Errno::EINTR)),
        Ok(Attempt::Failed(_)) if end.leave_refused_write(fd, bound) => Kernel,
        // It does not fit here, or is not there: the kernel knows what that means. Or a message has
        // to wait: the kernel tells such a sender of a close or shutdown in another way than one
        // that comes later, with ECONNRESET or without SIGPIPE.
        Ok(Attempt::Failed(error)) => {
            let odd = error == Error::Invalid;
            migrate::fd(fd, if odd { Stat::MigratedOddArgument } else { Stat::MigratedLimit });
            Kernel
        }
    })
}

/// Writes what is in the buffers. [`Error::Invalid`]: it is not there.
///
/// # Safety
/// As [`write_from`].
unsafe fn write_once(bound: Bound, buffers: Buffers<'_>) -> Result<(), Error> {
    const SHORT: usize = 64;
    match buffers.len() {
        len if bound.is_socket() && !capacity::is_ordinary(len) => Err(Error::Unfit),
        // SAFETY: the same contract.
        1..=SHORT => unsafe { write_by_way_of::<SHORT>(bound, buffers) },
        // SAFETY: the same contract.
        ..=LONGEST_HERE => unsafe { write_by_way_of::<LONGEST_HERE>(bound, buffers) },
        _ => Err(Error::Unfit),
    }
}

/// By way of a copy that is on the stack no longer than this call lasts: a migration needs room
/// there too.
///
/// # Safety
/// As [`write_from`].
#[inline(never)]
unsafe fn write_by_way_of<const N: usize>(bound: Bound, buffers: Buffers<'_>) -> Result<(), Error> {
    let mut bytes = [0_u8; N];
    let bytes = bytes.get_mut(..buffers.len()).ok_or(Error::Unfit)?;
    // SAFETY: the same contract.
    if !unsafe { buffers.load(bytes) } {
        return Err(Error::Invalid);
    }
    bound.write(bytes)
}

/// read(2), and recv(2) without flags but those here. `None`: look the number up again.
///
/// # Safety
/// As read(2): `buffer` is the caller's to give, for `len` bytes, or `len` is 0.
pub(crate) unsafe fn read(
    fd: c_int,
    end: &'static FdPipe,
    buffer: *mut u8,
    len: usize,
    wait: bool,
) -> Option<Verdict<usize>> {
    let vectors = buffers::one(buffer, len);
    let Some(buffers) = Buffers::of(&vectors) else {
        migrate::fd(fd, Stat::MigratedOddArgument);
        return Some(Kernel);
    };
    // SAFETY: the caller gives the memory.
    unsafe { read_into(fd, end, buffers, wait, |number| buffers.read(number)) }
}

/// [`read()`] into buffers; `kept` makes the call on another number.
///
/// # Safety
/// The buffers are the caller's to give.
pub(super) unsafe fn read_into(
    fd: c_int,
    end: &'static FdPipe,
    buffers: Buffers<'_>,
    wait: bool,
    kept: impl FnOnce(c_int) -> Result<usize, Errno>,
) -> Option<Verdict<usize>> {
    let Some(bound) = end.bound() else { return Some(Kernel) };
    let Some(pipe) = bound.inward().filter(|_| buffers.len() != 0) else { return Some(Kernel) };
    let attempt = || {
        // SAFETY: the caller gives the memory.
        unsafe { bound.read_into(buffers) }
    };
    let block = (wait && bound.may_block())
        .then_some(|again: &dyn Fn() -> Result<usize, Error>| pipe.block_reader(again));
    Some(match carry_out(fd, end, attempt, block) {
        Err(file) => Done(file.call(kept)),
        Ok(Attempt::Done(n)) => Done(Ok(n)),
        Ok(Attempt::InKernel) => return in_kernel(fd, end),
        Ok(Attempt::Again) => return None,
        Ok(Attempt::Failed(Error::Unfit)) => {
            migrate::fd(fd, Stat::MigratedOddArgument);
            Kernel
        }
        Ok(Attempt::Failed(error)) => Done(Err(errno(error))),
    })
}

/// Counts a send(2), sendmsg(2) or writev(2) that is the kernel's.
#[inline]
pub fn count_kernel_send(fd: c_int) {
    left::count_write(fd);
}

/// send(2) as far as it concerns in-process objects.
///
/// # Safety
/// As write(2): `buffer` is the caller's to give, for `len` bytes, or `len` is 0.
pub unsafe fn send(fd: c_int, buffer: *const u8, len: usize, flags: c_int) -> Verdict<usize> {
    let modelled = flags & !MODELLED == 0;
    // SAFETY: the same contract.
    let call = |end| unsafe { write(fd, end, buffer, len, flags) };
    let verdict = on_socket_or(fd, modelled, call, || {
        let nowhere = ptr::null::<c_void>();
        write_away(fd, || sys::raw!(sendto, fd, buffer, len, flags, nowhere, 0))
    });
    if matches!(verdict, Kernel) {
        left::count_write(fd);
    }
    verdict
}

/// A call that writes to an end that may come home. `None`: look the number up again.
pub(super) fn write_away(
    fd: c_int,
    call: impl FnOnce() -> Result<usize, Errno>,
) -> Option<Verdict<usize>> {
    home::write(fd, call).inspect(|verdict| {
        if matches!(verdict, Done(_)) {
            left::count_write(fd);
        }
    })
}

/// recv(2) as far as it concerns in-process objects.
///
/// # Safety
/// As read(2): `buffer` is the caller's to give, for `len` bytes, or `len` is 0.
pub unsafe fn recv(fd: c_int, buffer: *mut u8, len: usize, flags: c_int) -> Verdict<usize> {
    let modelled = flags & !MODELLED == 0 && len != 0;
    // SAFETY: the same contract.
    let call = |end| unsafe { read(fd, end, buffer, len, flags & MSG_DONTWAIT == 0) };
    on_socket_or(fd, modelled, call, || {
        let nowhere = ptr::null::<c_void>();
        home::read(fd, || sys::raw!(recvfrom, fd, buffer, len, flags, nowhere, nowhere))
    })
}

/// Does something for an end of a socket pair, repeatedly while it says `None`. A socket for which
/// something is asked that is not `modelled` migrates.
pub(super) fn on_socket(
    fd: c_int,
    modelled: bool,
    call: impl Fn(&'static FdPipe) -> Option<Verdict<usize>>,
) -> Verdict<usize> {
    // A look-up here, because the call may be about more than bytes.
    on_socket_found(fd, modelled, || Bytes::Entry(table::get(fd)), call, || None)
}

/// [`on_socket`] for a call that only sends or receives bytes, if it is `modelled`, which shows
/// nobody the socket. `away` makes it on one that may come home.
pub(super) fn on_socket_or(
    fd: c_int,
    modelled: bool,
    call: impl Fn(&'static FdPipe) -> Option<Verdict<usize>>,
    away: impl Fn() -> Option<Verdict<usize>>,
) -> Verdict<usize> {
    let look_up = || if modelled { table::get_for_bytes(fd) } else { Bytes::Entry(table::get(fd)) };
    on_socket_found(fd, modelled, look_up, call, away)
}

fn on_socket_found(
    fd: c_int,
    modelled: bool,
    look_up: impl Fn() -> Bytes,
    call: impl Fn(&'static FdPipe) -> Option<Verdict<usize>>,
    away: impl Fn() -> Option<Verdict<usize>>,
) -> Verdict<usize> {
    loop {
        let entry = match look_up() {
            Bytes::Entry(entry) => entry,
            Bytes::Away => match away() {
                Some(verdict) => return verdict,
                None => continue,
            },
        };
        if matches!(entry, Entry::Doorbell) {
            return Done(Err(Errno::EBADF));
        }
        // ENOTSOCK of another object, whatever is in it.
        let socket = entry.downcast::<FdPipe>();
        let Some(end) = socket.filter(|end| end.bound().is_some_and(Bound::is_socket)) else {
            return Kernel;
        };
        if !modelled {
            migrate::fd(fd, Stat::MigratedOddArgument);
            return Kernel;
        }
        if let Some(verdict) = call(end) {
            return verdict;
        }
    }
}

/// ioctl(`FIONREAD`) on an end: how many bytes are in it. `None`: the kernel knows.
pub fn bytes_in(fd: c_int) -> Option<c_int> {
    loop {
        let end = match table::get_for_bytes(fd) {
            Bytes::Entry(entry) => entry.downcast::<FdPipe>()?,
            Bytes::Away => match bytes_away(fd) {
                Some(answer) => return answer,
                None => continue,
            },
        };
        let bound = end.bound()?;
        // A pipe says it at both ends.
        let inward =
            if mutated!("socket_counts_what_it_sent") { 1 - bound.index() } else { bound.index() };
        match bound.state(if bound.is_socket() { inward } else { 0 }) {
            Some(state) if !state.sealed => return Some(state.len as c_int),
            Some(_) => bound.pair.residence.wait_until_settled(),
            None => {}
        }
        if in_kernel::<_, ()>(fd, end).is_some() {
            return None;
        }
    }
}

/// [`bytes_in`] of what may come home. `None`: look the number up again.
fn bytes_away(fd: c_int) -> Option<Option<c_int>> {
    let is_asked = away::kind(fd) == Some(table::PIPE);
    let asked = is_asked.then(|| home::counted_whole(fd, || bytes_in_kernel(fd)));
    match asked {
        Some(None) => None,
        Some(Some(Done(Ok(bytes)))) => Some(Some(bytes)),
        // No pair, one that has left, or an error: the caller asks the kernel.
        _ => away::doubt(fd).then_some(None),
    }
}

fn bytes_in_kernel(fd: c_int) -> Result<c_int, Errno> {
    let mut bytes = 0;
    sys::raw!(ioctl, fd, libc::FIONREAD, &raw mut bytes).map(|_| bytes)
}

/// Whether a send(2) or recv(2) with these flags may be one on a pair that lives here, or that may
/// come home.
#[inline]
pub fn is_end_for_bytes(fd: c_int, flags: c_int) -> bool {
    if flags & !MODELLED != 0 {
        return is_end(fd);
    }
    match table::get_for_bytes(fd) {
        Bytes::Entry(entry) => entry.downcast::<FdPipe>().is_some(),
        Bytes::Away => true,
    }
}

/// Whether a readv(2) or writev(2) may be one on a pair that lives here, or that may come home.
#[inline]
pub fn is_end_for_buffers(fd: c_int) -> bool {
    match table::get_for_bytes(fd) {
        Bytes::Entry(entry) => entry.downcast::<FdPipe>().is_some(),
        Bytes::Away => away::kind(fd) == Some(table::PIPE) || is_end(fd),
    }
}

/// Whether a number is an end of a pair that lives here.
#[inline]
pub fn is_end(fd: c_int) -> bool {
    // Not `find_relaxed`: what a forked child has from its parent migrates first.
    table::find::<FdPipe>(fd).is_some()
}
