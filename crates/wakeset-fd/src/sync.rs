//! The one place that names the atomics of what runs under the model checker as well: [`polls`](crate::polls) and [`wait`](crate::wait).

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};
#[cfg(loom)]
pub(crate) use wakeset::model_atomics::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

pub(crate) use wakeset::mutant;
