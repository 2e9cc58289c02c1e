//! Publish-then-check: the handshake of the engine, and its barrier.
//!
//! Two threads each publish something and then check for what the other one publishes; one of them
//! must see the other. A waker puts a watch on the list and looks for sleepers, a sleeper counts
//! itself in and looks at the list. That needs a total order over the two stores and the two
//! loads.
//!
//! Both sides publish with a `SeqCst` read-modify-write, call [`after_publishing`], and check. Most
//! checks are `SeqCst` loads, which C++20 orders with the publications; the fence is needed besides
//! for the model checkers (loom treats `SeqCst` accesses as `AcqRel`), for checks with a `Relaxed`
//! load (the first load of each `try_…` of a source), and for the loads of a user's
//! `Source::poll`. Where the publication may have been a plain store, [`full_fence`] takes the
//! place of [`after_publishing`].

use crate::sync::atomics::{Ordering, fence};

/// Orders a publication, which was a read-modify-write before the call, against the check that
/// follows.
///
/// `weakened` is the mutant of this place, which leaves the barrier out:
/// `after_publishing(mutant!("name"))`, or `false` where another mutant beside it shows the same.
///
/// On x86-64 every `LOCK`-prefixed instruction is a full barrier already (Intel SDM vol. 3,
/// 9.2.3.9), so only the compiler is held back; an `mfence` here would cost the wake path a third
/// of its time.
#[inline(always)]
pub fn after_publishing(weakened: bool) {
    if !weakened {
        #[cfg(all(target_arch = "x86_64", not(any(loom, shuttle))))]
        core::sync::atomic::compiler_fence(Ordering::SeqCst);
        #[cfg(not(all(target_arch = "x86_64", not(any(loom, shuttle)))))]
        fence(Ordering::SeqCst);
    }
}

/// Orders everything before it against everything after it.
#[inline(always)]
pub(crate) fn full_fence() {
    fence(Ordering::SeqCst);
}
