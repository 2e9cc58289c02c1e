//! epoll_ctl(2): in which half a watch belongs, and its change in the in-process one.

use crate::migrate;
use crate::set::kernel_watch::change_kernel_watch;
use crate::set::{FdSet, doorbell, first_listener, home};
use crate::stats::Stat;
use crate::stats::count::count;
use crate::sys::signal_guard::SignalGuard;
use crate::sys::user;
use crate::sys::verdict::Verdict::{self, Done, Kernel};
use crate::sys::{self, Errno};
use crate::table::object::Object;
use crate::table::{self, Entry, SlotHead, Using, away};
use core::ffi::c_int;
use core::ptr;
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, epoll_event};
use wakeset::{Error, Event, Events, Source};

/// epoll_ctl(2) as far as it concerns in-process objects.
///
/// # Safety
/// As epoll_ctl(2): `event` is valid unless the kernel says EFAULT or `op` is `EPOLL_CTL_DEL`.
pub unsafe fn epoll_ctl(
    epfd: c_int,
    op: c_int,
    fd: c_int,
    event: *const epoll_event,
) -> Verdict<()> {
    loop {
        // What it stands for stays that until the watch has been changed.
        let (target, _held) = table::get_held(fd);
        if away::is(epfd) {
            match change_away(epfd, op, fd, event, target) {
                Some(verdict) => return verdict,
                None => continue,
            }
        }
        let set = match find_set(epfd, op, fd, event, target) {
            Ok(set) => set,
            Err(verdict) => return verdict,
        };
        let asked = match op {
            EPOLL_CTL_DEL => Event::default(),
            // SAFETY: any bits are an event.
            _ => match unsafe { user::load(event) } {
                Some(event) => Event::new(Events::from_bits_retain(event.events), event.u64),
                None => return Done(Err(Errno::EFAULT)),
            },
        };
        if op == EPOLL_CTL_ADD && matches!(target, Entry::Kernel) {
            // Before the guard: a baton is not made inside of one.
            first_listener::before_add(fd, asked.events);
        }
        let _guard = SignalGuard::enter();
        let Some(set) = Using::begin(epfd, set) else { continue };
        let inner = target.downcast::<FdSet>();
        let verdict = match target {
            // The same set: EINVAL, as the kernel will say.
            Entry::Object(_) if inner.is_some_and(|inner| ptr::eq(inner, &*set)) => Some(Kernel),
            // A set that is watched as a number is a kernel descriptor to others.
            Entry::Object(object)
                if !inner.is_some_and(|inner| inner.state.is_watched_as_number()) =>
            {
                change_watch(&set, op, fd, object, inner, asked)
            }
            Entry::Object(_) | Entry::Kernel | Entry::Doorbell => {
                change_kernel_watch(&set, op, fd, event, asked)
            }
        };
        if let Some(verdict) = verdict {
            return verdict;
        }
    }
}

/// epoll_ctl(2) of a set that is away. `None`: look the numbers up again.
#[cold]
fn change_away(
    epfd: c_int,
    op: c_int,
    fd: c_int,
    event: *const epoll_event,
    target: Entry,
) -> Option<Verdict<()>> {
    if away::kind(epfd) != Some(table::SET) || !matches!(target, Entry::Kernel) {
        // It is no set, or is to watch what lives here, which it cannot.
        let _ = away::doubt(epfd);
        return None;
    }
    home::change(epfd, || sys::epoll_ctl(epfd, op, fd, event))
}

/// The set that `epfd` stands for. `Err`: the verdict without one.
#[inline]
fn find_set(
    epfd: c_int,
    op: c_int,
    fd: c_int,
    event: *const epoll_event,
    target: Entry,
) -> Result<&'static FdSet, Verdict<()>> {
    match table::get(epfd) {
        // Closed, to the program; the kernel knows what comes before EBADF.
        _ if matches!(target, Entry::Doorbell) => Err(Done(sys::epoll_ctl(epfd, op, -1, event))),
        Entry::Doorbell => Err(Done(sys::epoll_ctl(-1, op, fd, event))),
        Entry::Object(object) => object.downcast().ok_or(Kernel),
        Entry::Kernel => {
            // A kernel epoll can only watch what the kernel knows.
            if op == EPOLL_CTL_ADD && target.is_object() {
                migrate::fd(fd, Stat::MigratedNestedKernel);
            }
            Err(Kernel)
        }
    }
}

/// epoll_ctl(2) on an in-process object, which is the set `inner` if it is one. `None`: something
/// has migrated, look again.
fn change_watch(
    set: &FdSet,
    op: c_int,
    fd: c_int,
    object: &'static SlotHead,
    inner: Option<&FdSet>,
    asked: Event,
) -> Option<Verdict<()>> {
    let adds = op == EPOLL_CTL_ADD;
    let object = object.object();
    if asked.events.contains(Events::EXCLUSIVE) {
        object.note_exclusive();
    }
    let source: &'static dyn Source = object;
    // A set goes into a set only while both have no kernel half, and gets none meanwhile.
    let nesting = (adds && inner.is_some()).then(migrate::hold_migrations);
    if nesting.is_some() && !inner.is_some_and(|inner| inner.state.is_pure()) {
        drop(nesting);
        migrate::fd(fd, Stat::MigratedNestedKernel);
        return None;
    }
    if set.state.is_in_kernel() {
        // The set is on its way into the kernel.
        drop(nesting);
        migrate::wait_for_migrations();
        return None;
    }
    let address = ptr::from_ref(source).cast::<()>();
    let result = match op {
        EPOLL_CTL_ADD => {
            match install_for_add(set, nesting.is_some()) {
                Ok(true) => {}
                Ok(false) => {
                    drop(nesting);
                    migrate::fd(fd, Stat::MigratedLimit);
                    return None;
                }
                // There are no watches left, or no memory for one.
                Err(error) => return Some(Done(Err(error))),
            }
            // SAFETY: slots are never freed, and their queues are closed when the object ends.
            unsafe { set.set.add_source(fd, source, asked) }
        }
        EPOLL_CTL_MOD => set.set.modify_source(fd, address, asked),
        EPOLL_CTL_DEL => set.set.remove_source(fd, address),
        _ => Err(Error::Invalid),
    };
    drop(nesting);
    conclude(set, adds, fd, object, result)
}

/// Before a source is added: a thread may sleep in the kernel half only, and from now on we may
/// have to wake it. `false` if there is no descriptor left for a doorbell.
fn install_for_add(set: &FdSet, holds_migrations: bool) -> Result<bool, Errno> {
    match set.state.has_kernel() {
        false => Ok(true),
        true if holds_migrations => doorbell::install_held(set),
        true => doorbell::install(set),
    }
}

/// What the result of a change in the in-process half means. `None`: look again.
fn conclude(
    set: &FdSet,
    adds: bool,
    fd: c_int,
    object: &'static dyn Object,
    result: Result<(), Error>,
) -> Option<Verdict<()>> {
    match result {
        Ok(()) => {
            if adds && let Err(error) = settle_add(set, fd, object) {
                return Some(Done(Err(error)));
            }
            count(Stat::SyscallsAvoided, 1);
            return Some(Done(Ok(())));
        }
        // The source refuses watches: it is migrating, or the number has just been closed.
        Err(Error::Closed) => migrate::wait_for_migrations(),
        // Not here: it has just migrated, or is about to. Not in a loop: the migrating thread may
        // need this processor.
        Err(Error::NotWatched) if has_left(fd, object) => migrate::wait_for_migrations(),
        // No memory of ours for it: the kernel may have some.
        Err(Error::NoMemory) => drop(migrate::fd(fd, Stat::MigratedLimit)),
        Err(error) => return Some(Done(Err(Errno::new(error.errno())))),
    }
    None
}

/// After an add of `object` to the in-process half: the set may have got a kernel half, or gone
/// there, while we were at it.
pub(crate) fn settle_add(set: &FdSet, fd: c_int, object: &'static dyn Object) -> Result<(), Errno> {
    // Not by the number, which may be closed meanwhile: the object, and with it the watch, goes on
    // under another.
    let head = object.head();
    if set.state.is_in_kernel() {
        // Perhaps without this watch: its source follows.
        migrate::object(head, Stat::MigratedNestedKernel);
    } else if object.is_overcrowded() {
        migrate::object(head, Stat::MigratedOddArgument);
    } else if set.state.has_kernel() {
        match doorbell::install(set) {
            Ok(true) => {}
            Ok(false) => migrate::object(head, Stat::MigratedLimit),
            Err(error) => {
                let _ = set.set.remove_source(fd, ptr::from_ref(object).cast());
                return Err(error);
            }
        }
    }
    Ok(())
}

/// Whether `source` is the object in this slot.
fn is_object(head: &SlotHead, source: &dyn Source) -> bool {
    ptr::addr_eq(head, source)
}

/// Whether `fd` no longer stands for `source`.
pub(crate) fn has_left(fd: c_int, source: &dyn Source) -> bool {
    match table::get(fd) {
        Entry::Object(head) if is_object(head, source) => match head.downcast::<FdSet>() {
            Some(set) if set.state.is_fixed() => {
                // It stays what it is, but its watches may be on their way.
                migrate::wait_for_migrations();
                set.state.is_watched_as_number()
            }
            _ => head.object().has_left(),
        },
        Entry::Object(_) | Entry::Kernel | Entry::Doorbell => true,
    }
}
