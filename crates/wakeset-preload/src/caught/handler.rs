//! Our handler of SIGSYS.
//!
//! It runs where the instruction is, on whatever stack that has, with every signal blocked but the
//! faults and SIGSYS itself. It never waits for what the program does: a call that may block is
//! made afterwards, in the instruction's place.

use super::decide::{Outcome, decide};
use crate::calls::{Why, is_moot, leave};
use crate::dispatch;
use crate::signals;
use core::ffi::{c_int, c_void};
use libc::{siginfo_t, ucontext_t};

/// What `si_code` says for a call that dispatch has caught.
const SYS_USER_DISPATCH: c_int = 2;
/// The kernel's name for calls that are made by `syscall`, and not by `int 0x80`.
const X86_64: u32 = 0xc000_003e;

/// `siginfo_t` as SIGSYS has it.
#[repr(C)]
struct Caught {
    signal: c_int,
    errno: c_int,
    code: c_int,
    call_address: usize,
    number: c_int,
    architecture: u32,
}

core::arch::global_asm!(
    ".pushsection .text.wakeset_on_sigsys,\"ax\",@progbits",
    ".hidden wakeset_on_sigsys",
    ".globl wakeset_on_sigsys",
    ".type wakeset_on_sigsys,@function",
    "wakeset_on_sigsys:",
    "endbr64",
    "jmp {handler}",
    ".size wakeset_on_sigsys, . - wakeset_on_sigsys",
    ".popsection",
    handler = sym on_sigsys,
);

/// Our handler, by a name that rooms below this one know.
///
/// # Safety
/// The kernel calls it.
unsafe extern "C-unwind" fn on_sigsys(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes both, and SIGSYS has this structure.
    let (caught, frame) =
        unsafe { (&*info.cast_const().cast::<Caught>(), &mut *context.cast::<ucontext_t>()) };
    if caught.code != SYS_USER_DISPATCH || !dispatch::is_armed() {
        // SAFETY: what the kernel has passed.
        unsafe { signals::on_other_sigsys(signal, info, context) };
        return;
    }
    // SAFETY: this thread's errno.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: the frame is that of the caught instruction.
    unsafe { answer(caught, frame) };
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// # Safety
/// What the kernel has passed for a caught call.
unsafe fn answer(caught: &Caught, frame: &mut ucontext_t) {
    let register = |index: c_int| frame.uc_mcontext.gregs[index as usize] as usize;
    let registers = [
        register(libc::REG_RDI),
        register(libc::REG_RSI),
        register(libc::REG_RDX),
        register(libc::REG_R10),
        register(libc::REG_R8),
        register(libc::REG_R9),
    ];
    let goes_on = register(libc::REG_RIP);
    let number = register(libc::REG_RAX) as u32 as usize;
    let outcome = if is_moot() || caught.architecture != X86_64 {
        Outcome::Left
    } else if dispatch::is_too_often() {
        leave("the program", Why::Often);
        Outcome::Left
    } else {
        // SAFETY: the caller's contract.
        unsafe { decide(number, registers, frame) }
    };
    let site = if outcome == Outcome::Made { dispatch::site_of(goes_on) } else { None };
    let rip = &mut frame.uc_mcontext.gregs[libc::REG_RIP as usize];
    match (outcome, site) {
        (Outcome::Made, Some(site)) => *rip = site as i64,
        (Outcome::Answered(result), _) => {
            frame.uc_mcontext.gregs[libc::REG_RAX as usize] = result as i64;
        }
        (Outcome::Left | Outcome::Made, _) => {
            // Both instructions that enter the kernel have two bytes.
            *rip = goes_on as i64 - 2;
            if !is_moot() {
                leave("the program", Why::Call);
            }
            dispatch::disarm_thread();
        }
    }
}
