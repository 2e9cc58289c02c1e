//! pipe2(2) and socketpair(2).

use super::capacity;
use super::{FdPipe, NONBLOCK, SECOND, SOCKET};
use crate::migrate;
use crate::objects::migratable::Migratable;
use crate::stats::Stat;
use crate::stats::count::count;
use crate::sys::signal_guard::SignalGuard;
use crate::sys::user;
use crate::sys::{self, Errno};
use crate::table::gate::Gate;
use crate::table::slot::{end_use, slot_for};
use crate::table::{self, left, process};
use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::Ordering;
use libc::{AF_UNIX, SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_STREAM};
use wakeset::PipeCapacity;

/// Makes two descriptors an in-process pair, if there is memory and no fork since `gate`, which is
/// from before they were made.
fn adopt(fds: [c_int; 2], mode: u32, gate: Gate) {
    let _guard = SignalGuard::enter();
    if !fds.iter().all(|fd| table::has_room_for_bytes(*fd)) {
        fds.into_iter().for_each(left::note);
        return;
    }
    let Some([first, second]) = slots(fds) else { return };
    begin_here([first, second], [mode; 2]);
    table::put_object(fds[0], first);
    table::put_object(fds[1], second);
    count(Stat::PipesMade, 1);
    migrate::recheck_gate(fds[0], gate);
    // A thread that migrated one end, between the two, has not seen the other.
    if first.is_sealed() {
        migrate::fd(fds[0], Stat::MigratedFork);
        migrate::fd(fds[1], Stat::MigratedFork);
    }
}

/// Slots for the ends of a pair with these numbers.
pub(super) fn slots(fds: [c_int; 2]) -> Option<[&'static FdPipe; 2]> {
    let first = slot_for::<FdPipe>(fds[0])?;
    let Some(second) = slot_for::<FdPipe>(fds[1]) else {
        end_use(first);
        return None;
    };
    Some([first, second])
}

/// Makes slots the ends of a pair, which is empty. No number stands for them yet.
pub(super) fn begin_here([first, second]: [&'static FdPipe; 2], modes: [u32; 2]) {
    let pair = &first.pair;
    let generation = pair.pipes[0].next_generation();
    for (word, end) in pair.ends.iter().zip([first, second]) {
        word.store(ptr::from_ref(end).expose_provenance(), Ordering::Relaxed);
    }
    first.bind(first, generation, modes[0]);
    second.bind(first, generation, modes[1] | SECOND);
    pair.pipes.iter().for_each(|pipe| pipe.unseal(generation, PipeCapacity::Unasked));
    pair.residence.begin_here();
    // Last: a thread that comes late with a watch for what was there before either finds the queue
    // closed, or reports what this pair begins with.
    [first, second].iter().for_each(|end| end.queue.reopen());
}

/// Gives two new descriptors to the program, or closes them.
///
/// # Safety
/// `place` is the caller's to give, for two numbers.
unsafe fn export(fds: [c_int; 2], place: *mut c_int) -> Result<(), Errno> {
    let both = u64::from(fds[0] as u32) | u64::from(fds[1] as u32) << 32;
    // SAFETY: the caller's contract.
    if unsafe { user::store_u64(place.cast(), both) } {
        return Ok(());
    }
    for fd in fds {
        let _ = sys::close(fd);
    }
    Err(Errno::EFAULT)
}

/// Before descriptors are made: `None` if they are to be the kernel's.
fn may_be_ours() -> Option<Gate> {
    let may_be_ours = process::may_be_ours();
    Some(Gate::now()).filter(|gate| may_be_ours && gate.is_open)
}

/// The kernel has given out two numbers.
///
/// # Safety
/// It has written them to `place`.
unsafe fn numbers_are_new(place: *const c_int) {
    for index in 0..2 {
        // SAFETY: any bits are a number.
        if let Some(fd) = unsafe { user::load(place.wrapping_add(index)) } {
            migrate::number_is_new(fd);
            left::note(fd);
        }
    }
}

/// pipe2(2).
///
/// # Errors
/// As pipe2(2).
///
/// # Safety
/// `fds` has room for two numbers, or the kernel will say EFAULT.
pub unsafe fn pipe2(fds: *mut c_int, flags: c_int) -> Result<(), Errno> {
    let modelled = flags & !(libc::O_CLOEXEC | libc::O_NONBLOCK) == 0 && sys::is_plausible(fds, 8);
    let Some(gate) = may_be_ours().filter(|_| modelled) else {
        sys::raw!(pipe2, fds, flags)?;
        // SAFETY: the kernel has just answered.
        unsafe { numbers_are_new(fds) };
        return Ok(());
    };
    let mut made = [0; 2];
    sys::raw!(pipe2, made.as_mut_ptr(), flags)?;
    made.into_iter().for_each(migrate::number_is_new);
    // SAFETY: the caller's contract.
    unsafe { export(made, fds) }?;
    let mode = if flags & libc::O_NONBLOCK != 0 { NONBLOCK } else { 0 };
    adopt(made, mode, gate);
    Ok(())
}

/// socketpair(2).
///
/// # Errors
/// As socketpair(2).
///
/// # Safety
/// `fds` has room for two numbers, or the kernel will say EFAULT.
pub unsafe fn socketpair(
    domain: c_int,
    kind: c_int,
    protocol: c_int,
    fds: *mut c_int,
) -> Result<(), Errno> {
    let streams = domain == AF_UNIX && kind & !(SOCK_CLOEXEC | SOCK_NONBLOCK) == SOCK_STREAM;
    let modelled = streams && sys::is_plausible(fds, 8);
    let Some(gate) = may_be_ours().filter(|_| modelled) else {
        sys::raw!(socketpair, domain, kind, protocol, fds)?;
        // SAFETY: the kernel has just answered.
        unsafe { numbers_are_new(fds) };
        return Ok(());
    };
    let mut made = [0; 2];
    sys::raw!(socketpair, domain, kind, protocol, made.as_mut_ptr())?;
    made.into_iter().for_each(migrate::number_is_new);
    let is_known = capacity::is_known(made);
    // SAFETY: the caller's contract.
    unsafe { export(made, fds) }?;
    if is_known {
        let mode = if kind & SOCK_NONBLOCK != 0 { NONBLOCK } else { 0 };
        adopt(made, SOCKET | mode, gate);
    }
    Ok(())
}
