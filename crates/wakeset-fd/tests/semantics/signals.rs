//! Signal handlers that do nothing but run.

use std::cell::Cell;
use std::sync::Once;

/// A signal whose handler is installed without SA_RESTART.
pub const PLAIN: libc::c_int = libc::SIGUSR1;
/// A signal whose handler is installed with SA_RESTART.
pub const RESTARTING: libc::c_int = libc::SIGUSR2;
/// A signal without a handler, which is ignored by default.
pub const IGNORED: libc::c_int = libc::SIGURG;

thread_local! {
    static HANDLED: Cell<u32> = const { Cell::new(0) };
}

extern "C" fn count(_: libc::c_int) {
    HANDLED.set(HANDLED.get() + 1);
}

/// Installs both handlers, for the whole process.
pub fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for (signal, flags) in [(PLAIN, 0), (RESTARTING, libc::SA_RESTART)] {
            // SAFETY: zeroes are a valid sigaction; the handler only touches a constant-initialised
            // thread-local.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = count as extern "C" fn(libc::c_int) as usize;
                action.sa_flags = flags;
                assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0);
            }
        }
    });
}

/// How many handlers have run on this thread.
pub fn handled() -> u32 {
    HANDLED.get()
}

/// A mask with only `signal` in it.
pub fn mask_of(signal: libc::c_int) -> u64 {
    1 << (signal - 1)
}

/// Blocks or unblocks `signal` for this thread.
pub fn block(signal: libc::c_int, blocked: bool) {
    let how = if blocked { libc::SIG_BLOCK } else { libc::SIG_UNBLOCK };
    // SAFETY: a mask made as sigemptyset(3) and sigaddset(3) make it.
    unsafe {
        let mut mask = std::mem::zeroed();
        libc::sigemptyset(&mut mask);
        libc::sigaddset(&mut mask, signal);
        assert_eq!(libc::pthread_sigmask(how, &mask, std::ptr::null_mut()), 0);
    }
}

/// Sends `signal` to this thread.
pub fn raise(signal: libc::c_int) {
    // SAFETY: takes no pointer.
    assert_eq!(unsafe { libc::raise(signal) }, 0);
}
