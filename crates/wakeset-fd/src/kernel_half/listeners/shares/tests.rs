use super::super::{Choice, choose, held};
use super::*;
use crate::sys;
use crate::table::alone::alone;

const NOTE: Notes = 2;

/// A slot as another process would write it, with what this one finds there.
pub(in super::super) fn other(held: u32, sleeps_for: Notes, since: u64) -> &'static Slot {
    held::put_off_count();
    let slot = &slots::all()[slots::all().len() - 1];
    slot.owner.store(u64::MAX, Relaxed);
    slots::note_used(slots::all().len() as u16 - 1);
    slot.held.store(held, Relaxed);
    slot.note_sleep(sleeps_for);
    slot.told.store(0, Relaxed);
    slot.awake.store(0, Relaxed);
    slot.since.store(since, Relaxed);
    slot
}

/// A waiter that holds two connections, with this rule and `most`.
fn holding_two(most: Option<u32>, choice: Choice) -> Share {
    begin_in_silence(choice, most);
    // More than there are waiters.
    rule::set_processors(8);
    // Of other tests.
    baton::forget_declined();
    let (share, another) = (Share::new(), Share::new());
    share.note_sleep(NOTE);
    another.note_sleep(0);
    held::raise(share.holder());
    held::raise(share.holder());
    share
}

fn drop_both(share: &Share) {
    held::lower(share.holder());
    held::lower(share.holder());
}

/// Two waiters of this process, of which neither has said a word, and no others.
fn two_in_silence() -> (Share, Share) {
    begin_in_silence(Choice::Automatic, None);
    (Share::new(), Share::new())
}

/// Two that spin for one listener take connections out of turn, and a wake-up of the other's with
/// each.
#[test]
fn a_waiter_is_alone_unless_another_has_waited_lately() {
    let _alone = alone();
    let (share, second) = two_in_silence();
    assert!(share.is_alone());
    other(0, 0, now());
    assert!(!share.is_alone(), "another process's is busy");
    other(0, NOTE, now() - LEFT.as_nanos() as u64);
    assert!(share.is_alone(), "it was there long ago");
    // It has said so by looking, and never went to sleep.
    assert!(!second.is_alone(), "the first one spins");
    assert!(!share.is_alone(), "the second one would");
}

/// One that spins for long, and is told of a connection each time, does not go to sleep.
#[test]
fn a_waiter_that_spins_says_so_again_and_again() {
    let _alone = alone();
    let (share, second) = two_in_silence();
    assert!(share.is_alone());
    let (_, slot) = share.own_slot().expect("a slot");
    slot.since.store(now() - LEFT.as_nanos() as u64, Relaxed);
    // As in a wait before, for which it is not asleep any more.
    slot.note_sleep(NOTE);
    assert!(share.is_alone());
    assert!(!second.is_alone(), "the first one spins still");
    assert!(!slot.may_take(NOTE, now(), 9), "it leaves nothing to one that does not sleep");
}

/// Without slots nobody says anything.
#[test]
fn in_another_order_no_waiter_is_known_to_be_alone() {
    let _alone = alone();
    choose(Choice::Ordered(wakeset_group::Order::Fifo), None);
    assert!(!Share::new().is_alone());
    choose(Choice::Automatic, None);
}

/// It stepped back for one that holds as many, and two such left a connection to each other.
#[test]
fn a_waiter_leaves_to_those_that_hold_less() {
    let _alone = alone();
    let share = holding_two(None, Choice::Least);
    for (its, leaves) in [(0, true), (1, true), (2, false), (u32::MAX, false)] {
        other(its, NOTE, now());
        assert_eq!(share.leaves(NOTE), leaves, "{its}");
    }
    other(0, NOTE << 1, now());
    assert!(!share.leaves(NOTE), "it sleeps for another listener");
    other(0, 0, now());
    assert!(!share.leaves(NOTE), "it does not sleep");
    other(0, NOTE, now() - 2_000_000_000);
    assert!(!share.leaves(NOTE), "it is gone");
    other(0, NOTE, u64::MAX);
    assert!(!share.leaves(NOTE), "rubbish");
    drop_both(&share);
}

/// A worker whose timer was due had no connection, though it came back in no time. One that holds
/// few does not wait for it: where connections are short, that would cost more than it brings.
#[test]
fn a_waiter_expects_one_that_was_told_of_something_else_for_a_moment() {
    let _alone = alone();
    let share = holding_two(None, Choice::Least);
    let awake_for = |milliseconds: u64| {
        other(0, NOTE, now()).awake.store(now() - milliseconds * 1_000_000, Relaxed);
    };
    awake_for(0);
    assert!(!share.leaves(NOTE), "it holds two");
    held::raise(share.holder());
    held::raise(share.holder());
    // The machine may pause in between.
    let is_expected = (0..1000).any(|_| {
        awake_for(0);
        share.leaves(NOTE)
    });
    assert!(is_expected, "it holds four");
    awake_for(3);
    assert!(!share.leaves(NOTE), "the other is busy");
    drop_both(&share);
    drop_both(&share);
}

/// A program that never sleeps, and looks again and again, would never have taken what is left to
/// one that hangs.
#[test]
fn a_waiter_that_only_looks_leaves_a_connection_for_a_while() {
    let _alone = alone();
    let share = holding_two(None, Choice::Least);
    other(0, NOTE, now());
    assert!(share.leaves_for_now(NOTE) && share.leaves_for_now(NOTE));
    share.left.store(now() - STEP_BACK.as_nanos() as u64, Relaxed);
    assert!(!share.leaves_for_now(NOTE), "it was left for long enough");
    assert!(!share.leaves_for_now(NOTE), "it takes this one, whatever others say");
    share.note_awake(true);
    assert!(!share.leaves_for_now(NOTE), "the other has not moved since");
    other(0, NOTE, now());
    assert!(share.leaves_for_now(NOTE));
    share.left.store(now() - STEP_BACK.as_nanos() as u64, Relaxed);
    share.saw_none();
    assert!(share.leaves_for_now(NOTE), "that one was taken");
    drop_both(&share);
}

/// With a limit alone, who holds less does not matter below it.
#[test]
fn a_waiter_with_as_many_as_it_may_have_leaves_to_those_with_fewer() {
    let _alone = alone();
    for (most, its, leaves) in [(2, 1, true), (2, 2, false), (3, 0, false)] {
        let share = holding_two(Some(most), Choice::Ordered(wakeset_group::Order::Lifo));
        other(its, NOTE, now());
        assert_eq!(share.leaves(NOTE), leaves, "{its} of {most}");
        drop_both(&share);
    }
}

/// It would have left every connection to one that hangs, each for as long as it may.
#[test]
fn a_waiter_that_stepped_back_in_vain_takes_the_next() {
    let _alone = alone();
    let share = holding_two(None, Choice::Least);
    other(0, NOTE, now());
    assert!(share.leaves(NOTE));
    share.note_step();
    assert!(share.stays_back(NOTE, true));
    share.stepped.store(0, Relaxed);
    assert!(!share.stays_back(NOTE, true), "it took too long");
    other(0, NOTE, now());
    assert!(!share.leaves(NOTE), "it takes this one, whatever others say");
    let slot = other(0, NOTE, now() - 1_000_000_000);
    share.note_awake(true);
    assert!(!share.leaves(NOTE), "the other has not moved since");
    slot.since.store(now(), Relaxed);
    assert!(share.leaves(NOTE));
    drop_both(&share);
}

/// Lies about what others take let it step back for ever.
#[test]
fn a_waiter_steps_back_so_often_and_no_more() {
    let _alone = alone();
    let share = holding_two(None, Choice::Least);
    let slot = other(0, NOTE, now());
    let mut steps = 0;
    while share.leaves(NOTE) && steps < 1000 {
        share.note_step();
        slot.taken.fetch_add(1, Relaxed);
        assert!(!share.stays_back(NOTE, true), "another has taken one");
        steps += 1;
    }
    assert_eq!(steps, MOST_STEPS);
    share.stays_back(NOTE, false);
    assert!(share.leaves(NOTE), "it has seen the listener empty");
    drop_both(&share);
}

/// A page full of rubbish has no free slot, and is written over.
#[test]
fn a_slot_of_rubbish_is_taken() {
    let _alone = alone();
    let share = holding_two(None, Choice::Least);
    for slot in slots::all() {
        slot.owner.store(u64::MAX, Relaxed);
        slot.since.store(u64::MAX, Relaxed);
    }
    share.note_sleep(NOTE);
    let (_, slot) = share.own_slot().expect("a slot");
    assert_eq!((slot.owner.load(Relaxed), slot.held.load(Relaxed)), (share.id(), 2));
    drop_both(&share);
}

/// A connection that came meanwhile would have waited for the end of a long sleep.
#[test]
fn a_waiter_that_has_stepped_back_looks_soon_and_then_less_often() {
    let _alone = alone();
    let share = holding_two(None, Choice::Least);
    share.note_step();
    assert!(share.until_look() < STEP_LOOK);
    share.stepped.store(0, Relaxed);
    assert_eq!(share.until_look(), STEP_LOOK);
    drop_both(&share);
}

/// What a worker has declined nobody answers for: left to one that hangs, it waited for the rescue.
#[test]
fn what_was_declined_is_for_the_first_that_is_asked() {
    let _alone = alone();
    let share = holding_two(None, Choice::Least);
    other(0, NOTE, now());
    assert!(give_up(NOTE) && !give_up(0));
    assert!(!share.leaves(NOTE));
    baton::Rounds::none().visit().expect("a new round").saw_none(NOTE);
    assert!(share.leaves(NOTE), "someone was asked");
    drop_both(&share);
}

/// The automatic order left nothing to others, and with one step for each connection it would cost
/// as much as `least`.
#[test]
fn in_the_automatic_order_a_waiter_steps_back_on_credit() {
    let _alone = alone();
    for (choice, most, steps) in [
        (Choice::Ordered(wakeset_group::Order::Fifo), None, 0..=0),
        // Time goes on meanwhile.
        (Choice::Automatic, None, 32..=49),
        (Choice::Automatic, Some(2), 50..=50),
        (Choice::Least, None, 50..=50),
    ] {
        let share = holding_two(most, choice);
        other(0, NOTE, now());
        let mut taken = 0;
        while taken < 50 && share.leaves(NOTE) {
            share.note_step();
            // It has seen the listener empty.
            share.steps.store(0, Relaxed);
            taken += 1;
        }
        assert!(steps.contains(&taken), "{taken}: {choice:?}, {most:?}");
        drop_both(&share);
    }
}

/// Eight kept connections were spread over eight workers of an event loop, where there were two
/// processors and plain two or three workers had them all: each request then cost a switch.
#[test]
fn as_many_waiters_as_processors_hold_few_each() {
    let _alone = alone();
    for (processors, mine, its, leaves) in [
        // The third waiter holds one.
        (2, 2, 0, false),
        (2, 3, 0, false),
        (2, 4, 0, true),
        (2, 5, 4, true),
        (2, 5, 5, false),
        (1, 2, 0, false),
        (3, 2, 0, true),
        (4, 2, 0, true),
        (4, 2, 1, true),
    ] {
        let share = holding_two(None, Choice::Automatic);
        (2..mine).for_each(|_| held::raise(share.holder()));
        let third = other(its, NOTE, now());
        let second = &slots::all()[slots::all().len() - 2];
        second.owner.store(u64::MAX - 1, Relaxed);
        second.since.store(now(), Relaxed);
        second.held.store(u32::from(its == 0), Relaxed);
        rule::set_processors(processors);
        assert_eq!(share.leaves(NOTE), leaves, "{processors} processors, {mine} and {its}");
        (2..mine).for_each(|_| held::lower(share.holder()));
        [second, third].iter().for_each(|slot| slot.owner.store(0, Relaxed));
        drop_both(&share);
    }
}

/// On two processors one worker had the first four connections, and workers whose threads take
/// turns (Python's, Ruby's) answered half as many requests as two of them.
#[test]
fn the_second_connection_is_for_another_processor() {
    let _alone = alone();
    for (processors, leaves) in [(1, false), (2, true)] {
        let share = holding_two(None, Choice::Automatic);
        let idle = other(0, NOTE, now());
        rule::set_processors(processors);
        assert_eq!(share.leaves(NOTE), leaves, "{processors} processors");
        idle.owner.store(0, Relaxed);
        drop_both(&share);
    }
}

/// The last step that it could pay for ended at once, because it could not pay for another.
#[test]
fn a_waiter_that_has_paid_stays_back() {
    let _alone = alone();
    let share = holding_two(None, Choice::Automatic);
    other(0, NOTE, now());
    while share.leaves(NOTE) {
        share.note_step();
        share.steps.store(0, Relaxed);
    }
    assert!(share.stays_back(NOTE, true));
    drop_both(&share);
}

/// One that accepts until there is nothing left took what others had been woken for.
#[test]
fn a_waiter_leaves_a_second_connection_to_one_that_holds_less() {
    let _alone = alone();
    for (choice, its, sleeps_for, leaves) in [
        (Choice::Least, 1, NOTE, true),
        (Choice::Automatic, 1, NOTE, true),
        (Choice::Automatic, 2, NOTE, false),
        (Choice::Automatic, 0, NOTE << 1, false),
        (Choice::Ordered(wakeset_group::Order::Fifo), 0, NOTE, false),
    ] {
        let share = holding_two(None, choice);
        note_taken(share.holder());
        other(its, sleeps_for, now());
        assert_eq!(another_holds_less(share.holder(), NOTE), leaves, "{choice:?}, {its}");
        drop_both(&share);
    }
}

/// What it holds, and that it has taken one and does not sleep.
#[test]
fn an_accept_is_written_to_its_slot() {
    let _alone = alone();
    begin_in_silence(Choice::Automatic, None);
    let (share, another) = (Share::new(), Share::new());
    // Of two waiters each answers for itself.
    another.note_sleep(0);
    share.note_sleep(NOTE);
    let slot = share.known_slot().expect("it has said that it sleeps");
    let says = || (slot.held.load(Relaxed), slot.taken.load(Relaxed), slot.sleeps_for_one_of(NOTE));
    let (_, before, _) = says();
    let fd = sys::eventfd(0, libc::EFD_CLOEXEC).expect("a number");
    held::note_accepted(fd, share.counted_as());
    assert_eq!(says(), (1, before.wrapping_add(1), false));
    held::note_close(fd);
    assert_eq!(says(), (0, before.wrapping_add(1), false));
    let _ = sys::close(fd);
}

/// Past the 63rd listener of a family a waiter left connections to those that sleep for another
/// listener, and never come.
#[test]
fn those_that_share_a_note_are_told_apart() {
    let _alone = alone();
    let share = holding_two(None, Choice::Least);
    note_taken(share.holder());
    let (own, its): (Notes, Notes) = (1 << 63 | 1 << 64, 1 << 63 | 1 << 65);
    for (sleeps_for, leaves) in [(its, false), (own | its, true), (0, false)] {
        other(0, sleeps_for, now());
        assert_eq!(share.leaves(own), leaves, "{sleeps_for}");
        assert_eq!(another_holds_less(share.holder(), own), leaves, "{sleeps_for}");
    }
    drop_both(&share);
}
