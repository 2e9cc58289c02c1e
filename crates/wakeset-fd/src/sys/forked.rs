//! What a forked child asks of its parent, and which numbers the parent's children may have.
//!
//! A fork leaves objects in process, as vfork(2) does: the state of what the child inherits is its
//! parent's. The child has a copy of the memory and descriptors of its own, so where it names such
//! a number the object has to migrate first. It sends the number to a *deputy*, a thread of its
//! parent's, by one end of a socket pair, and goes on when the number comes back. Nothing else
//! passes between the two, and no memory: the worst that a message can do is to migrate something
//! without need.
//!
//! What the child may find instead of an answer:
//!
//! | it finds | that means |
//! |---|---|
//! | [`OVER`], or the end of the connection | everything that it has inherited is the kernel's |
//! | another parent | the parent has ended: what there was in it has gone with it |
//! | another file at the number of its end | it has closed that by a call that was not seen |
//!
//! In each case it asks for nothing more.

use super::process::{is_foreign, owner};
use super::refusable::refusable;
use super::signal_guard::SignalGuard;
use super::{Errno, poll_within, raw};
use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use wakeset::{ScanLock, mutated};

/// In place of a number: everything has migrated, and the deputy is about to go.
const OVER: c_int = -1;
/// Beside a number: the child may pass on what that stands for.
const PASSES_ON: c_int = 1 << 30;

/// Who waits for an answer looks after its parent so often.
const A_WHILE: Duration = Duration::from_millis(100);

// ---- the child ----

/// A child's end of the connection, -1 in other processes. Children that do nothing but end look at
/// it, too.
#[cfg_attr(not(loom), unsafe(link_section = "wakeset_fork"))]
static END: AtomicI32 = AtomicI32::new(-1);
/// What it is known by, and the parent.
static SOCKET: AtomicU64 = AtomicU64::new(0);
static PARENT: AtomicI32 = AtomicI32::new(0);
/// Held while one thread waits for an answer.
static ASKING: ScanLock<()> = ScanLock::new(());

/// A child's end, before it is one: made by the parent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChildsEnd {
    pub(crate) number: c_int,
    pub(crate) socket: u64,
    parent: c_int,
}

impl ChildsEnd {
    /// `None`: what it will be known by cannot be found out.
    pub(crate) fn new(number: c_int) -> Option<Self> {
        Some(Self { number, socket: inode(number)?, parent: owner() })
    }
}

/// Whether this is a child that may have to ask.
#[inline(always)]
pub(crate) fn is_child() -> bool {
    END.load(Ordering::Relaxed) >= 0
}

/// The number of the child's end, -1 for none.
pub(crate) fn end() -> c_int {
    END.load(Ordering::Relaxed)
}

/// Where that is.
pub(crate) fn end_number() -> &'static AtomicI32 {
    &END
}

/// In a forked child: it asks by that, or by nothing.
pub(crate) fn begin(end: Option<ChildsEnd>) {
    let number = end.map_or(-1, |end| end.number);
    // A page that is not written to is not copied.
    if end.is_some() || number != self::end() {
        // SAFETY: a forked child has one thread, which does not ask.
        unsafe { ASKING.free_in_child() };
        SOCKET.store(end.map_or(0, |end| end.socket), Ordering::Relaxed);
        PARENT.store(end.map_or(0, |end| end.parent), Ordering::Relaxed);
        END.store(number, Ordering::SeqCst);
    }
}

/// The child's end has another number.
pub(crate) fn renumber(old: c_int, new: c_int) {
    let _ = END.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst);
}

/// In a child: has its parent migrate what a number stood for at the fork; `fd` is that number, as
/// it is or [passed on](passing_on). When this returns that has been done, or there is nobody to do
/// it. `is_wanted` says whether it is still to be done, `done` that it has, and `close` closes an
/// end that is of no more use; no other thread asks meanwhile.
pub(crate) fn ask(
    fd: c_int,
    is_wanted: impl FnOnce() -> bool,
    done: impl FnOnce(),
    close: impl FnOnce(),
) {
    let _guard = SignalGuard::enter();
    let _asking = ASKING.lock();
    if !is_wanted() {
        return;
    }
    let end = end();
    if end >= 0 && !mutated!("forked_child_asks_nobody") {
        if inode(end) != Some(SOCKET.load(Ordering::Relaxed)) {
            let _ = END.compare_exchange(end, -1, Ordering::SeqCst, Ordering::SeqCst);
        } else if !has_answered(end, fd) {
            // Another thread would send by a number that is the program's by then.
            close();
        }
    }
    done();
}

/// What to [`ask`] about a number that the child may pass on.
pub(crate) fn passing_on(fd: c_int) -> c_int {
    fd | PASSES_ON
}

/// The number that a child has asked about, and whether it may pass on what that stands for.
pub(crate) fn asked(message: c_int) -> (c_int, bool) {
    (message & !PASSES_ON, message & PASSES_ON != 0)
}

/// Asks, and waits for the answer. `false`: there will be none.
fn has_answered(end: c_int, fd: c_int) -> bool {
    if send(end, fd).is_err() {
        return false;
    }
    loop {
        match receive(end) {
            Ok(answer) if answer == Some(fd) => return true,
            Ok(_) => return false,
            Err(Errno::EAGAIN) if poll_within(end, libc::POLLIN, A_WHILE) != 0 => {}
            Err(Errno::EAGAIN | Errno::EINTR) => {
                if raw!(getppid) != Ok(PARENT.load(Ordering::Relaxed) as usize) {
                    return false;
                }
            }
            Err(_) => return false,
        }
    }
}

/// What a socket is known by.
fn inode(fd: c_int) -> Option<u64> {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    raw!(fstat, fd, status.as_mut_ptr()).ok()?;
    // SAFETY: the kernel has filled it in.
    let status = unsafe { status.assume_init() };
    (status.st_mode & libc::S_IFMT == libc::S_IFSOCK).then_some(status.st_ino)
}

// ---- both ----

/// A connection, by two numbers, which no exec inherits.
pub(crate) fn connection() -> Option<[c_int; 2]> {
    let mut ends = [-1; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    refusable!(socketpair, libc::AF_UNIX, kind, 0, ends.as_mut_ptr()).ok()?;
    Some(ends)
}

/// Sends a number, or [`OVER`].
pub(crate) fn send(end: c_int, fd: c_int) -> Result<(), Errno> {
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    raw!(sendto, end, &raw const fd, size_of::<c_int>(), flags, 0, 0).map(drop)
}

/// Says that everything has migrated.
pub(crate) fn send_over(end: c_int) {
    let _ = send(end, OVER);
}

/// The next message; `None` at the end of the connection, or for what is no message of ours.
///
/// # Errors
/// EAGAIN: there is none yet.
pub(crate) fn receive(end: c_int) -> Result<Option<c_int>, Errno> {
    let mut fd: c_int = 0;
    let flags = libc::MSG_DONTWAIT;
    let len = raw!(recvfrom, end, &raw mut fd, size_of::<c_int>(), flags, 0, 0)?;
    Ok((len == size_of::<c_int>()).then_some(fd))
}

// ---- the parent ----

/// How many children may have numbers of objects that live in process. Next to the other words that
/// a forked child resets.
#[cfg_attr(not(loom), unsafe(link_section = "wakeset_fork"))]
static CHILDREN: AtomicU32 = AtomicU32::new(0);
/// Those numbers, a bit for each.
static NUMBERS: [AtomicU64; MOST as usize / 64] = [const { AtomicU64::new(0) }; MOST as usize / 64];
/// The numbers of deputies as threads, which the kernel writes, and takes back when one has ended;
/// 0 for none. One may begin while the one before it is just ending.
static DEPUTY: [AtomicI32; 2] = [const { AtomicI32::new(0) }; 2];
/// The same, but that of one which has ended stays.
static LAST: [AtomicI32; 2] = [const { AtomicI32::new(0) }; 2];

/// Where the kernel keeps the number of the next deputy.
pub(crate) fn deputy_word() -> Option<&'static AtomicI32> {
    DEPUTY.iter().find(|deputy| deputy.load(Ordering::SeqCst) == 0)
}

/// A deputy has this number, which the kernel keeps there.
pub(crate) fn note_deputy(word: &'static AtomicI32, tid: c_int) {
    let index = DEPUTY.iter().position(|deputy| ptr::eq(deputy, word));
    if let Some(last) = index.and_then(|index| LAST.get(index)) {
        last.store(tid, Ordering::SeqCst);
    }
}

/// Whether a thread of this process is a deputy, which runs no code of the program's.
pub(crate) fn is_deputy(tid: c_int) -> bool {
    DEPUTY.iter().any(|deputy| deputy.load(Ordering::SeqCst) == tid)
}

/// How many threads of this process are deputies.
pub(crate) fn count_deputies() -> usize {
    DEPUTY.iter().filter(|deputy| deputy.load(Ordering::SeqCst) != 0).count()
}

/// Whether this process has, or had, a deputy.
#[inline]
pub(crate) fn has_had_deputy() -> bool {
    LAST.iter().any(|last| last.load(Ordering::SeqCst) != 0)
}

/// The deputies that may not have ended: their numbers, and whether the kernel still keeps them.
pub(crate) fn last_deputies() -> impl Iterator<Item = (c_int, impl Fn() -> bool)> {
    DEPUTY.iter().zip(&LAST).filter_map(|(deputy, last)| {
        let tid = last.load(Ordering::SeqCst);
        (tid != 0).then_some((tid, move || deputy.load(Ordering::SeqCst) == tid))
    })
}

/// Above all numbers that may be noted.
pub(crate) const MOST: c_int = 1 << 12;

fn bit(fd: c_int) -> Option<(&'static AtomicU64, u64)> {
    let word = NUMBERS.get(usize::try_from(fd).ok()? / 64)?;
    Some((word, 1 << (fd % 64)))
}

/// Whether a child may have the object that this number stands for.
#[inline]
pub(crate) fn may_have(fd: c_int) -> bool {
    CHILDREN.load(Ordering::SeqCst) != 0 && is_noted(fd)
}

/// Whether a child may have any object that lives here.
#[inline]
pub(crate) fn any_may() -> bool {
    CHILDREN.load(Ordering::SeqCst) != 0
}

#[cold]
pub(crate) fn is_noted(fd: c_int) -> bool {
    bit(fd).is_some_and(|(word, bit)| word.load(Ordering::SeqCst) & bit != 0)
}

/// Before a fork: its child has these numbers. The caller holds the migrations lock.
pub(crate) fn note_child(numbers: impl Iterator<Item = c_int>) {
    if !any_may() {
        for word in NUMBERS.iter().filter(|word| word.load(Ordering::SeqCst) != 0) {
            word.store(0, Ordering::SeqCst);
        }
    }
    CHILDREN.fetch_add(1, Ordering::SeqCst);
    for (word, bit) in numbers.filter_map(bit) {
        word.fetch_or(bit, Ordering::SeqCst);
    }
}

/// The kernel has just given a number out, so that no child has what will stand there. The note may
/// be of a file that was there before.
#[inline]
pub(crate) fn forget_number(fd: c_int) {
    if any_may() && !mutated!("new_number_is_a_childs") {
        // The child of a vfork(2) works in this memory, and its numbers are its own.
        let is_own = !is_foreign() || mutated!("vforked_child_forgets_numbers");
        if let Some((word, bit)) = bit(fd).filter(|_| is_own) {
            word.fetch_and(!bit, Ordering::SeqCst);
        }
    }
}

/// A child has none any more.
pub(crate) fn forget_child() {
    CHILDREN.fetch_sub(1, Ordering::SeqCst);
}

/// In a forked child: its parent's children are not its own.
pub(crate) fn forget_children() {
    if any_may() {
        CHILDREN.store(0, Ordering::SeqCst);
    }
}

/// The same, of the threads that serve them.
pub(crate) fn forget_deputies() {
    let words = || DEPUTY.iter().chain(&LAST);
    words()
        .filter(|word| word.load(Ordering::SeqCst) != 0)
        .for_each(|word| word.store(0, Ordering::SeqCst));
}

/// Whether a child whose end of the connection is closed has no descriptor of its parent's any
/// more: it has ended, is just ending, or has executed a program. Otherwise it has closed its end
/// by a call that was not seen. `socket` is what its end was known by.
///
/// A process that goes away leaves its memory before it closes its descriptors, and an exec puts
/// other memory in its place. So the child is asked whether its memory still has that word. No file
/// of proc(5) is opened for it: it would have the lowest number that is free, for a moment, at a
/// time when the program makes no call, and a fork then would leave it to the child.
pub(crate) fn is_child_gone(pid: c_int, socket: u64) -> bool {
    let is_reaped = || raw!(tgkill, pid, pid, 0) == Err(Errno::ESRCH);
    if is_reaped() {
        return true;
    }
    match word_of(pid, &SOCKET) {
        Ok(word) => word != socket || mutated!("childs_word_is_not_looked_at"),
        // Without memory, or with none at this address.
        Err(Errno::ESRCH | Errno::EFAULT) => !mutated!("childs_end_is_not_seen"),
        // Not for us to see.
        Err(_) => is_reaped(),
    }
}

/// What another process's memory has where a word is in this one's.
fn word_of(pid: c_int, word: &'static AtomicU64) -> Result<u64, Errno> {
    let mut value = 0_u64;
    let len = size_of::<u64>();
    let here = libc::iovec { iov_base: (&raw mut value).cast(), iov_len: len };
    let there = libc::iovec { iov_base: word.as_ptr().cast(), iov_len: len };
    let read = refusable!(process_vm_readv, pid, &raw const here, 1, &raw const there, 1, 0)?;
    if read == len { Ok(value) } else { Err(Errno::EFAULT) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise every later file under the number of what a worker has would migrate at its close.
    #[test]
    fn a_new_number_is_not_what_a_child_has() {
        let _alone = crate::table::alone::alone();
        let [kept, new] = [MOST - 2, MOST - 1];
        note_child([kept, new].into_iter());
        forget_number(new);
        let found = [kept, new].map(may_have);
        forget_child();
        assert_eq!(found, [true, false]);
    }

    /// Another thread sent its question to the program's file that had the number next.
    #[test]
    fn nobody_asks_by_an_end_that_is_being_closed() {
        let _alone = crate::table::alone::alone();
        let [ours, parents] = connection().unwrap();
        crate::sys::close(parents).unwrap();
        let before = SOCKET.swap(inode(ours).unwrap(), Ordering::SeqCst);
        END.store(ours, Ordering::SeqCst);
        let mut others_wait = None;
        let close = || {
            others_wait = Some(ASKING.try_lock().is_none());
            END.store(-1, Ordering::SeqCst);
            crate::sys::close(ours).unwrap();
        };
        ask(0, || true, || {}, close);
        SOCKET.store(before, Ordering::SeqCst);
        assert_eq!(others_wait, Some(true));
    }

    /// A child that has closed its end has gone only if its memory has.
    #[test]
    fn a_childs_memory_says_whether_it_is_gone() {
        const THIS: u64 = 77;
        let _alone = crate::table::alone::alone();
        let before = SOCKET.swap(THIS, Ordering::SeqCst);
        // SAFETY: the child makes system calls, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: ends a child that nobody ends.
            unsafe { libc::alarm(60) };
            loop {
                // SAFETY: sleeps until a signal ends the process.
                unsafe { libc::pause() };
            }
        }
        SOCKET.store(before, Ordering::SeqCst);
        assert!(child > 0);
        let is_to_be_seen = word_of(child, &SOCKET).is_ok();
        let lives = !is_child_gone(child, THIS);
        let has_other_memory = is_child_gone(child, THIS + 1);
        // SAFETY: memory for the answer; the child is this process's.
        let (ended, reaped) = unsafe {
            libc::kill(child, libc::SIGKILL);
            let mut what = core::mem::zeroed();
            let flags = libc::WEXITED | libc::WNOWAIT;
            libc::waitid(libc::P_PID, child as libc::id_t, &raw mut what, flags);
            let ended = is_child_gone(child, THIS);
            libc::waitpid(child, core::ptr::null_mut(), 0);
            (ended, is_child_gone(child, THIS))
        };
        assert!(lives && reaped);
        // Some surroundings do not let a process see another's memory.
        assert!(!is_to_be_seen || has_other_memory && ended, "{has_other_memory} {ended}");
    }
}
