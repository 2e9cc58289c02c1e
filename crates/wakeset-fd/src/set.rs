//! Epoll sets by descriptor number: in-process watches in an engine set, kernel watches in the set's own kernel epoll.

use crate::bell;
use crate::count::count;
use crate::engine;
use crate::escape;
use crate::listeners;
use crate::polls::{self, Polls};
use crate::section::Section;
use crate::stats::Stat;
use crate::sys::{self, Errno, SIGSET_BYTES};
use crate::table::{self, Entry, Slot, SlotHead, Using};
use crate::turns::{self, Turns};
use crate::user;
use crate::verdict::Verdict::{self, Done, Kernel};
use crate::wait::Wait;
pub use crate::wait::{Limit, Mask, STARVATION_BOUND};
use core::cell::Cell;
use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering};
use core::time::Duration;
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, epoll_event, timespec};
use wakeset::{Error, Event, EventPoll, Events, SetCore, Source, Timeout, WaitQueue};

/// An epoll set. Its number belongs to a real kernel epoll, which is its kernel half.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct FdSet {
    head: SlotHead,
    pub(crate) set: EventPoll,
    /// Everything is, or is about to be, in the kernel half.
    pub(crate) in_kernel: AtomicBool,
    /// The number has been closed; a wait that is still in here, or a move, must not use it.
    pub(crate) closed: AtomicBool,
    /// The kernel half has, or had, a watch of the program's.
    pub(crate) has_kernel: AtomicBool,
    /// The kernel half may hold an edge or a one-shot report that no wait has returned yet.
    pub(crate) kernel_edges: AtomicBool,
    /// An edge-triggered or one-shot watch has just moved to the kernel half; for the mover.
    pub(crate) moved_edges: AtomicBool,
    /// Counts the watches that have moved to the kernel half.
    pub(crate) moved_watches: AtomicU32,
    /// Odd while a set in this one, or further in, is on its way to the kernel: what happens there is not heard of here.
    pub(crate) unsettled: AtomicU32,
    /// The next of the sets that are, and whether this is one of them; the mover's.
    pub(crate) next_unsettled: AtomicUsize,
    /// The next of the sets whose kernel half a move has changed, and whether this is one of them; the mover's.
    pub(crate) next_touched: AtomicUsize,
    /// The doorbell in the kernel half, below 0 for none.
    pub(crate) bell: AtomicI32,
    /// The listeners in the kernel half.
    pub(crate) turns: Turns,
    /// What an io_uring watches in its place.
    pub(crate) polls: Polls,
    /// The kernel half has no watch of the program's, only the io_uring has.
    pub(crate) only_polls: AtomicBool,
    /// Counts the waits that had both halves to look at.
    pub(crate) turn: AtomicU32,
    /// The number tells whoever polls it of both halves; see [`hand_out`].
    pub(crate) handed_out: AtomicBool,
    /// It has, or had, a source that the kernel cannot take over ([`own`](crate::own)), and never moves. Changed with the moves lock held.
    pub(crate) fixed: AtomicBool,
}

// SAFETY: `repr(C)` with the head first.
unsafe impl Slot for FdSet {
    const KIND: usize = table::KIND_SET;

    fn head(&self) -> &SlotHead {
        &self.head
    }

    fn allocate(head: SlotHead) -> Option<&'static Self> {
        let set = EventPoll::new(engine::get()?).ok()?;
        let slot = crate::memory::leak(Self {
            head,
            set,
            in_kernel: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            has_kernel: AtomicBool::new(false),
            kernel_edges: AtomicBool::new(false),
            moved_edges: AtomicBool::new(false),
            moved_watches: AtomicU32::new(0),
            unsettled: AtomicU32::new(0),
            next_unsettled: AtomicUsize::new(0),
            next_touched: AtomicUsize::new(0),
            bell: AtomicI32::new(-1),
            turns: Turns::new(),
            polls: Polls::new(),
            only_polls: AtomicBool::new(false),
            turn: AtomicU32::new(0),
            handed_out: AtomicBool::new(false),
            fixed: AtomicBool::new(false),
        })?;
        slot.set.set_owner(ptr::from_ref(slot).addr());
        Some(slot)
    }

    fn lose_number(&self) {
        self.closed.store(true, Ordering::SeqCst);
        // Now, and not when the last thread in here has left: whoever moves a set around this one waits until nothing is left in it.
        self.set.wait_queue().close();
        // Whoever moves a watch of this set to the number does it under the scan lock, and looks at the mark first.
        self.set.between_scans(|| {});
        polls::forget(self);
        bell::remove(self);
    }

    fn finalize(&self) {
        self.set.close();
        if self.handed_out.swap(false, Ordering::SeqCst) {
            self.set.leave_elsewhere();
        }
    }
}

impl FdSet {
    pub(crate) fn fd(&self) -> c_int {
        self.head.fd()
    }

    /// The set an engine set's owner word names.
    pub(crate) fn of_owner(owner: usize) -> &'static Self {
        // SAFETY: only `allocate` sets owners, to slots, which are never freed.
        unsafe { &*(owner as *const Self) }
    }

    /// Notes that the kernel half has something to say from now on, and sends sleeping waiters there.
    pub(crate) fn note_kernel_watch(&self) {
        self.only_polls.store(false, Ordering::SeqCst);
        if !self.has_kernel.swap(true, Ordering::SeqCst) {
            self.set.kick_all();
        }
    }

    pub(crate) fn is_fixed(&self) -> bool {
        self.fixed.load(Ordering::SeqCst)
    }

    /// Whether other sets watch it by what the kernel says of its number.
    fn is_watched_as_number(&self) -> bool {
        self.handed_out.load(Ordering::SeqCst) && self.is_fixed()
    }

    /// Whether a wait may sleep here and hears of everything.
    pub(crate) fn is_pure(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
            || !self.has_kernel.load(Ordering::SeqCst) && !self.in_kernel.load(Ordering::SeqCst)
    }
}

impl Source for FdSet {
    fn poll(&self) -> Events {
        let mut events = self.set.poll();
        if events.is_empty() && !self.is_pure() {
            // About to be moved into the kernel half of the set around it: until then that one sees both halves.
            let now = sys::poll_now(self.fd(), libc::POLLIN | libc::POLLRDNORM);
            events = Events::from_bits_retain(u32::from(now as u16));
        }
        events
    }

    fn wait_queue(&self) -> &WaitQueue {
        self.set.wait_queue()
    }

    fn as_set(&self) -> Option<&SetCore> {
        Some(self.set.as_core())
    }
}

/// epoll_create1(2).
///
/// # Errors
/// As epoll_create1(2): EINVAL, EMFILE, ENFILE, ENOMEM.
pub fn epoll_create1(flags: c_int) -> Result<c_int, Errno> {
    let may_be_ours = crate::fork::may_make_objects();
    let gate = escape::look_at_gate();
    let fd = sys::epoll_create1(flags)?;
    if !may_be_ours || !gate.is_open || !table::has_room(fd) {
        return Ok(fd);
    }
    let _section = Section::enter();
    if begin(fd, false) {
        count(Stat::SetsMade, 1);
        escape::recheck_gate(fd, gate);
    }
    Ok(fd)
}

/// Puts a set into the table under the number of a kernel epoll, which holds watches of the program's or does not; `false`: there is no memory.
fn begin(fd: c_int, holds_watches: bool) -> bool {
    let Some(slot) = table::slot_for::<FdSet>(fd) else { return false };
    slot.set.reopen();
    // SAFETY: nobody uses the slot.
    unsafe { slot.set.end_ring() };
    slot.in_kernel.store(false, Ordering::SeqCst);
    slot.closed.store(false, Ordering::SeqCst);
    slot.has_kernel.store(holds_watches, Ordering::SeqCst);
    slot.kernel_edges.store(holds_watches, Ordering::SeqCst);
    slot.turns.clear();
    polls::begin_without(slot);
    slot.only_polls.store(false, Ordering::SeqCst);
    slot.turn.store(0, Ordering::Relaxed);
    slot.fixed.store(false, Ordering::SeqCst);
    bell::begin_without(slot);
    table::put_set(fd, slot);
    true
}

/// Takes an epoll of the kernel's for a set that is to have a source of the program's own. Waits may be asleep in it, and sets may watch its number: it is
/// handed out. The caller holds the moves lock, and sees for himself whether there is a bell.
///
/// # Errors
/// EBADF, EINVAL: it is no epoll. ENOMEM.
pub(crate) fn adopt_held(fd: c_int) -> Result<(), Errno> {
    check_epoll(fd)?;
    if !table::has_room(fd) || !escape::gate_is_open() || !begin(fd, true) {
        return Err(Errno::ENOMEM);
    }
    if let Entry::Set(set) = table::get(fd) {
        set.fixed.store(true, Ordering::SeqCst);
        let _ = hand_out_held(set);
    }
    count(Stat::SetsMade, 1);
    Ok(())
}

/// Whether the kernel has an epoll under this number.
///
/// # Errors
/// EBADF, EINVAL.
pub(crate) fn check_epoll(fd: c_int) -> Result<(), Errno> {
    sys::fcntl(fd, libc::F_GETFD, 0)?;
    // Something that can be watched and is not: then an epoll says ENOENT.
    let other = sys::eventfd(0, libc::EFD_CLOEXEC)?;
    let said = sys::epoll_ctl(fd, EPOLL_CTL_DEL, other, ptr::null());
    let _ = sys::close(other);
    match said {
        Err(Errno::ENOENT) | Ok(()) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Makes the number of a set one that any loop can poll, also one that knows nothing of us: poll(2), select(2), another epoll, edge-triggered or not.
/// From now on it is readable when a wait would find something, in either half, until one has found nothing; it may be readable once more
/// than that. Each event costs a write(2) to the bell. All timers of the process are the kernel's from now on: nobody minds the time here.
///
/// # Errors
/// EBADF, EINVAL: it is no epoll. EMFILE, ENFILE, ENOMEM, ENOSPC: no bell can be had.
pub fn hand_out(epfd: c_int) -> Result<(), Errno> {
    loop {
        let set = match table::get(epfd) {
            Entry::Set(set) => set,
            Entry::Bell => return Err(Errno::EBADF),
            // An epoll of the kernel's says what there is to say.
            Entry::Kernel | Entry::Counter(_) | Entry::Timer(_) | Entry::Pipe(_) => return check_epoll(epfd),
        };
        let _section = Section::enter();
        let Some(set) = Using::begin(epfd, set) else { continue };
        let moving = escape::hold_moves();
        if set.in_kernel.load(Ordering::SeqCst) {
            drop(moving);
            continue;
        }
        if set.set.wait_queue().has_watches() {
            // A set around it knows its in-process half only: both go into the kernel, or that watch does.
            escape::fd_held(epfd, Stat::MovedNestedKernel);
            return Ok(());
        }
        return hand_out_held(&set);
    }
}

/// [`hand_out`] for a caller that holds the moves lock, of a set that no other watches. On an error nothing is said of the in-process half until there is a
/// bell.
pub(crate) fn hand_out_held(set: &FdSet) -> Result<(), Errno> {
    crate::timer::leave_to_kernel_held();
    polls::give_up_held(set);
    let bell = bell::install_held(set);
    if bell != Ok(true) && !set.is_fixed() {
        return Err(bell.err().unwrap_or(Errno::EMFILE));
    }
    if !set.handed_out.swap(true, Ordering::SeqCst) {
        // Somebody may always be asleep in it.
        set.set.enter_elsewhere();
    }
    set.note_kernel_watch();
    if set.set.may_be_ready() {
        set.set.kick();
    }
    bell.and_then(|had| if had { Ok(()) } else { Err(Errno::EMFILE) })
}

fn errno(error: Error) -> Errno {
    Errno::new(error.errno())
}

/// epoll_ctl(2) as far as it concerns in-process objects.
///
/// # Safety
/// As epoll_ctl(2): `event` is valid unless the kernel says EFAULT or `op` is `EPOLL_CTL_DEL`.
pub unsafe fn epoll_ctl(epfd: c_int, op: c_int, fd: c_int, event: *const epoll_event) -> Verdict<()> {
    let adds = op == EPOLL_CTL_ADD;
    loop {
        let target = table::get(fd);
        let set = match table::get(epfd) {
            // Closed, to the program; the kernel knows what comes before EBADF.
            _ if matches!(target, Entry::Bell) => return Done(sys::epoll_ctl(epfd, op, -1, event)),
            Entry::Bell => return Done(sys::epoll_ctl(-1, op, fd, event)),
            Entry::Set(set) => set,
            Entry::Kernel => {
                // A kernel epoll can only watch what the kernel knows.
                if adds && target.is_object() {
                    escape::fd(fd, Stat::MovedNestedKernel);
                }
                return Kernel;
            }
            Entry::Counter(_) | Entry::Timer(_) | Entry::Pipe(_) => return Kernel,
        };
        let asked = match op {
            EPOLL_CTL_DEL => Event::default(),
            // SAFETY: any bits are an event.
            _ => match unsafe { user::load(event) } {
                Some(event) => Event::new(Events::from_bits_retain(event.events), event.u64),
                None => return Done(Err(Errno::EFAULT)),
            },
        };
        let _section = Section::enter();
        let Some(set) = Using::begin(epfd, set) else { continue };
        let source: &'static dyn Source = match target {
            Entry::Counter(counter) => counter,
            Entry::Timer(timer) => {
                timer.before_add(asked.events);
                timer
            }
            Entry::Pipe(end) => end,
            // The same set: EINVAL, as the kernel will say.
            Entry::Set(inner) if ptr::eq(inner, &*set) => return Kernel,
            Entry::Set(inner) if !inner.is_watched_as_number() => inner,
            Entry::Set(_) | Entry::Kernel | Entry::Bell => {
                return match add_kernel_watch(&set, op, fd, event, asked) {
                    Some(verdict) => verdict,
                    None => continue,
                };
            }
        };
        // A set goes into a set only while both have no kernel half, and gets none meanwhile.
        let nesting = (adds && source.as_set().is_some()).then(escape::hold_moves);
        if nesting.is_some() && !matches!(target, Entry::Set(inner) if inner.is_pure()) {
            drop(nesting);
            escape::fd(fd, Stat::MovedNestedKernel);
            continue;
        }
        if set.in_kernel.load(Ordering::SeqCst) {
            // The set is on its way into the kernel.
            drop(nesting);
            escape::wait_for_moves();
            continue;
        }
        let address = ptr::from_ref(source).cast::<()>();
        let result = match op {
            EPOLL_CTL_ADD => {
                // Somebody may sleep in the kernel half only; from now on we may have to wake him.
                let bell = match set.has_kernel.load(Ordering::SeqCst) {
                    false => Ok(true),
                    true if nesting.is_some() => bell::install_held(&set),
                    true => bell::install(&set),
                };
                match bell {
                    Ok(true) => {}
                    Ok(false) => {
                        drop(nesting);
                        escape::fd(fd, Stat::MovedLimit);
                        continue;
                    }
                    // There are no watches left, or no memory for one.
                    Err(error) => return Done(Err(error)),
                }
                // SAFETY: slots are never freed, and their queues are closed when the object ends.
                unsafe { set.set.add_source(fd, source, asked) }
            }
            EPOLL_CTL_MOD => set.set.modify_source(fd, address, asked),
            EPOLL_CTL_DEL => set.set.remove_source(fd, address),
            _ => Err(Error::Invalid),
        };
        drop(nesting);
        match result {
            Ok(()) => {
                if adds && let Err(error) = settle_add(&set, fd, source) {
                    return Done(Err(error));
                }
                count(Stat::SyscallsAvoided, 1);
                return Done(Ok(()));
            }
            // The source refuses watches: it is moving into the kernel, or the number has just been closed.
            Err(Error::Closed) => escape::wait_for_moves(),
            // Not here: it has just moved, or is moving. Not in a loop: who moves it may need this processor.
            Err(Error::NotWatched) if has_moved(fd, source) => escape::wait_for_moves(),
            // No memory of ours for it: the kernel may have some.
            Err(Error::NoMemory) => drop(escape::fd(fd, Stat::MovedLimit)),
            Err(error) => return Done(Err(errno(error))),
        }
    }
}

/// Behind an add of `source` to the in-process half: the set may have got a kernel half, or gone there, while we were at it.
pub(crate) fn settle_add(set: &FdSet, fd: c_int, source: &dyn Source) -> Result<(), Errno> {
    if set.in_kernel.load(Ordering::SeqCst) {
        // Perhaps without this watch: its source follows.
        escape::fd(fd, Stat::MovedNestedKernel);
    } else if matches!(table::get(fd), Entry::Timer(timer) if ptr::addr_eq(timer, source) && timer.is_herded()) {
        escape::fd(fd, Stat::MovedOddArgument);
    } else if set.has_kernel.load(Ordering::SeqCst) {
        match bell::install(set) {
            Ok(true) => {}
            Ok(false) => drop(escape::fd(fd, Stat::MovedLimit)),
            Err(error) => {
                let _ = set.set.remove_source(fd, ptr::from_ref(source).cast());
                return Err(error);
            }
        }
    }
    Ok(())
}

/// Whether `fd` no longer stands for `source`.
pub(crate) fn has_moved(fd: c_int, source: &dyn Source) -> bool {
    match table::get(fd) {
        Entry::Counter(counter) => !ptr::addr_eq(counter, source) || counter.counter.value().is_none(),
        Entry::Set(set) if ptr::addr_eq(set, source) && set.is_fixed() => {
            // It stays what it is, but its watches may be on their way.
            escape::wait_for_moves();
            set.is_watched_as_number()
        }
        Entry::Timer(timer) => !ptr::addr_eq(timer, source) || timer.is_moving(),
        Entry::Pipe(end) => !ptr::addr_eq(end, source) || end.has_left(),
        Entry::Set(set) => !ptr::addr_eq(set, source) || set.in_kernel.load(Ordering::SeqCst),
        Entry::Kernel | Entry::Bell => true,
    }
}

/// epoll_ctl on a descriptor of the kernel's. `None`: the set has moved, look again.
fn add_kernel_watch(set: &FdSet, op: c_int, fd: c_int, event: *const epoll_event, asked: Event) -> Option<Verdict<()>> {
    if let Some(result) = polls::epoll_ctl(set, op, fd, asked) {
        return Some(Done(result));
    }
    if op == EPOLL_CTL_ADD {
        set.only_polls.store(false, Ordering::SeqCst);
    }
    if asked.events.intersects(Events::ET | Events::ONESHOT) && !set.kernel_edges.load(Ordering::SeqCst) {
        // Not while a move is taking reports out of the kernel half.
        let _moving = escape::hold_moves();
        set.kernel_edges.store(true, Ordering::SeqCst);
    }
    if op != EPOLL_CTL_ADD || set.has_kernel.load(Ordering::SeqCst) {
        let result = turns::epoll_ctl(set, op, fd, event, asked);
        if result.is_ok() {
            note_known_watch(set);
            if set.polls.are_active() && !polls::are_for_me(set) {
                // The set has got polls while we were at it, and takes them for all it watches.
                polls::give_up(set);
            }
        }
        return Some(Done(result));
    }
    // The first kernel watch. A set around this one knows only its in-process half, so it must learn of the other
    // from the kernel; and no set may be put around it meanwhile.
    let _moving = escape::hold_moves();
    // Whether the kernel would take it, for what is not to be done for nothing.
    let ask = || {
        let asked = sys::epoll_ctl(set.fd(), op, fd, event);
        if asked.is_ok() {
            let _ = sys::epoll_ctl(set.fd(), EPOLL_CTL_DEL, fd, ptr::null());
        }
        asked
    };
    if set.set.wait_queue().has_watches() {
        if matches!(table::get(fd), Entry::Bell) {
            return None;
        }
        if let Err(error) = ask() {
            return Some(Done(Err(error)));
        }
        drop(_moving);
        escape::fd(set.fd(), Stat::MovedNestedKernel);
        return None;
    }
    if !set.set.is_empty() {
        match bell::install_held(set) {
            Ok(true) => {}
            // It cannot move: its waits look again and again.
            Ok(false) if set.is_fixed() => {}
            Ok(false) => {
                drop(_moving);
                escape::fd(set.fd(), Stat::MovedLimit);
                return None;
            }
            // What the program asks for is refused as well, if it has no other error.
            Err(refused) => {
                return Some(Done(ask().and(Err(refused))));
            }
        }
    }
    if matches!(table::get(fd), Entry::Bell) {
        // The number was closed, and the bell has just got it.
        return None;
    }
    let result = turns::epoll_ctl(set, op, fd, event, asked);
    if result.is_ok() {
        set.note_kernel_watch();
    }
    drop(_moving);
    if result == Err(Errno::EEXIST) {
        note_known_watch(set);
    }
    Some(Done(result))
}

/// The kernel has shown that its half has a watch. If we know of none, another thread has added it by the number alone, while the set was being made: nothing
/// was prepared for a kernel half then, so the kernel gets the set.
fn note_known_watch(set: &FdSet) {
    if set.has_kernel.load(Ordering::SeqCst) {
        return;
    }
    let _moving = escape::hold_moves();
    // Nor is it one whose add has not quite come back.
    if set.has_kernel.load(Ordering::SeqCst) {
        return;
    }
    match set.is_fixed() {
        true => set.note_kernel_watch(),
        false => escape::fd_held(set.fd(), Stat::MovedUnmodelled),
    }
}

/// epoll_wait(2), epoll_pwait(2), epoll_pwait2(2) as far as they concern in-process objects.
///
/// # Safety
/// As those: `events` has room for `room` events, `limit` and `mask` are valid.
pub unsafe fn epoll_wait(
    epfd: c_int,
    events: *mut epoll_event,
    room: c_int,
    limit: Limit,
    mask: Mask,
) -> Verdict<c_int> {
    // SAFETY: the caller's contract.
    unsafe { epoll_wait_into(None, epfd, events, room, limit, mask) }
}

/// [`epoll_wait`] with what is reported from the in-process half in a hand, which is of the set that `epfd` stands for.
///
/// # Safety
/// As [`epoll_wait`].
pub(crate) unsafe fn epoll_wait_into(
    hand: Option<&wakeset::Hand<'static>>,
    epfd: c_int,
    events: *mut epoll_event,
    room: c_int,
    limit: Limit,
    mask: Mask,
) -> Verdict<c_int> {
    loop {
        let set = match table::get(epfd) {
            Entry::Set(set) => set,
            // SAFETY: the caller's contract.
            Entry::Bell => return Done(unsafe { wait_on_closed(events, room, limit, mask) }),
            Entry::Kernel | Entry::Counter(_) | Entry::Timer(_) | Entry::Pipe(_) => return Kernel,
        };
        let most_events = c_int::MAX / size_of::<epoll_event>() as c_int;
        // SAFETY: any bits are a mask.
        let bad_mask = || mask.bytes != SIGSET_BYTES || unsafe { user::load_u64(mask.set.cast()) }.is_none();
        if room <= 0 || room > most_events || (!mask.set.is_null() && bad_mask()) {
            // EINVAL or EFAULT; the kernel half will know.
            return Kernel;
        }
        let timeout = match limit {
            Limit::Milliseconds(milliseconds) => Timeout::from_millis(milliseconds),
            Limit::Timespec(limit) if limit.is_null() => Timeout::Never,
            Limit::Timespec(limit) => {
                // SAFETY: any bits are a timespec.
                let Some(timespec { tv_sec, tv_nsec }) = (unsafe { user::load(limit) }) else { return Kernel };
                match (u64::try_from(tv_sec), u32::try_from(tv_nsec)) {
                    (Ok(seconds), Ok(nanos @ 0..=999_999_999)) => Timeout::from(Some(Duration::new(seconds, nanos))),
                    // EINVAL.
                    _ => return Kernel,
                }
            }
        };
        if !sys::is_user(events, room as usize * size_of::<epoll_event>()) {
            // EFAULT, before anything is looked at, unless the machine has more user memory than most.
            escape::fd(epfd, Stat::MovedOddArgument);
            return Kernel;
        }
        let Some(set) = Using::begin(epfd, set) else { continue };
        count(Stat::Waits, 1);
        let wait = Wait {
            set: &set,
            hand,
            events,
            room,
            limit,
            timeout,
            mask,
            handled: set.turns.any().then(listeners::handled),
            faulted: Cell::new(false),
            rung: Cell::new(false),
        };
        let result = wait.run();
        set.set.mind_deadline();
        if wait.rung.get() && set.set.may_be_ready() {
            // What it was rung for is still there: pass it on.
            set.set.kick();
        }
        let result = match result {
            Ok(0) if wait.faulted.get() => Err(Errno::EFAULT),
            result => result,
        };
        if let Ok(n) = result {
            count(Stat::Events, n as usize);
        }
        return Done(result);
    }
}

/// What the kernel says to a wait on a closed number: EBADF, unless something else is wrong that it sees first.
///
/// # Safety
/// As [`epoll_wait`].
unsafe fn wait_on_closed(events: *mut epoll_event, room: c_int, limit: Limit, mask: Mask) -> Result<c_int, Errno> {
    match limit {
        Limit::Milliseconds(milliseconds) => sys::epoll_pwait(-1, events, room, milliseconds, mask.set, mask.bytes),
        Limit::Timespec(limit) if limit.is_null() => sys::epoll_pwait2(-1, events, room, None, mask.set, mask.bytes),
        // SAFETY: any bits are a timespec.
        Limit::Timespec(limit) => match unsafe { user::load(limit) } {
            Some(limit) => sys::epoll_pwait2(-1, events, room, Some(&limit), mask.set, mask.bytes),
            None => Err(Errno::EFAULT),
        },
    }
}

/// A wait of the kernel's, after [`epoll_wait`] gave [`Kernel`]: repeats `call` while it reports nothing but what the program does not
/// know of. `call` returns the number of events, or -1.
///
/// # Safety
/// `call` writes as many events to `events` as it returns.
pub unsafe fn in_kernel(epfd: c_int, events: *mut epoll_event, mut call: impl FnMut() -> c_int) -> c_int {
    loop {
        let found = call();
        if found <= 0 {
            return found;
        }
        // SAFETY: the caller's contract.
        let kept = unsafe { bell::strike(epfd, events, found) };
        if kept > 0 {
            return kept;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another thread may use the number before the set is under it. What the kernel then knows and we do not was never reported.
    #[test]
    fn a_watch_from_before_the_set_is_found_by_the_next_call_that_meets_it() {
        let ready = sys::eventfd(1, 0).unwrap();
        let event = |data| epoll_event { events: libc::EPOLLIN as u32, u64: data };
        for (op, says, reports) in
            [(EPOLL_CTL_ADD, Err(Errno::EEXIST), 1), (EPOLL_CTL_MOD, Ok(()), 2), (EPOLL_CTL_DEL, Ok(()), 0)]
        {
            let fd = sys::epoll_create1(0).unwrap();
            sys::epoll_ctl(fd, EPOLL_CTL_ADD, ready, &event(1)).unwrap();
            assert!(begin(fd, false));
            // SAFETY: a valid event.
            assert_eq!(unsafe { crate::epoll_ctl(fd, op, ready, &event(2)) }, says);
            let mut found = [event(0); 2];
            // SAFETY: room for two.
            let n = unsafe { crate::epoll_wait(fd, found.as_mut_ptr(), 2, 0) }.unwrap();
            assert_eq!((n, { found[0].u64 }), (c_int::from(reports > 0), reports));
            crate::close(fd).unwrap();
        }
        crate::close(ready).unwrap();
    }
}
