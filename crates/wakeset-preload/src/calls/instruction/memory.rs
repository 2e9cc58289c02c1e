//! Memory that becomes executable after the program has begun.
//!
//! What it contains is looked at when it becomes executable. Memory that can be written all the
//! same may get its code later: dispatch is turned on for it where that can be done (there is one
//! thread, and the kernel has it), because then it sees every call whatever comes. Elsewhere such
//! memory is taken for that of a compiler, which makes no system calls by itself.

use super::{Why, has_looked, is_moot, leave, see_to};
use crate::dispatch::{self, Look, Range, Shape, has_call};
use crate::signals;
use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use libc::{MAP_FAILED, off_t, size_t};
use wakeset_fd::user;

/// Where such memory is: from the lowest to the highest address of all there was. No address: none.
static START: AtomicUsize = AtomicUsize::new(usize::MAX);
static END: AtomicUsize = AtomicUsize::new(0);

/// Whether such instructions were found in it.
static HAS_CALLS: AtomicBool = AtomicBool::new(false);

/// Adds what there is to a look at the objects.
pub(super) fn add_to(look: &mut Look) {
    let (start, end) = (START.load(Ordering::SeqCst), END.load(Ordering::SeqCst));
    if start < end {
        look.add(Range { start, end }, c"code made at run time");
        look.may_have_more = true;
        look.is_news |= HAS_CALLS.load(Ordering::SeqCst);
    }
}

/// Memory has been made executable.
#[cold]
fn look_at(code: Range, is_writable: bool, is_empty: bool) {
    if is_moot() || dispatch::shape().is_some_and(|shape| shape.catches(code)) {
        return;
    }
    // What is read need not be there.
    signals::arm();
    let is_found = !is_empty && contains_instruction(code);
    if !is_found && !is_writable {
        return;
    }
    START.fetch_min(code.start, Ordering::SeqCst);
    END.fetch_max(code.end, Ordering::SeqCst);
    if is_found {
        HAS_CALLS.store(true, Ordering::SeqCst);
    }
    if !has_looked() {
        // It is seen to before the first object is made.
        return;
    }
    let mut look = Look::now();
    add_to(&mut look);
    match see_to(&look) {
        Err(why) if is_found => leave(look.name().to_str().unwrap_or_default(), why),
        _ => {}
    }
}

/// Whether there are system call instructions in memory that need not be there to its end.
fn contains_instruction(code: Range) -> bool {
    const PART: usize = 256;
    let part = |start: usize| {
        let place = ptr::with_exposed_provenance::<[u8; PART]>(start);
        // SAFETY: any bits are bytes.
        if start < code.end { unsafe { user::load(place) } } else { None }
    };
    let (mut before, mut here) = (None, part(code.start));
    for start in (code.start..code.end).step_by(PART) {
        let after = part(start + PART);
        if let Some(bytes) = here {
            // With what is around it, by which it is judged.
            let mut around = [0_u8; 3 * PART];
            for (place, part) in around.chunks_mut(PART).zip([before, here, after]) {
                place.copy_from_slice(&part.unwrap_or([0; PART]));
            }
            let first = if before.is_some() { 0 } else { PART };
            let last = if after.is_some() { 3 * PART } else { 2 * PART };
            if around.get(first..last).is_some_and(|part| has_call(part, PART - first, PART)) {
                return true;
            }
            before = Some(bytes);
        } else {
            before = None;
        }
        here = after;
    }
    false
}

/// After a call that has given these pages this protection. They may be known to be all zero.
fn after(start: usize, len: usize, protection: c_int, is_empty: bool) {
    if protection & libc::PROT_EXEC != 0 {
        let end = start.saturating_add(len.next_multiple_of(4096));
        look_at(Range { start, end }, protection & libc::PROT_WRITE != 0, is_empty);
    }
}

/// mmap(2).
///
/// # Safety
/// As mmap(2).
pub(in super::super) unsafe fn mmap(
    address: *mut c_void,
    len: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
    call: impl FnOnce(*mut c_void, size_t, c_int, c_int, c_int, off_t) -> usize,
) -> usize {
    let start = call(address, len, protection, flags, fd, offset);
    if start != MAP_FAILED.addr() {
        let shared =
            flags & libc::MAP_TYPE != libc::MAP_PRIVATE && protection & libc::PROT_EXEC != 0;
        let protection = if shared { protection | libc::PROT_WRITE } else { protection };
        after(start, len, protection, flags & libc::MAP_ANONYMOUS != 0);
    }
    start
}

/// mprotect(2).
///
/// # Safety
/// As mprotect(2).
pub(in super::super) unsafe fn mprotect(
    address: *mut c_void,
    len: size_t,
    protection: c_int,
    call: impl FnOnce(*mut c_void, size_t, c_int) -> c_int,
) -> c_int {
    let result = call(address, len, protection);
    if result == 0 {
        after(address.addr(), len, protection, false);
    }
    result
}

/// pkey_mprotect(2).
///
/// # Safety
/// As pkey_mprotect(2).
pub(in super::super) unsafe fn pkey_mprotect(
    address: *mut c_void,
    len: size_t,
    protection: c_int,
    key: c_int,
    call: impl FnOnce(*mut c_void, size_t, c_int, c_int) -> c_int,
) -> c_int {
    let result = call(address, len, protection, key);
    if result == 0 {
        after(address.addr(), len, protection, false);
    }
    result
}

/// Before mremap(2), which may take code to where its calls pass.
pub(in super::super) fn before_mremap() {
    if let Some(Shape::Only(_)) = dispatch::shape()
        && !is_moot()
    {
        leave("the program", Why::Call);
    }
}

/// shmat(2).
///
/// # Safety
/// As shmat(2).
pub(in super::super) unsafe fn shmat(
    segment: c_int,
    address: *const c_void,
    flags: c_int,
    call: impl FnOnce(c_int, *const c_void, c_int) -> usize,
) -> usize {
    let attached = call(segment, address, flags);
    if flags & libc::SHM_EXEC != 0 && attached != MAP_FAILED.addr() {
        // However long it is: it can be written by others at any time.
        look_at(Range { start: attached, end: attached + 1 }, true, false);
    }
    attached
}
