//! The environment, also before libc knows it, and what it says to this library as a whole.
//!
//! Each variable is read by the room that it is about; docs/environment.md has all of them. What a
//! variable must not say is said on stderr ([`unknown`]), by the reader, which reads it once.

use core::ffi::{CStr, c_char};
use core::ptr;
use core::sync::atomic::{AtomicU8, Ordering};
use wakeset_fd::notice;

unsafe extern "C" {
    /// libc's; null until libc's constructor has run.
    static environ: *const *const c_char;
    /// The loader's: where the kernel has put the number of arguments, the arguments and the
    /// environment.
    static __libc_stack_end: *const usize;
}

/// The value of a variable.
pub(crate) fn get(name: &CStr) -> Option<&'static CStr> {
    let mut entries = entries();
    let name = name.to_bytes();
    // SAFETY: a list of C strings that ends with null. The program may change it at the same time
    // as it may with getenv(3): what is asked for is asked before it runs, or by its first call.
    unsafe {
        while !entries.is_null() && !(*entries).is_null() {
            let entry = CStr::from_ptr(*entries).to_bytes_with_nul();
            if let Some([b'=', value @ ..]) = entry.strip_prefix(name) {
                return CStr::from_bytes_with_nul(value).ok();
            }
            entries = entries.add(1);
        }
    }
    None
}

/// The value of a variable, unless that is empty, which says the same as nothing.
pub(crate) fn setting(name: &CStr) -> Option<&'static CStr> {
    get(name).filter(|value| !value.is_empty())
}

/// Says that a variable has a value that is not known, and what is done instead. `entry` is the
/// name, a `=` and what stands for that, or nothing: what this program starts finds it, and does
/// not say the same again.
#[cold]
pub(crate) fn unknown(entry: &'static CStr, value: &CStr, instead: &str) {
    let name = entry.to_str().ok().and_then(|entry| entry.split_once('=')).map_or("", |it| it.0);
    match value.to_str() {
        Ok(value) => notice::warn(format_args!("{name} is {value:?}, which is unknown: {instead}")),
        Err(_) => notice::warn(format_args!("{name} is no text: {instead}")),
    }
    replace(entry);
}

/// What a variable says that is 1 for yes, and 0 or nothing for no. `instead` says what becomes of
/// anything else, which is `otherwise`, with the entry that says so.
fn switch(name: &CStr, otherwise: (bool, &'static CStr), instead: &str) -> bool {
    match setting(name).map(|value| (value, value.to_bytes())) {
        None | Some((_, b"0")) => false,
        Some((_, b"1")) => true,
        Some((value, _)) => {
            unknown(otherwise.1, value, instead);
            otherwise.0
        }
    }
}

/// Replaces a variable of the program by `entry`, which is its name, a `=` and its value. Before
/// main: what the program starts inherits it. Nothing happens where there is no such variable.
pub(crate) fn replace(entry: &'static CStr) {
    let name = entry.to_bytes().split_inclusive(|byte| *byte == b'=').next().unwrap_or_default();
    let mut entries = entries().cast_mut();
    // SAFETY: as for `get`; the list itself can be written, as putenv(3) does.
    unsafe {
        while !entries.is_null() && !(*entries).is_null() {
            let before = CStr::from_ptr(*entries).to_bytes();
            if before.starts_with(name) {
                *entries = entry.as_ptr();
            }
            entries = entries.add(1);
        }
    }
}

/// An answer that is asked for once.
struct Once(AtomicU8);

impl Once {
    const UNASKED: u8 = 2;

    const fn new() -> Self {
        Once(AtomicU8::new(Self::UNASKED))
    }

    /// The answer, which `ask` gives the first caller. Of several that are first at the same time,
    /// each asks.
    fn get(&self, ask: impl FnOnce() -> bool) -> bool {
        match self.0.load(Ordering::Relaxed) {
            Self::UNASKED => {
                let answer = ask();
                self.0.store(u8::from(answer), Ordering::Relaxed);
                answer
            }
            known => known == 1,
        }
    }
}

/// Whether `WAKESET_DISABLE` turns everything off. Each hook then does what libc's function does,
/// and nothing else is done.
pub(crate) fn is_disabled() -> bool {
    static ANSWER: Once = Once::new();
    let otherwise = (false, c"WAKESET_DISABLE=");
    ANSWER.get(|| switch(c"WAKESET_DISABLE", otherwise, "Wakeset stays on (1 turns it off)"))
}

/// Turns notices on for a program whose user has asked for them. What finds something to say before
/// our start asks for itself.
pub(crate) fn turn_on_notices() {
    static ANSWER: Once = Once::new();
    let otherwise = (true, c"WAKESET_VERBOSE=1");
    if ANSWER.get(|| switch(c"WAKESET_VERBOSE", otherwise, "notices are on, as with 1")) {
        notice::turn_on();
    }
}

fn entries() -> *const *const c_char {
    // SAFETY: libc's variable, and the loader's, which is set before anything of ours can run.
    unsafe {
        if !environ.is_null() {
            return environ;
        }
        match __libc_stack_end.as_ref() {
            // The arguments, and the null after them.
            Some(count) => ptr::from_ref(count).add(1 + count + 1).cast(),
            None => ptr::null(),
        }
    }
}
