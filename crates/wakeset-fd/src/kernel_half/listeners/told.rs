//! What a thread is told of listeners in sets, for a program whose threads may decline.

use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// What the calling thread does about connections that sets tell it of.
#[derive(Debug)]
pub struct Telling {
    /// A wait is about to tell it of a connection on this listener; by edges, if so, of which each
    /// is a new one.
    pub tell: fn(c_int, bool),
    /// That has ended a sleep of the thread's, and counts as a wake.
    pub wake: fn(c_int),
    /// Whether it has declined something, so that a wait is to look without time before it sleeps.
    pub looks_first: fn() -> bool,
    /// What it accepts from now on is held as this holder's ([`held`](super::held)).
    pub hold_as: fn(u8),
    /// Such a look has found nothing on this listener.
    pub saw_none: fn(c_int),
}

/// How often accept(2) has found nothing in this process, by the last bits of the listener's
/// number: one that is taken for another has its program told of an edge once more.
static EMPTIED: [AtomicU32; 64] = [const { AtomicU32::new(0) }; 64];

fn emptied_of(fd: c_int) -> &'static AtomicU32 {
    &EMPTIED[fd as u32 as usize % EMPTIED.len()]
}

/// accept(2) has found nothing on this listener.
pub fn note_emptied(fd: c_int) {
    emptied_of(fd).fetch_add(1, Ordering::SeqCst);
}

/// A number that changes whenever that is so.
pub(super) fn emptied(fd: c_int) -> u32 {
    emptied_of(fd).load(Ordering::SeqCst)
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
