//! The caller's memory, which may not be there. The kernel answers a bad pointer with EFAULT and so must we: each access here is an
//! instruction with an entry in a table of its own, and whoever owns the process's SIGSEGV handler (the preload library) looks a faulting
//! instruction up with [`recovery`] and resumes behind the access, which then reports failure.
//!
//! Without such an owner a bad pointer faults, as in any function of libc.

use libc::epoll_event;

// The table's bounds, which the linker makes, are nobody else's business.
#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(".hidden __start_wakeset_faults", ".hidden __stop_wakeset_faults");

/// The instruction at label 2 may fault; execution resumes at label 3.
#[cfg(target_arch = "x86_64")]
macro_rules! may_fault {
    () => {
        ".pushsection wakeset_faults,\"aR\",@progbits\n.balign 4\n.long 2b - .\n.long 3b - .\n.popsection"
    };
}

/// Reads 8 bytes.
///
/// # Safety
/// The memory, if it is there, is not written by another thread at the same time in a way that matters to the caller.
#[inline(always)]
pub(crate) unsafe fn load_u64(place: *const u64) -> Option<u64> {
    #[cfg(target_arch = "x86_64")]
    {
        let value: u64;
        let mut done: u32 = 0;
        // SAFETY: a fault resumes at 3 with `done` still 0.
        unsafe {
            core::arch::asm!(
                "2: mov {value}, qword ptr [{place}]",
                "mov {done:e}, 1",
                "3:",
                may_fault!(),
                value = out(reg) value,
                place = in(reg) place,
                done = inout(reg) done,
                options(nostack, readonly, preserves_flags),
            );
        }
        (done != 0).then_some(value)
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: by the caller.
    Some(unsafe { place.read_unaligned() })
}

/// Writes 8 bytes; whether it could.
///
/// # Safety
/// The memory, if it is there, is the caller's to give.
#[inline(always)]
pub unsafe fn store_u64(place: *mut u64, value: u64) -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        let mut done: u32 = 0;
        // SAFETY: a fault resumes at 3 with `done` still 0.
        unsafe {
            core::arch::asm!(
                "2: mov qword ptr [{place}], {value}",
                "mov {done:e}, 1",
                "3:",
                may_fault!(),
                value = in(reg) value,
                place = in(reg) place,
                done = inout(reg) done,
                options(nostack, preserves_flags),
            );
        }
        done != 0
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        // SAFETY: by the caller.
        unsafe { place.write_unaligned(value) };
        true
    }
}

/// Writes bytes, as many as there is memory for; how many those were.
///
/// # Safety
/// The memory, as far as it is there, is the caller's to give.
pub(crate) unsafe fn store_part(place: *mut u8, bytes: &[u8]) -> usize {
    // SAFETY: by the caller.
    bytes.len() - unsafe { copy_up_to(bytes.as_ptr(), place, bytes.len()) }
}

/// Reads one byte.
///
/// # Safety
/// The memory, if it is there, is not written by another thread at the same time in a way that matters to the caller.
#[inline(always)]
pub unsafe fn load_u8(place: *const u8) -> Option<u8> {
    #[cfg(target_arch = "x86_64")]
    {
        let value: u32;
        let mut done: u32 = 0;
        // SAFETY: a fault resumes at 3 with `done` still 0.
        unsafe {
            core::arch::asm!(
                "2: movzx {value:e}, byte ptr [{place}]",
                "mov {done:e}, 1",
                "3:",
                may_fault!(),
                value = out(reg) value,
                place = in(reg) place,
                done = inout(reg) done,
                options(nostack, readonly, preserves_flags),
            );
        }
        (done != 0).then_some(value as u8)
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: by the caller.
    Some(unsafe { place.read() })
}

/// Makes sure that a byte can be written, without changing it.
///
/// # Safety
/// The memory, if it is there, is the caller's to give.
#[inline(always)]
unsafe fn touch_byte(place: *mut u8) -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        let mut done: u32 = 0;
        // SAFETY: a fault resumes at 3 with `done` still 0. One locked instruction: another thread's write to the byte is not lost.
        unsafe {
            core::arch::asm!(
                "2: lock or byte ptr [{place}], 0",
                "mov {done:e}, 1",
                "3:",
                may_fault!(),
                place = in(reg) place,
                done = inout(reg) done,
                options(nostack),
            );
        }
        done != 0
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = place;
        true
    }
}

/// Whether `len` bytes can be written; they are not changed.
///
/// # Safety
/// The memory, if it is there, is the caller's to give.
#[inline(always)]
pub(crate) unsafe fn touch(place: *mut u8, len: usize) -> bool {
    const PAGE: usize = 4096;
    if len <= 1 {
        // SAFETY: the same contract.
        return len == 0 || unsafe { touch_byte(place) };
    }
    let last = place.wrapping_add(len - 1);
    // SAFETY: the same contract.
    (place.addr() / PAGE + 1..=last.addr() / PAGE).all(|page| unsafe { touch_byte(place.with_addr(page * PAGE)) })
        // SAFETY: the same contract.
        && unsafe { touch_byte(place) }
}

/// Fills `bytes` from the caller's memory; whether it could.
///
/// # Safety
/// As [`load_u64`].
pub(crate) unsafe fn load_bytes(place: *const u8, bytes: &mut [u8]) -> bool {
    // SAFETY: our own memory of that length; the other side may fault.
    unsafe { copy(place, bytes.as_mut_ptr(), bytes.len()) }
}

/// Writes `bytes` to the caller's memory; whether it could write them all.
///
/// # Safety
/// The memory, if it is there, is the caller's to give.
#[inline(always)]
pub(crate) unsafe fn store_bytes(place: *mut u8, bytes: &[u8]) -> bool {
    #[cfg(target_arch = "x86_64")]
    if let [byte] = bytes {
        let mut done: u32 = 0;
        // SAFETY: a fault resumes at 3 with `done` still 0.
        unsafe {
            core::arch::asm!(
                "2: mov byte ptr [{place}], {byte}",
                "mov {done:e}, 1",
                "3:",
                may_fault!(),
                byte = in(reg_byte) *byte,
                place = in(reg) place,
                done = inout(reg) done,
                options(nostack, preserves_flags),
            );
        }
        return done != 0;
    }
    // SAFETY: our own memory of that length; the other side may fault.
    unsafe { copy(bytes.as_ptr(), place, bytes.len()) }
}

/// Writes an int; whether it could.
///
/// # Safety
/// The memory, if it is there, is the caller's to give.
pub unsafe fn store_int(place: *mut i32, value: i32) -> bool {
    // SAFETY: the same contract.
    unsafe { store_bytes(place.cast(), &value.to_ne_bytes()) }
}

/// Copies `len` bytes; whether it could copy them all.
///
/// # Safety
/// As [`copy_up_to`].
#[inline(always)]
unsafe fn copy(from: *const u8, to: *mut u8, len: usize) -> bool {
    // SAFETY: by the caller.
    unsafe { copy_up_to(from, to, len) == 0 }
}

/// Copies `len` bytes until a fault; how many are left.
///
/// # Safety
/// One side is memory of our own with room for `len` bytes, the other is the caller's to give.
#[inline(always)]
unsafe fn copy_up_to(from: *const u8, to: *mut u8, len: usize) -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        let left: usize;
        // SAFETY: `rep movsb` counts down in rcx; a fault resumes at 3 with what is left.
        unsafe {
            core::arch::asm!(
                "2: rep movsb",
                "3:",
                may_fault!(),
                inout("rcx") len => left,
                inout("rsi") from => _,
                inout("rdi") to => _,
                options(nostack, preserves_flags),
            );
        }
        left
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        // SAFETY: by the caller.
        unsafe { core::ptr::copy_nonoverlapping(from, to, len) };
        0
    }
}

/// Reads a plain value, at any alignment; `None` if the memory is not there.
///
/// # Safety
/// `T` is valid for every bit pattern.
pub unsafe fn load<T: Copy>(place: *const T) -> Option<T> {
    if const { size_of::<T>() == 8 } {
        // SAFETY: the same contract; the two types have the same size, and any bits are valid.
        return unsafe { load_u64(place.cast()).map(|bits| core::mem::transmute_copy(&bits)) };
    }
    let mut value = core::mem::MaybeUninit::<T>::uninit();
    // SAFETY: our own memory of that size; the other side may fault.
    let done = unsafe { copy(place.cast(), value.as_mut_ptr().cast(), size_of::<T>()) };
    // SAFETY: all bytes were copied, and any are valid by the caller's contract.
    done.then(|| unsafe { value.assume_init() })
}

/// Writes one event; whether it could.
///
/// # Safety
/// The memory, if it is there, is the caller's to give.
#[inline(always)]
pub(crate) unsafe fn store_event(place: *mut epoll_event, event: epoll_event) -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        let mut done: u32 = 0;
        // The data first: an event that reaches into a missing page must not be half there (what is there
        // does not count, but a reader should not be misled).
        // SAFETY: as in `store_u64`; the two accesses have an entry each.
        unsafe {
            core::arch::asm!(
                "2: mov qword ptr [{place} + 4], {data}",
                "4: mov dword ptr [{place}], {events:e}",
                "mov {done:e}, 1",
                "3:",
                may_fault!(),
                ".pushsection wakeset_faults,\"aR\",@progbits",
                ".long 4b - .",
                ".long 3b - .",
                ".popsection",
                data = in(reg) event.u64,
                events = in(reg) event.events,
                place = in(reg) place,
                done = inout(reg) done,
                options(nostack, preserves_flags),
            );
        }
        done != 0
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        // SAFETY: by the caller.
        unsafe { place.write_unaligned(event) };
        true
    }
}

/// Where to resume when the instruction at `address` has faulted; `None` if it is not one of ours. For SIGSEGV and SIGBUS handlers;
/// async-signal-safe.
pub fn recovery(address: usize) -> Option<usize> {
    #[cfg(target_arch = "x86_64")]
    {
        unsafe extern "C" {
            #[link_name = "__start_wakeset_faults"]
            static START: [i32; 2];
            #[link_name = "__stop_wakeset_faults"]
            static STOP: [i32; 2];
        }
        let (start, stop) = (&raw const START, &raw const STOP);
        let mut entry = start;
        while entry < stop {
            // SAFETY: between start and stop stand pairs that `may_fault` wrote, each relative to its own place.
            let [instruction, resume] = unsafe { *entry };
            let at = |offset: i32, place: usize| place.wrapping_add_signed(offset as isize);
            if at(instruction, entry.addr()) == address {
                return Some(at(resume, entry.addr() + 4));
            }
            entry = entry.wrapping_add(1);
        }
    }
    let _ = address;
    None
}
