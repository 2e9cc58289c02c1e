//! The one place that names the atomics of what runs under the model checker as well
//! ([`polls`](crate::set::polls), [`wait`](crate::set::wait) and how a poller sleeps), and what a
//! type or a static made of them needs.
//!
//! Loom's atomics cannot be made in a `const`, and each of its schedules needs statics of its own.
//! The macros here are ordinary Rust; those of the models are in `testing/sys/sync.rs`.

pub(crate) use core::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
pub(crate) use wakeset::{after_publishing, mutant};

/// Defines statics.
macro_rules! statics {
    ($($(#[$doc:meta])* pub(crate) static $name:ident: $type:ty = $value:expr;)+) => {
        $($(#[$doc])* pub(crate) static $name: $type = $value;)+
    };
}

/// Defines a constructor that is a `const fn`.
macro_rules! const_fn {
    ($(#[$doc:meta])* $vis:vis const fn $($rest:tt)*) => {
        $(#[$doc])* $vis const fn $($rest)*
    };
}

/// An array of `$n` values, each made by itself.
macro_rules! array_of {
    ($value:expr; $n:expr) => {
        [const { $value }; $n]
    };
}

pub(crate) use {array_of, const_fn, statics};
