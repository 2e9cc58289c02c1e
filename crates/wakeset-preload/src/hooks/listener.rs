//! Waits on listening sockets: a connection wakes one waiter, and not everybody who polls the listener.
//!
//! A thread that polls or selects listeners sleeps in a private epoll set instead ([`Sleeper`]). If it wakes to connections and nothing
//! else, the kernel has said all there is to tell the program; after anything else the program's call is made without time to sleep, so that nothing
//! of it is modelled here. A call that the private set cannot stand in for goes to the kernel as it is. Once in [`RESCUE`](listeners::RESCUE) each thread
//! makes it in any case, so that a connection whose waiter died is found: no sleep lasts longer, and what ends sleeps or calls earlier
//! does not put it off.
//!
//! **Signals.** A call of poll(2) ends with EINTR if a handler runs at any time between its beginning and its end. Ours makes several system
//! calls, and a handler that ran between two must not be forgotten. So each thread counts the signals it handles, and
//! [`interrupt_sleep`] moves a thread that has looked at the count and not yet entered the kernel to the way out. A sleep in an epoll set also
//! ends when the process is stopped and continued, or traced, which poll(2) does not: then nothing was counted, and the sleep goes on.
//!
//! **accept(2)** that finds nothing is dear: the kernel makes a socket and a descriptor first. A thread that accepts until there is nothing
//! left is answered by a look at the listener, once that has come out so often enough. So is one that a wait told of a connection, if
//! others are often faster: a thread that is done with a request accepts once more before it waits, and finds what another was woken for.
//!
//! **Standing back.** A client that is back at once wakes the next in the queue while the worker that has served it is on its way back, and both find the
//! connection: often within the same few microseconds, because what lets the one go on, the client's going to sleep, is also what gives the other a processor. So
//! who comes back and finds a connection that he was not woken for leaves it alone for [`STAND_BACK`], if that has often been another's ([`BEHIND`]).
//! Nothing depends on it: who was woken may be dead, and if it is still there then it is taken.
//!
//! **accept(2) that blocks** is the kernel's, which wakes one thread for a connection, in order. But a thread that sleeps there cannot look for itself, so where
//! others wait in turn ([`listeners::is_in_turn`]) it sleeps in its private set first, as a poll(2) would, and calls accept(2) when there is something. A
//! call that would end by itself (`SO_RCVTIMEO`), or that another overtakes in that moment, blocks in the kernel.

use super::{signal, uffd};
use crate::outcome::fail;
use crate::real::real;
use core::cell::{Cell, UnsafeCell};
use core::ffi::{c_int, c_void};
use core::ptr;
use core::time::Duration;
use libc::{EPOLLIN, epoll_event, sockaddr, socklen_t, timespec, ucontext_t};
use syscalls::{Errno, Sysno, syscall};
use wakeset::{Deadline, Timeout};
use wakeset_fd::listeners::{self, Fired, LastLook, ListenerStat, MOST, Numbers, Obstacle, Order, Sleeper, Wanted};
use wakeset_fd::section::Section;
use wakeset_fd::{cancel, count, fork};

/// What a thread keeps for its waits on listeners.
struct Waiter {
    sleeper: UnsafeCell<Sleeper>,
    /// Its place among the private sets, and the process that this is true of.
    place: Cell<Option<usize>>,
    process: Cell<u32>,
    /// The listener it has accepted from since it last waited, -1 for none.
    accepted: Cell<c_int>,
    /// The listener a wait has reported since it last called accept(2), `SOME` for a set's, -1 for none.
    reported: Cell<c_int>,
    /// How sure it is that there is nothing more then: see [`SURE`].
    emptied: Cell<u8>,
    /// How sure it is that what a wait reported is gone: see [`OFTEN`].
    overtaken: Cell<u8>,
    /// Nothing has woken it since it last accepted: what it finds was there when it came back.
    came_back: Cell<bool>,
    /// How sure it is that such a connection is another's: see [`BEHIND`].
    behind: Cell<u8>,
    /// When it last stood back, since the machine's start.
    stood_back: Cell<Duration>,
    /// A listener that does not block, and in which version of flags and listeners that was asked.
    unblocking: Cell<(c_int, u32)>,
    /// When it last looked at what it waits for itself.
    looked: LastLook,
}

thread_local! {
    // No destructor and no lazy part: a plain block in the thread's static TLS, safe in a handler.
    static WAITER: Waiter = const { Waiter {
        sleeper: UnsafeCell::new(Sleeper::new()),
        place: Cell::new(None),
        process: Cell::new(0),
        accepted: Cell::new(-1),
        reported: Cell::new(-1),
        emptied: Cell::new(0),
        overtaken: Cell::new(0),
        came_back: Cell::new(false),
        behind: Cell::new(0),
        stood_back: Cell::new(Duration::ZERO),
        unblocking: Cell::new((-1, 0)),
        looked: LastLook::never(),
    } };
}

/// Whichever listener, in [`Waiter::reported`].
const SOME: c_int = -2;

/// How a wait is to go on.
pub(super) enum Outcome {
    /// As the program made it.
    Unchanged,
    /// It is over: how many are ready, or an error.
    Done(Result<usize, Errno>),
    /// As the program made it, with this much time: something stands in the way.
    Rest(Option<Duration>),
}

/// What a wait is about.
pub(super) struct Descriptors {
    wanted: [Wanted; MOST],
    len: usize,
    listeners: usize,
}

impl Descriptors {
    pub(super) const fn none() -> Self {
        Self { wanted: [Wanted::NONE; MOST], len: 0, listeners: 0 }
    }

    /// Adds a descriptor and what is waited for; `false` if it is one too many. A listener is one that is waited on for connections and
    /// nothing else it could have.
    pub(super) fn add(&mut self, fd: c_int, events: u32, may_be_listener: bool) -> bool {
        let listener = may_be_listener && listeners::is_listener(fd);
        let wanted = self.wanted.get_mut(..self.len).unwrap_or_default();
        if let Some(same) = wanted.iter_mut().find(|wanted| wanted.fd == fd) {
            // Asked for twice, the second time for something that is no listener's.
            same.events |= events;
            return same.listener == listener;
        }
        let Some(place) = self.wanted.get_mut(self.len) else { return false };
        *place = Wanted { fd, events, listener };
        self.len += 1;
        self.listeners += usize::from(listener);
        true
    }

    pub(super) fn has_listeners(&self) -> bool {
        self.listeners > 0
    }

    fn listeners(&self) -> impl Iterator<Item = &Wanted> {
        self.wanted().iter().filter(|wanted| wanted.listener)
    }

    fn wanted(&self) -> &[Wanted] {
        self.wanted.get(..self.len).unwrap_or_default()
    }
}

/// What a wait asks of the program's call.
pub(super) trait Asked {
    /// Makes the call without time to sleep, under its mask.
    fn look(&mut self) -> Result<usize, Errno>;

    /// The call ends with EINTR.
    fn interrupted(&mut self);

    /// Whether the last [`look`](Self::look) found this listener ready.
    fn is_ready(&self, fd: c_int) -> bool;

    /// Flags of sigaction(2): a handler that was registered with one of them does not end the call.
    fn outlasts(&self) -> c_int {
        0
    }

    /// Gives the result of a call that finds connections on these listeners and nothing else; `None` if that takes a
    /// [`look`](Self::look).
    fn tell(&mut self, listeners: &[c_int]) -> Option<Result<usize, Errno>>;
}

/// Events taken from the private set at a time.
const ROOM: usize = 8;

/// Waits until there is something to tell the program.
pub(super) fn wait(
    descriptors: &Descriptors,
    order: Order,
    limit: Option<Duration>,
    mask: *const u64,
    asked: &mut dyn Asked,
) -> Outcome {
    // SAFETY: null, or a copy of the program's.
    let _uncounted = signal::Uncounted::begin(unsafe { mask.as_ref() }.copied().unwrap_or(0));
    let handled = ending(asked.outlasts());
    // SAFETY: this thread's own.
    let before = unsafe { handled.read_volatile() };
    let deadline = Deadline::of(Timeout::from(limit));
    let left = || deadline.map(Deadline::remaining);
    for wanted in descriptors.listeners() {
        listeners::count(wanted.fd, ListenerStat::Waits);
    }
    // What is there already needs no place in the queue; and it may be time for a look.
    let is_worth_a_look = WAITER.with(|waiter| {
        waiter.came_back.set(true);
        let has_something = || waiter.has_something(descriptors.wanted(), order);
        let may_stand_back = limit.is_none_or(|limit| limit > STAND_BACK);
        waiter.looked.until_next().is_zero()
            || has_something().is_some_and(|listener| {
                !(listener && may_stand_back) || waiter.stand_back(&mut || has_something().is_some())
            })
    });
    if is_worth_a_look && let Some(result) = look(descriptors, asked) {
        return told(result, left());
    }
    WAITER.with(|waiter| waiter.came_back.set(false));
    let mut prepared = false;
    let mut strange = 0;
    loop {
        let set = WAITER.with(|waiter| waiter.prepare(descriptors.wanted(), order, prepared));
        let Some(set) = set else { return Outcome::Rest(left()) };
        prepared = true;
        let until_look = WAITER.with(|waiter| waiter.looked.until_next());
        let most = Some(left().map_or(until_look, |left| left.min(until_look)));
        let mut events = [epoll_event { events: 0, u64: 0 }; ROOM];
        let slept = cancel::point(|| sleep(set, &mut events, most, mask, handled, before));
        let events = events.get(..slept.unwrap_or(0)).unwrap_or_default();
        let fired = WAITER.with(|waiter| waiter.sort(events));
        match slept {
            Err(Errno::EINTR) => {
                // SAFETY: as above.
                if unsafe { handled.read_volatile() } != before || signal::may_have_foreign_handlers(asked.outlasts()) {
                    asked.interrupted();
                    return Outcome::Done(Err(Errno::EINTR));
                }
            }
            // The set is gone: somebody closes what is not his.
            Err(_) => {
                WAITER.with(Waiter::forget);
                return Outcome::Rest(left());
            }
            Ok(_) => {}
        }
        let mut woken_by = [0; ROOM];
        let mut len = 0;
        for (place, event) in woken_by.iter_mut().zip(events.iter().filter(|event| Wanted::is_listener(event.u64))) {
            *place = event.u64 as c_int;
            len += 1;
        }
        let woken_by = woken_by.get(..len).unwrap_or_default();
        woken_by.iter().for_each(|fd| listeners::count(*fd, ListenerStat::Wakes));
        // The kernel has looked at everything that it did not report, and had room for more.
        let plain = events.len() < ROOM && events.iter().all(|event| event.events == EPOLLIN as u32);
        if fired.only_listeners()
            && plain
            && let Some(result) = asked.tell(woken_by)
        {
            WAITER.with(|waiter| woken_by.iter().for_each(|fd| waiter.note_report(*fd)));
            return Outcome::Done(result);
        }
        if let Some(result) = look(descriptors, asked) {
            return told(result, left());
        }
        woken_by.iter().for_each(|fd| listeners::count(*fd, ListenerStat::SpuriousWakes));
        if left().is_some_and(|left| left.is_zero()) {
            return Outcome::Done(Ok(0));
        }
        if fired.other || fired.stale {
            // Something fires that the program's call does not see: a description whose number is gone, or what select(2) ignores.
            strange += 1;
            if strange == STRANGE_MOST {
                return Outcome::Rest(left());
            }
            WAITER.with(Waiter::forget_watches);
            prepared = false;
        }
    }
}

/// Where this thread counts the handled signals that end a call.
fn ending(outlasts: c_int) -> *mut u32 {
    if outlasts == 0 { signal::handled() } else { signal::not_restarting() }
}

/// The end of a wait with what a look has found. A filter that lets poll(2) pass and not the call that we look with leaves the wait to the kernel.
fn told(result: Result<usize, Errno>, left: Option<Duration>) -> Outcome {
    match result {
        Err(Errno::ENOSYS | Errno::EPERM | Errno::EACCES) => Outcome::Rest(left),
        result => Outcome::Done(result),
    }
}

/// What the program's call has to tell now, if anything.
fn look(descriptors: &Descriptors, asked: &mut dyn Asked) -> Option<Result<usize, Errno>> {
    WAITER.with(|waiter| waiter.looked.note());
    let result = asked.look();
    if result == Ok(0) {
        return None;
    }
    if result.is_ok() {
        let ready = descriptors.listeners().map(|wanted| wanted.fd).filter(|fd| asked.is_ready(*fd));
        WAITER.with(|waiter| ready.for_each(|fd| waiter.note_report(fd)));
    }
    Some(result)
}

/// Sleeps for nothing that one wait puts up with.
const STRANGE_MOST: u32 = 3;

impl Waiter {
    /// What the set that was prepared for the last wait has for this one, if it is for the same descriptors: whether that is a listener.
    fn has_something(&self, wanted: &[Wanted], order: Order) -> Option<bool> {
        let _section = Section::enter();
        // SAFETY: this thread's own, and in a section no handler comes in between.
        let sleeper = unsafe { &*self.sleeper.get() };
        let set = self.place.get().and_then(listeners::private_set);
        if self.process.get() != wakeset::process_id()
            || set != Some(sleeper.set())
            || !sleeper.is_worth_a_look(wanted, order)
        {
            return None;
        }
        let mut events = [epoll_event { events: 0, u64: 0 }];
        // SAFETY: room for one event.
        let found = unsafe { syscall!(Sysno::epoll_pwait, sleeper.set(), events.as_mut_ptr(), 1, 0, 0, 8) };
        let [event] = events;
        found.is_ok_and(|found| found > 0).then_some(Wanted::is_listener(event.u64))
    }

    /// For a thread that has found a connection that it was not woken for: whether `found` goes on finding it.
    fn stand_back(&self, found: &mut dyn FnMut() -> bool) -> bool {
        if self.behind.get() < BEHIND {
            return true;
        }
        let now = Deadline::now().since_boot();
        if now.saturating_sub(self.stood_back.get()) < STAND_BACK_EVERY {
            return true;
        }
        self.stood_back.set(now);
        let deadline = Deadline::of(Timeout::After(STAND_BACK));
        while deadline.is_some_and(|deadline| !deadline.remaining().is_zero()) {
            (0..16).for_each(|_| core::hint::spin_loop());
            if !found() {
                raise(&self.behind, BEHIND);
                return false;
            }
        }
        true
    }

    /// The set to sleep in, watching these; `None` if it cannot.
    fn prepare(&self, wanted: &[Wanted], order: Order, prepared: bool) -> Option<c_int> {
        let _section = Section::enter();
        // SAFETY: as in `has_something`.
        let sleeper = unsafe { &mut *self.sleeper.get() };
        self.accepted.set(-1);
        let process = wakeset::process_id();
        if self.process.get() != process {
            if !fork::may_make_objects() {
                return None;
            }
            self.process.set(process);
            self.place.set(None);
        }
        let known = self.place.get().and_then(listeners::private_set);
        match known {
            Some(set) if prepared && set == sleeper.set() => return Some(set),
            Some(set) => sleeper.renumber(set),
            None => self.renew(sleeper)?,
        }
        // Before it is watched, so that who blocks in accept(2) behind it knows.
        let new = wanted.iter().filter(|wanted| wanted.listener && !sleeper.has_listener(wanted.fd));
        new.for_each(|wanted| listeners::note_in_turn(wanted.fd));
        let mut result = sleeper.prepare(wanted, order, Numbers::Unknown);
        if result == Err(Obstacle::Stale) {
            wanted.iter().filter(|wanted| wanted.listener).for_each(|wanted| listeners::note_in_turn(wanted.fd));
            self.renew(sleeper)?;
            result = sleeper.prepare(wanted, order, Numbers::Unknown);
        }
        if let Err(Obstacle::Refused(_)) = result {
            // What it is, is not what was remembered.
            wanted.iter().for_each(|wanted| listeners::forget(wanted.fd));
        }
        result.ok().map(|()| sleeper.set())
    }

    fn renew(&self, sleeper: &mut Sleeper) -> Option<()> {
        if !fork::may_make_objects() {
            return None;
        }
        let place = self.place.get().or_else(listeners::claim_place)?;
        self.place.set(Some(place));
        listeners::renew_private_set(place, sleeper)
    }

    /// The next wait begins with a new set.
    fn forget_watches(&self) {
        let _section = Section::enter();
        // SAFETY: as in `has_something`.
        let _ = self.renew(unsafe { &mut *self.sleeper.get() });
    }

    fn forget(&self) {
        self.place.set(None);
    }

    /// Gives up the set, so that the program has its number; whether there was one.
    fn give_up_set(&self) -> bool {
        let place = self.place.get().filter(|_| self.process.get() == wakeset::process_id());
        place.is_some_and(listeners::close_private_set)
    }

    fn sort(&self, events: &[epoll_event]) -> Fired {
        let _section = Section::enter();
        // SAFETY: as in `has_something`.
        unsafe { &*self.sleeper.get() }.sort(events)
    }

    /// The program is about to be told of a connection on this listener.
    fn note_report(&self, fd: c_int) {
        let _section = Section::enter();
        self.accepted.set(-1);
        self.reported.set(fd);
        // SAFETY: as in `has_something`.
        unsafe { &mut *self.sleeper.get() }.note_report(fd);
    }
}

core::arch::global_asm!(
    // wakeset_sleep(number, set, events, room, limit, mask, handled, before): epoll_pwait(2) or epoll_pwait2(2), unless a signal
    // was handled since `before`.
    ".pushsection .text.wakeset_sleep,\"ax\",@progbits",
    ".hidden wakeset_sleep",
    ".hidden wakeset_sleep_check",
    ".hidden wakeset_sleep_enter",
    ".hidden wakeset_sleep_interrupted",
    ".type wakeset_sleep,@function",
    "wakeset_sleep:",
    ".cfi_startproc",
    "mov rax, rdi",
    "mov rdi, rsi",
    "mov rsi, rdx",
    "mov rdx, rcx",
    "mov r10, r8",
    "mov r8, r9",
    "mov r9d, 8",
    "mov r11, [rsp + 8]",
    "mov ecx, [rsp + 16]",
    ".globl wakeset_sleep_check",
    "wakeset_sleep_check:",
    "cmp dword ptr [r11], ecx",
    "jne wakeset_sleep_interrupted",
    ".globl wakeset_sleep_enter",
    "wakeset_sleep_enter:",
    "syscall",
    "ret",
    ".globl wakeset_sleep_interrupted",
    "wakeset_sleep_interrupted:",
    "mov rax, -4",
    "ret",
    ".cfi_endproc",
    ".size wakeset_sleep, . - wakeset_sleep",
    ".popsection",
);

unsafe extern "C-unwind" {
    fn wakeset_sleep(
        number: usize,
        set: c_int,
        events: *mut epoll_event,
        room: usize,
        limit: isize,
        mask: *const u64,
        handled: *const u32,
        before: u32,
    ) -> isize;
    static wakeset_sleep_check: u8;
    static wakeset_sleep_enter: u8;
    static wakeset_sleep_interrupted: u8;
}

/// In a signal handler: a thread that was about to sleep in [`wait`] does not.
///
/// # Safety
/// The context is what the kernel passed to the handler.
pub(super) unsafe fn interrupt_sleep(context: *mut c_void) {
    // SAFETY: the caller's contract; and the labels are in our code.
    unsafe {
        let address = &raw mut (*context.cast::<ucontext_t>()).uc_mcontext.gregs[libc::REG_RIP as usize];
        let here = *address as usize;
        if here >= (&raw const wakeset_sleep_check).addr() && here <= (&raw const wakeset_sleep_enter).addr() {
            *address = (&raw const wakeset_sleep_interrupted).addr() as i64;
        }
    }
}

/// One sleep in the private set: for `left` at most.
fn sleep(
    set: c_int,
    events: &mut [epoll_event],
    left: Option<Duration>,
    mask: *const u64,
    handled: *const u32,
    before: u32,
) -> Result<usize, Errno> {
    let call = |number: Sysno, limit: isize| {
        let (place, room) = (events.as_ptr().cast_mut(), events.len());
        // SAFETY: room for that many events, a mask of the caller's that the kernel has just read, and our own count.
        let result = unsafe { wakeset_sleep(number as usize, set, place, room, limit, mask, handled, before) };
        usize::try_from(result).map_err(|_| Errno::new(-result as i32))
    };
    let Some(left) = left else { return call(Sysno::epoll_pwait, -1) };
    let milliseconds = left.as_nanos().div_ceil(1_000_000).min(c_int::MAX as u128) as isize;
    if left.subsec_nanos().is_multiple_of(1_000_000) {
        return call(Sysno::epoll_pwait, milliseconds);
    }
    let limit = timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
    match call(Sysno::epoll_pwait2, (&raw const limit).addr() as isize) {
        // Before Linux 5.11, or where a sandbox does not know it.
        Err(Errno::ENOSYS | Errno::EPERM) => call(Sysno::epoll_pwait, milliseconds),
        result => result,
    }
}

/// After a wait on a set that has reported something.
pub(super) fn note_events() {
    if count::is_on() {
        WAITER.with(|waiter| waiter.reported.set(SOME));
    }
}

/// What a look before accept(2) came to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Looked {
    /// There was no cause for one, or it cannot tell.
    NotAtAll,
    /// There is a connection.
    Some,
    /// accept(2) would say EAGAIN: there is none, and the listener is non-blocking.
    None,
}

/// Looks for a connection, if this thread has cause to.
fn look_first(fd: c_int) -> Looked {
    let found = WAITER.with(|waiter| {
        let is_told = waiter.reported.get() == fd && waiter.overtaken.get() >= OFTEN;
        let is_done = waiter.accepted.get() == fd && waiter.emptied.get() >= SURE;
        if !(is_told || is_done) || listeners::order().is_none() {
            return None;
        }
        let mut is_ready = || listeners::is_ready(fd);
        Some(is_ready() && (waiter.reported.get() == fd || waiter.stand_back(&mut is_ready)))
    });
    match found {
        None => Looked::NotAtAll,
        Some(true) => Looked::Some,
        // The number may have become something else, of which accept(2) says what that is not.
        Some(false) if listeners::is_listener(fd) && super::is_nonblocking(fd) == Some(true) => Looked::None,
        Some(false) => Looked::NotAtAll,
    }
}

/// From here on a thread looks first. A call in vain costs several looks, so each of them makes up for [`IN_VAIN`] that were not.
const SURE: u8 = 2 * IN_VAIN;
const IN_VAIN: u8 = 4;

/// The same for a connection that was reported. What is looked for is rarer, and dearer: the program goes back to its wait as well, and perhaps
/// by way of an exception. So a look pays from one in forty on.
const OFTEN: u8 = 2 * OVERTAKEN;
const OVERTAKEN: u8 = 40;

/// From here on a thread stands back: if more than one connection in 16 that it finds on coming back is another's. It takes longer than a call in vain.
const BEHIND: u8 = 16;

/// Those who come for a connection at the same time are mostly less than this apart. 10 µs leave three quarters of the calls of accept(2) in vain, 20 half of them, 30 a
/// quarter; the longer it is, the more often somebody waits for nobody.
const STAND_BACK: Duration = Duration::from_micros(25);

/// How often a thread may, so that it takes no more than a fortieth of its time: where requests take some ten microseconds, a call in vain is cheaper.
const STAND_BACK_EVERY: Duration = Duration::from_millis(1);

fn raise(count: &Cell<u8>, by: u8) {
    count.set((count.get() + by).min(3 * by));
}

fn lower(count: &Cell<u8>) {
    count.set(count.get().saturating_sub(1));
}

/// A call of accept(2) has found nothing, or would have, although a look had `seen` a connection.
fn note_nothing(fd: c_int, seen: bool) {
    WAITER.with(|waiter| {
        let before = waiter.reported.replace(-1);
        let is_told = before == fd || before == SOME;
        if waiter.came_back.get() && (before == fd || seen) {
            raise(&waiter.behind, BEHIND);
        }
        if is_told {
            listeners::count(fd, ListenerStat::SpuriousWakes);
            raise(&waiter.overtaken, OVERTAKEN);
        } else if waiter.accepted.get() == fd {
            waiter.accepted.set(-1);
            raise(&waiter.emptied, IN_VAIN);
        }
    });
}

/// After a call of accept(2), before which a look may have `seen` a connection: whether it has found something.
fn note_accept(fd: c_int, result: c_int, seen: bool) {
    if result == -1 {
        // SAFETY: this thread's errno.
        if unsafe { *libc::__errno_location() } == libc::EAGAIN {
            note_nothing(fd, seen);
        }
        return;
    }
    listeners::note_connection(result);
    listeners::count(fd, ListenerStat::Connections);
    WAITER.with(|waiter| {
        if waiter.reported.replace(-1) == fd {
            lower(&waiter.overtaken);
        }
        if waiter.accepted.replace(fd) == fd {
            lower(&waiter.emptied);
        }
        if waiter.came_back.replace(true) {
            lower(&waiter.behind);
        }
    });
}

/// A listener that is waited on by accept(2).
struct Accepting {
    fd: c_int,
    found: bool,
}

impl Asked for Accepting {
    fn look(&mut self) -> Result<usize, Errno> {
        self.found = listeners::is_ready(self.fd);
        Ok(usize::from(self.found))
    }

    fn interrupted(&mut self) {}

    fn is_ready(&self, _: c_int) -> bool {
        self.found
    }

    fn outlasts(&self) -> c_int {
        libc::SA_RESTART
    }

    fn tell(&mut self, listeners: &[c_int]) -> Option<Result<usize, Errno>> {
        Some(Ok(listeners.len()))
    }
}

/// Whether accept(2) may block.
fn blocks(fd: c_int) -> bool {
    let version = uffd::flags_version().wrapping_add(listeners::generation());
    if WAITER.with(|waiter| waiter.unblocking.get() == (fd, version)) {
        return false;
    }
    let blocks = super::is_nonblocking(fd) == Some(false);
    if !blocks {
        WAITER.with(|waiter| waiter.unblocking.set((fd, version)));
    }
    blocks
}

/// Whether accept(2) blocks for as long as it takes.
fn has_no_limit(fd: c_int) -> bool {
    let mut limit = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let mut len = size_of_val(&limit) as socklen_t;
    let (level, option) = (libc::SOL_SOCKET, libc::SO_RCVTIMEO);
    // SAFETY: a place for the limit and its length.
    let asked = unsafe { syscall!(Sysno::getsockopt, fd, level, option, &raw mut limit, &raw mut len) };
    asked.is_ok() && limit.tv_sec == 0 && limit.tv_usec == 0
}

/// `call`, an accept(2) on this listener. If it blocks beside others who wait in turn, it is not made before there is something.
#[inline]
fn accept_in_turn(fd: c_int, call: &mut dyn FnMut() -> c_int) -> c_int {
    let sleeps = listeners::any_in_turn() && listeners::is_listener(fd) && blocks(fd) && !listeners::is_ready(fd);
    if sleeps && listeners::is_in_turn(fd) && has_no_limit(fd) {
        return accept_beside_others(fd, call);
    }
    accept_now(call)
}

fn accept_now(call: &mut dyn FnMut() -> c_int) -> c_int {
    let result = call();
    // SAFETY: this thread's errno.
    let full = result == -1 && unsafe { *libc::__errno_location() } == libc::EMFILE;
    // The last number was ours.
    if full && WAITER.with(Waiter::give_up_set) { call() } else { result }
}

#[cold]
fn accept_beside_others(fd: c_int, call: &mut dyn FnMut() -> c_int) -> c_int {
    let mut asked = Accepting { fd, found: false };
    let mut descriptors = Descriptors::none();
    descriptors.add(fd, EPOLLIN as u32, true);
    let ending = ending(asked.outlasts());
    // SAFETY: this thread's own.
    let ended = || unsafe { ending.read_volatile() };
    let before = ended();
    loop {
        let mut may_wait = true;
        if !listeners::is_ready(fd) {
            let outcome = match listeners::order() {
                Some(order) if descriptors.has_listeners() => wait(&descriptors, order, None, NO_MASK, &mut asked),
                _ => Outcome::Unchanged,
            };
            match outcome {
                Outcome::Done(Err(error)) => return fail(error.into_raw()) as c_int,
                Outcome::Done(Ok(_)) => {}
                Outcome::Unchanged | Outcome::Rest(_) => may_wait = false,
            }
        }
        let result = call();
        // SAFETY: this thread's errno.
        let emptied = result == -1 && unsafe { *libc::__errno_location() } == libc::EAGAIN;
        if !(emptied && may_wait) {
            return result;
        }
        // It does not block any more. It did when the call began, and in Linux that is what counts.
        if ended() != before {
            return fail(libc::EINTR) as c_int;
        }
    }
}

/// `call`, an accept(2) on this listener, unless it is known to find nothing.
fn accept_if_any(fd: c_int, call: &mut dyn FnMut() -> c_int) -> c_int {
    let looked = look_first(fd);
    if looked == Looked::None {
        note_nothing(fd, false);
        return fail(libc::EAGAIN) as c_int;
    }
    let seen = looked == Looked::Some;
    // As late as can be after the look.
    let result = if seen { accept_now(call) } else { accept_in_turn(fd, call) };
    note_accept(fd, result, seen);
    result
}

/// accept(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn accept(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
    type Accept = unsafe extern "C-unwind" fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int;
    // SAFETY: the caller's contract.
    accept_if_any(fd, &mut || unsafe { real!(accept: Accept)(fd, address, len) })
}

/// accept4(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn accept4(fd: c_int, address: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int {
    type Accept = unsafe extern "C-unwind" fn(c_int, *mut sockaddr, *mut socklen_t, c_int) -> c_int;
    // SAFETY: the caller's contract.
    let mut call = || unsafe { real!(accept4: Accept)(fd, address, len, flags) };
    if flags & !(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) != 0 {
        return call();
    }
    accept_if_any(fd, &mut call)
}

/// listen(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn listen(fd: c_int, backlog: c_int) -> c_int {
    type Listen = unsafe extern "C" fn(c_int, c_int) -> c_int;
    // SAFETY: the caller's contract.
    let result = unsafe { real!(listen: Listen)(fd, backlog) };
    listeners::forget(fd);
    result
}

/// connect(2). A listener may become a client: connecting it to `AF_UNSPEC` ends its listening.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    type Connect = unsafe extern "C-unwind" fn(c_int, *const sockaddr, socklen_t) -> c_int;
    listeners::forget_listener(fd);
    // SAFETY: the caller's contract.
    unsafe { real!(connect: Connect)(fd, address, len) }
}

/// glibc's other name for connect(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: the same contract.
    unsafe { connect(fd, address, len) }
}

/// Reads the order that `wakeset run` has put into the environment.
pub(crate) fn start() {
    listeners::share_hint();
    // SAFETY: a C string; the environment is only read.
    let value = unsafe { libc::getenv(c"WAKESET_ORDER".as_ptr()) };
    let order = if value.is_null() {
        Some(Order::Fifo)
    } else {
        // SAFETY: getenv returns a C string.
        match unsafe { core::ffi::CStr::from_ptr(value) }.to_bytes() {
            b"lifo" => Some(Order::Lifo),
            b"turns" => Some(Order::Turns),
            b"kernel" => None,
            _ => Some(Order::Fifo),
        }
    };
    listeners::set_order(order);
    // SAFETY: this thread's own.
    listeners::set_handled(|| unsafe { signal::handled().read_volatile() });
}

/// A null mask.
pub(super) const NO_MASK: *const u64 = ptr::null();
