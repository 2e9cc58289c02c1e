//! What a thread is told of listeners in sets, for a program whose threads may decline.

use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

/// What the calling thread does about connections that sets tell it of.
#[derive(Debug)]
pub struct Telling {
    /// A wait is about to tell it of a connection on this listener; by edges, if so, of which each
    /// is a new one.
    pub tell: fn(c_int, bool),
    /// Whether it has declined something, so that a wait is to look without time before it sleeps.
    pub looks_first: fn() -> bool,
    /// What it accepts from now on is held as this holder's ([`held`](super::held)).
    pub hold_as: fn(u8),
    /// Such a look has found nothing on this listener.
    pub saw_none: fn(c_int),
}

static TELLING: AtomicPtr<Telling> = AtomicPtr::new(ptr::null_mut());

/// Installs it.
pub fn set_telling(telling: &'static Telling) {
    TELLING.store(ptr::from_ref(telling).cast_mut(), Ordering::Release);
}

pub(super) fn telling() -> Option<&'static Telling> {
    // SAFETY: null, or what `set_telling` stored, which is static.
    unsafe { TELLING.load(Ordering::Acquire).as_ref() }
}
