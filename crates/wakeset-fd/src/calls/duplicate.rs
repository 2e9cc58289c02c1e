//! dup(2) and its kin: a further number for an in-process object, which stays where it is.
//!
//! The kernel object gets the number first, or, where the program chooses it, at once after the
//! table has it: a thread that uses a number while dup2(2) replaces what is under it finds the old
//! object or the new one, and not the new one's empty kernel object.
//!
//! What cannot have several numbers here migrates, and the kernel duplicates it: what dup2(2) puts
//! over an open file of the kernel's, which a call on its way may still use, pipes and socket
//! pairs, sets with an io_uring of polls or an exported number, and any object for which no hidden
//! number is left. A fixed set has one number (EBUSY).

use crate::calls::descriptor::{forget, is_fixed_set, is_hidden_now};
use crate::calls::interpose::fail;
use crate::migrate;
use crate::set::{FdSet, doorbell};
use crate::stats::Stat;
use crate::stats::count::count;
use crate::sys::births::Taking;
use crate::sys::process::is_foreign;
use crate::sys::signal_guard::SignalGuard;
use crate::sys::steps::step;
use crate::sys::verdict::Verdict::{self, Done, Kernel};
use crate::sys::{self, Errno};
use crate::sys::{forked, vforked};
use crate::table::duplicates::{self, Loss};
use crate::table::inherited;
use crate::table::late;
use crate::table::lifecycle;
use crate::table::migrating::Migrating;
use crate::table::{self, Entry, SlotHead, slot};
use core::ffi::{CStr, c_int};

/// dup(2) of an in-process object. Of others it is the kernel's.
pub fn dup(fd: c_int) -> Verdict<c_int> {
    duplicate(fd, c"dup", || sys::dup(fd))
}

/// fcntl(2) with `F_DUPFD`, or with `F_DUPFD_CLOEXEC`, of an in-process object.
pub fn dup_above(fd: c_int, least: usize, closes_on_exec: bool) -> Verdict<c_int> {
    let command = if closes_on_exec { libc::F_DUPFD_CLOEXEC } else { libc::F_DUPFD };
    duplicate(fd, c"fcntl", || sys::fcntl(fd, command, least))
}

/// A further number that the kernel chooses in `call`.
fn duplicate(
    fd: c_int,
    name: &'static CStr,
    call: impl Fn() -> Result<c_int, Errno>,
) -> Verdict<c_int> {
    match table::get(fd) {
        Entry::Doorbell => return Done(Err(Errno::EBADF)),
        // The other number would tell of its kernel half only.
        entry if is_fixed_set(entry) => return Done(Err(Errno::EBUSY)),
        Entry::Kernel => return Kernel,
        _ if is_foreign() => return Kernel,
        _ => {}
    }
    let made = with_prepared(fd, |head| {
        let new = match call() {
            // There may be one if this object gives up its handle, or others theirs.
            Err(Errno::EMFILE) => return None,
            Err(error) => return Some((Err(error), true)),
            Ok(new) => new,
        };
        step!(number_duplicated);
        // What is there now stood for a file whose close was not seen: perhaps this one's.
        let stays = match table::get(new) {
            Entry::Object(_) => table::stands_for(new, head),
            _ => !late::is_noted(new) && duplicates::put(new, head),
        };
        Some((Ok(new), stays))
    });
    let Some((result, stays)) = made else { return leave(fd, name) };
    match result {
        // Once the object is no longer marked.
        Ok(new) if !stays => {
            migrate::number_is_new(new);
            let _ = leave(fd, name);
        }
        Ok(new) => recheck_late(new),
        Err(_) => {}
    }
    Done(result)
}

/// After a number has been put into the table: a thread that has noted it as one which the kernel
/// looks up later may have looked at the table before.
fn recheck_late(new: c_int) {
    if late::is_noted(new) {
        migrate::fd(new, Stat::MigratedIoRing);
    }
}

/// Leaves what `fd` stands for, and the call on it, to the kernel.
fn leave(fd: c_int, name: &'static CStr) -> Verdict<c_int> {
    migrate::fd_for(fd, Stat::MigratedDuplicate, name);
    Kernel
}

/// Calls `f` with the object that `fd` stands for when it has a handle, and neither migrates nor
/// ends, with the migrations lock held. `None`: it cannot have several numbers, or has gone.
fn with_prepared<T>(fd: c_int, f: impl FnOnce(&'static SlotHead) -> Option<T>) -> Option<T> {
    let _guard = SignalGuard::enter();
    let _migrating = migrate::hold_migrations();
    let Entry::Object(head) = table::get(fd) else { return None };
    if !may_have_several(head) {
        return None;
    }
    // A thread that closes the number waits, or has been here before.
    let mut marked = Migrating::none();
    if !marked.begin(head) || !table::stands_for(fd, head) {
        return None;
    }
    duplicates::prepare(head)?;
    f(head)
}

/// Whether an object can have several numbers here.
fn may_have_several(head: &'static SlotHead) -> bool {
    if let Some(set) = head.downcast::<FdSet>() {
        return !set.polls.are_active() && !set.state.is_exported() && !set.state.is_in_kernel();
    }
    head.kind() != table::PIPE
}

/// The call that puts a file under a number: a filter may know only that which the program makes.
#[derive(Clone, Copy)]
enum Onto {
    /// dup2(2).
    Dup2,
    /// dup3(2) with these flags.
    Dup3(c_int),
}

impl Onto {
    fn call(self, old: c_int, new: c_int) -> Result<c_int, Errno> {
        let result = match self {
            #[cfg(target_arch = "x86_64")]
            Self::Dup2 => sys::raw!(dup2, old, new),
            #[cfg(not(target_arch = "x86_64"))]
            Self::Dup2 => sys::raw!(dup3, old, new, 0),
            Self::Dup3(flags) => sys::raw!(dup3, old, new, flags),
        };
        result.map(|fd| fd as c_int)
    }
}

/// dup2(2) from `old` to `new`: what is at `new` is closed by it.
pub fn dup2(old: c_int, new: c_int) -> Verdict<c_int> {
    dup_onto(old, new, Onto::Dup2)
}

/// dup3(2) from `old` to `new` with `flags`, as [`dup2`].
pub fn dup3(old: c_int, new: c_int, flags: c_int) -> Verdict<c_int> {
    if has_invalid(flags) {
        return Kernel;
    }
    if old == new {
        // Before that is looked up.
        return Done(Err(Errno::EINVAL));
    }
    dup_onto(old, new, Onto::Dup3(flags))
}

fn dup_onto(old: c_int, new: c_int, onto: Onto) -> Verdict<c_int> {
    if matches!(table::get(old), Entry::Doorbell) {
        return Done(Err(Errno::EBADF));
    }
    if old == new || !is_open(old) {
        // An error, or nothing to do.
        return Kernel;
    }
    if is_fixed_set(table::get(old)) {
        return Done(Err(Errno::EBUSY));
    }
    if is_foreign() {
        // As for close(2).
        return Kernel;
    }
    if is_beyond(new) {
        // EBADF.
        return Kernel;
    }
    if let Err(error) = doorbell::make_way(old, new) {
        return Done(Err(error));
    }
    lifecycle::before_close(new);
    if inherited::is(new) && !table::get(old).is_object() {
        return replace_inherited(old, new, onto);
    }
    // One of several numbers is replaced below: its close would come before the call.
    if matches!(table::get(new), Entry::Object(head) if !head.has_several())
        && is_fixed_set(table::get(new))
    {
        let _ = forget(new);
    }
    if !table::get(old).is_object() && !table::get(new).is_object() {
        return Kernel;
    }
    // Before a watch of the other one goes to the kernel: from then on an edge of this one that has
    // been reported cannot be told from one that has not.
    if matches!(table::get(old), Entry::Object(head) if !may_have_several(head)) {
        migrate::fd_for(old, Stat::MigratedDuplicate, c"dup2");
    }
    migrate_replaced(new);
    if let Some(result) = with_prepared(old, |head| replace(head, old, new, onto)) {
        if result.is_ok() {
            recheck_late(new);
        }
        return Done(result);
    }
    migrate::fd_for(old, Stat::MigratedDuplicate, c"dup2");
    if let Some(result) = replace_one(old, new, onto) {
        return Done(result);
    }
    migrate::closing(new, Stat::MigratedDuplicate);
    Kernel
}

/// Whether dup3(2) says EINVAL, before anything is looked up.
fn has_invalid(flags: c_int) -> bool {
    flags & !libc::O_CLOEXEC != 0
}

fn is_open(fd: c_int) -> bool {
    sys::fcntl(fd, libc::F_GETFD, 0).is_ok()
}

/// Whether no descriptor can have this number.
fn is_beyond(fd: c_int) -> bool {
    // 0: it is not known.
    let limit = sys::number_limit();
    fd < 0 || limit != 0 && fd as usize >= limit
}

/// Makes the call of a dup2(2), or of a dup3(2) with `flags`, that is the kernel's, while no
/// descriptor of ours is being made: one may have got the number `new`, or `old`, since it was
/// looked at. Returns what `call` does, or -1 with `errno`, as [`dup2`] or [`dup3`].
pub fn onto(old: c_int, new: c_int, flags: c_int, call: impl FnOnce() -> c_int) -> c_int {
    if is_foreign() || has_invalid(flags) {
        return call();
    }
    let error = loop {
        let taking = Taking::begin();
        if is_hidden_now(old) {
            break Errno::EBADF;
        }
        let fails = || !is_open(old) || is_beyond(new);
        if old == new || !is_hidden_now(new) || fails() {
            let result = call();
            drop(taking);
            return result;
        }
        drop(taking);
        if let Err(error) = doorbell::make_way(old, new) {
            break error;
        }
    };
    fail(error.into_raw()) as c_int
}

/// Leaves what dup2(2) is about to close to the kernel, which closes it if it comes to that, and
/// not if the call fails; unless it is one of several numbers. It may take the other object along,
/// so before that is marked. Where a vfork(2) child has the number, too, or a forked one, it is the
/// kernel's to say when the object ends.
fn migrate_replaced(new: c_int) {
    let is_childs = vforked::may_exist() || forked::may_have(new);
    if matches!(table::get(new), Entry::Object(head) if is_childs || !head.has_several()) {
        migrate::closing(new, Stat::MigratedDuplicate);
    }
}

/// In a forked child, puts a file of the kernel's over what lives on in the parent.
fn replace_inherited(old: c_int, new: c_int, onto: Onto) -> Verdict<c_int> {
    let result = onto.call(old, new);
    if result.is_ok() {
        inherited::forget(new);
    }
    Done(result)
}

/// Puts a file of the kernel's under one of the numbers of an object. `None`: there is none, or it
/// is the last.
fn replace_one(old: c_int, new: c_int, onto: Onto) -> Option<Result<c_int, Errno>> {
    let _guard = SignalGuard::enter();
    let _migrating = migrate::hold_migrations();
    let Entry::Object(head) = table::get(new) else { return None };
    let mut result = None;
    if head.has_several() {
        let call = || result.insert(onto.call(old, new)).is_ok();
        let loss = duplicates::lose_held(new, head, call);
        end_if_last(loss, head);
    }
    result
}

/// Puts an object that has been prepared under `new`. `None`: there is no room for it.
fn replace(
    head: &'static SlotHead,
    old: c_int,
    new: c_int,
    onto: Onto,
) -> Option<Result<c_int, Errno>> {
    if table::stands_for(new, head) {
        // It has the number already.
        return Some(onto.call(old, new));
    }
    // Nearly all births hold the migrations lock, as the caller does. This is for the others.
    let taking = Taking::begin();
    if late::is_noted(new) {
        return None;
    }
    let other = match table::get(new) {
        Entry::Object(other) if other.has_several() => Some(other),
        // Since we looked.
        Entry::Object(_) | Entry::Doorbell => return None,
        // A call that has found a file of the kernel's there, and has not been made yet, would be
        // made on the kernel object.
        Entry::Kernel if sys::fcntl(new, libc::F_GETFD, 0).is_ok() => return None,
        Entry::Kernel => None,
    };
    if !duplicates::put(new, head) {
        return None;
    }
    step!(number_duplicated);
    let result = onto.call(old, new);
    // What ends below may wait for a lock within which a thread makes a descriptor.
    drop(taking);
    if result.is_err() {
        // Another thread is just opening a file there (EBUSY), or a filter refuses the call.
        match other {
            Some(other) => {
                duplicates::put(new, other);
                // That has counted the number once more, which the object has not lost.
                slot::end_use_guarded(other.object());
            }
            None => _ = table::vacate(new, head),
        }
        duplicates::leave_one(new, head);
        return Some(result);
    }
    if let Some(other) = other {
        end_if_last(duplicates::leave_one(new, other), other);
    }
    Some(result)
}

fn end_if_last(loss: Loss, head: &'static SlotHead) {
    if loss == Loss::Last {
        count(Stat::Closed, 1);
        slot::end_last(head.object());
    }
}

/// close(2) of a number of an object that has, or had, several. `None`: it has none any more, look
/// again. The caller has a signal guard.
pub(super) fn close(fd: c_int, head: &'static SlotHead) -> Option<Verdict<()>> {
    let mut closed = None;
    let _migrating = migrate::hold_migrations();
    let close = || {
        closed = Some(sys::close(fd));
        true
    };
    let loss = duplicates::lose_held(fd, head, close);
    end_if_last(loss, head);
    match closed {
        None if loss == Loss::Stale => None,
        closed => Some(closed.map_or(Kernel, Done)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::{close, epoll_create1, eventfd};
    use crate::sys::births::Birth;
    use crate::table::hidden;
    extern crate std;
    use core::time::Duration;
    use std::thread;
    use std::time::Instant;

    /// The list of an object's numbers was another's, because both had the same handle: the program
    /// had closed one, or replaced it, and the kernel had given it out again. So the close of one
    /// number ended an object with another, and a write to that waited for the close for ever.
    #[test]
    fn a_number_that_its_object_has_lost_is_the_kernels() {
        let _alone = table::alone::alone();
        let one = eventfd(0, libc::EFD_NONBLOCK).unwrap();
        let Verdict::Done(Ok(two)) = dup(one) else { panic!("it lives in process") };
        let Entry::Object(head) = table::get(two) else { panic!("an object") };
        duplicates::lose_list(head);
        close(one).unwrap();
        let (sender, ended) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let value = 1_u64.to_ne_bytes();
            // SAFETY: eight bytes.
            let written = unsafe { crate::calls::io::write(two, value.as_ptr(), value.len()) };
            sender.send(matches!(written, Verdict::Kernel)).unwrap();
        });
        let is_kernels = ended.recv_timeout(core::time::Duration::from_secs(10));
        assert_eq!(is_kernels, Ok(true), "the write does not come back");
        assert!(!table::get(two).is_object());
        close(two).unwrap();
    }

    /// Of two objects with one handle, one would have the other's numbers.
    #[test]
    fn a_handle_that_is_anothers_is_not_taken() {
        let _alone = table::alone::alone();
        let [one, other] = [(); 2].map(|()| eventfd(0, libc::EFD_NONBLOCK).unwrap());
        let Verdict::Done(Ok(two)) = dup(one) else { panic!("it lives in process") };
        let Entry::Object(head) = table::get(two) else { panic!("an object") };
        // By a call that nobody saw.
        let handle = head.fd();
        sys::close(handle).unwrap();
        assert!(hidden::close(handle));
        assert!(matches!(dup(other), Verdict::Kernel), "it lives on under the other's handle");
        assert!(!table::get(other).is_object());
        assert!(table::stands_for(two, head) && table::stands_for(one, head));
        for fd in [one, two, other] {
            close(fd).unwrap();
        }
    }

    /// A call that is in an object when that migrates and its handle goes does not lose the file,
    /// and leaves the program's number open.
    #[test]
    fn a_call_goes_on_by_a_number_of_the_programs_where_there_is_none_for_the_handle() {
        let _alone = table::alone::alone();
        let one = eventfd(0, libc::EFD_NONBLOCK).unwrap();
        let Verdict::Done(Ok(two)) = dup(one) else { panic!("it lives in process") };
        let (Entry::Object(head), held) = table::get_held(two) else { panic!("an object") };
        let handle = head.fd();
        {
            let _guard = SignalGuard::enter();
            let _migrating = migrate::hold_migrations();
            assert_eq!(duplicates::of_handle(handle).map(SlotHead::address), Some(head.address()));
            let number = duplicates::number_of(head);
            assert!([one, two].contains(&number));
            migrate::object_held(head, Stat::MigratedLimit);
            duplicates::give_up_handle(handle, number);
            assert_eq!(head.kernel_fd(), number);
            assert!(duplicates::of_handle(handle).is_none());
            assert!(duplicates::of_handle(number).is_none());
        }
        drop(held);
        for fd in [one, two] {
            assert!(sys::fcntl(fd, libc::F_GETFD, 0).is_ok(), "it was closed with the object");
            close(fd).unwrap();
        }
        assert!(hidden::close(handle));
    }

    /// How long a thread takes to make a descriptor under the lock of a set, for which a dup2(2)
    /// waits that has replaced the last number of that set.
    fn birth_beside_a_replaced_set() -> Duration {
        let [fd, object] = [epoll_create1(0).unwrap(), eventfd(0, 0).unwrap()];
        let set = table::Using::begin(fd, table::find::<FdSet>(fd).expect("a set")).unwrap();
        assert_eq!(doorbell::install(&set), Ok(true));
        let Verdict::Done(Ok(last)) = dup(fd) else { panic!("it lives in process") };
        close(fd).unwrap();
        let (took, replacer) = set.rotation.before_number_goes(|| {
            let replacer =
                thread::spawn(move || matches!(dup2(object, last), Verdict::Done(Ok(_))));
            while !set.state.is_closed() {
                thread::yield_now();
            }
            let began = Instant::now();
            drop(Birth::begin());
            (began.elapsed(), replacer)
        });
        assert!(replacer.join().unwrap(), "it was not replaced here");
        drop(set);
        [object, last].into_iter().for_each(|fd| close(fd).unwrap());
        took
    }

    /// Each waited for the other, until the one that makes a descriptor gave up.
    #[test]
    fn a_replaced_set_ends_after_its_dup2() {
        let _alone = table::alone::alone();
        let took = (0..5).map(|_| birth_beside_a_replaced_set()).min();
        assert!(took < Some(Duration::from_millis(5)), "{took:?}");
    }
}
