//! Functions of libc under versions that old glibcs have, too.
//!
//! A library asks for each function of libc in the version that libc had where it was linked, so
//! one that is built today would not be loaded by a glibc of five years ago. glibc 2.34 moved the
//! functions of threads into libc.so.6 under a new version, 2.33 gave stat(2) and fstat(2) a name
//! of their own, and 2.30 gettid(2). std refers to these few, to print a backtrace or where
//! thread-local variables are unknown to libc. They are defined here for this library alone, by
//! what every glibc from 2.28 on has; `ci/packages` holds that nothing newer is asked for.

use core::arch::global_asm;

/// A function that this library alone sees, with these lines as its body. One that std refers to as
/// weak is defined as weak, or the assembler warns of two bindings.
macro_rules! define {
    ($name:literal: $($line:expr),+) => {
        define!(".globl", $name: $($line),+);
    };
    ($binding:literal, $name:literal: $($line:expr),+) => {
        global_asm!(
            concat!(".pushsection .text.", $name, ",\"ax\",@progbits"),
            concat!(".hidden ", $name),
            concat!($binding, " ", $name),
            concat!(".type ", $name, ",@function"),
            concat!($name, ":"),
            ".cfi_startproc",
            "endbr64",
            $($line,)+
            ".cfi_endproc",
            concat!(".size ", $name, ", . - ", $name),
            ".popsection",
        );
    };
}

/// Functions of threads by their oldest version, which libpthread has in old glibcs. Where that is
/// not loaded they return ENOSYS.
macro_rules! of_threads {
    ($($name:literal)*) => {
        $(
            global_asm!(
                concat!(".weak wakeset_oldest_", $name),
                concat!(".symver wakeset_oldest_", $name, ", ", $name, "@GLIBC_2.2.5"),
            );
            define!($name:
                concat!("mov rax, qword ptr [rip + wakeset_oldest_", $name, "@GOTPCREL]"),
                "test rax, rax",
                "jz 2f",
                "jmp rax",
                "2: mov eax, 38",
                "ret"
            );
        )*
    };
}

of_threads! { "pthread_key_create" "pthread_key_delete" "pthread_setspecific" }

// stat(2) is version 1 of __xstat(3).
define!("stat64": "mov rdx, rsi", "mov rsi, rdi", "mov edi, 1", "jmp __xstat64@PLT");
define!("fstat64": "mov rdx, rsi", "mov esi, edi", "mov edi, 1", "jmp __fxstat64@PLT");
// It cannot fail.
define!(".weak", "gettid": "mov eax, 186", "syscall", "ret");
