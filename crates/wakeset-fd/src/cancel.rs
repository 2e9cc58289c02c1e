//! Cancellation points: read, write and the epoll_wait family are (pthreads(7)), wherever they sleep.

use core::sync::atomic::{AtomicUsize, Ordering};

/// The two halves: `fn() -> i32` that lets a cancellation act at any instruction and returns what was before, and
/// `fn(i32)` that restores it. 0 for none.
static ALLOW: AtomicUsize = AtomicUsize::new(0);
static RESTORE: AtomicUsize = AtomicUsize::new(0);

/// Installs how the threads of this process are made cancellable.
pub fn set_hooks(allow: extern "C-unwind" fn() -> i32, restore: extern "C-unwind" fn(i32)) {
    RESTORE.store(restore as *const () as usize, Ordering::Release);
    ALLOW.store(allow as *const () as usize, Ordering::Release);
}

/// Runs `sleep`, in which the thread may be cancelled at any instruction: it must hold no lock and own nothing.
pub fn point<T>(sleep: impl FnOnce() -> T) -> T {
    let allow = ALLOW.load(Ordering::Acquire);
    if allow == 0 {
        return sleep();
    }
    // SAFETY: `set_hooks` stored functions of these types.
    let (allow, restore) = unsafe {
        (
            core::mem::transmute::<*const (), extern "C-unwind" fn() -> i32>(allow as *const ()),
            core::mem::transmute::<*const (), extern "C-unwind" fn(i32)>(RESTORE.load(Ordering::Acquire) as *const ()),
        )
    };
    let before = allow();
    let result = sleep();
    restore(before);
    result
}
