//! Functions of libc under versions that old glibcs have, too.
//!
//! A program asks for each function of libc in the version that libc had where it was linked, so
//! one that is built today would not start on a glibc of five years ago. glibc 2.34 moved the
//! functions of threads and of the loader into libc.so.6 under a new version, 2.33 gave stat(2) and
//! its relatives names of their own, and 2.29 a new pow(3). Here they are defined for this program
//! alone, by what every glibc from 2.28 on has; `ci/packages` holds that nothing newer is asked
//! for.
//!
//! A build with a sanitizer has none of this: its own functions take these places.

use core::arch::global_asm;
use std::ffi::{c_char, c_int};

/// A function that this program alone sees, with these lines as its body. One that std refers to as
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

/// Functions by their oldest version, which are in libpthread, libdl or libm in old glibcs.
macro_rules! oldest {
    ($($name:literal)*) => {
        $(
            global_asm!(
                concat!(".symver wakeset_oldest_", $name, ", ", $name, "@GLIBC_2.2.5"),
            );
            define!($name: concat!("jmp wakeset_oldest_", $name, "@PLT"));
        )*
    };
}

oldest! {
    "dlsym" "log2" "pow"
    "pthread_attr_getguardsize" "pthread_attr_getstack" "pthread_attr_setstacksize" "pthread_create"
    "pthread_detach" "pthread_getattr_np" "pthread_join"
    "pthread_key_create" "pthread_key_delete" "pthread_kill" "pthread_setspecific"
}
// Younger than the others.
global_asm!(".symver wakeset_oldest_pthread_setname_np, pthread_setname_np@GLIBC_2.12");
define!("pthread_setname_np": "jmp wakeset_oldest_pthread_setname_np@PLT");

// stat(2) is version 1 of __xstat(3).
define!("stat64": "mov rdx, rsi", "mov rsi, rdi", "mov edi, 1", "jmp __xstat64@PLT");
define!("lstat64": "mov rdx, rsi", "mov rsi, rdi", "mov edi, 1", "jmp __lxstat64@PLT");
define!("fstat64": "mov rdx, rsi", "mov esi, edi", "mov edi, 1", "jmp __fxstat64@PLT");
// It cannot fail.
define!("gettid": "mov eax, 186", "syscall", "ret");

// std asks whether libc has this one, and does without.
global_asm!(
    ".hidden posix_spawn_file_actions_addchdir_np",
    ".weak posix_spawn_file_actions_addchdir_np",
    ".set posix_spawn_file_actions_addchdir_np, 0",
);

// Before 2.34 the program itself called its constructors, by a function that it was linked with;
// since then libc does it, unless the program still brings one. This program does: fourth argument.
global_asm!(".symver wakeset_oldest_start, __libc_start_main@GLIBC_2.2.5");
define!("__libc_start_main":
    "lea rcx, [rip + wakeset_constructors]",
    "jmp wakeset_oldest_start@PLT"
);

type Constructor = unsafe extern "C" fn(c_int, *mut *mut c_char, *mut *mut c_char);

/// Calls the program's constructors in their order, std's among them, which keeps the arguments.
#[unsafe(no_mangle)]
unsafe extern "C" fn wakeset_constructors(
    count: c_int,
    arguments: *mut *mut c_char,
    environment: *mut *mut c_char,
) {
    unsafe extern "C" {
        /// The linker puts these around the array.
        static __init_array_start: [Constructor; 0];
        static __init_array_end: [Constructor; 0];
    }
    // SAFETY: the linker's array, of functions of this type; libc calls this once, before main.
    unsafe {
        let end = (&raw const __init_array_end).cast::<Constructor>();
        let mut next = (&raw const __init_array_start).cast::<Constructor>();
        while next != end {
            (*next)(count, arguments, environment);
            next = next.add(1);
        }
    }
}
