//! Loom's atomics, and what `src/sys/sync.rs` has for types and statics made of them.

pub(crate) use wakeset::model_atomics::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
pub(crate) use wakeset::{after_publishing, mutant};

/// Defines statics that each schedule makes anew.
macro_rules! statics {
    ($($(#[$doc:meta])* pub(crate) static $name:ident: $type:ty = $value:expr;)+) => {
        loom::lazy_static! {
            $($(#[$doc])* pub(crate) static ref $name: $type = $value;)+
        }
    };
}

/// Defines a constructor, which calls those of loom.
macro_rules! const_fn {
    ($(#[$doc:meta])* $vis:vis const fn $($rest:tt)*) => {
        $(#[$doc])* $vis fn $($rest)*
    };
}

/// An array of `$n` values, each made by itself.
macro_rules! array_of {
    ($value:expr; $n:expr) => {
        core::array::from_fn::<_, { $n }, _>(|_| $value)
    };
}

pub(crate) use {array_of, const_fn, statics};
