//! What tests and models hook into the engine: named steps, mutants, the explorer of schedules.
//! Nothing of it is left in an ordinary build.

// First: a macro is known from where it stands on.
#[macro_use]
pub(crate) mod mutant;

#[cfg(any(loom, shuttle))]
pub(crate) mod explore;
pub mod steps;
