//! Who answers a call: we, or the kernel.

use crate::sys::Errno;

/// The outcome of a call as far as in-process objects are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a verdict of `Kernel` has to be carried out"]
pub enum Verdict<T> {
    /// Answered.
    Done(Result<T, Errno>),
    /// Not ours, or no longer: make the system call with the same arguments.
    Kernel,
}

impl<T> Verdict<T> {
    /// Applies `f` to an answer that is not an error.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Verdict<U> {
        match self {
            Self::Done(result) => Verdict::Done(result.map(f)),
            Self::Kernel => Verdict::Kernel,
        }
    }

    /// The answer, from `call` if the kernel has to give it.
    ///
    /// # Errors
    /// Those of the call.
    pub fn or_kernel(self, call: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
        match self {
            Self::Done(result) => result,
            Self::Kernel => call(),
        }
    }
}
