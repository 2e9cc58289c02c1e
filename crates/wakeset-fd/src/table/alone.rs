//! For tests in one process that must not run beside each other.

use std::sync::{Mutex, MutexGuard, PoisonError};
extern crate std;

/// Lets the caller run alone among those that make objects or fork: objects that are made during a
/// fork are the kernel's, and two threads that make the process's engine at the same moment leave
/// one behind, which LeakSanitizer reports.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
