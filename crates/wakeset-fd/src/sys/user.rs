//! The caller's memory, which may not be mapped.
//!
//! The kernel answers a bad pointer with EFAULT, and so must this crate. Each access here is an
//! instruction with an entry in a table of its own. Whoever owns the process's SIGSEGV handler (the
//! preload library) looks up a faulting instruction with [`recovery`] and resumes after the access,
//! which then reports failure.
//!
//! Without such an owner a bad pointer faults, as it does in any function of libc.

use libc::epoll_event;

// The linker defines the table's bounds. They are hidden: another library has bounds of its own.
#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(".hidden __start_wakeset_faults", ".hidden __stop_wakeset_faults");

/// The instruction at label 2 may fault; execution resumes at label 3.
#[cfg(target_arch = "x86_64")]
macro_rules! may_fault {
    () => {
        concat!(
            ".pushsection wakeset_faults,\"aR\",@progbits\n",
            ".balign 4\n.long 2b - .\n.long 3b - .\n.popsection",
        )
    };
}
#[cfg(target_arch = "x86_64")]
pub(crate) use may_fault;

/// Reads 8 bytes; `None` if the memory is not mapped.
///
/// # Safety
/// If the memory is mapped, no other thread writes to it at the same time in a way that matters to
/// the caller.
#[inline(always)]
pub(crate) unsafe fn load_u64(pointer: *const u64) -> Option<u64> {
    #[cfg(target_arch = "x86_64")]
    {
        let value: u64;
        let mut done: u32 = 0;
        // SAFETY: a fault resumes at 3 with `done` still 0.
        unsafe {
            core::arch::asm!(
                "2: mov {value}, qword ptr [{pointer}]",
                "mov {done:e}, 1",
                "3:",
                may_fault!(),
                value = out(reg) value,
                pointer = in(reg) pointer,
                done = inout(reg) done,
                options(nostack, readonly, preserves_flags),
            );
        }
        (done != 0).then_some(value)
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: by the caller.
    Some(unsafe { pointer.read_unaligned() })
}

/// Reads 8 bytes; `otherwise` if the memory is not mapped.
///
/// # Safety
/// As [`load_u64`].
#[inline(always)]
pub(crate) unsafe fn load_u64_or(pointer: *const u64, otherwise: u64) -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        let mut value = otherwise;
        // SAFETY: a fault resumes at 3 with `value` as it was.
        unsafe {
            core::arch::asm!(
                "2: mov {value}, qword ptr [{pointer}]",
                "3:",
                may_fault!(),
                value = inout(reg) value,
                pointer = in(reg) pointer,
                options(nostack, readonly, preserves_flags),
            );
        }
        value
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = otherwise;
        // SAFETY: by the caller.
        unsafe { pointer.read_unaligned() }
    }
}

/// Writes 8 bytes. Returns whether the memory was mapped.
///
/// # Safety
/// If the memory is mapped, it is the caller's to give.
#[inline(always)]
pub unsafe fn store_u64(pointer: *mut u64, value: u64) -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        let mut done: u32 = 0;
        // SAFETY: a fault resumes at 3 with `done` still 0.
        unsafe {
            core::arch::asm!(
                "2: mov qword ptr [{pointer}], {value}",
                "mov {done:e}, 1",
                "3:",
                may_fault!(),
                value = in(reg) value,
                pointer = in(reg) pointer,
                done = inout(reg) done,
                options(nostack, preserves_flags),
            );
        }
        done != 0
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        // SAFETY: by the caller.
        unsafe { pointer.write_unaligned(value) };
        true
    }
}

/// Writes 2 bytes. Returns whether the memory was mapped.
///
/// # Safety
/// If the memory is mapped, it is the caller's to give.
#[inline(always)]
pub(crate) unsafe fn store_u16(pointer: *mut u16, value: u16) -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        let mut done: u32 = 0;
        // SAFETY: a fault resumes at 3 with `done` still 0.
        unsafe {
            core::arch::asm!(
                "2: mov word ptr [{pointer}], {value:x}",
                "mov {done:e}, 1",
                "3:",
                may_fault!(),
                value = in(reg) value,
                pointer = in(reg) pointer,
                done = inout(reg) done,
                options(nostack, preserves_flags),
            );
        }
        done != 0
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        // SAFETY: by the caller.
        unsafe { pointer.write_unaligned(value) };
        true
    }
}

/// Writes the last 2 of the 8 bytes of each of `n` entries, `revents` of poll(2)'s array, from an
/// array of the same form. Returns whether all the memory was mapped.
///
/// # Safety
/// `from` is valid for `n` entries. As far as the other memory is mapped, it is the caller's to
/// give.
#[inline(always)]
pub(crate) unsafe fn store_revents(from: *const u64, to: *mut libc::pollfd, n: usize) -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        let mut left = n.wrapping_neg();
        // SAFETY: a fault resumes at 3 with entries left. From the first on, as the kernel does.
        unsafe {
            core::arch::asm!(
                "test {left}, {left}",
                "jz 3f",
                "4: movzx {revents:e}, word ptr [{from} + 8 * {left} + 6]",
                "2: mov word ptr [{to} + 8 * {left} + 6], {revents:x}",
                "inc {left}",
                "jnz 4b",
                "3:",
                may_fault!(),
                revents = out(reg) _,
                from = in(reg) from.wrapping_add(n),
                to = in(reg) to.wrapping_add(n),
                left = inout(reg) left,
                options(nostack),
            );
        }
        left == 0
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        for i in 0..n {
            // SAFETY: by the caller.
            unsafe { (*to.add(i)).revents = (*from.add(i) >> 48) as i16 };
        }
        true
    }
}

/// Writes as many bytes as there is mapped memory for, and returns how many that were.
///
/// # Safety
/// As far as the memory is mapped, it is the caller's to give.
pub(crate) unsafe fn store_part(pointer: *mut u8, bytes: &[u8]) -> usize {
    // SAFETY: by the caller.
    bytes.len() - unsafe { copy_up_to(bytes.as_ptr(), pointer, bytes.len()) }
}

/// Reads one byte; `None` if the memory is not mapped.
///
/// # Safety
/// If the memory is mapped, no other thread writes to it at the same time in a way that matters to
/// the caller.
#[inline(always)]
pub unsafe fn load_u8(pointer: *const u8) -> Option<u8> {
    #[cfg(target_arch = "x86_64")]
    {
        let value: u32;
        let mut done: u32 = 0;
        // SAFETY: a fault resumes at 3 with `done` still 0.
        unsafe {
            core::arch::asm!(
                "2: movzx {value:e}, byte ptr [{pointer}]",
                "mov {done:e}, 1",
                "3:",
                may_fault!(),
                value = out(reg) value,
                pointer = in(reg) pointer,
                done = inout(reg) done,
                options(nostack, readonly, preserves_flags),
            );
        }
        (done != 0).then_some(value as u8)
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: by the caller.
    Some(unsafe { pointer.read() })
}

/// Returns whether a byte can be written, without changing it.
///
/// # Safety
/// If the memory is mapped, it is the caller's to give.
#[inline(always)]
unsafe fn touch_byte(pointer: *mut u8) -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        let mut done: u32 = 0;
        // SAFETY: a fault resumes at 3 with `done` still 0. One locked instruction: another
        // thread's write to the byte is not lost.
        unsafe {
            core::arch::asm!(
                "2: lock or byte ptr [{pointer}], 0",
                "mov {done:e}, 1",
                "3:",
                may_fault!(),
                pointer = in(reg) pointer,
                done = inout(reg) done,
                options(nostack),
            );
        }
        done != 0
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = pointer;
        true
    }
}

/// Returns whether `len` bytes can be written, without changing them.
///
/// # Safety
/// If the memory is mapped, it is the caller's to give.
#[inline(always)]
pub(crate) unsafe fn touch(pointer: *mut u8, len: usize) -> bool {
    const PAGE: usize = 4096;
    if len <= 1 {
        // SAFETY: the same contract.
        return len == 0 || unsafe { touch_byte(pointer) };
    }
    let last = pointer.wrapping_add(len - 1);
    let mut pages = pointer.addr() / PAGE + 1..=last.addr() / PAGE;
    // SAFETY: the same contract.
    pages.all(|page| unsafe { touch_byte(pointer.with_addr(page * PAGE)) })
        // SAFETY: the same contract.
        && unsafe { touch_byte(pointer) }
}

/// Fills `bytes` from the caller's memory. Returns whether all of it was mapped.
///
/// # Safety
/// As [`load_u64`].
pub(crate) unsafe fn load_bytes(pointer: *const u8, bytes: &mut [u8]) -> bool {
    // SAFETY: `bytes` is valid memory of that length; the other side may fault.
    unsafe { copy(pointer, bytes.as_mut_ptr(), bytes.len()) }
}

/// Writes `bytes` to the caller's memory. Returns whether it could write them all.
///
/// # Safety
/// If the memory is mapped, it is the caller's to give.
#[inline(always)]
pub(crate) unsafe fn store_bytes(pointer: *mut u8, bytes: &[u8]) -> bool {
    #[cfg(target_arch = "x86_64")]
    if let [byte] = bytes {
        let mut done: u32 = 0;
        // SAFETY: a fault resumes at 3 with `done` still 0.
        unsafe {
            core::arch::asm!(
                "2: mov byte ptr [{pointer}], {byte}",
                "mov {done:e}, 1",
                "3:",
                may_fault!(),
                byte = in(reg_byte) *byte,
                pointer = in(reg) pointer,
                done = inout(reg) done,
                options(nostack, preserves_flags),
            );
        }
        return done != 0;
    }
    // SAFETY: `bytes` is valid memory of that length; the other side may fault.
    unsafe { copy(bytes.as_ptr(), pointer, bytes.len()) }
}

/// Writes an int. Returns whether the memory was mapped.
///
/// # Safety
/// If the memory is mapped, it is the caller's to give.
pub unsafe fn store_int(pointer: *mut i32, value: i32) -> bool {
    // SAFETY: the same contract.
    unsafe { store_bytes(pointer.cast(), &value.to_ne_bytes()) }
}

/// Copies `len` bytes. Returns whether it could copy them all.
///
/// # Safety
/// As [`copy_up_to`].
#[inline(always)]
unsafe fn copy(from: *const u8, to: *mut u8, len: usize) -> bool {
    // SAFETY: by the caller.
    unsafe { copy_up_to(from, to, len) == 0 }
}

/// Copies `len` bytes, or as many as come before a fault, and returns how many are left.
///
/// # Safety
/// One side is valid memory of this crate with room for `len` bytes, the other is the caller's to
/// give.
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

/// Reads a plain value, at any alignment; `None` if the memory is not mapped.
///
/// # Safety
/// `T` is valid for every bit pattern.
pub unsafe fn load<T: Copy>(pointer: *const T) -> Option<T> {
    if const { size_of::<T>() == 8 } {
        // SAFETY: the same contract; the two types have the same size, and any bits are valid.
        return unsafe { load_u64(pointer.cast()).map(|bits| core::mem::transmute_copy(&bits)) };
    }
    let mut value = core::mem::MaybeUninit::<T>::uninit();
    // SAFETY: `value` is valid memory of that size; the other side may fault.
    let done = unsafe { copy(pointer.cast(), value.as_mut_ptr().cast(), size_of::<T>()) };
    // SAFETY: all bytes were copied, and any are valid by the caller's contract.
    done.then(|| unsafe { value.assume_init() })
}

/// Writes one event. Returns whether the memory was mapped.
///
/// # Safety
/// If the memory is mapped, it is the caller's to give.
#[inline(always)]
pub(crate) unsafe fn store_event(pointer: *mut epoll_event, event: epoll_event) -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        let mut done: u32 = 0;
        // The data goes first, so that an event that reaches into an unmapped page is not half
        // written: it does not count, but it could mislead a reader.
        // SAFETY: as in `store_u64`; the two accesses have an entry each.
        unsafe {
            core::arch::asm!(
                "2: mov qword ptr [{pointer} + 4], {data}",
                "4: mov dword ptr [{pointer}], {events:e}",
                "mov {done:e}, 1",
                "3:",
                may_fault!(),
                ".pushsection wakeset_faults,\"aR\",@progbits",
                ".long 4b - .",
                ".long 3b - .",
                ".popsection",
                data = in(reg) event.u64,
                events = in(reg) event.events,
                pointer = in(reg) pointer,
                done = inout(reg) done,
                options(nostack, preserves_flags),
            );
        }
        done != 0
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        // SAFETY: by the caller.
        unsafe { pointer.write_unaligned(event) };
        true
    }
}

/// Returns where to resume when the instruction at `address` has faulted; `None` if the instruction
/// is not in the table. For SIGSEGV and SIGBUS handlers; async-signal-safe.
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
            // SAFETY: the memory between start and stop holds pairs that `may_fault` wrote, each
            // relative to its own address.
            let [instruction, resume] = unsafe { *entry };
            let at = |offset: i32, base: usize| base.wrapping_add_signed(offset as isize);
            if at(instruction, entry.addr()) == address {
                return Some(at(resume, entry.addr() + 4));
            }
            entry = entry.wrapping_add(1);
        }
    }
    let _ = address;
    None
}
