//! Our handler, which the kernel calls for every signal that the program handles.

use super::counts::count_around;
use super::deferred::{
    defer, exchange, interrupt_section, is_kept, raise_all, return_to_section, send_again, set_mask,
};
use super::dispositions::{
    DISPOSITIONS, FAULTS, FLAGS, HANDLERS, MASKS, SIGNALS, is_fault, is_handler, is_sigsys_ours,
    libcs,
};
use super::sleep;
use crate::{dispatch, uffd};
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering;
use libc::{SIG_DFL, SIG_IGN, sigaction as Action, siginfo_t, ucontext_t};
use syscalls::{Sysno, syscall};
use wakeset_fd::{signal_guard, user};

/// Signals that a fault of the running instruction raises, which cannot wait. They can also be
/// sent.
pub(super) const FAULT_NUMBERS: [c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGSYS];

/// Whether a signal is a fault of the running instruction.
fn is_synchronous(signal: c_int, info: *const siginfo_t) -> bool {
    // SAFETY: all our handlers are registered with SA_SIGINFO, so the kernel passes a valid
    // siginfo.
    FAULT_NUMBERS.contains(&signal) && unsafe { (*info).si_code } > 0
}

/// The address of our handler.
pub(super) fn ours() -> usize {
    on_signal as *const () as usize
}

/// Our handler: the kernel calls it for every signal that the program handles.
pub(super) unsafe extern "C-unwind" fn on_signal(
    signal: c_int,
    info: *mut siginfo_t,
    context: *mut c_void,
) {
    // SAFETY: what the kernel has passed, here and below.
    unsafe {
        let synchronous = is_synchronous(signal, info);
        if synchronous && resume_after(signal, context) {
            return;
        }
        let inside = signal_guard::is_inside();
        // At the end of a section in which signals came, the thread holds no guard and is yet to
        // go back to its mask. Before that no handler may run a section of its own, whose end
        // would be taken for the end of this one: the handler would leave the thread, as the
        // kernel puts back the mask that the handler has interrupted, with all signals blocked.
        let in_section = inside || signal_guard::is_deferred();
        if in_section && (!synchronous || is_refused_frame(signal, info)) {
            defer(signal, info, context);
            return;
        }
        sleep::interrupt(context);
        if !synchronous {
            exchange(signal, info);
            handle(signal, info, context, Origin::Sent);
            return;
        }
        let before = in_section.then(interrupt_section);
        handle(signal, info, context, if inside { Origin::Section } else { Origin::Instruction });
        if let Some(before) = before {
            return_to_section(context, before);
        }
    }
}

/// What a signal comes from.
#[derive(Clone, Copy, PartialEq)]
enum Origin {
    /// The running instruction, which raises it again if it is repeated.
    Instruction,
    /// The same, of a critical section: its locks may be the thread's own.
    Section,
    Sent,
}

/// Whether one of our instructions has raised a fault that it is made for; it is resumed then.
///
/// # Safety
/// As the kernel calls a handler.
pub(super) unsafe fn resume_after(signal: c_int, context: *mut c_void) -> bool {
    if !is_fault(signal) && signal != libc::SIGSYS {
        return false;
    }
    // SAFETY: the kernel passes a valid context.
    unsafe {
        let registers = &raw mut (*context.cast::<ucontext_t>()).uc_mcontext.gregs;
        let address = &raw mut (*registers)[libc::REG_RIP as usize];
        let resume = user::recovery(*address as usize);
        if let Some(resume) = resume {
            *address = resume as i64;
        }
        resume.is_some()
    }
}

/// Whether the kernel has found no room on the stack for the frame of another signal. The section
/// it came in has room for itself, so this can wait for its end; a handler that jumps away then
/// leaves nothing behind.
///
/// # Safety
/// `info` is valid.
unsafe fn is_refused_frame(signal: c_int, info: *const siginfo_t) -> bool {
    // SAFETY: the caller's contract. No instruction of ours raises such a fault: the accesses to
    // the program's memory are not here any more.
    signal == libc::SIGSEGV && unsafe { (*info).si_code } == libc::SI_KERNEL && !is_kept(signal)
}

/// All signals but the one by which a filter refuses a call.
const DURING_DELIVERY: u64 = !(1 << (libc::SIGSYS - 1));

/// At the end of a critical section in which signals came: the kernel is to deliver them now.
#[cold]
pub(crate) fn deliver_deferred() {
    set_mask(DURING_DELIVERY);
    signal_guard::set_deferred(false);
    raise_all(run_directly);
}

/// Runs the handler of a signal that cannot be sent again, on the stack that there is: real-time
/// signals when `RLIMIT_SIGPENDING` is used up, those of job control, and all where a filter
/// refuses tgkill(2).
#[cold]
#[inline(never)]
fn run_directly(signal: c_int, info: &mut siginfo_t, mask: u64) {
    let index = signal as usize % SIGNALS;
    let mut during = mask | MASKS[index].load(Ordering::Acquire);
    if FLAGS[index].load(Ordering::Acquire) as c_int & libc::SA_NODEFER == 0 {
        during |= 1 << (index - 1);
    }
    // SAFETY: all-zero is a valid context: one that says nothing but the mask.
    let mut context: ucontext_t = unsafe { core::mem::zeroed() };
    // SAFETY: the first 8 bytes of glibc's set are the kernel's.
    unsafe { (&raw mut context.uc_sigmask).cast::<u64>().write(mask) };
    set_mask(dispatch::without_sigsys(during));
    // SAFETY: a siginfo as the kernel had passed it, and a context.
    unsafe { handle(signal, info, (&raw mut context).cast(), Origin::Sent) };
    set_mask(DURING_DELIVERY);
}

/// Counts a signal and does what the program has set for it.
///
/// # Safety
/// As the kernel calls a handler.
unsafe fn handle(signal: c_int, info: *mut siginfo_t, context: *mut c_void, origin: Origin) {
    // SAFETY: the caller's contract.
    count_around(signal, || unsafe { run_handler(signal, info, context, origin) });
}

/// Does what the program has set for a signal.
///
/// # Safety
/// As the kernel calls a handler.
unsafe fn run_handler(signal: c_int, info: *mut siginfo_t, context: *mut c_void, origin: Origin) {
    uffd::before_handler();
    // A handler that has interrupted a section may not jump away, and so ends no call.
    if origin != Origin::Section {
        wakeset_fd::poll::before_handler(signal);
    }
    match take_handler(signal) {
        SIG_IGN if origin == Origin::Sent => {}
        // SAFETY: the caller's contract.
        SIG_DFL | SIG_IGN => unsafe { do_default(signal, info, origin) },
        // SAFETY: what the program registered.
        handler => unsafe {
            let handler: unsafe extern "C-unwind" fn(c_int, *mut siginfo_t, *mut c_void) =
                core::mem::transmute::<usize, _>(handler);
            handler(signal, info, context);
        },
    }
}

/// The program's handler of a signal that is to run now, or what it has in place of one. If the
/// handler is for once, the disposition is the default from now on, as sigaction(2) says of
/// `SA_RESETHAND`.
fn take_handler(signal: c_int) -> usize {
    let once = |flags: c_int| flags & libc::SA_RESETHAND != 0;
    if is_fault(signal) {
        return FAULTS.with(signal, |action| {
            let handler = action.sa_sigaction;
            if once(action.sa_flags) {
                action.sa_sigaction = SIG_DFL;
            }
            handler
        });
    }
    let index = signal as usize % SIGNALS;
    if !once(FLAGS[index].load(Ordering::Acquire) as c_int) {
        return HANDLERS[index].load(Ordering::Acquire);
    }
    DISPOSITIONS.with(|| {
        let handler = HANDLERS[index].load(Ordering::Acquire);
        let flags = FLAGS[index].load(Ordering::Acquire) as c_int;
        if is_handler(handler) && once(flags) {
            HANDLERS[index].store(SIG_DFL, Ordering::Release);
            // Where calls by instruction are caught, SIGSYS stays ours.
            if !is_sigsys_ours(signal) {
                set_default(signal, flags, MASKS[index].load(Ordering::Acquire));
            }
        }
        handler
    })
}

/// Tells the kernel that a signal has its default disposition.
fn set_default(signal: c_int, flags: c_int, mask: u64) {
    // SAFETY: all-zero is the default action.
    unsafe {
        let mut default: Action = core::mem::zeroed();
        default.sa_flags = flags;
        // The first 8 bytes of glibc's set are the kernel's.
        (&raw mut default.sa_mask).cast::<u64>().write(mask);
        libcs()(signal, &raw const default, core::ptr::null_mut());
    }
}

/// Does what the kernel does by default. A fault of the running instruction happens again when the
/// handler returns; anything else is sent again.
///
/// # Safety
/// `info` is valid.
unsafe fn do_default(signal: c_int, info: *mut siginfo_t, origin: Origin) {
    if is_fault(signal) {
        set_default(signal, 0, 0);
    }
    if origin == Origin::Sent {
        // SAFETY: the caller's contract.
        unsafe { send_again(signal, info) };
    }
}

/// Whether a handler may run without ours before it, because it was registered by a system call
/// that does not come through libc, and has none of the flags in `without`.
#[cold]
pub(crate) fn may_have_foreign_handlers(without: c_int) -> bool {
    /// The kernel's structure, which is not glibc's.
    #[repr(C)]
    struct KernelAction {
        handler: usize,
        flags: usize,
        rest: [usize; 2],
    }
    // glibc keeps two signals for itself: for cancellation and for setuid(2) in all threads.
    (1..SIGNALS).filter(|signal| !matches!(signal, 32 | 33)).any(|signal| {
        let mut action = KernelAction { handler: SIG_DFL, flags: 0, rest: [0; 2] };
        // SAFETY: memory for the action, and the size of the kernel's signal set.
        let asked = unsafe { syscall!(Sysno::rt_sigaction, signal, 0, &raw mut action, 8) };
        let foreign = asked.is_ok() && is_handler(action.handler) && action.handler != ours();
        foreign && action.flags as c_int & without == 0
    })
}
