//! Calls by instruction about the signals that are blocked, and their handlers.
//!
//! The kernel ends the process if it catches a call while SIGSYS is blocked or its handler is not
//! ours. So neither comes to be: SIGSYS is left out of masks, and a handler for it is noted.

use super::decide::Outcome;
use crate::calls::Registers;
use crate::{dispatch, signals};
use core::ffi::c_int;
use core::ptr;
use libc::ucontext_t;
use wakeset_fd::user;

/// What the kernel takes for rt_sigaction(2).
#[repr(C)]
#[derive(Clone, Copy)]
struct KernelAction {
    handler: usize,
    flags: usize,
    restorer: usize,
    mask: u64,
}

const SIGSET_BYTES: usize = 8;

/// Loads a mask of the program's; `None` if there is none, or not where the kernel could read it.
unsafe fn load_mask(mask: usize) -> Option<u64> {
    if mask == 0 {
        return None;
    }
    // SAFETY: any bits are a mask.
    unsafe { user::load(ptr::with_exposed_provenance::<u64>(mask)) }
}

fn has_sigsys(mask: u64) -> bool {
    dispatch::without_sigsys(mask) != mask
}

/// A call that waits with this mask: a handler that ends the wait would run with SIGSYS blocked.
///
/// # Safety
/// `mask` is 0 or as for sigsuspend(2).
pub(super) unsafe fn waiting(mask: usize) -> Outcome {
    // SAFETY: the caller's contract.
    match unsafe { load_mask(mask) } {
        Some(mask) if has_sigsys(mask) => Outcome::Left,
        _ => Outcome::Made,
    }
}

/// The same for a call that takes the address of the mask in memory.
///
/// # Safety
/// `place` is 0 or as for pselect6(2).
pub(super) unsafe fn waiting_in(place: usize) -> Outcome {
    // SAFETY: any bits are an address; then as above.
    unsafe { waiting(load_mask(place).unwrap_or(0) as usize) }
}

/// rt_sigprocmask(2): the mask that the handler returns to is changed, without SIGSYS.
///
/// # Safety
/// The registers are as the call wants them.
pub(super) unsafe fn rt_sigprocmask(
    [how, set, old, bytes, ..]: Registers,
    context: &mut ucontext_t,
) -> Outcome {
    // SAFETY: the caller's contract.
    let set = unsafe { load_mask(set) };
    let (how, Some(set)) = (how as c_int, set.filter(|set| has_sigsys(*set))) else {
        return Outcome::Made;
    };
    let now = (&raw mut context.uc_sigmask).cast::<u64>();
    // SAFETY: the first 8 bytes are the kernel's mask.
    let before = unsafe { now.read() };
    let after = match how {
        libc::SIG_BLOCK => before | set,
        libc::SIG_SETMASK => set,
        _ => return Outcome::Made,
    };
    if bytes != SIGSET_BYTES {
        return Outcome::Made;
    }
    // SAFETY: as above.
    unsafe { now.write(dispatch::without_sigsys(after)) };
    let old = ptr::with_exposed_provenance_mut::<u64>(old);
    // SAFETY: the program's memory for the old mask.
    let stored = old.is_null() || unsafe { user::store_u64(old, before) };
    Outcome::Answered(if stored { 0 } else { -(libc::EFAULT as isize) })
}

/// rt_sigaction(2). What it says of SIGSYS is noted and not done; a handler that blocks SIGSYS
/// while it runs cannot be had.
///
/// # Safety
/// The registers are as the call wants them.
pub(super) unsafe fn rt_sigaction([signal, new, old, bytes, ..]: Registers) -> Outcome {
    // SAFETY: any bits are an action.
    let load = |new| unsafe { user::load(ptr::with_exposed_provenance::<KernelAction>(new)) };
    let wanted = if new == 0 { None } else { load(new) };
    if bytes != SIGSET_BYTES || wanted.is_none() && new != 0 {
        return Outcome::Made;
    }
    if signal as c_int != libc::SIGSYS {
        let blocks = |wanted: KernelAction| is_handler(wanted.handler) && has_sigsys(wanted.mask);
        return if wanted.is_some_and(blocks) { Outcome::Left } else { Outcome::Made };
    }
    let noted = wanted.map(|wanted| (wanted.handler, wanted.flags, wanted.mask));
    let (handler, flags, mask) = signals::exchange_sigsys(noted);
    let words = [handler, flags, 0, mask as usize];
    let place = ptr::with_exposed_provenance_mut::<u64>(old);
    let stored = old == 0
        || words.iter().enumerate().all(|(i, word)| {
            // SAFETY: the program's memory for the old action.
            unsafe { user::store_u64(place.wrapping_add(i), *word as u64) }
        });
    Outcome::Answered(if stored { 0 } else { -(libc::EFAULT as isize) })
}

fn is_handler(handler: usize) -> bool {
    handler != libc::SIG_DFL && handler != libc::SIG_IGN
}
