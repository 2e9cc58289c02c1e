//! What a vfork(2) child asks of its parent.
//!
//! The child works on its parent's memory with a descriptor table of its own, and may be killed at
//! any moment. So it changes nothing of ours: not the state of an object, which it might leave
//! halfway, and not the kernel's objects, for which its numbers may be others by now. Where it
//! names an object that lives in process, that has to migrate first. A thread of the parent's, the
//! *deputy*, does that: it has the parent's numbers, and it finishes what it has begun.
//!
//! A request's word, from which both sides sleep:
//!
//! | state | means | set by | from |
//! |---|---|---|---|
//! | `IDLE` | the deputy sleeps | the thread that makes the request; the deputy, when it is done | –, `WORKING` |
//! | `ASKED` | the child waits | the child, once it has written what it wants | `IDLE` |
//! | `WORKING` | the deputy is at it | the deputy | `ASKED` |
//! | `OVER` | the deputy ends, and with it this memory | the thread, when vfork(2) has returned | `IDLE`, `ASKED` (the child was killed) |

use super::signal_guard::SignalGuard;
use super::thread_words::{self, DEPTH, FAST};
use super::{futex_wait, futex_wait_for, futex_wake, process, raw, set_signal_mask};
use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use core::time::Duration;
use wakeset::mutated;

/// How many calls of vfork(2) are under way for which objects have stayed in process. Next to the
/// other words that a forked child resets.
#[cfg_attr(not(loom), unsafe(link_section = "wakeset_fork"))]
static KEEPING: AtomicU32 = AtomicU32::new(0);

/// Whether there may be vfork(2) children that have descriptors of objects which live in process.
#[inline(always)]
pub(crate) fn may_exist() -> bool {
    // Relaxed: a child sees what its parent stored before it made the child.
    KEEPING.load(Ordering::Relaxed) != 0
}

const IDLE: u32 = 0;
const ASKED: u32 = 1;
const WORKING: u32 = 2;
const OVER: u32 = 3;

/// What a child may want, beside a number.
const EVERYTHING: c_int = -1;
const EVERYTHING_FOR_GOOD: c_int = -2;

/// What is to migrate.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wish {
    Number(c_int),
    Everything,
    EverythingForGood,
}

/// What a thread in vfork(2), its child and its deputy have in common.
#[derive(Debug)]
pub(crate) struct Request {
    state: AtomicU32,
    wish: AtomicI32,
    /// The deputy's number.
    deputy: AtomicI32,
    /// That of the thread in vfork(2).
    thread: c_int,
    /// Where the deputy's memory begins.
    memory: usize,
}

/// The child looks after the deputy so often: it ends with the parent's other threads.
const A_WHILE: Duration = Duration::from_millis(100);

impl Request {
    /// For a deputy whose memory begins there.
    pub(crate) fn new(memory: usize) -> Self {
        Self {
            state: AtomicU32::new(IDLE),
            wish: AtomicI32::new(0),
            deputy: AtomicI32::new(0),
            thread: super::gettid(),
            memory,
        }
    }

    /// Before vfork(2): from now on the calling thread's thread-local storage is the child's.
    pub(crate) fn begin(&'static self, deputy: c_int) {
        self.deputy.store(deputy, Ordering::Relaxed);
        KEEPING.fetch_add(1, Ordering::SeqCst);
        thread_words::set_request(self);
    }

    /// After vfork(2), in the parent: the child has ended or executed another program. The deputy
    /// works no more when this returns, and the request may be gone.
    pub(crate) fn end(&self) {
        loop {
            let now = self.state.load(Ordering::Acquire);
            if now == WORKING {
                futex_wait(&self.state, WORKING);
            } else if self.change(now, OVER) {
                // The deputy may have seen it, and given back this memory: a wake of a futex that
                // is no more.
                futex_wake(&self.state, u32::MAX >> 1);
                break;
            }
        }
        thread_words::forget_request();
        KEEPING.fetch_sub(1, Ordering::SeqCst);
        // What a child that was killed has left: it was in the middle of a call.
        thread_words::store(FAST, 0);
        thread_words::store(DEPTH, 1);
        SignalGuard::leave();
    }

    /// Where the deputy's memory begins.
    pub(crate) fn memory(&self) -> usize {
        self.memory
    }

    fn change(&self, from: u32, to: u32) -> bool {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// In the child: has the deputy migrate something. When this returns it has, or it is no more,
    /// with the parent's whole process or that part of it which used this memory.
    fn ask(&self, wish: Wish) {
        let wish = match wish {
            Wish::Number(fd) => fd,
            Wish::Everything => EVERYTHING,
            Wish::EverythingForGood => EVERYTHING_FOR_GOOD,
        };
        self.wish.store(wish, Ordering::Relaxed);
        self.state.store(ASKED, Ordering::Release);
        futex_wake(&self.state, u32::MAX >> 1);
        loop {
            let now = self.state.load(Ordering::Acquire);
            if now == IDLE || mutated!("vfork_child_asks_and_goes_on") {
                return;
            }
            let timed_out = futex_wait_for(&self.state, now, A_WHILE);
            if timed_out && !self.has_deputy() {
                return;
            }
        }
    }

    fn has_deputy(&self) -> bool {
        let deputy = self.deputy.load(Ordering::Relaxed);
        raw!(tgkill, process::owner(), deputy, 0) != Err(super::Errno::ESRCH)
    }

    /// The deputy's work, until the thread says that it is over.
    pub(crate) fn serve(&'static self, grant: impl Fn(Wish)) {
        // In the deputy's own storage: it is no child, and knows for whom it works.
        thread_words::set_request(self);
        loop {
            match self.state.load(Ordering::Acquire) {
                ASKED => {
                    if self.change(ASKED, WORKING) {
                        self.grant(&grant);
                        self.state.store(IDLE, Ordering::Release);
                        futex_wake(&self.state, u32::MAX >> 1);
                    }
                }
                OVER => return,
                now => futex_wait(&self.state, now),
            }
        }
    }

    /// Does what the child wants.
    fn grant(&self, grant: &impl Fn(Wish)) {
        // A fault, or a filter's refusal, has to be told from the end of the process.
        set_signal_mask(!SYNCHRONOUS);
        grant(match self.wish.load(Ordering::Relaxed) {
            EVERYTHING => Wish::Everything,
            EVERYTHING_FOR_GOOD => Wish::EverythingForGood,
            fd => Wish::Number(fd),
        });
        set_signal_mask(!0);
    }
}

/// The signals that an instruction of the thread's own raises.
const SYNCHRONOUS: u64 = bit(libc::SIGSEGV) | bit(libc::SIGBUS) | bit(libc::SIGSYS);

const fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

/// The request of the thread in whose place the calling process is, if it is a vfork(2) child for
/// which objects have stayed in process.
#[cold]
fn request() -> Option<&'static Request> {
    // A signal handler of the parent's may run in the thread just before and after the call.
    thread_words::request().filter(|_| process::is_foreign())
}

/// In a deputy: the thread that waits in vfork(2) as long as the child does for the deputy.
pub(super) fn waiting_thread() -> Option<c_int> {
    thread_words::request().map(|request| request.thread)
}

/// Whether the caller is a vfork(2) child for which objects have stayed in process.
#[inline]
pub(crate) fn is_child() -> bool {
    may_exist() && request().is_some()
}

/// In a vfork(2) child for which objects have stayed in process: has something migrate. Whether it
/// was such a child that called.
#[inline]
pub(crate) fn ask(wish: Wish) -> bool {
    may_exist() && ask_deputy(wish)
}

#[cold]
fn ask_deputy(wish: Wish) -> bool {
    let request = request();
    if let Some(request) = request {
        request.ask(wish);
    }
    request.is_some()
}

/// In a forked child: its parent's vfork(2) children are not its own.
pub(super) fn forget() {
    // A page that is not written to is not copied.
    if may_exist() {
        KEEPING.store(0, Ordering::SeqCst);
        thread_words::forget_request();
    }
}
