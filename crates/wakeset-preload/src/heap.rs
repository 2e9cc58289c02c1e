//! The library's own heap, because a hook may run where libc's malloc must not be called: in a
//! signal handler that has interrupted malloc.
//!
//! Built with `--cfg wakeset_libc_heap` the library uses libc's heap all the same, so that
//! valgrind, which watches libc's, sees each of our allocations (`ci/sanitizers`).

#[cfg(not(wakeset_libc_heap))]
mod own;
#[cfg(not(wakeset_libc_heap))]
pub(crate) use own::{hold, release};

#[cfg(all(debug_assertions, not(wakeset_libc_heap)))]
mod rationed;
#[cfg(all(debug_assertions, not(wakeset_libc_heap)))]
pub(crate) use rationed::start;

/// Before main. Only a heap that can refuse reads the environment.
#[cfg(any(not(debug_assertions), wakeset_libc_heap))]
pub(crate) fn start() {}

#[cfg(wakeset_libc_heap)]
#[global_allocator]
static HEAP: std::alloc::System = std::alloc::System;

/// Before a fork. libc locks its heap by itself.
#[cfg(wakeset_libc_heap)]
pub(crate) fn hold() {}

/// After a fork. libc unlocks its heap by itself.
///
/// # Safety
/// There is nothing to keep to; the other heap's function has a contract.
#[cfg(wakeset_libc_heap)]
pub(crate) unsafe fn release() {}
