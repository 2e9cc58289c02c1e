//! Descriptors of ours that are being made, beside calls of the program's that name a number.
//!
//! The kernel gives a descriptor its number before the table can say that the number is hidden, and
//! some are open for a moment only, without any entry. To the program such a number is free: it may
//! put a file of its own there, and what was made is lost, or it is the program's file that is used
//! and closed next. So a thread that makes descriptors says so from before the first call until
//! their numbers are hidden, or closed again: it holds a [`Birth`]. A dup2(2) of the program's is
//! made while no thread does; [`exclusion`] has the steps.
//!
//! close(2) looks as well, and makes its call next. It is not counted, as a dup2(2) is, because
//! each close would pay for that. What is left is a close of a number that is not open, which
//! another thread is given between the look and the call.

mod exclusion;

use crate::sys::process::{Memory, is_foreign, memory};
use crate::sys::signal_guard::SignalGuard;
use exclusion::{Exclusion, Generation};

static EXCLUSION: Exclusion = Exclusion::new();

/// Descriptors of ours are being made, as long as it is held. The thread waits for no close(2) or
/// dup2(2) of the program's until it has dropped this, and takes none of the locks within which
/// another thread may begin one.
#[must_use = "the program may take the numbers when it is dropped"]
#[derive(Debug)]
pub(crate) struct Birth {
    /// A vfork(2) child has numbers of its own.
    is_counted: bool,
    _guard: SignalGuard,
}

impl Birth {
    pub(crate) fn begin() -> Self {
        #[cfg(test)]
        BEGUN.with(|begun| begun.set(begun.get() + 1));
        let guard = SignalGuard::enter();
        let is_counted = !is_foreign();
        if is_counted {
            EXCLUSION.begin_birth();
        }
        Self { is_counted, _guard: guard }
    }
}

impl Drop for Birth {
    fn drop(&mut self) {
        if self.is_counted {
            EXCLUSION.end_birth();
        }
    }
}

/// A call of the program's that puts a file under a number, while no descriptor of ours is being
/// made. The caller looks whether the number is hidden within it, and makes the call if not. It
/// holds no lock, unless it is the migrations lock: no birth waits for that.
#[must_use = "a descriptor of ours may get the number when it is dropped"]
#[derive(Debug)]
pub(crate) struct Taking {
    generation: Generation,
    _guard: SignalGuard,
}

impl Taking {
    pub(crate) fn begin() -> Self {
        let guard = SignalGuard::enter();
        Self { generation: EXCLUSION.begin_taking(&is_copy), _guard: guard }
    }
}

impl Drop for Taking {
    fn drop(&mut self) {
        EXCLUSION.end_taking(self.generation);
    }
}

/// Whether the memory is that of another process, whose threads are not here.
fn is_copy() -> bool {
    memory() == Memory::Copied
}

/// Whether descriptors of ours are being made just now.
#[inline(always)]
pub(crate) fn are_under_way() -> bool {
    EXCLUSION.has_births()
}

/// Waits until those that are being made have been, for a second at most.
#[cold]
pub(crate) fn wait() {
    let _ = EXCLUSION.wait(&is_copy);
}

/// In a forked child.
pub(crate) fn begin_anew() {
    EXCLUSION.begin_anew();
}

#[cfg(test)]
extern crate std;

#[cfg(test)]
std::thread_local! {
    /// How many births the thread has begun.
    pub(crate) static BEGUN: core::cell::Cell<u32> = const { core::cell::Cell::new(0) };
}
