//! The thread that migrates for a vfork(2) child: its parent's deputy, while the thread that called
//! vfork(2) waits. `sys/vforked.rs` has what they say to each other, and `docs/design/fork.md` why
//! this is exact.
//!
//! It is a thread of the kernel's alone, which libc does not know: a program may call vfork(2)
//! where it could not make a thread, in the handler of a signal. It has a stack and thread-local
//! storage of its own, of which only this crate's and the engine's words are used, and all signals
//! are blocked in it.

use crate::migrate;
use crate::stats::Stat;
use crate::sys::vforked::{Request, Wish};
use crate::sys::{self, signal_guard};
use crate::table::{self, gate};
use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, Ordering};

/// Whether deputies must not be made.
static REFUSED: AtomicBool = AtomicBool::new(false);

/// From now on everything migrates before a vfork(2): the program has a filter for system calls,
/// whose author does not know of the thread that would be made.
pub fn refuse() {
    REFUSED.store(true, Ordering::Relaxed);
}

/// Migrates nothing before a vfork(2), if there is a deputy for what the child needs. `Some(None)`
/// if there is nothing that it could need. The gate is closed then.
pub(super) fn begin() -> Option<Option<&'static Request>> {
    if REFUSED.load(Ordering::Relaxed) || signal_guard::is_inside() {
        return None;
    }
    gate::close();
    if !table::numbers().any(|fd| table::peek(fd).is_object()) {
        return Some(None);
    }
    let request = make();
    if request.is_none() {
        gate::open();
    }
    request.map(Some)
}

/// The deputy's memory: the stack, more than a migration needs in a debug build too.
const STACK: usize = 1 << 16;
/// Then its thread-local storage, which ends where it is found by.
const STORAGE: usize = 1 << 15;
/// Then what the psABI has there, and [`Request`].
const HEAD: usize = 1 << 12;
const MEMORY: usize = STACK + STORAGE + 2 * HEAD;

/// Makes a thread on fresh memory, which has a request in it.
#[cfg(target_arch = "x86_64")]
fn make() -> Option<&'static Request> {
    // The engine's word is next to ours: they are in one library.
    let has_room = (HEAD as isize - STORAGE as isize..0).contains(&sys::thread_words_offset());
    if !has_room || cfg!(wakeset_libc_heap) {
        return None;
    }
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
    let base = sys::raw!(mmap, 0, MEMORY, access, kind, -1_isize, 0).ok()?;
    let storage = base + STACK + STORAGE;
    let place = |address: usize| core::ptr::with_exposed_provenance_mut::<usize>(address);
    let request = place(storage + HEAD).cast::<Request>();
    // SAFETY: fresh memory, which lives until the deputy has heard that it is over.
    let request = unsafe {
        // Where the storage is, and the thread in libc's sense.
        place(storage).write(storage);
        place(storage + 16).write(storage);
        request.write(Request::new(base));
        &*request
    };
    // It inherits the mask.
    let mask = sys::set_signal_mask(!0);
    let deputy = clone(base + STACK, storage, request);
    sys::set_signal_mask(mask);
    if deputy.is_none() {
        let _ = sys::raw!(munmap, base, MEMORY);
    }
    request.begin(deputy?);
    Some(request)
}

/// Makes a thread that serves a request. Returns its number, `None` if the kernel or a filter does
/// not want it.
#[cfg(target_arch = "x86_64")]
fn clone(stack: usize, storage: usize, request: &'static Request) -> Option<c_int> {
    const FLAGS: c_int = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM
        | libc::CLONE_SETTLS;
    let result: isize;
    // SAFETY: the new thread runs on a stack of its own, in `serve`, and never comes back. A
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
            "call {serve}",
            "ud2",
            "5:",
            sys::user::may_fault!(),
            serve = sym serve,
            inlateout("rax") libc::SYS_clone as isize => result,
            in("rdi") FLAGS,
            in("rsi") stack,
            in("rdx") 0,
            in("r10") 0,
            in("r8") storage,
            in("r9") request,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    c_int::try_from(result).ok().filter(|number| *number > 0)
}

#[cfg(not(target_arch = "x86_64"))]
fn make() -> Option<&'static Request> {
    None
}

/// The deputy.
#[cfg(target_arch = "x86_64")]
extern "C" fn serve(request: &'static Request) -> ! {
    request.serve(|wish| match wish {
        Wish::Number(fd) => _ = migrate::fd(fd, Stat::MigratedVfork),
        Wish::Everything => migrate::everything_behind_gate(Stat::MigratedVfork),
        Wish::EverythingForGood => migrate::everything_for_good(Stat::MigratedUnmodelled),
    });
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
            in("rdi") request.memory(),
            in("rsi") MEMORY,
            options(noreturn),
        );
    }
}
