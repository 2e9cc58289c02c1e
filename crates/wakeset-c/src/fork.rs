//! Before a fork everything migrates, so that parent and child share kernel objects and no memory.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::Once;
use wakeset_fd::fork::{self, Forking};
use wakeset_fd::signal_guard;

/// A fork under way, and the signal mask from before it. `prepare` holds a process-wide lock until
/// it is over, so there is one at a time.
struct UnderWay(UnsafeCell<Option<(Forking, libc::sigset_t)>>);
// SAFETY: only touched by the thread that forks, between `prepare` and the end of the fork.
unsafe impl Sync for UnderWay {}
static UNDER_WAY: UnderWay = UnderWay(UnsafeCell::new(None));

/// How many forks lie between this process and the first.
static GENERATION: AtomicU32 = AtomicU32::new(0);

pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Before the first object is made.
pub(crate) fn watch_forks() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        signal_guard::mask_signals_in_migrations();
        // SAFETY: functions that live as long as the library, which is never unloaded.
        unsafe { libc::pthread_atfork(Some(prepare), Some(in_parent), Some(in_child)) };
    });
}

unsafe extern "C" fn prepare() {
    // A handler that came between here and the end of the fork would wait for this thread if it
    // wrote to an eventfd.
    let mask = block_signals();
    let forking = fork::prepare();
    // SAFETY: see `UnderWay`.
    unsafe { *UNDER_WAY.0.get() = Some((forking, mask)) };
}

unsafe extern "C" fn in_parent() {
    // SAFETY: see `UnderWay`.
    if let Some((forking, mask)) = unsafe { (*UNDER_WAY.0.get()).take() } {
        forking.in_parent();
        restore_signals(&mask);
    }
}

unsafe extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    // SAFETY: see `UnderWay`.
    if let Some((forking, mask)) = unsafe { (*UNDER_WAY.0.get()).take() } {
        forking.in_child();
        restore_signals(&mask);
    }
}

fn block_signals() -> libc::sigset_t {
    let mut all = MaybeUninit::uninit();
    let mut before = MaybeUninit::uninit();
    // SAFETY: places for two sets, the first of which is filled before it is read, as is the
    // second.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::sigemptyset(before.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        before.assume_init()
    }
}

fn restore_signals(mask: &libc::sigset_t) {
    // SAFETY: a mask that `pthread_sigmask` gave.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, ptr::null_mut()) };
}
