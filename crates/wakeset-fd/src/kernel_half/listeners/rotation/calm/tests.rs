use super::super::super::{Choice, RESCUE, baton, held, shares};
use super::super::ctl::tests::Epoll;
use super::super::member::notes_of;
use super::*;
use crate::table::alone::alone;
use core::ptr;
use core::time::Duration;

/// A set that is the kernel's.
const BARE: Epoll<fn() -> c_int> = Epoll { is_in_kernel: true, ..OPEN };

const LISTENER: Member = Member { fd: 3, data: 7, ..Member::NONE };

/// A set with one listener, of a worker that is alone. It has just looked at it.
fn settled() -> Rotation {
    shares::begin_in_silence(Choice::Automatic, None);
    let rotation = Rotation::new();
    rotation.with(|members| members[0] = LISTENER);
    rotation.baton.store(0, Ordering::Relaxed);
    rotation.rescue_clock.note();
    rotation
}

/// As before a sleep.
fn begin_calm(rotation: &Rotation, members: &[Member]) {
    rotation.begin_calm(members, notes_of(members));
}

fn report(rotation: &Rotation, data: u64) {
    let events = [epoll_event { events: libc::EPOLLIN as u32, u64: data }];
    rotation.note_reports(ptr::from_ref(&events).cast(), 1, false);
}

/// What a worker is told of a listener changes its places in the queues.
#[test]
fn a_listeners_event_ends_the_calm() {
    let _alone = alone();
    let rotation = settled();
    begin_calm(&rotation, &[LISTENER]);
    assert!(rotation.is_calm());
    report(&rotation, 8);
    assert!(rotation.is_calm(), "it is another's");
    report(&rotation, 7);
    assert!(!rotation.is_calm());
    assert!(rotation.with_known(|members| members[0].due));
}

/// A connection whose worker has died is found by a look, once in a rescue period.
#[test]
fn calm_ends_when_the_listeners_are_looked_at() {
    let _alone = alone();
    let rotation = settled();
    begin_calm(&rotation, &[LISTENER]);
    let left = rotation.rescue_if_due(&BARE).expect("it is calm");
    assert!(left <= RESCUE + Duration::from_millis(20), "{left:?}");
    rotation.rescue_clock.forget();
    rotation.calm.begin([7, 7], 0, Deadline::from_nanos(1));
    assert_eq!(rotation.rescue_if_due(&BARE), None);
    assert!(!rotation.is_calm() && !rotation.rescue_clock.until_next().is_zero(), "it has looked");
}

/// A listener that can be named to others.
const NAMED: Member = Member { inode: Some(5), ..LISTENER };

/// A calm set with that listener, and another worker.
fn beside_another() -> (Rotation, shares::Share) {
    let (rotation, another) = (settled(), shares::Share::new());
    baton::forget_declined();
    assert!(another.is_alone());
    begin_calm(&rotation, &[NAMED]);
    (rotation, another)
}

#[test]
fn a_worker_beside_others_is_not_calm_alone() {
    let _alone = alone();
    let (rotation, _) = beside_another();
    assert!(rotation.is_calm() && !rotation.is_calm_alone());
    rotation.calm.end();
    begin_calm(&rotation, &[LISTENER]);
    assert!(!rotation.is_calm(), "what it sleeps for has no name");
    shares::begin_in_silence(Choice::Automatic, None);
    begin_calm(&rotation, &[NAMED]);
    assert!(!rotation.is_calm_alone(), "it is asked once in a rescue period");
    rotation.calm.end();
    rotation.rescue_clock.forget();
    rotation.rescue_if_due(&BARE);
    begin_calm(&rotation, &[NAMED]);
    assert!(rotation.is_calm_alone(), "the other one is gone");
}

/// What one worker says of itself, the others go by.
#[test]
fn a_calm_worker_says_when_it_sleeps() {
    let _alone = alone();
    let (rotation, another) = beside_another();
    shares::set_rule(shares::Least::Always, None);
    held::put_off_count();
    (0..2).for_each(|_| held::raise(another.holder()));
    let note = baton::note_of(NAMED.inode);
    assert!(!another.leaves(note), "it has not said what it sleeps for");
    rotation.sleep_calmly();
    assert!(another.leaves(note));
    rotation.wake_calmly();
    assert!(!another.leaves(note), "it is busy");
    assert_eq!(rotation.rotate(&BARE), None);
    assert!(rotation.is_calm() && another.leaves(note), "a general wait says it too");
    rotation.end_wait(&BARE);
    assert!(!another.leaves(note));
    (0..2).for_each(|_| held::lower(another.holder()));
}

/// A calm worker that only looked had what another was woken for.
#[test]
fn a_calm_worker_leaves_what_is_anothers() {
    let _alone = alone();
    let (rotation, another) = beside_another();
    let watched = Member { events: libc::EPOLLIN as u32, ..NAMED };
    rotation.with(|members| members[0] = watched);
    begin_calm(&rotation, &[watched]);
    shares::set_rule(shares::Least::Always, None);
    held::put_off_count();
    (0..2).for_each(|_| held::raise(rotation.share.holder()));
    another.note_sleep(baton::note_of(NAMED.inode));
    assert!(rotation.is_calm() && !rotation.is_calm_alone());
    let mut events = [epoll_event { events: libc::EPOLLIN as u32, u64: NAMED.data }];
    // SAFETY: one event.
    assert_eq!(unsafe { rotation.leave_for_now(events.as_mut_ptr(), 1) }, 0);
    (0..2).for_each(|_| held::lower(rotation.share.holder()));
}

/// A set whose watches can be changed, under a number that nobody has.
const OPEN: Epoll<fn() -> c_int> = Epoll::open(|| -1);

/// A set beside another worker that was calm until this listener was reported so often.
fn paused(listener: Member, reports: u32) -> (Rotation, shares::Share) {
    let (rotation, another) = beside_another();
    rotation.with(|members| members[0] = listener);
    rotation.baton.store(baton::number(), Ordering::Relaxed);
    begin_calm(&rotation, &[listener]);
    assert!(rotation.is_calm());
    (0..reports).for_each(|_| report(&rotation, listener.data));
    assert!(!rotation.is_calm());
    (rotation, another)
}

/// All that was known of the listeners was found out anew after each connection.
#[test]
fn calm_goes_on_after_a_connection() {
    let _alone = alone();
    let (rotation, _another) = paused(NAMED, Order::TURN - 1);
    assert!(rotation.go_on(&OPEN) && rotation.is_calm() && !rotation.is_calm_alone());
    assert!(!rotation.with_same(|members| members[0].due), "it is minded");
    assert!(!rotation.go_on(&OPEN), "once");
    report(&rotation, NAMED.data);
    assert!(!rotation.is_calm() && rotation.with_same(|members| members[0].due));
}

#[test]
fn calm_does_not_go_on_where_there_is_more_to_do() {
    let _alone = alone();
    let (rotation, _another) = paused(NAMED, Order::TURN);
    assert!(!rotation.go_on(&OPEN), "its turn is over");
    let (rotation, _another) = paused(NAMED, 1);
    held::put_off_count();
    (0..4).for_each(|_| held::raise(rotation.share.counted_as()));
    assert!(!rotation.go_on(&OPEN), "it holds many");
    (0..4).for_each(|_| held::lower(rotation.share.counted_as()));
    let (rotation, _another) = paused(Member { events: libc::EPOLLET as u32, ..NAMED }, 1);
    assert!(!rotation.go_on(&OPEN), "an edge is to be followed to its end");
    let (rotation, _another) = paused(NAMED, 1);
    rotation.rounds.passes(true);
    assert!(!rotation.go_on(&OPEN), "the baton is to move");
    let (rotation, _another) = paused(NAMED, 1);
    rotation.with(|_| ());
    assert!(!rotation.go_on(&OPEN), "the members may be others");
    let (rotation, _another) = paused(NAMED, 1);
    assert!(!rotation.go_on(&BARE), "it is the kernel's");
    let rotation = settled();
    begin_calm(&rotation, &[NAMED]);
    report(&rotation, NAMED.data);
    assert!(!rotation.go_on(&OPEN), "it looks for others");
}

/// What was declined is over when a wait finds it gone, and any waiter takes it until then.
#[test]
fn a_worker_looks_for_what_others_decline() {
    let _alone = alone();
    let (rotation, _another) = beside_another();
    baton::begin_round(baton::note_of(Some(6)));
    assert!(rotation.is_calm(), "of another listener");
    baton::begin_round(baton::note_of(NAMED.inode));
    assert!(!rotation.is_calm());
    baton::forget_declined();
    assert!(rotation.is_calm());
}

#[test]
fn a_set_with_something_to_do_is_not_calm() {
    let _alone = alone();
    let not_calm = |rotation: Rotation, members: &[Member]| {
        begin_calm(&rotation, members);
        !rotation.is_calm()
    };
    assert!(not_calm(settled(), &[Member { due: true, ..LISTENER }]));
    assert!(not_calm(settled(), &[LISTENER, Member { missing: true, ..LISTENER }]));
    assert!(not_calm(settled(), &[LISTENER; 3]));
    let rotation = settled();
    rotation.rounds.passes(true);
    assert!(not_calm(rotation, &[LISTENER]), "the baton is to move");
    let rotation = settled();
    rotation.baton.store(-1, Ordering::Relaxed);
    assert!(not_calm(rotation, &[LISTENER]), "nobody could wake it");
    let rotation = settled();
    begin_calm(&rotation, &[LISTENER, Member { data: 9, ..LISTENER }]);
    report(&rotation, 9);
    assert!(!rotation.is_calm(), "of the second listener");
    let rotation = settled();
    begin_calm(&rotation, &[LISTENER]);
    rotation.with(|_| ());
    assert!(!rotation.is_calm(), "after a change");
}
