//! What the load has done so far.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        /// What has been done so far.
        #[derive(Debug, Default)]
        pub struct Counts { $($(#[$doc])* pub $name: AtomicU64,)+ }

        impl Counts {
            /// Each with its name.
            pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name.load(Ordering::Relaxed)),)+].into_iter()
            }
        }
    };
}

counts! {
    /// Units written to what is shared or blocked on.
    written,
    /// Units read from there.
    read,
    waits,
    events,
    /// Changes of a watch.
    controls,
    objects_made,
    /// Objects that a second descriptor moved into the kernel.
    migrations,
    blocked_reads,
    closed_under_a_sleeper,
}

/// Adds to a count that other threads only read for its value.
pub fn bump(count: &AtomicU64, n: u64) {
    count.fetch_add(n, Ordering::Relaxed);
}
