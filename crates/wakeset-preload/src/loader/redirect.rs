//! libc's symbol table leads to our hooks.
//!
//! A preload takes over the names that objects are linked to. Three roads lead to libc's own
//! functions all the same, and all three read libc's symbol table: dlsym(3) and dlvsym(3) where
//! they come to libc (through its handle, through that of a library that needs it, by `RTLD_NEXT`
//! from an object behind us), and the bindings of a plugin that is opened with `RTLD_DEEPBIND`, at
//! once or at the first call. So the table is changed, once, just before the first of them is
//! taken: for each of our hooks, every version of libc's symbol gets our function's address. The
//! loader does the rest, with its own rules for scopes, callers and versions.
//!
//! It cannot be changed where a preload behind us has taken over a name: our hook calls that
//! preload's function, which asks for libc's by `RTLD_NEXT`, and must not get ours again.
//!
//! The pages are the process's own copies then, some 70 KB; a program that takes none of the three
//! roads pays nothing.

use super::object::{Object, is_direct};
use super::order;
use core::ffi::{CStr, c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use libc::{Elf64_Sym as Symbol, dl_phdr_info};
use syscalls::{Sysno, syscall};
use wakeset_fd::signal_guard::SignalSafeLock;

/// Why libc's symbol table could not be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// This library was not preloaded, or libc's table is not as expected.
    Unknown,
    /// A preload behind us wraps one of the functions, and must find libc's.
    TakenOver,
    /// The kernel does not let us write there.
    Protected,
}

/// A symbol that has been changed, and the value that it had.
struct Changed {
    symbol: AtomicUsize,
    value: AtomicUsize,
}

/// More than there are: one for each version of each hook.
const MOST: usize = 512;
static CHANGED: [Changed; MOST] =
    [const { Changed { symbol: AtomicUsize::new(0), value: AtomicUsize::new(0) } }; MOST];

static DONE: AtomicBool = AtomicBool::new(false);
#[unsafe(link_section = "wakeset_fork")]
static LOCK: SignalSafeLock = SignalSafeLock::new();

/// Before a fork: waits until no other thread is changing the table.
pub(crate) fn hold() {
    LOCK.lock();
}

/// After a fork, on both sides: undoes [`hold`].
pub(crate) fn release() {
    LOCK.unlock();
}

/// The value of a symbol. The loader reads it without a lock, so it changes at once.
fn value_of(symbol: &Symbol) -> &AtomicUsize {
    let value = (&raw const symbol.st_value).cast_mut().cast::<usize>();
    // SAFETY: an aligned word, which nobody touches in another way while it changes.
    unsafe { AtomicUsize::from_ptr(value) }
}

/// The value that a symbol had in the beginning.
pub(super) fn original(symbol: &Symbol) -> usize {
    // Before the entries are looked at: a value that has been changed has its entry.
    let value = value_of(symbol).load(Ordering::Acquire);
    let address = ptr::from_ref(symbol).addr();
    let entries = CHANGED.iter().map(|entry| (entry.symbol.load(Ordering::Acquire), entry));
    if wakeset::mutated!("redirect_forgets_where_it_led") {
        return value;
    }
    entries
        .take_while(|(at, _)| *at != 0)
        .find(|(at, _)| *at == address)
        .map_or(value, |(_, entry)| entry.value.load(Ordering::Relaxed))
}

/// Whether libc's symbol table leads to our hooks.
pub(crate) fn is_redirected() -> bool {
    DONE.load(Ordering::Acquire)
}

/// Makes libc's symbol table lead to our hooks, once.
///
/// # Errors
/// It cannot be changed, and is as it was.
pub(crate) fn redirect() -> Result<(), Obstacle> {
    LOCK.lock();
    let result = if DONE.load(Ordering::Relaxed) { Ok(()) } else { redirect_held() };
    DONE.store(result.is_ok(), Ordering::Release);
    LOCK.unlock();
    result
}

fn redirect_held() -> Result<(), Obstacle> {
    let ours = order::ours().ok_or(Obstacle::Unknown)?;
    let mut parts = order::libc().peekable();
    parts.peek().ok_or(Obstacle::Unknown)?;
    if order::between().next().is_some() && ours.names().any(leads_past_us) {
        return Err(Obstacle::TakenOver);
    }
    parts.try_for_each(|part| redirect_part(&ours, &part))
}

/// Whether a preload behind us has taken over a name, or the one that it is another name of, with
/// which our hook calls it.
fn is_taken_over(name: &CStr) -> bool {
    if wakeset::mutated!("redirect_takes_a_preloads_name") {
        return false;
    }
    order::between().any(|object| has_or_stem(&object, name))
}

/// Whether libc's symbol of this name has to stay, and a call by it would be missed. What libc's
/// look-ups find is ours, whoever makes them.
fn leads_past_us(name: &CStr) -> bool {
    !matches!(name.to_bytes(), b"dlsym" | b"dlvsym" | b"dlopen")
        && is_taken_over(name)
        && order::libc().any(|part| part.has(name))
}

fn has_or_stem(object: &Object, name: &CStr) -> bool {
    let stem = name.to_bytes().iter().take_while(|byte| **byte == b'_').count();
    // SAFETY: a part of a C string, up to its end.
    let stem = unsafe { CStr::from_ptr(name.as_ptr().wrapping_add(stem)) };
    object.has(name) || object.has(stem)
}

/// Whether the code at an address is that of a preload behind us which has taken over this name.
pub(crate) fn wraps(code: usize, name: &CStr) -> bool {
    let mut takers = order::between().filter(|object| has_or_stem(object, name)).peekable();
    if takers.peek().is_none() {
        return false;
    }
    if wakeset::mutated!("wrappers_lookups_count_as_roads") {
        return false;
    }
    let segment = segment_of(code, code + 1);
    segment.is_some_and(|segment| takers.any(|object| object.base() == segment.base))
}

/// Calls `f` with each symbol of a part of libc that stands for one of our hooks, and the hook.
fn each_symbol(ours: &Object, part: &Object, mut f: impl FnMut(&'static Symbol, usize)) {
    let others = order::between().next().is_some();
    for name in ours.names().filter(|name| !others || !is_taken_over(name)) {
        let Some(hook) = ours.find(name).filter(|hook| is_direct(hook)) else { continue };
        let hook = ours.base().wrapping_add(hook.st_value as usize);
        part.each(name, |symbol, _| {
            let left_out = wakeset::mutated!("redirect_leaves_a_name_out") && name == c"write";
            if is_direct(symbol) && !left_out {
                f(symbol, hook);
            }
        });
    }
}

fn redirect_part(ours: &Object, part: &Object) -> Result<(), Obstacle> {
    let (mut first, mut last, mut n) = (usize::MAX, 0, 0);
    each_symbol(ours, part, |symbol, _| {
        let address = ptr::from_ref(symbol).addr();
        (first, last, n) = (first.min(address), last.max(address), n + 1);
    });
    if n == 0 {
        return Ok(());
    }
    let mut free = CHANGED.iter().filter(|entry| entry.symbol.load(Ordering::Relaxed) == 0);
    if free.clone().count() < n {
        return Err(Obstacle::Unknown);
    }
    let writable = Writable::make(first, last + size_of::<Symbol>())?;
    each_symbol(ours, part, |symbol, hook| {
        let Some(entry) = free.next() else { return };
        entry.value.store(value_of(symbol).load(Ordering::Relaxed), Ordering::Relaxed);
        entry.symbol.store(ptr::from_ref(symbol).addr(), Ordering::Release);
        value_of(symbol).store(hook.wrapping_sub(part.base()), Ordering::Release);
    });
    drop(writable);
    Ok(())
}

const PAGE: usize = 4096;

/// Pages that can be written as long as this is there.
struct Writable {
    start: usize,
    len: usize,
    access: c_int,
}

impl Writable {
    /// Makes the pages from `start` to `end` writable.
    fn make(start: usize, end: usize) -> Result<Self, Obstacle> {
        let access = segment_of(start, end).ok_or(Obstacle::Unknown)?.access;
        let start = start / PAGE * PAGE;
        let pages = Self { start, len: end.next_multiple_of(PAGE) - start, access };
        match pages.protect(access | libc::PROT_WRITE) {
            true => Ok(pages),
            false => Err(Obstacle::Protected),
        }
    }

    fn protect(&self, access: c_int) -> bool {
        // SAFETY: pages of libc that nobody writes to besides; they stay readable.
        unsafe { syscall!(Sysno::mprotect, self.start, self.len, access) }.is_ok()
    }
}

impl Drop for Writable {
    fn drop(&mut self) {
        self.protect(self.access);
    }
}

/// A segment of an object.
struct Segment {
    /// Where the object is loaded.
    base: usize,
    access: c_int,
}

/// Addresses, and the segment around them.
struct Search {
    start: usize,
    end: usize,
    found: Option<Segment>,
}

/// The segment of any object that has all addresses from `start` to `end`.
fn segment_of(start: usize, end: usize) -> Option<Segment> {
    let mut search = Search { start, end, found: None };
    // SAFETY: `visit` gets `search` back, and the loader's descriptions of objects.
    unsafe { order::iterate(visit, (&raw mut search).cast()) };
    search.found
}

/// Makes a [`Search`] among the segments of one object.
unsafe extern "C" fn visit(info: *mut dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
    const PF_X: u32 = 1;
    const PF_W: u32 = 2;
    const PF_R: u32 = 4;
    // SAFETY: by the contract of dl_iterate_phdr(3), and of the call above.
    let (info, search) = unsafe { (&*info, &mut *data.cast::<Search>()) };
    for index in 0..info.dlpi_phnum.into() {
        // SAFETY: there are so many.
        let header = unsafe { &*info.dlpi_phdr.wrapping_add(index) };
        let base = info.dlpi_addr as usize;
        let start = base.wrapping_add(header.p_vaddr as usize);
        let end = start.wrapping_add(header.p_memsz as usize);
        if header.p_type == libc::PT_LOAD && start <= search.start && search.end <= end {
            let access = |flag, access| if header.p_flags & flag != 0 { access } else { 0 };
            let access = access(PF_R, libc::PROT_READ)
                | access(PF_W, libc::PROT_WRITE)
                | access(PF_X, libc::PROT_EXEC);
            search.found = Some(Segment { base, access });
            return 1;
        }
    }
    0
}
