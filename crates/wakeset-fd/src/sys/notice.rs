//! What is said of a program that cannot be served in process, to those who have asked for it, and
//! of what a user has asked for in vain.

use super::complaint;
use core::sync::atomic::{AtomicBool, Ordering};

static ON: AtomicBool = AtomicBool::new(false);

/// Notices are wanted: they go to stderr from here on.
pub fn turn_on() {
    ON.store(true, Ordering::Relaxed);
}

/// One line that names the call or library, and what was done instead; nothing if no one has asked.
/// The caller says each thing once.
pub fn say(what: core::fmt::Arguments<'_>) {
    if ON.load(Ordering::Relaxed) {
        complaint::say(format_args!("wakeset: {what}"));
    }
}

/// One line that nobody has to ask for: something that the user has said cannot be done. The
/// caller says each thing once.
#[cold]
pub fn warn(what: core::fmt::Arguments<'_>) {
    complaint::say(format_args!("wakeset: {what}"));
}
