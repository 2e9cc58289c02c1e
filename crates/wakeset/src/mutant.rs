//! Mutants: the engine with one step weakened on purpose, so that each model can show that it notices.
//!
//! `mutant!("name")` stands at a step and says whether that step is weakened; `ordering!(Release, "name")` is the step's memory
//! ordering. In an ordinary build both are constants: nothing of them is left in the code, unless it is built with
//! `--cfg wakeset_mutant="name"`. Under the model checkers the environment variable `WAKESET_MUTANT` chooses, so that
//! one build serves all mutants (`ci/mutants`). Each is caught by the models that `tests/README.md` names.

/// Whether the step it stands at is weakened.
#[cfg(not(any(loom, shuttle)))]
macro_rules! mutant {
    ($name:literal) => {
        cfg!(wakeset_mutant = $name)
    };
}

#[cfg(any(loom, shuttle))]
macro_rules! mutant {
    ($name:literal) => {
        $crate::mutant::is_mutant($name)
    };
}

/// The memory ordering that a step uses, and that the mutant makes `Relaxed`.
macro_rules! ordering {
    ($ordering:ident, $name:literal) => {
        if mutant!($name) { crate::sync::Ordering::Relaxed } else { crate::sync::Ordering::$ordering }
    };
}

/// The mutant that the environment chooses. Not the checkers' own: it is the same in every schedule.
#[cfg(any(loom, shuttle))]
fn chosen() -> Option<&'static str> {
    extern crate std;
    static CHOSEN: std::sync::OnceLock<Option<std::string::String>> = std::sync::OnceLock::new();
    CHOSEN.get_or_init(|| std::env::var("WAKESET_MUTANT").ok().filter(|name| !name.is_empty())).as_deref()
}

/// Whether the environment chooses this one. Also for crates that have steps of their own.
#[cfg(any(loom, shuttle))]
pub fn is_mutant(name: &str) -> bool {
    chosen() == Some(name)
}

/// Whether the engine is weakened anywhere.
#[cfg(loom)]
pub(crate) fn is_any() -> bool {
    chosen().is_some()
}
