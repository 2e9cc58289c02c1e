//! The pollers of the process. They are never freed; a thread takes the one that it had last, if
//! no other thread has it.

use super::poller::{Frame, Poller};
use crate::set::doorbell;
use crate::sys;
use crate::sys::reserved::Reserved;
use crate::sys::signal_guard::SignalGuard;
use crate::table::lifecycle::{self, Participant, Rank};
use core::ffi::c_int;
use core::ops::Deref;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

/// As many threads may sleep in poll(2) on objects here. Others' objects migrate.
const MOST: usize = 1 << 17;

/// Their addresses, 0 for none.
static POOL: Reserved<AtomicUsize, MOST> = Reserved::new();
/// How many places have been given to pollers.
static MADE: AtomicUsize = AtomicUsize::new(0);

/// In a forked child those of the parent stay taken, or belong to the parent's engine.
static POOLED: Participant =
    Participant { rank: Rank::Pollers, begin_anew, renumber: None, before_close: None };

fn begin_anew() {
    let made = MADE.swap(0, Ordering::SeqCst).min(MOST);
    (0..made).for_each(|index| POOL.clear(index));
    sys::set_poller(0);
    sys::set_last_poller(0);
}

/// As if there had been no memory for places of pollers.
#[cfg(test)]
pub(crate) fn begin_anew_without_memory() {
    let _ = POOL.place(0);
    MADE.store(MOST, Ordering::SeqCst);
    begin_anew();
}

fn get(index: usize) -> Option<&'static Poller> {
    let address = POOL.get(index)?.load(Ordering::Acquire);
    // SAFETY: null or a poller, which is never freed.
    unsafe { ptr::with_exposed_provenance::<Poller>(address).as_ref() }
}

fn each() -> impl Iterator<Item = &'static Poller> {
    (0..MADE.load(Ordering::SeqCst).min(MOST)).filter_map(get)
}

/// A poller that a call has, until this is dropped or a handler of the program has run.
pub(super) struct Taken<'a> {
    poller: &'static Poller,
    frame: &'a Frame,
}

/// The one that the thread had last.
fn last() -> Option<&'static Poller> {
    (sys::last_poller() as usize).checked_sub(1).and_then(get)
}

/// Whether the thread's next call is likely to sleep, as its last one did.
pub(super) fn is_likely_to_sleep() -> bool {
    last().is_some_and(Poller::has_slept)
}

impl Taken<'_> {
    /// Takes one for a call with this frame; `None` where there is no memory.
    #[inline]
    pub(super) fn take(frame: &Frame) -> Option<Taken<'_>> {
        let _guard = SignalGuard::enter();
        let poller = last().filter(|poller| poller.try_take()).or_else(other)?;
        poller.begin(frame);
        sys::set_poller(poller.name);
        sys::set_last_poller(poller.name);
        Some(Taken { poller, frame })
    }
}

impl Deref for Taken<'_> {
    type Target = Poller;
    fn deref(&self) -> &Poller {
        self.poller
    }
}

impl Drop for Taken<'_> {
    #[inline]
    fn drop(&mut self) {
        let _guard = SignalGuard::enter();
        if self.frame.interrupted().is_none() {
            sys::set_poller(0);
            self.poller.release();
        }
    }
}

/// Any that no thread has, or a new one.
#[cold]
fn other() -> Option<&'static Poller> {
    each().find(|poller| poller.try_take()).or_else(make)
}

fn make() -> Option<&'static Poller> {
    lifecycle::sign_up(&POOLED);
    doorbell::set_poller_recall(recall);
    let place = MADE
        .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |made| (made < MOST).then_some(made + 1));
    let index = place.ok()?;
    // Where there is no memory the place stays empty.
    let poller = Poller::new(index as u32 + 1)?;
    POOL.place(index)?.store(ptr::from_ref(poller).expose_provenance(), Ordering::Release);
    Some(poller)
}

fn recall() {
    each().for_each(Poller::recall);
}

/// Before a handler of a signal runs on this thread: the call of poll(2) or select(2) that it
/// interrupts is over, whether the handler returns or not, unless the call blocks the signal.
pub fn before_handler(signal: c_int) {
    if sys::poller() == 0 {
        return;
    }
    let _guard = SignalGuard::enter();
    // Another handler may have run between the two, and given the poller up. By now it may be
    // another thread's.
    let name = sys::poller() as usize;
    sys::set_poller(0);
    if let Some(poller) = name.checked_sub(1).and_then(get) {
        poller.interrupt(signal);
    }
}
