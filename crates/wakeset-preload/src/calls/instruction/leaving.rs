//! Programs whose system calls by instruction cannot be seen: what they make is the kernel's, for
//! good, and a notice says why.

use super::super::leave::leave_to_kernel;
use crate::{dispatch, environment, signals};
use core::ffi::c_int;
use core::fmt;
use core::sync::atomic::{AtomicU8, Ordering};
use syscalls::Errno;
use wakeset_fd::{migrate, notice};

/// Why the calls that are made by instruction cannot be seen.
#[derive(Clone, Copy)]
pub(crate) enum Why {
    Kernel(Errno),
    Threads,
    Between,
    Go,
    Often,
    Call,
    Filter,
    Own,
    Wish,
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
            Self::Filter => f.write_str("a filter of its own may look at where they come from"),
            Self::Own => f.write_str("it has the kernel report them to itself"),
            Self::Wish => f.write_str("they are not to be caught"),
        }
    }
}

/// What the environment says: [`UNKNOWN`] until it is read.
static WISH: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
/// They are caught.
const CATCH: u8 = 1;
/// They are not caught: a program that makes some is left to the kernel.
const KERNEL: u8 = 2;
/// They are not looked for, for tests that look at the kernel's objects behind our back.
const IGNORE: u8 = 3;

fn wish() -> u8 {
    let known = WISH.load(Ordering::Relaxed);
    if known != UNKNOWN {
        return known;
    }
    environment::turn_on_notices();
    let wish = if environment::is_disabled() { IGNORE } else { wished() };
    WISH.store(wish, Ordering::Relaxed);
    wish
}

/// Before main: reads what the environment says, and objects to what it must not say.
pub(in super::super) fn read_wish() {
    wish();
}

/// What `WAKESET_INSTRUCTIONS` says.
fn wished() -> u8 {
    let Some(value) = environment::setting(c"WAKESET_INSTRUCTIONS") else { return CATCH };
    match value.to_bytes() {
        b"catch" => CATCH,
        b"kernel" => KERNEL,
        b"ignore" => IGNORE,
        _ => {
            environment::unknown(
                c"WAKESET_INSTRUCTIONS=",
                value,
                "such calls are caught, as with catch",
            );
            CATCH
        }
    }
}

/// Whether it does not matter what has such instructions: nothing is in process, and never will be.
pub(crate) fn is_moot() -> bool {
    dispatch::is_left() || migrate::is_for_good() || wish() == IGNORE
}

/// What the program has done so that its calls must not be caught from then on: [`NOTHING`], or one
/// of the others.
static DONE: AtomicU8 = AtomicU8::new(NOTHING);
const NOTHING: u8 = 0;
const FILTERS: u8 = 1;
const DISPATCHES: u8 = 2;

/// Why calls by instruction must not be caught, if that is so.
pub(super) fn obstacle() -> Option<Why> {
    match DONE.load(Ordering::SeqCst) {
        FILTERS => Some(Why::Filter),
        DISPATCHES => Some(Why::Own),
        _ => (wish() == KERNEL).then_some(Why::Wish),
    }
}

/// Before prctl(2), unless it installs a filter.
pub(in super::super) fn before_prctl(option: c_int) {
    const SET_DISPATCH: c_int = 59;
    if option == SET_DISPATCH {
        before_own(DISPATCHES, Why::Own);
        // From here on what this thread's calls raise is for the program.
        dispatch::disarm_thread();
    }
}

/// Before the program installs a filter.
pub(in super::super) fn before_filter() {
    before_own(FILTERS, Why::Filter);
}

/// Before the program has its own calls filtered, or reported to itself. A filter may let a call
/// pass for the address that it comes from, and a caught call comes from another one.
fn before_own(done: u8, why: Why) {
    DONE.store(done, Ordering::SeqCst);
    if dispatch::is_on() && !is_moot() {
        leave("the program", why);
    }
}

/// Leaves every object to the kernel, for good: calls by instruction are not seen any more. Says so
/// once, of the object or memory of this name.
#[cold]
pub(crate) fn leave(name: &str, why: Why) {
    let is_news = dispatch::leave();
    leave_to_kernel();
    signals::relax_sigsys();
    if is_news {
        notice::say(format_args!(
            "{name} makes system calls by instruction, and {why}: \
             every object is the kernel's from here on"
        ));
    }
}
