//! What happens around every fork. fork, daemon and forkpty run pthread_atfork(3) handlers, and
//! these are ours.

use crate::real::real;
use crate::{dispatch, environment};
use core::cell::{Cell, UnsafeCell};
use core::ffi::{c_char, c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use wakeset_fd::deputy::{self, Child, Server};
use wakeset_fd::fork::{self, Forking};
use wakeset_fd::listeners;
use wakeset_fd::signal_guard;

type Handler = Option<unsafe extern "C" fn()>;
type Register = unsafe extern "C-unwind" fn(Handler, Handler, Handler, *mut c_void) -> c_int;

/// Registers this library's handlers before all others: they prepare last, when the program's
/// handlers are done, and run first on both sides afterwards. Otherwise a handler that waits for a
/// thread which waits for the fork would never end.
pub(crate) fn register_handlers() {
    static DONE: AtomicBool = AtomicBool::new(false);
    if !DONE.swap(true, Ordering::Relaxed) {
        // SAFETY: functions that live as long as the library, which is never unloaded.
        unsafe {
            real!(__register_atfork: Register)(
                Some(prepare),
                Some(in_parent),
                Some(in_child),
                ptr::null_mut(),
            )
        };
    }
}

/// What pthread_atfork(3) calls, which is part of each object that uses it. Libraries that were
/// loaded after this one may register before it [starts](super::start).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __register_atfork(
    prepare: Handler,
    in_parent: Handler,
    in_child: Handler,
    object: *mut c_void,
) -> c_int {
    super::start::ensure();
    // SAFETY: the caller's contract.
    unsafe { real!(__register_atfork: Register)(prepare, in_parent, in_child, object) }
}

/// The byte in which libc says whether this process has one thread. Null where libc has none.
static SINGLE_THREADED: AtomicPtr<c_char> = AtomicPtr::new(ptr::null_mut());

/// Finds libc's byte. Once, before main.
pub(super) fn find_single_threaded() {
    // SAFETY: a valid name.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__libc_single_threaded".as_ptr()) };
    SINGLE_THREADED.store(found.cast(), Ordering::Relaxed);
}

/// Whether libc says that this process has one thread.
pub(crate) fn is_single_threaded() -> bool {
    // SAFETY: null, or libc's variable.
    unsafe { SINGLE_THREADED.load(Ordering::Relaxed).as_ref() }.is_some_and(|single| *single != 0)
}

/// Whether a fork concerns nothing of ours, and no other thread can make anything meanwhile. Most
/// programs that fork all the time are of this kind, and each page that is written to in between
/// would cost them a copy of it.
fn is_nothing_to_us() -> bool {
    is_single_threaded()
        && fork::owns_nothing()
        && !dispatch::is_on()
        && !super::statistics::is_on()
        && !signal_guard::is_deferred()
}

// The section of all that is written on both sides of a fork begins on a page, and has no more than
// that.
#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(".section wakeset_fork,\"aw\",@progbits", ".balign 4096", ".previous");

/// The fork under way, if it is something to us. `prepare` holds a process-wide lock until it is
/// over, so there is one at a time.
struct UnderWay(UnsafeCell<Option<Forking>>);
// SAFETY: only touched by the thread that forks, between `prepare` and the end of the fork.
unsafe impl Sync for UnderWay {}
#[unsafe(link_section = "wakeset_fork")]
static UNDER_WAY: UnderWay = UnderWay(UnsafeCell::new(None));

/// Takes what [`prepare`] has noted. Writes nothing if that is nothing: each page that is written
/// to around a fork is copied.
fn under_way() -> Option<Forking> {
    // SAFETY: see `UnderWay`.
    let noted = unsafe { &mut *UNDER_WAY.0.get() };
    if noted.is_some() { noted.take() } else { None }
}

/// How a thread that is in fork(2) leaves objects in process.
#[derive(Clone, Copy)]
enum Keeps {
    /// Not at all: daemon(3) and forkpty(3), in which libc makes calls that are not seen, or
    /// `_Fork`.
    No,
    /// If it can be, with this server for the child.
    IfPossible(Server),
    /// It has, for this child.
    For(Child),
}

thread_local! {
    // No destructor and no lazy part: there is no allocation.
    static KEEPS: Cell<Keeps> = const { Cell::new(Keeps::No) };
}

/// Makes a fork, by `call`, whose child comes back to the program and makes no call that is not
/// seen. Objects stay in process where they can.
pub(crate) fn keeping(call: impl FnOnce() -> c_int) -> c_int {
    if dispatch::is_on() || is_nothing_to_us() {
        return call();
    }
    let server = server();
    // A handler may fork in a thread that is just leaving its own fork.
    let before = KEEPS.replace(Keeps::IfPossible(server));
    let pid = call();
    if let Keeps::For(child) = KEEPS.replace(before) {
        child.is(pid);
    }
    pid
}

/// Which thread is to answer the child. A deputy would be a second one where the program has only
/// this; libc's byte does not say so if there have been others.
fn server() -> Server {
    if is_single_threaded() {
        return Server::Forking;
    }
    if !deputy::is_only_thread() {
        return Server::Deputy;
    }
    deputy::end_all();
    Server::Forking
}

/// Before a fork: everything migrates, or stays as far as it can, and what the child will copy is
/// locked.
pub(crate) unsafe extern "C" fn prepare() {
    listeners::before_fork();
    if is_nothing_to_us() || environment::is_disabled() {
        return;
    }
    let forking = match KEEPS.replace(Keeps::No) {
        Keeps::IfPossible(server) => fork::prepare_to_keep(server),
        Keeps::No | Keeps::For(_) => fork::prepare(),
    };
    crate::loader::hold();
    crate::signals::hold();
    crate::heap::hold();
    // SAFETY: see `UnderWay`.
    unsafe { *UNDER_WAY.0.get() = Some(forking) };
}

/// After a fork, in the parent.
pub(crate) unsafe extern "C" fn in_parent() {
    listeners::end_all_alone();
    let Some(forking) = under_way() else {
        if !fork::owns_nothing() {
            // A signal handler has made something since `prepare`: the child has its number too.
            fork::prepare().in_parent();
        }
        return;
    };
    // SAFETY: held since `prepare`.
    unsafe { crate::heap::release() };
    crate::signals::release();
    crate::loader::release();
    if let Some(child) = forking.with_child() {
        KEEPS.set(Keeps::For(child));
    }
}

/// After a fork, in the child.
pub(crate) unsafe extern "C" fn in_child() {
    listeners::end_all_alone();
    crate::listeners::begin_in_child();
    let Some(forking) = under_way() else {
        // By the number alone, whatever a signal handler has made since `prepare`.
        return fork::begin_anew_unprepared();
    };
    // SAFETY: held since `prepare`, by the thread that this one is a copy of.
    unsafe { crate::heap::release() };
    crate::signals::release();
    crate::loader::release();
    crate::signals::drop_deferred();
    forking.in_child();
}
