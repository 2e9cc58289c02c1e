//! The library's own heap, because a hook may run where libc's malloc must not be called.
//!
//! Built with `--cfg wakeset_libc_heap` the library uses libc's all the same, so that valgrind, which watches that one, sees each
//! of our allocations (`ci/sanitizers`).

#[cfg(not(wakeset_libc_heap))]
mod own;
#[cfg(not(wakeset_libc_heap))]
pub(crate) use own::{hold, release};

#[cfg(all(debug_assertions, not(wakeset_libc_heap)))]
mod rationed;
#[cfg(all(debug_assertions, not(wakeset_libc_heap)))]
pub(crate) use rationed::start;

/// There is nothing to ask the environment for.
#[cfg(any(not(debug_assertions), wakeset_libc_heap))]
pub(crate) fn start() {}

#[cfg(wakeset_libc_heap)]
#[global_allocator]
static HEAP: std::alloc::System = std::alloc::System;

/// libc holds its heap over a fork by itself.
#[cfg(wakeset_libc_heap)]
pub(crate) fn hold() {}

/// As above.
///
/// # Safety
/// None is needed; the other heap's wants some.
#[cfg(wakeset_libc_heap)]
pub(crate) unsafe fn release() {}
