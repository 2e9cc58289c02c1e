//! The unwinder, which is looked for when something is unwound.
//!
//! Panics, and the drops that a cancelled thread runs on its way through our frames, need libgcc's
//! unwinder. A library that is linked to it brings it into every program: five more mappings, which
//! each fork copies, and a file more at each exec. But who unwinds has it already, a program of
//! C++ from its start and libc's pthread_cancel(3) and pthread_exit(3) from their first call; and
//! we hardly ever do. So its functions are defined here for this library alone, and each passes
//! its call on as it came, to the unwinder that the program has.

use crate::loader;
use core::ffi::{CStr, c_char, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// The functions of the unwinder that std or compiled code may call.
const NAMES: [&CStr; 15] = [
    c"_Unwind_Resume",
    c"_Unwind_RaiseException",
    c"_Unwind_DeleteException",
    c"_Unwind_Backtrace",
    c"_Unwind_GetLanguageSpecificData",
    c"_Unwind_GetRegionStart",
    c"_Unwind_GetTextRelBase",
    c"_Unwind_GetDataRelBase",
    c"_Unwind_GetIP",
    c"_Unwind_GetIPInfo",
    c"_Unwind_GetCFA",
    c"_Unwind_GetGR",
    c"_Unwind_SetGR",
    c"_Unwind_SetIP",
    c"_Unwind_FindEnclosingFunction",
];

/// Where they are; 0 before the first is called.
static FOUND: [AtomicUsize; NAMES.len()] = [const { AtomicUsize::new(0) }; NAMES.len()];

/// A function that jumps to the one it stands for: that one sees its caller's frame, from which it
/// unwinds, and all arguments, of which none has more than four.
macro_rules! pass_on {
    ($($index:literal $name:literal)*) => {
        $(core::arch::global_asm!(
            concat!(".pushsection .text.", $name, ",\"ax\",@progbits"),
            concat!(".hidden ", $name),
            concat!(".globl ", $name),
            concat!(".type ", $name, ",@function"),
            concat!($name, ":"),
            ".cfi_startproc",
            "endbr64",
            "mov rax, qword ptr [rip + {found} + 8 * {index}]",
            "test rax, rax",
            "jnz 2f",
            "push rdi",
            ".cfi_adjust_cfa_offset 8",
            "push rsi",
            ".cfi_adjust_cfa_offset 8",
            "push rdx",
            ".cfi_adjust_cfa_offset 8",
            "push rcx",
            ".cfi_adjust_cfa_offset 8",
            "sub rsp, 8",
            ".cfi_adjust_cfa_offset 8",
            "mov edi, {index}",
            "call {find}",
            "add rsp, 8",
            ".cfi_adjust_cfa_offset -8",
            "pop rcx",
            ".cfi_adjust_cfa_offset -8",
            "pop rdx",
            ".cfi_adjust_cfa_offset -8",
            "pop rsi",
            ".cfi_adjust_cfa_offset -8",
            "pop rdi",
            ".cfi_adjust_cfa_offset -8",
            "2: jmp rax",
            ".cfi_endproc",
            concat!(".size ", $name, ", . - ", $name),
            ".popsection",
            found = sym FOUND,
            index = const $index,
            find = sym find,
        );)*
    };
}
pass_on! {
    0 "_Unwind_Resume"
    1 "_Unwind_RaiseException"
    2 "_Unwind_DeleteException"
    3 "_Unwind_Backtrace"
    4 "_Unwind_GetLanguageSpecificData"
    5 "_Unwind_GetRegionStart"
    6 "_Unwind_GetTextRelBase"
    7 "_Unwind_GetDataRelBase"
    8 "_Unwind_GetIP"
    9 "_Unwind_GetIPInfo"
    10 "_Unwind_GetCFA"
    11 "_Unwind_GetGR"
    12 "_Unwind_SetGR"
    13 "_Unwind_SetIP"
    14 "_Unwind_FindEnclosingFunction"
}

type Open = unsafe extern "C" fn(*const c_char, i32) -> *mut c_void;
type Find = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// Finds all of them, and returns the one with this index. Several threads may be here: each finds
/// the same. Where there is no unwinder, which the program then does not have either, nothing can
/// go on.
extern "C" fn find(index: usize) -> usize {
    let find = loader::next(c"dlsym").map(|dlsym| {
        // SAFETY: libc's function of that name and type.
        unsafe { core::mem::transmute::<usize, Find>(dlsym) }
    });
    if let Some(find) = find {
        // SAFETY: a C string. The global scope first: an unwinder that the program is linked to is
        // the one that we would be linked to.
        let found = unsafe { find(libc::RTLD_DEFAULT, NAMES[0].as_ptr()) };
        let scope = if found.is_null() { open() } else { libc::RTLD_DEFAULT };
        for (name, place) in NAMES.iter().zip(&FOUND).rev() {
            // SAFETY: C strings.
            let found = unsafe { find(scope, name.as_ptr()) };
            let function = if found.is_null() { missing as *mut c_void } else { found };
            place.store(function.expose_provenance(), Ordering::Release);
        }
    }
    match FOUND.get(index).map_or(0, |place| place.load(Ordering::Acquire)) {
        0 => missing as *const () as usize,
        function => function,
    }
}

/// libgcc's, which libc opens in the same way when it unwinds.
fn open() -> *mut c_void {
    static HANDLE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
    if HANDLE.load(Ordering::Relaxed).is_null()
        && let Some(dlopen) = loader::next(c"dlopen")
    {
        // SAFETY: libc's function of that name and type, and a C string.
        let handle = unsafe {
            core::mem::transmute::<usize, Open>(dlopen)(c"libgcc_s.so.1".as_ptr(), libc::RTLD_NOW)
        };
        HANDLE.store(handle, Ordering::Relaxed);
    }
    HANDLE.load(Ordering::Relaxed)
}

extern "C" fn missing() -> ! {
    // SAFETY: ends the process.
    unsafe { libc::abort() }
}
