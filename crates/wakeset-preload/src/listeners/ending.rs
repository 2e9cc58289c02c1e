//! How a thread that waits on listeners hears of its own end, and what it does then: it passes on
//! what it was woken for and has not accepted, and closes its private set, if it has one.
//!
//! The set is to be closed then, and only its thread can do that: any other thread might close it
//! while its owner is about to sleep in it. So the thread has a value of pthread_setspecific(3),
//! whose destructor runs in the thread itself, among those of the program. A destructor of the
//! program's that runs later and waits for a listener makes a set anew, and libc then comes back to
//! ours.
//!
//! libc keeps the first 32 keys in the thread's own block; others take memory from its heap, which
//! a hook must not ask. In a program that has made so many keys before, sets stay until another
//! thread needs one ([`claim_index`](wakeset_fd::listeners::claim_index)), and nothing is passed
//! on. The set of a thread that ends by a system call of its own stays, too.

use super::thread::WAITER;
use super::told;
use core::cell::Cell;
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};
use libc::pthread_key_t;
use wakeset_fd::listeners::{self, End};

/// The key plus one; 0 before it is made.
static KEY: AtomicU32 = AtomicU32::new(0);
/// There is no key to be had, and none is asked for again.
const NONE: u32 = u32::MAX;
/// Keys from here on take memory.
const IN_BLOCK: pthread_key_t = 32;

thread_local! {
    // No destructor and no lazy part, as in `thread`.
    static HEARS: Cell<bool> = const { Cell::new(false) };
}

/// Threads that have heard, or will hear, of connections; a few too many after a fork.
static THREADS: AtomicU32 = AtomicU32::new(0);

/// Has the calling thread told before it ends.
#[inline]
pub(super) fn hear_of_it() {
    if !HEARS.get() {
        begin_to_hear();
    }
}

#[cold]
fn begin_to_hear() {
    HEARS.set(true);
    THREADS.fetch_add(1, Ordering::Relaxed);
    let key = match KEY.load(Ordering::Acquire) {
        0 => make_key(),
        known => known,
    };
    if key != NONE {
        // SAFETY: a key that `make_key` has made. Any value but null will do.
        unsafe { libc::pthread_setspecific(key - 1, ptr::from_ref(&KEY).cast()) };
    }
}

#[cold]
fn make_key() -> u32 {
    let mut key = 0;
    // SAFETY: memory for the key, and a function that lives as long as the library, which is never
    // unloaded.
    let made = unsafe { libc::pthread_key_create(&raw mut key, Some(thread_ends)) } == 0;
    let fits = made && key < IN_BLOCK;
    let mine = if fits { key + 1 } else { NONE };
    let first = KEY.compare_exchange(0, mine, Ordering::AcqRel, Ordering::Acquire);
    if made && (first.is_err() || !fits) {
        // SAFETY: made above, and known to nobody.
        unsafe { libc::pthread_key_delete(key) };
    }
    first.err().unwrap_or(mine)
}

/// libc has set the value to null, and calls this again if it is set anew.
unsafe extern "C" fn thread_ends(_: *mut c_void) {
    HEARS.set(false);
    THREADS.fetch_sub(1, Ordering::Relaxed);
    WAITER.with(super::thread::Waiter::end);
    told::at_thread_end();
}

/// Before the process ends, or executes another program: passes on what its threads were woken for
/// and have not accepted. Waits for nothing, as the end may come in a handler.
#[inline]
pub(crate) fn before_end(end: End) {
    listeners::before_end(end, || THREADS.load(Ordering::Relaxed));
}
