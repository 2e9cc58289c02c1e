//! Models of a listener in a set and of another watch that comes to have the same data: the set has
//! to know, because it takes the one's event for the other's.

use crate::kernel_half::listeners::members::Members;
use core::ffi::c_int;
use loom::thread::spawn;
use std::sync::Arc;
use wakeset::explore;

const LISTENER: c_int = 3;
const SECOND: c_int = 4;
const OTHER: c_int = 5;
const DATA: u64 = 7;

/// Another watch comes to have the data of the listener in this place, while the members change.
fn add_beside(place: usize, members: Members, change: impl FnOnce(&Members)) {
    let members = Arc::new(members);
    let other = {
        let members = Arc::clone(&members);
        spawn(move || members.add_other(OTHER, DATA))
    };
    change(&members);
    other.join().unwrap();
    assert!(members.is_ambiguous(place), "its event is taken for the listener's");
}

/// Catches two that do not see each other: each looks before the other has left what it looks for.
#[test]
fn of_two_watches_with_the_same_data_one_is_known() {
    explore(3, || add_beside(0, Members::none(), |members| members.add(0, LISTENER, DATA)));
}

/// Catches an outline of which one half is of an earlier version.
#[test]
fn an_outline_is_of_one_version() {
    explore(3, || {
        let members = Members::none();
        members.add(1, LISTENER, DATA);
        members.add(0, SECOND, DATA + 1);
        // The listener moves to the other place of the outline.
        add_beside(1, members, |members| members.remove(0));
    });
}

/// Catches a listener that is added again with what was known of it when it was removed, although
/// another watch has its data since.
#[test]
fn what_was_known_of_a_listener_is_not_believed_too_long() {
    explore(2, || {
        let members = Members::none();
        members.add(0, LISTENER, DATA);
        add_beside(0, members, |members| {
            members.remove(0);
            members.add(0, LISTENER, DATA);
        });
    });
}
