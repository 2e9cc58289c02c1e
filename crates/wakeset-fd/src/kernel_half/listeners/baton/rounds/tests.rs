use super::*;
use crate::table::alone::alone;

/// A worker that was killed while it declined left its listener urgent for good.
#[test]
fn what_a_killed_decliner_has_written_ends_with_a_look() {
    let _alone = alone();
    forget_declined();
    let declined = shared_hint::declined();
    announce(declined, 1, true, declined.round.load(SeqCst) + 1);
    assert!(!is_urgent(1) && !has_notes(), "its round has not begun");
    begin_round(2);
    Look::begin().ends(1);
    assert!(!is_urgent(1), "it was begun by another, and is over");
    assert!(is_urgent(2));
}

/// A decliner that was stopped before its round began hid what another had declined before.
#[test]
fn a_round_that_has_not_begun_hides_none_that_has() {
    let _alone = alone();
    forget_declined();
    let declined = shared_hint::declined();
    begin_round(1);
    announce(declined, 1, true, declined.round.load(SeqCst) + 1);
    let visit = Rounds::none().visit().expect("a new round");
    assert_eq!(visit.open(1), 1);
    assert!(is_urgent(1) && visit.is_for_others(2));
    Look::begin().ends(1);
    assert!(!is_urgent(1) && !has_notes());
}

/// A decline that was overtaken by others lowered what they had written.
#[test]
fn a_round_is_only_raised() {
    let _alone = alone();
    forget_declined();
    let declined = shared_hint::declined();
    let round = declined.round.load(SeqCst);
    announce(declined, 1, false, round + 1);
    raise(declined, &declined.left, 1, round);
    declined.round.store(round + 1, SeqCst);
    assert!(has_notes());
    // What cannot be a round gives way.
    let [of_first, ..] = &declined.left;
    of_first.store(u64::MAX, SeqCst);
    assert!(!has_notes());
    begin_round(1);
    assert!(has_notes());
}

/// As if another process had written that something is urgent.
fn write_urgent() -> &'static Declined {
    forget_declined();
    let declined = shared_hint::declined();
    let [urgent, ..] = &declined.urgent;
    declined.round.fetch_add(1, SeqCst);
    urgent.store(declined.round.load(SeqCst), SeqCst);
    declined
}

/// What another process has written says that nothing was declined, and that something is urgent.
#[test]
fn rubbish_ends_with_a_look() {
    let _alone = alone();
    let [empty, ..] = &write_urgent().empty;
    empty.store(u64::MAX, SeqCst);
    assert!(is_urgent(1));
    Look::begin().ends(1);
    assert!(!is_urgent(1));
}

/// It was urgent until a second after the next connection, and nothing was shared out until then.
#[test]
fn rubbish_that_nobody_has_read_ends_with_a_rescue() {
    let _alone = alone();
    write_urgent();
    assert!(!Look::may_end(1), "nothing says so");
    Look::begin_rescue();
    Look::begin().ends(1);
    assert!(!is_urgent(1));
}

/// Of two listeners with one note, one that was found empty ended what was declined on the other.
#[test]
fn a_look_says_nothing_of_those_that_share_a_note() {
    let _alone = alone();
    forget_declined();
    let others = Notes::from(OTHERS);
    begin_round(others);
    let visit = Rounds::none().visit().expect("a new round");
    visit.saw_none(others);
    assert!(has_notes() && visit.is_for_others(others));
    forget_declined();
}

/// What was declined once on a listener that shares its note was urgent for good: nothing was
/// shared out any more.
#[test]
fn what_is_declined_on_a_shared_note_is_for_each_once() {
    let _alone = alone();
    forget_declined();
    let (others, rounds) = (Notes::from(OTHERS), Rounds::none());
    begin_round(others);
    assert!(!is_urgent(others), "it would have no end");
    let first = rounds.visit().expect("a new round");
    assert!(first.is_urgent(others) && first.asks_more(others));
    begin(others, false);
    let second = rounds.visit().expect("a new round");
    assert!(!second.is_urgent(others) && !second.asks_more(others));
    assert!(Rounds::none().visit().expect("a new round").is_urgent(others), "never asked");
    begin_round(others);
    assert!(rounds.visit().expect("a new round").is_urgent(others));
    forget_declined();
}
