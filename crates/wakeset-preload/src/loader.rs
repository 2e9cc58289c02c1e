//! The objects that the dynamic loader has loaded, and where their functions are.
//!
//! libc's own functions are found here and not by dlsym(3): that is hooked, by us and perhaps by
//! another preload, takes the loader's lock, and answers with our hooks once libc's symbol table
//! leads to them.
//!
//! | file | concept |
//! |---|---|
//! | `object` | a loaded object: its names, and its symbols by name |
//! | `order` | the objects in the order in which the loader searches them |
//! | `redirect` | libc's symbol table leads to our hooks, and where it led before |
//!
//! Nothing here allocates. Everything but [`redirect`] is safe in a signal handler: the objects
//! that a program begins with are never unloaded, and only those are looked at.

mod object;
mod order;
mod redirect;

use core::ffi::CStr;

pub(crate) use order::{audited, in_late_part, iterate, next};
pub(crate) use redirect::{Obstacle, hold, is_redirected, redirect, release, wraps};

/// Whether we have a function of this name.
pub(crate) fn is_hook(name: &CStr) -> bool {
    order::ours().is_some_and(|ours| ours.find(name).is_some())
}

/// The first object between us and libc that has a function of its own in place of one of our
/// hooks for which `counts` holds, and that function's name. Calls reach it through our hook, so it
/// does not see what we answer.
pub(crate) fn preload_behind_us(
    counts: impl Fn(&CStr) -> bool,
) -> Option<(&'static CStr, &'static CStr)> {
    let ours = order::ours()?;
    order::between()
        .find_map(|other| Some((other.name(), ours.names().find(|n| other.has(n) && counts(n))?)))
}
