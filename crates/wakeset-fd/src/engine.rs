//! The one engine of the process.

extern crate alloc;
use alloc::boxed::Box;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};
use wakeset::Engine;

static ENGINE: AtomicPtr<Engine> = AtomicPtr::new(ptr::null_mut());

/// The engine; made when first asked for.
pub(crate) fn get() -> &'static Engine {
    let engine = ENGINE.load(Ordering::Acquire);
    if engine.is_null() {
        return make();
    }
    // SAFETY: engines here are leaked.
    unsafe { &*engine }
}

#[cold]
fn make() -> &'static Engine {
    let engine = Box::into_raw(Box::new(Engine::new().leak()));
    match ENGINE.compare_exchange(ptr::null_mut(), engine, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: leaked.
        Ok(_) => unsafe { &*engine },
        Err(first) => {
            // SAFETY: just made and shown to nobody.
            drop(unsafe { Box::from_raw(engine) });
            // SAFETY: leaked.
            unsafe { &*first }
        }
    }
}

/// Leaves the old engine to itself: in a forked child its locks may be held by threads that do not exist.
pub(crate) fn abandon() {
    ENGINE.store(ptr::null_mut(), Ordering::Release);
}
