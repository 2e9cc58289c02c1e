//! What a thread has learned about its calls of accept(2), and how sure it is. Each count goes up
//! with a call that bears the guess out and down with one that does not.

use core::cell::Cell;
use core::time::Duration;

/// From this count on, a thread that has accepted looks for another connection before it calls
/// accept(2) again. A call in vain costs several looks, so each one makes up for [`IN_VAIN`] looks
/// that found something.
pub(super) const SURE: u8 = 2 * IN_VAIN;
/// What a call in vain adds to that count.
pub(super) const IN_VAIN: u8 = 4;

/// From this count on, a thread looks for a connection that a wait has reported. Such a call in
/// vain is rarer, and costs more: the program goes back to its wait as well, and perhaps by way of
/// an exception. So a look pays off from one in forty on.
pub(super) const OFTEN: u8 = 2 * OVERTAKEN;
/// What a reported connection that is gone adds to that count.
pub(super) const OVERTAKEN: u8 = 40;

/// From this count on, a thread stands back: if more than one in 16 of the connections that it
/// finds on coming back belong to another thread. Standing back takes longer than a call in vain.
pub(super) const ANOTHERS: u8 = 16;

/// How long a thread stands back. Threads that come for a connection at the same time are mostly
/// less than this apart. With 10 µs three quarters of the calls of accept(2) remain in vain, with
/// 20 half of them, with 30 a quarter; the longer it is, the more often a thread waits in vain for
/// another that does not come.
pub(super) const STAND_BACK: Duration = Duration::from_micros(25);

/// How often a thread may stand back, so that it takes no more than a fortieth of its time: where
/// requests take some ten microseconds, a call in vain is cheaper.
pub(super) const STAND_BACK_EVERY: Duration = Duration::from_millis(1);

/// Counts a call that bears a guess out.
pub(super) fn raise(count: &Cell<u8>, by: u8) {
    count.set((count.get() + by).min(3 * by));
}

/// Counts a call that does not.
pub(super) fn lower(count: &Cell<u8>) {
    count.set(count.get().saturating_sub(1));
}
