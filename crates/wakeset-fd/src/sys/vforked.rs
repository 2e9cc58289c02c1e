//! What a vfork(2) child asks of its parent.
//!
//! The child works on its parent's memory with a descriptor table of its own, and may be killed at
//! any moment. So it changes nothing of ours: not the state of an object, which it might leave
//! halfway, and not the kernel's objects, for which its numbers may be others by now. Where it
//! names an object that lives in process, that has to migrate first. A thread of the parent's, the
//! *deputy*, does that: it has the parent's numbers, and it finishes what it has begun.
//!
//! They talk by a [`Word`]. Calls of vfork(2) nest: a signal handler may call it just before or
//! after the system call of the one that it has interrupted, and has a request and a deputy of its
//! own then. The thread's word for its request has the innermost one's, and each request knows the
//! one before it.

pub(crate) mod word;

use super::signal_guard::SignalGuard;
use super::thread_words::{self, DEPTH, FAST};
use super::{process, raw, set_signal_mask};
use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use word::Word;

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

/// What is to migrate.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wish {
    Number(c_int),
    Everything,
    EverythingForGood,
}

/// In a word, above all numbers that the kernel gives (the most that `fs.nr_open` may be).
const EVERYTHING: u32 = word::LAST_WISH;
const EVERYTHING_FOR_GOOD: u32 = word::LAST_WISH - 1;

impl Wish {
    fn in_word(self) -> u32 {
        match self {
            Self::Number(fd) => fd as u32,
            Self::Everything => EVERYTHING,
            Self::EverythingForGood => EVERYTHING_FOR_GOOD,
        }
    }

    fn from_word(wish: u32) -> Self {
        match wish {
            EVERYTHING => Self::Everything,
            EVERYTHING_FOR_GOOD => Self::EverythingForGood,
            fd => Self::Number(fd as c_int),
        }
    }
}

/// What a thread in vfork(2), its child and its deputy have in common.
#[derive(Debug)]
pub(crate) struct Request {
    word: Word,
    /// The deputy's number.
    deputy: AtomicI32,
    /// That of the thread in vfork(2).
    thread: c_int,
    /// Where the deputy's memory begins.
    memory: usize,
    /// The thread's request before this one. There is one if a signal handler has interrupted a
    /// call of vfork(2); it is not over before the handler returns.
    before: Option<&'static Request>,
}

impl Request {
    /// For a deputy whose memory begins there, and a vfork(2) by the calling thread.
    pub(crate) fn new(memory: usize) -> Self {
        Self {
            word: Word::new(),
            deputy: AtomicI32::new(0),
            thread: super::gettid(),
            memory,
            before: thread_words::request(),
        }
    }

    /// Before vfork(2): from now on the calling thread's thread-local storage is the child's.
    pub(crate) fn begin(&'static self, deputy: c_int) {
        self.deputy.store(deputy, Ordering::Relaxed);
        KEEPING.fetch_add(1, Ordering::SeqCst);
        thread_words::set_request(Some(self));
    }

    /// After vfork(2), in the parent: the child has ended or executed another program. The deputy
    /// works no more when this returns, and the request may be gone.
    pub(crate) fn end(&self) {
        // While this memory is there: a handler that calls vfork(2) notes what it finds.
        thread_words::set_request(self.before);
        self.word.end();
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

    /// In the child: has the deputy migrate something. When this returns it has, or it is no more,
    /// with the parent's whole process or that part of it which used this memory.
    fn ask(&self, wish: Wish) {
        self.word.ask(wish.in_word(), || !self.has_deputy());
    }

    fn has_deputy(&self) -> bool {
        let deputy = self.deputy.load(Ordering::Relaxed);
        raw!(tgkill, process::owner(), deputy, 0) != Err(super::Errno::ESRCH)
    }

    /// The deputy's work, until the thread says that it is over.
    pub(crate) fn serve(&'static self, grant: impl Fn(Wish)) {
        // In the deputy's own storage: it is no child, and knows for whom it works.
        thread_words::set_request(Some(self));
        while let Some(wish) = self.word.take() {
            self::grant(|| grant(Wish::from_word(wish)));
            self.word.done();
        }
    }
}

/// Does what a child wants, in a deputy.
pub(crate) fn grant<T>(act: impl FnOnce() -> T) -> T {
    // A fault, or a filter's refusal, has to be told from the end of the process.
    set_signal_mask(!SYNCHRONOUS);
    let result = act();
    set_signal_mask(!0);
    result
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
        thread_words::set_request(None);
    }
}
