//! Calls that may reach an eventfd and that we do not model: the object moves into the kernel first, and libc does the rest.

use crate::real::real;
use core::ffi::{c_int, c_void};
use wakeset_fd::stats::Stat;
use wakeset_fd::{descriptor, escape};

/// Defines hooks for functions of up to six integer or pointer arguments, of which those at the given positions
/// are descriptors.
macro_rules! moving {
    ($($(#[$doc:meta])* $name:ident [$($position:literal),+];)+) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> usize {
            type Function = unsafe extern "C-unwind" fn(usize, usize, usize, usize, usize, usize) -> usize;
            let arguments = [a, b, c, d, e, f];
            $(escape::fd(arguments[$position] as c_int, Stat::MovedUnmodelled);)+
            // SAFETY: the caller's contract; further argument registers are not looked at.
            unsafe { real!($name: Function)(a, b, c, d, e, f) }
        }
    )+};
}

moving! {
    /// pread(2).
    pread[0];
    /// pread(2).
    pread64[0];
    /// pread(2) with `_FORTIFY_SOURCE`.
    __pread_chk[0];
    /// pread(2) with `_FORTIFY_SOURCE`.
    __pread64_chk[0];
    /// pwrite(2).
    pwrite[0];
    /// pwrite(2).
    pwrite64[0];
    /// preadv(2).
    preadv[0];
    /// preadv(2).
    preadv64[0];
    /// preadv2(2).
    preadv2[0];
    /// preadv2(2).
    preadv64v2[0];
    /// pwritev(2).
    pwritev[0];
    /// pwritev(2).
    pwritev64[0];
    /// pwritev2(2).
    pwritev2[0];
    /// pwritev2(2).
    pwritev64v2[0];
    /// splice(2).
    splice[0, 2];
    /// tee(2).
    tee[0, 1];
    /// vmsplice(2).
    vmsplice[0];
    /// sendfile(2).
    sendfile[0, 1];
    /// sendfile(2).
    sendfile64[0, 1];
    /// copy_file_range(2).
    copy_file_range[0, 2];
    /// fdopen(3): the stream reads and writes without us.
    fdopen[0];
    /// glibc's other name for fdopen(3).
    _IO_fdopen[0];
    /// vdprintf(3).
    vdprintf[0];
    /// vdprintf(3) with `_FORTIFY_SOURCE`.
    __vdprintf_chk[0];
    /// backtrace_symbols_fd(3).
    backtrace_symbols_fd[2];
    /// pidfd_getfd(2): copies a descriptor out of a process, perhaps this one.
    pidfd_getfd[1];
}

/// Defines hooks for POSIX asynchronous I/O, whose helper threads read and write without us.
macro_rules! asynchronous {
    ($($(#[$doc:meta])* $name:ident;)+) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(a: usize, b: usize, c: usize, d: usize) -> c_int {
            type Function = unsafe extern "C" fn(usize, usize, usize, usize) -> c_int;
            escape::everything_for_good(Stat::MovedAio);
            // SAFETY: the caller's contract; further argument registers are not looked at.
            unsafe { real!($name: Function)(a, b, c, d) }
        }
    )+};
}

asynchronous! {
    /// aio_read(3).
    aio_read;
    /// aio_read(3).
    aio_read64;
    /// aio_write(3).
    aio_write;
    /// aio_write(3).
    aio_write64;
    /// lio_listio(3).
    lio_listio;
    /// lio_listio(3).
    lio_listio64;
}

/// Defines hooks for the set-up calls of liburing and libaio, which make their system calls themselves: what they set up reaches every
/// descriptor.
macro_rules! rings {
    ($($(#[$doc:meta])* $name:ident, $reason:ident;)+) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(a: usize, b: usize, c: usize, d: usize, e: usize) -> c_int {
            type Function = unsafe extern "C" fn(usize, usize, usize, usize, usize) -> c_int;
            escape::everything_for_good(Stat::$reason);
            // SAFETY: the caller's contract; further argument registers are not looked at.
            unsafe { real!($name: Function)(a, b, c, d, e) }
        }
    )+};
}

rings! {
    /// io_uring_queue_init(3) of liburing.
    io_uring_queue_init, MovedIoRing;
    /// io_uring_queue_init_params(3) of liburing.
    io_uring_queue_init_params, MovedIoRing;
    /// io_uring_queue_init_mem(3) of liburing.
    io_uring_queue_init_mem, MovedIoRing;
    /// io_uring_setup(2), as liburing exports it.
    io_uring_setup, MovedIoRing;
    /// io_setup(2), as libaio exports it.
    io_setup, MovedAio;
    /// io_queue_init(3) of libaio.
    io_queue_init, MovedAio;
}

/// Defines hooks for variadic functions: `$before` gets the first argument and returns libc's function, which is then jumped to
/// with every argument register as it was.
macro_rules! variadic {
    ($($(#[$doc:meta])* $name:ident, $before:ident;)+) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C-unwind" fn $name() {
            extern "C-unwind" fn before(first: usize) -> *mut c_void {
                $before(first);
                real!($name: *mut c_void)
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

fn move_first(fd: usize) {
    escape::fd(fd as c_int, Stat::MovedUnmodelled);
}

fn move_inherited(_path: usize) {
    descriptor::before_exec(Stat::MovedExec);
}

variadic! {
    /// dprintf(3).
    dprintf, move_first;
    /// dprintf(3) with `_FORTIFY_SOURCE`.
    __dprintf_chk, move_first;
    /// execl(3).
    execl, move_inherited;
    /// execlp(3).
    execlp, move_inherited;
    /// execle(3).
    execle, move_inherited;
}
