//! System calls of our own that may be refused.
//!
//! A seccomp filter may answer a call with SIGSYS (`SECCOMP_RET_TRAP`), and the program's handler
//! then makes the call in another way: Chromium's sandbox asks another process to open the file.
//! The program knows nothing of the calls that we make for ourselves, and they are made in critical
//! sections; its handler would run in the middle of one. So those that we can do without have an
//! entry in the table of [`user`](super::user), and whoever owns the process's signal handlers
//! resumes after the call, which then fails with EPERM.

use syscalls::{Errno, Sysno};

/// Makes a system call that may be refused.
///
/// # Safety
/// As the call.
///
/// # Errors
/// Those of the call, and EPERM.
#[inline(always)]
pub unsafe fn call(number: Sysno, arguments: [usize; 4]) -> Result<usize, Errno> {
    #[cfg(target_arch = "x86_64")]
    {
        let result: usize;
        // SAFETY: the caller's contract. A filter's SIGSYS arrives with the address of label 2 and
        // resumes at 3.
        unsafe {
            core::arch::asm!(
                "syscall",
                "2: jmp 4f",
                "3: mov rax, -1",
                "4:",
                super::user::may_fault!(),
                inlateout("rax") number as usize => result,
                in("rdi") arguments[0],
                in("rsi") arguments[1],
                in("rdx") arguments[2],
                in("r10") arguments[3],
                lateout("rcx") _,
                lateout("r11") _,
                options(nostack),
            );
        }
        Errno::from_ret(result)
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: the caller's contract.
    unsafe {
        syscalls::syscall!(number, arguments[0], arguments[1], arguments[2], arguments[3])
    }
}
