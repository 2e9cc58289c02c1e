//! dlsym(3), dlvsym(3), dlopen(3) and dlmopen(3): roads to libc's functions that pass none of our
//! names.
//!
//! Each hook does what has to be done first and then jumps to libc's function, which looks at its
//! caller's address: `RTLD_NEXT`, `RTLD_DEFAULT`, run paths and name spaces depend on it. What has
//! to be done is, once, to have libc's symbol table lead to our hooks ([`loader`]); then libc's
//! functions answer with ours by themselves. Where that is not to be had, or would not be enough,
//! every object migrates for good instead, and before foreign code runs.
//!
//! It would not be enough for
//! - **a second name space**, which has a libc of its own: by dlmopen(3), or for a library of
//!   `LD_AUDIT` before the program begins;
//! - **a preload behind ours** with a function in place of one that we answer: a call that never
//!   leaves us would never reach it. The kernel's objects do: then each call passes both;
//! - **a preload behind ours** with a function in place of any other hook, once something asks for
//!   libc's functions by another road than through it: libc's symbol of that name has to stay, for
//!   the preload, and would lead past our hook.

use super::instruction::{before_load, look_if_loading, read_wish};
use super::leave::leave_to_kernel;
use super::table;
use super::variadic::jumps;
use crate::environment;
use crate::loader::{self, Obstacle};
use core::ffi::{CStr, c_char};
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};
use wakeset::mutated;
use wakeset_fd::notice;

jumps! {
    /// dlsym(3).
    dlsym, before_lookup;
    /// dlvsym(3).
    dlvsym, before_lookup;
    /// dlopen(3).
    dlopen, before_open;
    /// dlmopen(3).
    dlmopen, before_open_in;
}

/// Before dlsym(3) or dlvsym(3) of one of our names. `RTLD_DEFAULT` finds ours in any case, before
/// libc's, or is asked by a plugin whose opening has seen to it.
fn before_lookup(handle: usize, name: usize, _: usize, caller: usize) {
    look_if_loading();
    if handle == libc::RTLD_DEFAULT.addr() || name == 0 || is_seen_to() {
        return;
    }
    // SAFETY: the caller's contract is that of dlsym(3): a C string.
    let name = unsafe { CStr::from_ptr(ptr::with_exposed_provenance::<c_char>(name)) };
    // It asks for what it wraps: our hook has seen that call, and libc's function is the right one.
    if handle == libc::RTLD_NEXT.addr() && loader::wraps(caller, name) {
        return;
    }
    if loader::is_hook(name) && !mutated!("lookups_are_not_redirected") {
        redirect(name);
    }
}

/// Before dlopen(3).
fn before_open(path: usize, flags: usize, _: usize, _: usize) {
    if flags as i32 & libc::RTLD_DEEPBIND != 0 && !mutated!("deep_bindings_are_not_redirected") {
        redirect(shown(path));
    }
    // SAFETY: null or a C string, by the contract of dlopen(3).
    unsafe { before_load(ptr::with_exposed_provenance(path)) };
}

/// Before dlmopen(3).
fn before_open_in(name_space: usize, path: usize, flags: usize, _: usize) {
    if name_space as libc::Lmid_t == libc::LM_ID_BASE {
        return before_open(path, flags, 0, 0);
    }
    if mutated!("name_spaces_find_objects_in_process") {
        return;
    }
    leave_for(shown(path), "is opened in a name space of its own, with a libc that we do not see");
}

/// A path that a call of the loader was given; null means the program.
fn shown(path: usize) -> &'static CStr {
    let path = ptr::with_exposed_provenance::<c_char>(path);
    // SAFETY: null or a C string, by the contract of dlopen(3); used before the call is made.
    if path.is_null() { c"the program" } else { unsafe { CStr::from_ptr(path) } }
}

/// Has libc's symbol table lead to our hooks, for the sake of `what`. Where that cannot be done,
/// everything migrates for good.
fn redirect(what: &CStr) {
    look_behind();
    if is_seen_to() {
        return;
    }
    let why = match loader::redirect() {
        Ok(()) => return,
        Err(Obstacle::Unknown) => "reaches libc's functions, whose names are not where they were",
        Err(Obstacle::TakenOver) => {
            "reaches libc's functions past a preload that wraps some of them"
        }
        Err(Obstacle::Protected) => "reaches libc's functions, whose names the system protects",
    };
    leave_for(what, why);
}

/// Everything has migrated for good because of something here: there is nothing to see to.
static LEFT: AtomicBool = AtomicBool::new(false);

/// Whether there is nothing more to do.
fn is_seen_to() -> bool {
    loader::is_redirected() || environment::is_disabled() || LEFT.load(Ordering::Relaxed)
}

/// Migrates everything for good, and says for whose sake.
fn leave_for(what: &CStr, why: &str) {
    leave_to_kernel();
    if !LEFT.swap(true, Ordering::SeqCst) {
        let what = what.to_str().unwrap_or("a library");
        notice::say(format_args!("{what} {why}: every object is the kernel's from here on"));
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

/// Before main: looks at what was loaded with us.
extern "C" fn start() {
    if environment::is_disabled() {
        return;
    }
    read_wish();
    look_behind();
    if loader::audited() {
        leave_for(c"a library of LD_AUDIT", "has a libc of its own, which we do not see");
    }
}

/// Looks for a preload behind ours that must see every call: when we start, or when one asks for
/// libc's functions before that.
fn look_behind() {
    static DONE: AtomicBool = AtomicBool::new(false);
    if DONE.load(Ordering::Acquire) {
        return;
    }
    environment::turn_on_notices();
    let behind = loader::preload_behind_us(table::is_answered);
    let behind = behind.filter(|_| !mutated!("preloads_behind_are_overlooked"));
    if let Some((library, name)) = behind {
        leave_for(library, "has functions in place of libc's that Wakeset would answer before it");
        if !DONE.load(Ordering::Acquire) {
            notice::say(format_args!("the first is {}", name.to_str().unwrap_or_default()));
        }
    }
    DONE.store(true, Ordering::Release);
}
