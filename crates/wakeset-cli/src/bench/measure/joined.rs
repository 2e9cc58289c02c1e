//! The end of a thread.

use std::io;
use std::thread::ScopedJoinHandle;

/// What the thread has returned; if it has panicked, so does the caller.
pub fn joined<T>(thread: ScopedJoinHandle<'_, io::Result<T>>) -> io::Result<T> {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
