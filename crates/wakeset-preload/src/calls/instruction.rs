//! System calls that the program makes by instruction: the look for them, and what is done where
//! there are some. `docs/design/instruction-calls.md` has the whole of it.
//!
//! | file | concept |
//! |---|---|
//! | `memory` | memory that becomes executable: mmap(2), mprotect(2) |
//! | `loading` | objects that dlopen(3) loads |
//! | `threads` | threads that begin while dispatch is on |

mod loading;
mod memory;
mod threads;

pub(super) use loading::{before_load, look_if_loading};
pub(super) use memory::{before_mremap, mmap, mprotect, pkey_mprotect, shmat};
pub(super) use threads::{before_notified, pthread_create, thrd_create};

use super::process::leave_to_kernel;
use crate::dispatch::{self, Look, Object, Shape};
use crate::signals;
use core::ffi::{CStr, c_char};
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use syscalls::{Errno, Sysno, syscall};
use wakeset_fd::{complaint, fork, migrate};

/// The address of our handler of SIGSYS.
static HANDLER: AtomicUsize = AtomicUsize::new(0);

/// Whether system call instructions are not looked for.
static IGNORED: AtomicBool = AtomicBool::new(false);

/// Before main. `handler` is the address of our handler of SIGSYS.
pub(crate) fn start(handler: usize) {
    HANDLER.store(handler, Ordering::Release);
    // SAFETY: a C string; the environment is only read.
    let value = unsafe { libc::getenv(c"WAKESET_INSTRUCTIONS".as_ptr()) };
    // SAFETY: getenv returns a C string.
    if !value.is_null() && unsafe { CStr::from_ptr(value) } == c"ignore" {
        IGNORED.store(true, Ordering::Relaxed);
    }
    fork::set_in_child(dispatch::in_child);
    look_at_new_objects();
}

/// Whether it does not matter what has such instructions: nothing is in process, and never will be.
pub(crate) fn is_moot() -> bool {
    IGNORED.load(Ordering::Relaxed) || dispatch::is_left() || migrate::is_for_good()
}

/// Looks at the objects that were loaded since the last look.
pub(crate) fn look_at_new_objects() {
    if is_moot() {
        return;
    }
    let mut look = Look::now();
    memory::add_to(&mut look);
    if look.is_news
        && let Err(why) = see_to(&look)
    {
        leave(look.objects().last(), why);
    }
    loading::after_look(look.objects().next().is_some());
}

/// Why the calls that are made by instruction cannot be seen.
#[derive(Clone, Copy)]
pub(crate) enum Why {
    Kernel(Errno),
    Threads,
    Between,
    Go,
    Often,
    Call,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel(errno) => {
                write!(f, "the kernel does not report them (errno {})", errno.into_raw())
            }
            Self::Threads => f.write_str("it came when the process had threads"),
            Self::Between => f.write_str("its code lies between libc's and ours"),
            Self::Go => f.write_str("its stacks have no room for a signal"),
            Self::Often => f.write_str("they are too many to look at each"),
            Self::Call => f.write_str("one of them cannot be looked at"),
        }
    }
}

/// Sees to it that all calls by instruction are caught.
fn see_to(look: &Look) -> Result<(), Why> {
    if look.objects().any(|object| object.is_go) {
        return Err(Why::Go);
    }
    if let Some(shape) = dispatch::shape()
        && look.is_complete
        && look.foreign().all(|code| shape.catches(code))
    {
        return Ok(());
    }
    if !is_alone() {
        return Err(Why::Threads);
    }
    let shape = Shape::of(look).ok_or(Why::Between)?;
    register();
    dispatch::begin(shape).map_err(Why::Kernel)
}

/// Registers our handler, and sees to it that SIGSYS is not blocked in this thread.
fn register() {
    signals::take_sigsys(HANDLER.load(Ordering::Acquire));
    signals::unblock_sigsys();
}

/// Whether the process has one thread, as far as can be found out.
fn is_alone() -> bool {
    unsafe extern "C" {
        static __libc_single_threaded: c_char;
    }
    // SAFETY: all-zero is a valid answer.
    let mut directory: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: a C string, and memory for the answer.
    let asked = unsafe { syscall!(Sysno::stat, c"/proc/self/task".as_ptr(), &raw mut directory) };
    match asked {
        // One for each thread besides the two of every directory.
        Ok(_) => directory.st_nlink == 3,
        // SAFETY: one byte, which libc writes; a torn read is not possible.
        Err(_) => unsafe { (&raw const __libc_single_threaded).read_volatile() != 0 },
    }
}

/// Leaves every object to the kernel, for good: calls by instruction are not seen any more. Says so
/// once.
#[cold]
pub(crate) fn leave(object: Option<&Object>, why: Why) {
    let is_news = dispatch::leave();
    leave_to_kernel();
    if is_news {
        let name = object.map_or("the program", Object::name);
        complaint::say(format_args!(
            "wakeset: {name} makes system calls by instruction, and {why}: \
             what this process makes is the kernel's"
        ));
    }
}
