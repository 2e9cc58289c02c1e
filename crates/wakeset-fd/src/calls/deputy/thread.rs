//! The thread of a deputy: the kernel's alone, which libc does not know. A program may fork where
//! it could not make a thread, in the handler of a signal that has interrupted pthread_create(3) or
//! malloc(3). It has a stack and thread-local storage of its own, of which only this crate's and
//! the engine's words are used, and all signals are blocked in it.

use crate::sys;
use core::ffi::c_int;
use core::sync::atomic::AtomicI32;

/// The deputy's memory: the stack, more than a migration needs in a debug build too.
const STACK: usize = 1 << 16;
/// Then its thread-local storage, which ends where it is found by.
const STORAGE: usize = 1 << 15;
/// Then what the psABI has there, and the deputy's argument.
const HEAD: usize = 1 << 12;
const MEMORY: usize = STACK + STORAGE + 2 * HEAD;

/// Whether there can be one.
pub(super) fn is_possible() -> bool {
    // The engine's word is next to ours: they are in one library.
    #[cfg(target_arch = "x86_64")]
    return (HEAD as isize - STORAGE as isize..0).contains(&sys::thread_words_offset())
        && !cfg!(wakeset_libc_heap);
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Makes a thread on fresh memory, where such a thread [is possible](is_possible), which has its
/// argument in it: `argument` gets where the memory begins. The kernel keeps the thread's number in
/// `number`, if there is such a word, until the thread has ended. Returns that number, and the
/// argument, which is there until the thread [ends](end).
#[cfg(target_arch = "x86_64")]
pub(super) fn start<T: Sync>(
    argument: impl FnOnce(usize) -> T,
    serve: extern "C" fn(&'static T) -> !,
    number: Option<&'static AtomicI32>,
) -> Option<(c_int, &'static T)> {
    const { assert!(size_of::<T>() <= HEAD) };
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
    let base = sys::raw!(mmap, 0, MEMORY, access, kind, -1_isize, 0).ok()?;
    let storage = base + STACK + STORAGE;
    let place = |address: usize| core::ptr::with_exposed_provenance_mut::<usize>(address);
    let head = place(storage + HEAD).cast::<T>();
    // SAFETY: fresh memory, which lives until the deputy ends.
    let head = unsafe {
        // Where the storage is, and the thread in libc's sense.
        place(storage).write(storage);
        place(storage + 16).write(storage);
        head.write(argument(base));
        &*head
    };
    // It inherits the mask.
    let mask = sys::set_signal_mask(!0);
    let function = serve as *const () as usize;
    let head_at = core::ptr::from_ref(head).addr();
    let thread = clone(base + STACK, storage, function, head_at, number);
    sys::set_signal_mask(mask);
    if thread.is_none() {
        let _ = sys::raw!(munmap, base, MEMORY);
    }
    Some((thread?, head))
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) fn start<T: Sync>(
    _: impl FnOnce(usize) -> T,
    _: extern "C" fn(&'static T) -> !,
    _: Option<&'static AtomicI32>,
) -> Option<(c_int, &'static T)> {
    None
}

/// In a deputy whose memory begins there: has forks leave it out.
pub(super) fn leave_out_of_forks(memory: usize) {
    let _ = sys::raw!(madvise, memory, MEMORY, libc::MADV_DONTFORK);
}

/// Makes a thread that calls a function with an argument. Returns its number, `None` if the kernel
/// or a filter does not want it.
#[cfg(target_arch = "x86_64")]
fn clone(
    stack: usize,
    storage: usize,
    function: usize,
    argument: usize,
    number: Option<&'static AtomicI32>,
) -> Option<c_int> {
    const KEPT: c_int = libc::CLONE_PARENT_SETTID | libc::CLONE_CHILD_CLEARTID;
    const FLAGS: c_int = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM
        | libc::CLONE_SETTLS;
    let flags = FLAGS | if number.is_some() { KEPT } else { 0 };
    let number = number.map_or(0, |number| number.as_ptr().expose_provenance());
    let result: isize;
    // SAFETY: the new thread runs on a stack of its own, in `function`, and never comes back. A
    // filter's SIGSYS arrives with the address of label 2 and resumes at 3.
    unsafe {
        core::arch::asm!(
            "syscall",
            "2: jmp 4f",
            "3: mov rax, -1",
            "4: test rax, rax",
            "jnz 5f",
            "xor ebp, ebp",
            "mov rdi, r9",
            "call r12",
            "ud2",
            "5:",
            sys::user::may_fault!(),
            inlateout("rax") libc::SYS_clone as isize => result,
            in("rdi") flags,
            in("rsi") stack,
            in("rdx") number,
            in("r10") number,
            in("r8") storage,
            in("r9") argument,
            in("r12") function,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    c_int::try_from(result).ok().filter(|number| *number > 0)
}

/// Ends the calling deputy, whose memory begins there.
#[cfg(target_arch = "x86_64")]
pub(super) fn end(memory: usize) -> ! {
    // SAFETY: the thread ends without its memory, which nobody else uses.
    unsafe {
        core::arch::asm!(
            "syscall",
            "xor edi, edi",
            "mov eax, {exit}",
            "syscall",
            "ud2",
            exit = const libc::SYS_exit,
            in("rax") libc::SYS_munmap,
            in("rdi") memory,
            in("rsi") MEMORY,
            options(noreturn),
        );
    }
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) fn end(_: usize) -> ! {
    unreachable!("no deputy begins there")
}
