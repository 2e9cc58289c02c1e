//! The one engine of the process.

use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};
use wakeset::Engine;

static ENGINE: AtomicPtr<Engine> = AtomicPtr::new(ptr::null_mut());

/// The engine; made when first asked for. `None` when there is no memory for it.
pub(crate) fn get() -> Option<&'static Engine> {
    let engine = ENGINE.load(Ordering::Acquire);
    if engine.is_null() {
        return make();
    }
    // SAFETY: engines here are leaked.
    Some(unsafe { &*engine })
}

#[cold]
fn make() -> Option<&'static Engine> {
    // Whoever is second leaves what it made behind: once, and one engine that holds nothing.
    let engine = crate::sys::memory::leak_with(|| Some(Engine::try_new().ok()?.leak()))?;
    match ENGINE.compare_exchange(
        ptr::null_mut(),
        ptr::from_ref(engine).cast_mut(),
        Ordering::AcqRel,
        Ordering::Acquire,
    ) {
        Ok(_) => Some(engine),
        // SAFETY: leaked.
        Err(first) => Some(unsafe { &*first }),
    }
}

/// Leaves the old engine to itself: in a forked child its locks may be held by threads that do not
/// exist.
pub(crate) fn abandon() {
    ENGINE.store(ptr::null_mut(), Ordering::Release);
}
