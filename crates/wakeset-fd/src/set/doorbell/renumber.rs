//! Hidden numbers that the program wants for itself: one of them, or any.
//!
//! What is hidden under a number that the program takes gets another. Where none is left, what it
//! was for does without: a set migrates. A fixed set cannot, and one that lost its doorbell would
//! leave waiters asleep that nobody can reach, and wakers that write into the program's file. So
//! other sets give up their doorbells for it, and where that leaves no number either, the program
//! is told that there is none.

use super::{cookie, install, lent};
use crate::migrate;
use crate::objects::pipe;
use crate::set::FdSet;
use crate::stats::Stat;
use crate::sys::births::Birth;
use crate::sys::process::is_foreign;
use crate::sys::signal_guard::{self, SignalGuard};
use crate::sys::steps::{step_lock, step_waited};
use crate::sys::{self, Errno};
use crate::table::{self, SlotHead, duplicates, gate, hidden, lifecycle};
use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLLET, EPOLLIN, epoll_event};
use wakeset::mutated;

/// Gives a number to the program, which is about to take it by dup2(2) of `old`: what is hidden
/// under it gets another.
///
/// # Errors
/// EMFILE: it is a fixed set's doorbell or handle, and there is no other number for that.
pub(crate) fn make_way(old: c_int, fd: c_int) -> Result<(), Errno> {
    if !matches!(table::peek(fd), table::Entry::Doorbell) {
        return Ok(());
    }
    let _guard = SignalGuard::enter();
    let _migrating = gate::hold_migrations();
    hidden::close_left(fd);
    if !matches!(table::peek(fd), table::Entry::Doorbell) {
        return Ok(());
    }
    lent::wait_until_returned(fd);
    let new = duplicate_of(fd);
    if let Some(new) = new {
        lifecycle::renumber(fd, new);
        renumber_baton(fd, new);
        renumber_alarm(fd, new);
        sets_with(fd).for_each(|(number, set)| renumber_watch(number, set, fd, new));
    } else {
        if is_fixed_sets(fd) && !mutated!("fixed_set_loses_bell") {
            return Err(Errno::EMFILE);
        }
        for (number, _) in sets_with(fd) {
            migrate::fd_held(number, Stat::MigratedLimit);
        }
        if let Some(object) = duplicates::of_handle(fd) {
            // While it has one.
            let number = duplicates::number_of(object);
            migrate::object_held(object, Stat::MigratedLimit);
            duplicates::give_up_handle(fd, number);
        }
        pipe::give_up_kept(Some(fd));
        lifecycle::renumber(fd, -1);
        renumber_baton(fd, -1);
        renumber_alarm(fd, -1);
    }
    wait_for_wakers();
    hidden::give(fd, new, || replace(fd, old));
    Ok(())
}

/// A hidden duplicate of what is hidden under a number, for which other sets give up theirs if a
/// set that cannot do without has it. The caller holds the migrations lock.
fn duplicate_of(fd: c_int) -> Option<c_int> {
    let anywhere = |fd| hidden::duplicate(fd).or_else(|| sys::duplicate_above(fd, 0));
    let duplicate = || {
        let _birth = Birth::begin();
        hidden::duplicate_by(fd, anywhere).inspect(|new| table::put_doorbell(*new))
    };
    duplicate().or_else(|| {
        let has_room = is_fixed_sets(fd) && give_up_held();
        has_room.then(duplicate).flatten()
    })
}

/// Whether a hidden number is one that a fixed set has, and cannot do without.
fn is_fixed_sets(fd: c_int) -> bool {
    sets_with(fd).any(|(_, set)| set.state.is_fixed())
        || duplicates::of_handle(fd).is_some_and(is_fixed)
}

fn is_fixed(object: &'static SlotHead) -> bool {
    object.downcast::<FdSet>().is_some_and(|set| set.state.is_fixed())
}

/// The sets with this doorbell, and their numbers.
fn sets_with(doorbell: c_int) -> impl Iterator<Item = (c_int, &'static FdSet)> {
    table::numbers()
        .filter_map(|number| Some((number, table::find::<FdSet>(number)?)))
        .filter(move |(_, set)| set.doorbell.load(Ordering::SeqCst) == doorbell)
}

/// Lets a set watch its doorbell under the new number, which both stand for now.
fn renumber_watch(number: c_int, set: &FdSet, old: c_int, new: c_int) {
    if !set.rotation.before_number_goes(|| is_watched_as(set, old, new)) {
        migrate::fd_held(number, Stat::MigratedLimit);
    }
}

/// The same, while the set's number stays what it is. `false`: there is no room for the watch.
fn is_watched_as(set: &FdSet, old: c_int, new: c_int) -> bool {
    if set.doorbell.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst).is_err() {
        return true;
    }
    if set.state.is_closed() && !mutated!("doorbell_moves_in_anothers_set") {
        // Its number may be another set's. The watch goes with the set, or with the doorbell.
        return true;
    }
    // The kernel knows the watch by (number, description): a new one before the old number goes. If
    // there may be no more watches, the old one makes room for it: the new one reports at once what
    // was rung in between.
    let event = epoll_event { events: (EPOLLIN | EPOLLET) as u32, u64: cookie(set) };
    let add = || sys::epoll_ctl(set.fd(), EPOLL_CTL_ADD, new, &raw const event);
    let added = add();
    if added.is_err() && set.state.is_fixed() && !mutated!("fixed_set_loses_watch") {
        // It cannot migrate if that room is taken by others. The old watch stays for as long as the
        // description does, and only cannot be removed any more; the set needs it to its end.
        return true;
    }
    let _ = sys::epoll_ctl(set.fd(), EPOLL_CTL_DEL, old, ptr::null());
    added.is_ok() || !mutated!("doorbell_loses_watch") && add().is_ok()
}

/// How often doorbells were given up: a call that has waited for another's finds numbers, too.
static GIVEN_UP: AtomicU32 = AtomicU32::new(0);

/// How many numbers are given up at a time.
const AT_A_TIME: usize = 16;

/// The program is about to be told that it has no number left (EMFILE): gives it those of the
/// doorbells. Sets that have one migrate, and those that are made do without while there is no
/// number. Returns whether there were any.
pub fn make_room() -> bool {
    // A handler of SIGSYS has a critical section of its own thread below it.
    if signal_guard::is_inside() || is_foreign() {
        return false;
    }
    if !install::were_made() && !duplicates::were_made() && !pipe::were_kept() {
        return false;
    }
    let before = GIVEN_UP.load(Ordering::SeqCst);
    let _guard = SignalGuard::enter();
    let _migrating = gate::hold_migrations();
    give_up_held() || GIVEN_UP.load(Ordering::SeqCst) != before
}

/// Closes the doorbells of all sets that can migrate, and the doorbells and timers that no set has;
/// whether there were any. The caller holds the migrations lock.
fn give_up_held() -> bool {
    let mut has_made = give_up_spares() | pipe::give_up_kept(None);
    for number in table::numbers() {
        let has_one =
            |set: &FdSet| set.doorbell.load(Ordering::SeqCst) >= 0 && !set.state.is_fixed();
        if table::find::<FdSet>(number).is_some_and(has_one) {
            migrate::fd_held(number, Stat::MigratedLimit);
            // The next migration may need a number itself.
            has_made |= give_up_spares();
        }
    }
    for object in duplicates::with_handles().filter(|object| !is_fixed(object)) {
        let handle = object.fd();
        migrate::object_held(object, Stat::MigratedLimit);
        // Calls that are still in it keep the handle.
        has_made |= !matches!(table::get(handle), table::Entry::Doorbell);
    }
    each_set(|set| has_made |= set.rotation.give_up_timer());
    if has_made {
        GIVEN_UP.fetch_add(1, Ordering::SeqCst);
    }
    has_made
}

/// Closes the doorbells that no set has. The caller holds the migrations lock.
fn give_up_spares() -> bool {
    let mut has_made = false;
    loop {
        let mut taken = [-1; AT_A_TIME];
        for (place, doorbell) in
            taken.iter_mut().zip(core::iter::from_fn(table::take_spare_doorbell))
        {
            *place = doorbell;
        }
        if taken[0] < 0 {
            return has_made;
        }
        wait_for_wakers();
        for doorbell in taken.into_iter().filter(|doorbell| *doorbell >= 0) {
            has_made |= hidden::close(doorbell);
        }
    }
}

/// In sets that watch the baton under the old number.
fn renumber_baton(old: c_int, new: c_int) {
    for number in table::numbers() {
        if let Some(set) = table::find::<FdSet>(number) {
            set.rotation.renumber_baton(set, old, new);
        }
    }
}

/// In the set whose alarm has the old number, and in slots that keep one.
fn renumber_alarm(old: c_int, new: c_int) {
    each_set(|set| set.rotation.renumber_alarm(set, old, new));
}

/// Calls `f` with each set there is, and each slot there was one in.
fn each_set(mut f: impl FnMut(&'static FdSet)) {
    for number in table::numbers() {
        table::each_slot(number, |slot| {
            if let Some(set) = slot.downcast::<FdSet>() {
                f(set);
            }
        });
    }
}

/// Puts the program's file under a number of ours. Were the number closed first, another thread
/// could hide something under it.
fn replace(fd: c_int, file: c_int) {
    if sys::dup_to(file, fd).is_err() {
        let _ = sys::close(fd);
    }
}

/// Waits for the wakers that may know a number which no set has any more, of whatever set they are.
fn wait_for_wakers() {
    each_set(|set| {
        while set.rings.load(Ordering::SeqCst) != 0 && !mutated!("wakers_ring_late") {
            step_lock!(Waiting, &set.rings);
            sys::sched_yield();
        }
        step_waited!();
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Using;
    use crate::table::alone::alone;
    use core::time::Duration;
    use std::thread;
    extern crate std;

    /// A set with a doorbell.
    fn belled() -> (c_int, Using<FdSet>) {
        let fd = crate::epoll_create1(0).unwrap();
        let set = table::find::<FdSet>(fd).expect("a set");
        let set = Using::begin(fd, set).unwrap();
        assert_eq!(install::install(&set), Ok(true));
        (fd, set)
    }

    /// The set that had the number by then watched the doorbell of the one that was closed, and
    /// its program was told of its rings.
    #[test]
    fn a_doorbell_has_its_new_number_in_no_set_that_is_closed() {
        let _alone = alone();
        let (fd, set) = belled();
        let old = set.doorbell.load(Ordering::SeqCst);
        let new = sys::duplicate_above(old, 0).unwrap();
        // As far as a close has come that has not taken the doorbell yet.
        set.state.close();
        let another = sys::epoll_create1(libc::EPOLL_CLOEXEC).unwrap();
        sys::dup_to(another, fd).unwrap();
        assert!(is_watched_as(&set, old, new));
        assert_eq!(set.doorbell.load(Ordering::SeqCst), new, "the close takes it out");
        let taken_out = sys::epoll_ctl(another, EPOLL_CTL_DEL, new, ptr::null());
        assert_eq!(taken_out, Err(Errno::ENOENT));
        set.doorbell.store(old, Ordering::SeqCst);
        crate::close(fd).unwrap();
        [another, new].into_iter().for_each(|fd| sys::close(fd).unwrap());
    }

    /// The number was another set's before the watch was there.
    #[test]
    fn a_close_waits_until_a_doorbell_has_its_number() {
        let _alone = alone();
        let (fd, set) = belled();
        let closer = set.rotation.before_number_goes(|| {
            let closer = thread::spawn(move || crate::close(fd).unwrap());
            while !set.state.is_closed() {
                thread::sleep(Duration::from_millis(1));
            }
            thread::sleep(Duration::from_millis(100));
            assert!(sys::fcntl(fd, libc::F_GETFD, 0).is_ok(), "the number is anybody's");
            closer
        });
        closer.join().unwrap();
    }
}
