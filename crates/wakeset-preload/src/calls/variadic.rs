//! Hooks that jump to libc's function, as if the caller had called it: of variadic functions, whose
//! arguments cannot be passed on in Rust.

use super::process::before_exec;
use core::ffi::c_int;
use wakeset_fd::migrate;
use wakeset_fd::stats::Stat;

/// Defines a hook that calls `$before` with the first three argument registers and the address that
/// it will return to, and then jumps to libc's function with every argument register as it was.
/// That function returns to the hook's caller, and takes it for its own.
macro_rules! jumps {
    ($($(#[$doc:meta])* $name:ident, $before:ident;)+) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C-unwind" fn $name() {
            extern "C-unwind" fn before(
                first: usize,
                second: usize,
                third: usize,
                caller: usize,
            ) -> *mut core::ffi::c_void {
                $before(first, second, third, caller);
                $crate::real::real!($name: *mut core::ffi::c_void)
            }
            core::arch::naked_asm!(
                ".cfi_startproc",
                "push rbp",
                ".cfi_def_cfa_offset 16",
                ".cfi_offset rbp, -16",
                "mov rbp, rsp",
                ".cfi_def_cfa_register rbp",
                "sub rsp, 192",
                "mov [rsp], rdi",
                "mov [rsp + 8], rsi",
                "mov [rsp + 16], rdx",
                "mov [rsp + 24], rcx",
                "mov [rsp + 32], r8",
                "mov [rsp + 40], r9",
                "mov [rsp + 48], rax",
                "movaps [rsp + 64], xmm0",
                "movaps [rsp + 80], xmm1",
                "movaps [rsp + 96], xmm2",
                "movaps [rsp + 112], xmm3",
                "movaps [rsp + 128], xmm4",
                "movaps [rsp + 144], xmm5",
                "movaps [rsp + 160], xmm6",
                "movaps [rsp + 176], xmm7",
                "mov rcx, [rbp + 8]",
                "call {before}",
                "mov r11, rax",
                "mov rdi, [rsp]",
                "mov rsi, [rsp + 8]",
                "mov rdx, [rsp + 16]",
                "mov rcx, [rsp + 24]",
                "mov r8, [rsp + 32]",
                "mov r9, [rsp + 40]",
                "mov rax, [rsp + 48]",
                "movaps xmm0, [rsp + 64]",
                "movaps xmm1, [rsp + 80]",
                "movaps xmm2, [rsp + 96]",
                "movaps xmm3, [rsp + 112]",
                "movaps xmm4, [rsp + 128]",
                "movaps xmm5, [rsp + 144]",
                "movaps xmm6, [rsp + 160]",
                "movaps xmm7, [rsp + 176]",
                "mov rsp, rbp",
                "pop rbp",
                ".cfi_def_cfa rsp, 8",
                "jmp r11",
                ".cfi_endproc",
                before = sym before,
            )
        }
    )+};
}
pub(super) use jumps;

fn migrate_first(fd: usize, _: usize, _: usize, _: usize) {
    migrate::fd(fd as c_int, Stat::MigratedUnmodelled);
}

fn migrate_inherited(_path: usize, _: usize, _: usize, _: usize) {
    before_exec();
}

jumps! {
    /// dprintf(3).
    dprintf, migrate_first;
    /// dprintf(3) with `_FORTIFY_SOURCE`.
    __dprintf_chk, migrate_first;
    /// execl(3).
    execl, migrate_inherited;
    /// execlp(3).
    execlp, migrate_inherited;
    /// execle(3).
    execle, migrate_inherited;
}
