//! The model checkers' atomics, in place of `sync/atomics.rs`.

#[cfg(loom)]
use loom::sync as models_lock;
#[cfg(loom)]
pub(crate) use seen::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
#[cfg(shuttle)]
use shuttle::sync as models_lock;
#[cfg(shuttle)]
pub(crate) use shuttle::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};

/// For counts of handles, which the models take for granted, as they do `Arc`'s, and for plain
/// notes that a lock guards, and for guesses that nothing depends on.
pub(crate) use core::sync::atomic::{
    AtomicU8 as UnmodelledU8, AtomicU16 as UnmodelledU16, AtomicU32 as UnmodelledU32,
    AtomicU64 as UnmodelledU64, AtomicUsize as UnmodelledUsize,
};

/// Two words that change together, which the checkers do not have: a lock, so no load returns a
/// stale pair.
#[derive(Debug)]
pub(crate) struct AtomicPair {
    pair: models_lock::Mutex<(u64, u64)>,
}

impl AtomicPair {
    pub(crate) fn new(pair: (u64, u64)) -> Self {
        Self { pair: models_lock::Mutex::new(pair) }
    }

    pub(crate) fn load(&self) -> (u64, u64) {
        *self.pair.lock().unwrap()
    }

    pub(crate) fn store(&self, pair: (u64, u64)) {
        *self.pair.lock().unwrap() = pair;
    }

    pub(crate) fn compare_exchange(
        &self,
        old: (u64, u64),
        new: (u64, u64),
    ) -> Result<(), (u64, u64)> {
        let mut pair = self.pair.lock().unwrap();
        if *pair != old {
            return Err(*pair);
        }
        *pair = new;
        Ok(())
    }
}

/// Loom's atomics, with no access hidden from it.
///
/// Loom tries another order where two accesses race, and remembers only the last access of each
/// atomic: if a thread loads and then compares and swaps, its own load hides an earlier load of
/// another thread, and the order in which the swap comes first is never tried (0.7.2). So each
/// access here first touches a companion, by a relaxed read-modify-write: any two of them race.
/// They order nothing in memory but what fences on both sides of them order.
#[cfg(loom)]
#[allow(missing_docs, reason = "what loom says of them")]
pub mod seen {
    pub use loom::sync::atomic::{Ordering, fence};

    macro_rules! seen {
        ($name:ident $(<$t:ident>)?, $value:ty,
            { $($method:ident($($argument:ident: $type:ty),*) -> $result:ty;)* }) => {
            pub struct $name $(<$t>)? {
                value: loom::sync::atomic::$name $(<$t>)?,
                seen: loom::sync::atomic::AtomicUsize,
            }

            impl $(<$t>)? core::fmt::Debug for $name $(<$t>)? {
                fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                    self.value.fmt(f)
                }
            }

            impl $(<$t>)? $name $(<$t>)? {
                pub fn new(value: $value) -> Self {
                    Self {
                        value: loom::sync::atomic::$name::new(value),
                        seen: loom::sync::atomic::AtomicUsize::new(0),
                    }
                }

                $(
                    #[allow(dead_code, reason = "one set of methods for all")]
                    pub fn $method(&self, $($argument: $type),*) -> $result {
                        self.seen.fetch_add(0, Ordering::Relaxed);
                        self.value.$method($($argument),*)
                    }
                )*
            }
        };
    }
    macro_rules! seen_integer {
        ($name:ident, $int:ty) => {
            seen!($name, $int, {
                load(order: Ordering) -> $int;
                store(value: $int, order: Ordering) -> ();
                swap(value: $int, order: Ordering) -> $int;
                compare_exchange(old: $int, new: $int, success: Ordering, failure: Ordering)
                    -> Result<$int, $int>;
                compare_exchange_weak(old: $int, new: $int, success: Ordering, failure: Ordering)
                    -> Result<$int, $int>;
                fetch_add(value: $int, order: Ordering) -> $int;
                fetch_sub(value: $int, order: Ordering) -> $int;
                fetch_and(value: $int, order: Ordering) -> $int;
                fetch_or(value: $int, order: Ordering) -> $int;
                fetch_update(set: Ordering, fetch: Ordering, f: impl FnMut($int) -> Option<$int>)
                    -> Result<$int, $int>;
            });
        };
    }
    seen_integer!(AtomicU32, u32);
    seen_integer!(AtomicU64, u64);
    seen_integer!(AtomicUsize, usize);
    seen!(AtomicBool, bool, {
        load(order: Ordering) -> bool;
        store(value: bool, order: Ordering) -> ();
        swap(value: bool, order: Ordering) -> bool;
    });
    seen_integer!(AtomicI32, i32);
    seen!(AtomicPtr<T>, *mut T, {
        load(order: Ordering) -> *mut T;
        store(value: *mut T, order: Ordering) -> ();
        swap(value: *mut T, order: Ordering) -> *mut T;
        compare_exchange(old: *mut T, new: *mut T, success: Ordering, failure: Ordering)
            -> Result<*mut T, *mut T>;
    });
}
