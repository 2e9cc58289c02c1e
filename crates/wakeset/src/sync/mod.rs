//! What the engine synchronises with: atomics, fences, futexes, locks, thread numbers and the
//! clock.
//!
//! Nothing else names `core::sync::atomic`, and nothing else enters the kernel to sleep. Under the
//! model checkers the files that touch the machine are replaced, whole, by their doubles in
//! `testing/doubles/`: loom tries every interleaving of a small model, shuttle random schedules of
//! a large one. All other code is the same in every build.
//!
//! Within the room, `lock` uses `lock_word`, `inheritance` and `thread_id`; `futex` uses `time`;
//! `spin` uses `inheritance`; `adaptive_spin` and `last_stretch` use `spin` and `time`; `blocked`
//! uses `futex`, `fence` and `adaptive_spin`; all use `atomics`.

pub(crate) mod adaptive_spin;
pub(crate) mod blocked;
pub(crate) mod fence;
pub(crate) mod last_stretch;
pub(crate) mod line;
pub(crate) mod lock;
pub(crate) mod time;

#[cfg_attr(any(loom, shuttle), path = "../testing/doubles/atomics.rs")]
pub(crate) mod atomics;
#[cfg_attr(any(loom, shuttle), path = "../testing/doubles/clock.rs")]
pub(crate) mod clock;
#[cfg_attr(any(loom, shuttle), path = "../testing/doubles/futex.rs")]
pub(crate) mod futex;
#[cfg_attr(any(loom, shuttle), path = "../testing/doubles/inheritance.rs")]
pub(crate) mod inheritance;
#[cfg_attr(any(loom, shuttle), path = "../testing/doubles/lock_word.rs")]
pub(crate) mod lock_word;
#[cfg_attr(any(loom, shuttle), path = "../testing/doubles/spin.rs")]
pub(crate) mod spin;
#[cfg_attr(any(loom, shuttle), path = "../testing/doubles/thread_id.rs")]
pub(crate) mod thread_id;

pub(crate) use atomics::{
    AtomicPair, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, UnmodelledU8,
    UnmodelledU16, UnmodelledU32, UnmodelledU64, UnmodelledUsize, fence,
};
pub use fence::after_publishing;
pub(crate) use fence::full_fence;
pub(crate) use futex::{Futex, SharedFutex};
pub(crate) use slept::Slept;

mod slept;
