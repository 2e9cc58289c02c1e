//! System calls that the program makes by instruction: when they are looked for, and what is done
//! where there are some. `docs/design/instruction-calls.md` has the whole of it.
//!
//! | file | concept |
//! |---|---|
//! | `leaving` | the programs whose calls by instruction cannot be seen |
//! | `memory` | memory that becomes executable: mmap(2), mprotect(2) |
//! | `loading` | objects that dlopen(3) loads |
//! | `threads` | threads that begin while dispatch is on |

mod leaving;
mod loading;
mod memory;
mod threads;

pub(crate) use leaving::{Why, is_moot, leave};
pub(super) use leaving::{before_filter, before_prctl, read_wish};
pub(super) use loading::{before_load, look_if_loading};
pub(super) use memory::{before_mremap, mmap, mprotect, pkey_mprotect, shmat};
pub(super) use threads::{before_notified, before_shared, pthread_create, thrd_create};

use crate::dispatch::{self, Look, Shape};
use crate::process::{fork as forks, start};
use crate::signals;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use libc::siginfo_t;
use syscalls::{Errno, Sysno};
use wakeset_fd::signal_guard::SignalGuard;
use wakeset_fd::{fork, notice, refusable};

/// Counts what may have brought code: the start of the program, and each dlopen(3).
static LOADED: AtomicU32 = AtomicU32::new(1);
/// [`LOADED`] as it was before the last look; 0 before the first one.
static LOOKED: AtomicU32 = AtomicU32::new(0);

/// Before an object is made: all is set up, and it is known whether the program makes system calls
/// by instruction.
#[inline]
pub(super) fn before_object() {
    start::ensure();
    look_if_due();
}

/// Looks, if something may have been loaded since the last look.
#[inline]
fn look_if_due() {
    if LOOKED.load(Ordering::Acquire) != LOADED.load(Ordering::Acquire) {
        look();
    }
}

/// Whether there has been a look. Before the first object and the first thread none is needed.
fn has_looked() -> bool {
    LOOKED.load(Ordering::Acquire) != 0
}

/// Threads that come here at the same time look at the same time: none goes on before one look has
/// seen all that was there when it came.
#[cold]
fn look() {
    // A vfork(2) child makes nothing, and what it turned on would be on in no thread of its parent.
    if fork::is_foreign() {
        return;
    }
    let loaded = LOADED.load(Ordering::SeqCst);
    start::ensure();
    look_at_new_objects();
    LOOKED.store(loaded, Ordering::SeqCst);
}

/// Looks at the objects that were loaded since the last look.
fn look_at_new_objects() {
    if is_moot() {
        return;
    }
    let mut look = Look::now();
    memory::add_to(&mut look);
    if (look.is_news || look.may_have_more)
        && let Err(why) = see_to(&look)
        && look.is_news
    {
        leave(look.name().to_str().unwrap_or_default(), why);
    }
    loading::after_look(look.has_foreign());
}

/// Sees to it that all calls by instruction are caught.
fn see_to(look: &Look) -> Result<(), Why> {
    if let Some(why) = leaving::obstacle() {
        return Err(why);
    }
    if look.is_go {
        return Err(Why::Go);
    }
    if let Some(shape) = dispatch::shape()
        && look.is_complete
        && look.foreign().all(|code| shape.catches(code))
    {
        say_caught(look);
        return Ok(());
    }
    // Claims the process: a child that nobody has told us of begins anew before its first object.
    if !is_alone() || !fork::may_make_objects() {
        return Err(Why::Threads);
    }
    begin(Shape::of(look).ok_or(Why::Between)?).map_err(Why::Kernel)?;
    say_caught(look);
    Ok(())
}

/// Says once that calls are caught, and what makes them.
fn say_caught(look: &Look) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        let name = look.name().to_str().unwrap_or_default();
        let makes = if look.is_news { "makes" } else { "may make" };
        notice::say(format_args!("{name} {makes} system calls by instruction: they are caught"));
    }
}

unsafe extern "C-unwind" {
    /// Our handler, which is in a room above this one. By a symbol, because it is there before any
    /// constructor runs.
    fn wakeset_on_sigsys(signal: c_int, info: *mut siginfo_t, context: *mut c_void);
}

/// Turns dispatch on, in the only thread there is. Neither it nor a handler blocks SIGSYS then.
fn begin(shape: Shape) -> Result<(), Errno> {
    // No handler runs until all is done.
    let _guard = SignalGuard::enter();
    signals::take_sigsys(wakeset_on_sigsys);
    fork::set_in_child(dispatch::in_child);
    dispatch::begin(shape)?;
    signals::unblock_sigsys();
    signals::unblock_sigsys_in_handlers();
    Ok(())
}

/// Whether the process has one thread, as far as can be found out.
fn is_alone() -> bool {
    // SAFETY: all-zero is a valid answer.
    let mut directory: libc::stat = unsafe { core::mem::zeroed() };
    let place = (&raw mut directory).expose_provenance();
    let path = c"/proc/self/task".as_ptr().expose_provenance();
    // SAFETY: a C string, and memory for the answer.
    match unsafe { refusable::call(Sysno::stat, [path, place]) } {
        // One for each thread besides the two of every directory.
        Ok(_) => directory.st_nlink == 3,
        Err(_) => forks::is_single_threaded(),
    }
}
