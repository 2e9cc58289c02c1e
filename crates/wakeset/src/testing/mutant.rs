//! Mutants: the engine with one step weakened on purpose, so that each model can show that it
//! notices.
//!
//! `mutant!("name")` stands at a step and says whether that step is weakened; `ordering!(Release,
//! "name")` is the step's memory ordering. In an ordinary build both are constants: nothing of them
//! is left in the code, unless it is built with `--cfg wakeset_mutant="name"`. Under the model
//! checkers, and with `--cfg wakeset_mutants`, the environment variable `WAKESET_MUTANT` chooses,
//! so that one build serves all mutants (`ci/mutants`). Each is caught by the models that
//! `tests/README.md` names. The other crates use the same macros.
//!
//! `mutated!("name")` is for steps without a model: random programs and tests notice
//! (`ci/differential mutants`), or stopped threads show it (`ci/stalls mutants`).

/// Whether the step it stands at is weakened.
#[doc(hidden)]
#[macro_export]
macro_rules! mutant {
    ($name:literal) => {{
        #[cfg(any(loom, shuttle, wakeset_mutants))]
        let weakened = $crate::is_mutant($name);
        #[cfg(not(any(loom, shuttle, wakeset_mutants)))]
        let weakened = cfg!(wakeset_mutant = $name);
        weakened
    }};
}

/// Whether the step it stands at, of which there is no model, is wrong.
#[doc(hidden)]
#[macro_export]
macro_rules! mutated {
    ($name:literal) => {
        $crate::mutant!($name)
    };
}

/// The memory ordering that a step uses, and that the mutant makes `Relaxed`.
macro_rules! ordering {
    ($ordering:ident, $name:literal) => {
        if mutant!($name) {
            ::core::sync::atomic::Ordering::Relaxed
        } else {
            ::core::sync::atomic::Ordering::$ordering
        }
    };
}

/// The mutant that the environment chooses. Not the checkers' own: it is the same in every
/// schedule.
#[cfg(any(loom, shuttle))]
fn chosen() -> Option<&'static str> {
    extern crate std;
    static CHOSEN: std::sync::OnceLock<Option<std::string::String>> = std::sync::OnceLock::new();
    CHOSEN
        .get_or_init(|| std::env::var("WAKESET_MUTANT").ok().filter(|name| !name.is_empty()))
        .as_deref()
}

/// The same in any program. Not by way of the standard library, which takes a lock: it may be asked
/// inside a signal handler.
#[cfg(all(wakeset_mutants, not(any(loom, shuttle))))]
fn chosen() -> Option<&'static str> {
    use core::ffi::{CStr, c_char};
    use core::sync::atomic::{AtomicPtr, Ordering};
    unsafe extern "C" {
        static environ: *const *const c_char;
    }
    const NAME: &[u8] = b"WAKESET_MUTANT=";
    static NONE: [c_char; 1] = [0];
    static CHOSEN: AtomicPtr<c_char> = AtomicPtr::new(core::ptr::null_mut());
    let mut name = CHOSEN.load(Ordering::Relaxed).cast_const();
    if name.is_null() {
        name = NONE.as_ptr();
        // SAFETY: the C library's list, which nobody changes in the programs that are run like
        // this.
        unsafe {
            let mut place = environ;
            while !place.is_null() && !(*place).is_null() {
                if CStr::from_ptr(*place).to_bytes().starts_with(NAME) {
                    name = (*place).add(NAME.len());
                }
                place = place.add(1);
            }
        }
        CHOSEN.store(name.cast_mut(), Ordering::Relaxed);
    }
    // SAFETY: the end of one of that list, or empty.
    unsafe { CStr::from_ptr(name) }.to_str().ok().filter(|name| !name.is_empty())
}

/// Whether the environment chooses this one.
#[cfg(any(loom, shuttle, wakeset_mutants))]
pub fn is_mutant(name: &str) -> bool {
    chosen() == Some(name)
}

/// Whether the engine is weakened anywhere.
#[cfg(loom)]
pub(crate) fn is_any() -> bool {
    chosen().is_some()
}
