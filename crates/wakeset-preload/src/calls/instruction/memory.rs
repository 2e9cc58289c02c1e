//! Memory that becomes executable after the program has begun.
//!
//! What it contains is looked at when it becomes executable. Memory that can be written all the
//! same may get its code later: dispatch is turned on for it where that can be done (there is one
//! thread, and the kernel has it), because then it sees every call whatever comes. Elsewhere such
//! memory is taken for that of a compiler, which makes no system calls by itself.

use super::{Why, is_moot, leave, see_to};
use crate::dispatch::{self, Look, Object, Range, Shape, has_instruction};
use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};
use libc::{MAP_FAILED, off_t, size_t};
use syscalls::{Errno, Sysno, syscall};
use wakeset_fd::interpose::fail;
use wakeset_fd::user;

/// Where such memory is: from the lowest to the highest address of all there was. No address: none.
static START: AtomicUsize = AtomicUsize::new(usize::MAX);
static END: AtomicUsize = AtomicUsize::new(0);

/// Adds what there is to a look at the objects.
pub(super) fn add_to(look: &mut Look) {
    let (start, end) = (START.load(Ordering::SeqCst), END.load(Ordering::SeqCst));
    if start < end {
        look.add(Object::memory(Range { start, end }));
    }
}

/// Memory has been made executable.
#[cold]
fn look_at(code: Range, is_writable: bool) {
    if is_moot() || dispatch::shape().is_some_and(|shape| shape.catches(code)) {
        return;
    }
    let is_found = contains_instruction(code);
    if !is_found && !is_writable {
        return;
    }
    START.fetch_min(code.start, Ordering::SeqCst);
    END.fetch_max(code.end, Ordering::SeqCst);
    let mut look = Look::now();
    add_to(&mut look);
    match see_to(&look) {
        Err(why) if is_found => leave(look.objects().last(), why),
        _ => {}
    }
}

/// Whether there are system call instructions in memory that need not be there to its end.
fn contains_instruction(code: Range) -> bool {
    const PART: usize = 256;
    let mut last = 0;
    for start in (code.start..code.end).step_by(PART) {
        let mut part = [0_u8; PART + 1];
        // SAFETY: any bits are bytes.
        let bytes = unsafe { user::load(ptr::with_exposed_provenance::<[u8; PART]>(start)) };
        let Some(bytes) = bytes else { continue };
        // With the byte before, in which an instruction may begin.
        part[0] = last;
        part[1..].copy_from_slice(&bytes);
        last = part[PART];
        if has_instruction(&part, None) {
            return true;
        }
    }
    false
}

/// After a call that has given these pages this protection.
fn after(start: usize, len: usize, protection: c_int) {
    if protection & libc::PROT_EXEC != 0 {
        let end = start.saturating_add(len.next_multiple_of(4096));
        look_at(Range { start, end }, protection & libc::PROT_WRITE != 0);
    }
}

/// What a call returns, in libc's form.
fn returned(result: Result<usize, Errno>) -> usize {
    result.unwrap_or_else(|errno| fail(errno.into_raw()) as usize)
}

/// mmap(2). Without libc's function: an allocator may call this while it holds a lock that the
/// look-up of that function would want.
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
    _: impl FnOnce(*mut c_void, size_t, c_int, c_int, c_int, off_t) -> usize,
) -> usize {
    // SAFETY: the caller's contract.
    let mapped = unsafe { syscall!(Sysno::mmap, address, len, protection, flags, fd, offset) };
    if let Ok(start) = mapped {
        let shared =
            flags & libc::MAP_TYPE != libc::MAP_PRIVATE && protection & libc::PROT_EXEC != 0;
        after(start, len, if shared { protection | libc::PROT_WRITE } else { protection });
    }
    returned(mapped)
}

/// mprotect(2). Without libc's function, as mmap(2).
///
/// # Safety
/// As mprotect(2).
pub(in super::super) unsafe fn mprotect(
    address: *mut c_void,
    len: size_t,
    protection: c_int,
    _: impl FnOnce(*mut c_void, size_t, c_int) -> c_int,
) -> c_int {
    // SAFETY: the caller's contract.
    let result = unsafe { syscall!(Sysno::mprotect, address, len, protection) };
    if result.is_ok() {
        after(address.addr(), len, protection);
    }
    returned(result) as c_int
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
    _: impl FnOnce(*mut c_void, size_t, c_int, c_int) -> c_int,
) -> c_int {
    // SAFETY: the caller's contract.
    let result = unsafe { syscall!(Sysno::pkey_mprotect, address, len, protection, key) };
    if result.is_ok() {
        after(address.addr(), len, protection);
    }
    returned(result) as c_int
}

/// Before mremap(2), which may take code to where its calls pass.
pub(in super::super) fn before_mremap() {
    if let Some(Shape::Only(_)) = dispatch::shape()
        && !is_moot()
    {
        leave(None, Why::Call);
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
        look_at(Range { start: attached, end: attached + 1 }, true);
    }
    attached
}
