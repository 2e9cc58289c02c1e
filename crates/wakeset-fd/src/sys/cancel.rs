//! Cancellation points. By pthreads(7), read, write and the epoll_wait family are cancellation
//! points; here a wait can be cancelled wherever it sleeps. A blocked read or write is not inside
//! [`point`]: pthread_cancel(3) migrates every object first, which ends the sleep, and the kernel's
//! call is then the cancellation point.

use core::sync::atomic::{AtomicUsize, Ordering};

/// The two hooks as addresses, 0 for none: `fn() -> i32` lets a cancellation act at any instruction
/// and returns the previous type, `fn(i32)` restores that type.
static ALLOW: AtomicUsize = AtomicUsize::new(0);
static RESTORE: AtomicUsize = AtomicUsize::new(0);

/// Installs the hooks that make a thread cancellable: `allow` lets a cancellation act at any
/// instruction and returns the previous cancellation type, `restore` restores that type.
///
/// pthread_setcanceltype(3) does both. Without hooks no sleep is a cancellation point.
pub fn set_hooks(allow: extern "C-unwind" fn() -> i32, restore: extern "C-unwind" fn(i32)) {
    RESTORE.store(restore as *const () as usize, Ordering::Release);
    ALLOW.store(allow as *const () as usize, Ordering::Release);
}

/// Runs `sleep`, during which the thread may be cancelled at any instruction: it must hold no lock
/// and own nothing that has to be dropped.
pub fn point<T>(sleep: impl FnOnce() -> T) -> T {
    let allow = ALLOW.load(Ordering::Acquire);
    if allow == 0 {
        return sleep();
    }
    // SAFETY: `set_hooks` stored functions of these types.
    let (allow, restore) = unsafe {
        (
            core::mem::transmute::<*const (), extern "C-unwind" fn() -> i32>(allow as *const ()),
            core::mem::transmute::<*const (), extern "C-unwind" fn(i32)>(
                RESTORE.load(Ordering::Acquire) as *const (),
            ),
        )
    };
    let before = allow();
    let result = sleep();
    restore(before);
    result
}
