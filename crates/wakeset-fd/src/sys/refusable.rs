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
pub unsafe fn call<const N: usize>(number: Sysno, arguments: [usize; N]) -> Result<usize, Errno> {
    const { assert!(N <= 6, "the kernel takes no more") };
    let argument = |index: usize| arguments.get(index).copied().unwrap_or(0);
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
                in("rdi") argument(0),
                in("rsi") argument(1),
                in("rdx") argument(2),
                in("r10") argument(3),
                in("r8") argument(4),
                in("r9") argument(5),
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
        syscalls::syscall!(
            number,
            argument(0),
            argument(1),
            argument(2),
            argument(3),
            argument(4),
            argument(5)
        )
    }
}

/// One system call that may be refused, as [`raw`](super::raw) makes one that may not.
macro_rules! refusable {
    ($number:ident $(, $argument:expr)*) => {
        // SAFETY: the caller that passes the arguments vouches for what they point to.
        unsafe { $crate::sys::refusable::call(syscalls::Sysno::$number, [$($argument as usize),*]) }
    };
}
pub(crate) use refusable;
