//! The words that a thread keeps for this crate, in thread-local storage.
//!
//! | offset | word | means | changed by |
//! |---|---|---|---|
//! | 0 | `depth` | how many [`SignalGuard`](super::signal_guard::SignalGuard)s this thread holds | the thread |
//! | 4 | `deferred` | a signal waits until the thread holds no guard | a handler on the thread; the thread |
//! | 8 | `stripe` | the thread's statistics stripe plus one, 0 for none yet | the thread |
//! | 12 | `fast` | the thread holds a [`FastSignalGuard`](super::signal_guard::FastSignalGuard) | the thread |
//! | 16 | `name` | the thread's name as an owner of io_urings, 0 for none yet | the thread |
//! | 20 | `poller` | the poller of the poll(2) or select(2) that the thread is in, by its index plus one; 0 for none | the thread; a handler on it |
//! | 24 | `request` | the address of what the vfork(2) child in this thread's place asks its parent by, the innermost one's if a handler has called vfork(2) around another such call; 0 without one | the thread; a handler on it, which puts back what it found |
//! | 32 | `last_poller` | the poller it had last, in the same way | as `poller` |
//! | 40 … 111 | | what the thread counts: [`tallies`](super::tallies) | the thread |
//!
//! On x86-64 each access is an instruction on the word itself, so that a signal handler of the same
//! thread sees it before or after and nothing in between.

use super::vforked::Request;
#[cfg(target_arch = "x86_64")]
use core::sync::atomic::AtomicU64;

pub(super) const DEPTH: usize = 0;
pub(super) const DEFERRED: usize = 4;
pub(super) const STRIPE: usize = 8;
pub(super) const FAST: usize = 12;
pub(super) const NAME: usize = 16;
const POLLER: usize = 20;
#[cfg(target_arch = "x86_64")]
const REQUEST: usize = 24;
const LAST_POLLER: usize = 32;
#[cfg(target_arch = "x86_64")]
pub(super) const COUNTS: usize = 40;
#[cfg(target_arch = "x86_64")]
pub(super) const PLACE: usize = 48;
#[cfg(target_arch = "x86_64")]
pub(super) const SET: usize = 56;
#[cfg(target_arch = "x86_64")]
pub(super) const OWN_TALLIES: usize = 64;
#[cfg(target_arch = "x86_64")]
pub(super) const OWN_SET: usize = OWN_TALLIES + 8 * super::tallies::TALLIES;
#[cfg(target_arch = "x86_64")]
const _: () = assert!(OWN_SET + 8 * super::tallies::SET_TALLIES == 112);

#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".section .tbss.wakeset_thread_words,\"awT\",@nobits",
    ".balign 8",
    ".hidden wakeset_thread_words",
    ".globl wakeset_thread_words",
    ".type wakeset_thread_words,@object",
    ".size wakeset_thread_words,112",
    "wakeset_thread_words:",
    ".zero 112",
    ".previous",
);

// The thread-local model is initial-exec: the library is loaded when the program starts, so an
// access is never a call that may allocate.

/// Adds `step` to the depth and returns the sum.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) fn add_depth(step: i32) -> i32 {
    let after: i32;
    // SAFETY: the word is this thread's own; xadd without LOCK is one instruction, so a handler
    // sees it before or after.
    unsafe {
        core::arch::asm!(
            "mov {words}, qword ptr [rip + wakeset_thread_words@GOTTPOFF]",
            "mov {after:e}, {step:e}",
            "xadd dword ptr fs:[{words}], {after:e}",
            "add {after:e}, {step:e}",
            words = out(reg) _,
            step = in(reg) step,
            after = out(reg) after,
            options(nostack),
        );
    }
    after
}

/// Adds 1 to the depth; first, if it is 0, looks whether the stack has room for a section of this
/// kind. See [`stack`](super::stack).
macro_rules! enter {
    ($(#[$doc:meta])* $name:ident, $offset:path) => {
        $(#[$doc])*
        #[inline(always)]
        pub(super) fn $name() {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the word is this thread's own. The load below the stack is one that is meant
            // to fault if there is nothing.
            unsafe {
                core::arch::asm!(
                    "mov {words}, qword ptr [rip + wakeset_thread_words@GOTTPOFF]",
                    "cmp dword ptr fs:[{words}], 0",
                    "jne 2f",
                    "mov {look}, qword ptr [rip + {offset}]",
                    "cmp byte ptr [rsp + {look}], 0",
                    "2: add dword ptr fs:[{words}], 1",
                    words = out(reg) _,
                    look = out(reg) _,
                    offset = sym $offset,
                    options(nostack),
                );
            }
            #[cfg(not(target_arch = "x86_64"))]
            add_depth(1);
        }
    };
}
enter!(
    /// Begins a section of any kind.
    enter,
    super::stack::SECTION
);
enter!(
    /// Begins a section that calls nothing.
    enter_briefly,
    super::stack::BRIEF
);

/// Clears the word `fast` and returns the word `deferred`.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) fn leave_fast() -> u32 {
    let deferred: u32;
    // SAFETY: the words are this thread's own.
    unsafe {
        core::arch::asm!(
            "mov {words}, qword ptr [rip + wakeset_thread_words@GOTTPOFF]",
            "mov dword ptr fs:[{words} + {fast}], 0",
            "mov {deferred:e}, dword ptr fs:[{words} + {deferred_word}]",
            words = out(reg) _,
            fast = const FAST,
            deferred_word = const DEFERRED,
            deferred = out(reg) deferred,
            options(nostack, preserves_flags),
        );
    }
    deferred
}

/// Looks whether the stack has room for a fast path, and sets the word `fast`.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) fn enter_fast() {
    // SAFETY: the words are this thread's own; the load is as in `enter`.
    unsafe {
        core::arch::asm!(
            "mov {words}, qword ptr [rip + {offset}]",
            "cmp byte ptr [rsp + {words}], 0",
            "mov {words}, qword ptr [rip + wakeset_thread_words@GOTTPOFF]",
            "mov dword ptr fs:[{words} + {fast}], 1",
            words = out(reg) _,
            offset = sym super::stack::FAST,
            fast = const FAST,
            options(nostack),
        );
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) fn load(offset: usize) -> u32 {
    let value: u32;
    // SAFETY: the words are this thread's own.
    unsafe {
        core::arch::asm!(
            "mov {words}, qword ptr [rip + wakeset_thread_words@GOTTPOFF]",
            "mov {value:e}, dword ptr fs:[{words} + {offset}]",
            words = out(reg) _,
            offset = in(reg) offset,
            value = out(reg) value,
            options(nostack, preserves_flags),
        );
    }
    value
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) fn store(offset: usize, value: u32) {
    // SAFETY: the words are this thread's own.
    unsafe {
        core::arch::asm!(
            "mov {words}, qword ptr [rip + wakeset_thread_words@GOTTPOFF]",
            "mov dword ptr fs:[{words} + {offset}], {value:e}",
            words = out(reg) _,
            offset = in(reg) offset,
            value = in(reg) value,
            options(nostack, preserves_flags),
        );
    }
}

/// Where the words are, from what the thread-local storage of a thread is found by.
#[cfg(target_arch = "x86_64")]
pub(crate) fn offset() -> isize {
    let offset: isize;
    // SAFETY: reads an entry of the library's own table.
    unsafe {
        core::arch::asm!(
            "mov {offset}, qword ptr [rip + wakeset_thread_words@GOTTPOFF]",
            offset = out(reg) offset,
            options(nostack, preserves_flags, readonly),
        );
    }
    offset
}

/// One of the words, of those that are 8 bytes long.
#[cfg(target_arch = "x86_64")]
pub(super) fn word(at: usize) -> &'static AtomicU64 {
    let words: usize;
    // SAFETY: the thread's storage begins with its own address.
    unsafe {
        core::arch::asm!(
            "mov {words}, qword ptr [rip + wakeset_thread_words@GOTTPOFF]",
            "add {words}, qword ptr fs:[0]",
            words = out(reg) words,
            options(nostack, readonly),
        );
    }
    // SAFETY: this thread's own, which it does not keep for longer than it lives.
    unsafe { &*core::ptr::with_exposed_provenance(words + at) }
}

/// What the vfork(2) child in this thread's place asks by.
#[cfg(target_arch = "x86_64")]
pub(super) fn request() -> Option<&'static Request> {
    let place: *const Request;
    // SAFETY: the word is this thread's own.
    unsafe {
        core::arch::asm!(
            "mov {place}, qword ptr [rip + wakeset_thread_words@GOTTPOFF]",
            "mov {place}, qword ptr fs:[{place} + {request}]",
            place = out(reg) place,
            request = const REQUEST,
            options(nostack, preserves_flags),
        );
    }
    // SAFETY: null, or what `set_request` stored, which lives until another is stored.
    unsafe { place.as_ref() }
}

/// A vfork(2) child that is in this thread's place from now on asks by that; with `None`, the
/// thread is itself again.
#[cfg(target_arch = "x86_64")]
pub(super) fn set_request(request: Option<&'static Request>) {
    // SAFETY: the word is this thread's own. `None` is null.
    unsafe {
        core::arch::asm!(
            "mov {words}, qword ptr [rip + wakeset_thread_words@GOTTPOFF]",
            "mov qword ptr fs:[{words} + {word}], {request}",
            words = out(reg) _,
            request = in(reg) request.map_or(core::ptr::null(), core::ptr::from_ref),
            word = const REQUEST,
            options(nostack, preserves_flags),
        );
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod portable {
    extern crate std;
    use core::cell::Cell;
    std::thread_local! { static WORDS: [Cell<u32>; 10] = const { [const { Cell::new(0) }; 10] }; }

    pub(in super::super) fn load(offset: usize) -> u32 {
        WORDS.with(|words| words[offset / 4].get())
    }
    pub(in super::super) fn request() -> Option<&'static super::Request> {
        None
    }
    pub(in super::super) fn set_request(_: Option<&'static super::Request>) {}
    pub(in super::super) fn store(offset: usize, value: u32) {
        WORDS.with(|words| words[offset / 4].set(value));
    }
    pub(in super::super) fn enter_fast() {
        store(super::FAST, 1);
    }
    pub(in super::super) fn leave_fast() -> u32 {
        store(super::FAST, 0);
        load(super::DEFERRED)
    }
    pub(in super::super) fn add_depth(step: i32) -> i32 {
        let after = load(super::DEPTH) as i32 + step;
        store(super::DEPTH, after as u32);
        after
    }
}
#[cfg(not(target_arch = "x86_64"))]
pub(super) use portable::{add_depth, enter_fast, leave_fast, load, request, set_request, store};

/// The calling thread's statistics stripe; `None` if it has none yet.
pub(crate) fn stripe() -> Option<usize> {
    (load(STRIPE) as usize).checked_sub(1)
}

pub(crate) fn set_stripe(stripe: Option<usize>) {
    store(STRIPE, stripe.map_or(0, |stripe| stripe as u32 + 1));
}

/// The calling thread's name as an owner of io_urings, 0 for none yet.
#[inline(always)]
pub(crate) fn thread_name() -> u32 {
    load(NAME)
}

pub(crate) fn set_thread_name(name: u32) {
    store(NAME, name);
}

/// The poller of the call that the calling thread is in, by its index plus one; 0 for none.
#[inline(always)]
pub(crate) fn poller() -> u32 {
    load(POLLER)
}

pub(crate) fn set_poller(poller: u32) {
    store(POLLER, poller);
}

/// The poller that the calling thread had last, in the same way.
#[inline(always)]
pub(crate) fn last_poller() -> u32 {
    load(LAST_POLLER)
}

pub(crate) fn set_last_poller(poller: u32) {
    store(LAST_POLLER, poller);
}
