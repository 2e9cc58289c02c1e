//! A sleep that does not begin once a signal has been handled: how a wait that makes several system
//! calls is as sure of EINTR as one that makes a single call.
//!
//! The thread counts the signals that it handles. [`enter`] looks at the count and enters the
//! kernel; [`interrupt`], which runs before each handler, moves a thread that is between the two to
//! the way out.

use core::ffi::{c_int, c_void};
use libc::{epoll_event, ucontext_t};
use syscalls::{Errno, Sysno};

core::arch::global_asm!(
    // wakeset_sleep(number, set, events, capacity, limit, mask, handled, before): epoll_pwait(2)
    // or epoll_pwait2(2), unless a signal was handled since `before`.
    ".pushsection .text.wakeset_sleep,\"ax\",@progbits",
    ".hidden wakeset_sleep",
    ".hidden wakeset_sleep_check",
    ".hidden wakeset_sleep_enter",
    ".hidden wakeset_sleep_interrupted",
    ".type wakeset_sleep,@function",
    "wakeset_sleep:",
    ".cfi_startproc",
    "mov rax, rdi",
    "mov rdi, rsi",
    "mov rsi, rdx",
    "mov rdx, rcx",
    "mov r10, r8",
    "mov r8, r9",
    "mov r9d, 8",
    "mov r11, [rsp + 8]",
    "mov ecx, [rsp + 16]",
    ".globl wakeset_sleep_check",
    "wakeset_sleep_check:",
    "cmp dword ptr [r11], ecx",
    "jne wakeset_sleep_interrupted",
    ".globl wakeset_sleep_enter",
    "wakeset_sleep_enter:",
    "syscall",
    "ret",
    ".globl wakeset_sleep_interrupted",
    "wakeset_sleep_interrupted:",
    "mov rax, -4",
    "ret",
    ".cfi_endproc",
    ".size wakeset_sleep, . - wakeset_sleep",
    ".popsection",
);

unsafe extern "C-unwind" {
    fn wakeset_sleep(
        number: usize,
        set: c_int,
        events: *mut epoll_event,
        capacity: usize,
        limit: isize,
        mask: *const u64,
        handled: *const u32,
        before: u32,
    ) -> isize;
    static wakeset_sleep_check: u8;
    static wakeset_sleep_enter: u8;
    static wakeset_sleep_interrupted: u8;
}

/// In a signal handler: a thread that was about to sleep in [`enter`] does not.
///
/// # Safety
/// The context is what the kernel passed to the handler.
pub(super) unsafe fn interrupt(context: *mut c_void) {
    // SAFETY: the caller's contract; and the labels are in our code.
    unsafe {
        let address =
            &raw mut (*context.cast::<ucontext_t>()).uc_mcontext.gregs[libc::REG_RIP as usize];
        let here = *address as usize;
        if here >= (&raw const wakeset_sleep_check).addr()
            && here <= (&raw const wakeset_sleep_enter).addr()
        {
            *address = (&raw const wakeset_sleep_interrupted).addr() as i64;
        }
    }
}

/// epoll_pwait(2) or epoll_pwait2(2) on a set, unless `*handled` is no longer `before`: then EINTR.
///
/// # Safety
/// `limit` and `mask` are as that call wants them; `handled` is this thread's count.
pub(crate) unsafe fn enter(
    number: Sysno,
    set: c_int,
    events: &mut [epoll_event],
    limit: isize,
    mask: *const u64,
    handled: *const u32,
    before: u32,
) -> Result<usize, Errno> {
    let (memory, capacity) = (events.as_mut_ptr(), events.len());
    // SAFETY: memory for that many events; the rest is the caller's contract.
    let result = unsafe {
        wakeset_sleep(number as usize, set, memory, capacity, limit, mask, handled, before)
    };
    usize::try_from(result).map_err(|_| Errno::new(-result as i32))
}
