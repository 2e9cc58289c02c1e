//! Children that reach the deadline.

use super::*;
use crate::table::alone::alone;
use crate::table::away::tests::{eventfd, lend, read, write};

/// A child that reaches the deadline after so many others that are still heard, and has `named`,
/// which lives here, and `held`, which is away. Whether it is heard further.
fn outlive_after(others: usize, named: c_int, held: c_int) -> bool {
    let slot = CONNECTIONS.get(others).unwrap();
    assert!(slot.claim());
    let [ours, childs] = forked::connection().unwrap();
    slot.end.store(ours, Ordering::SeqCst);
    for other in CONNECTIONS.iter().take(others) {
        other.outlived.store(true, Ordering::SeqCst);
    }
    forked::note_child([named].into_iter());
    lend(held, slot.bit());
    let _guard = SignalGuard::enter();
    let _migrating = gate::hold_migrations();
    outlive(slot, now());
    let is_heard = slot.outlived.load(Ordering::SeqCst);
    if is_heard {
        finish(slot, true);
    }
    slot.leave();
    sys::close(childs).unwrap();
    for other in CONNECTIONS.iter().take(others) {
        other.outlived.store(false, Ordering::SeqCst);
    }
    begin_anew();
    assert!(!forked::any_may());
    is_heard
}

/// Nobody hears of one child more, so everything that it has is the kernel's from then on: it read
/// nothing, once the parent had closed the number.
#[test]
fn one_child_too_many_leaves_nothing_in_process() {
    let _alone = alone();
    let [named, held] = [5, 1].map(|value| eventfd(value, 0));
    assert!(!outlive_after(MOST_OUTLIVED, named, held));
    assert!(!table::peek(named).is_object() && !away::is(named) && !away::is(held));
    assert_eq!([named, held].map(read), [Ok(5), Ok(1)]);
    [named, held].into_iter().for_each(|fd| crate::close(fd).unwrap());
}

/// The last one of whom the deputy hears.
#[test]
fn what_a_child_had_comes_home_when_it_ends() {
    let _alone = alone();
    let held = eventfd(1, 0);
    let named = eventfd(5, 0);
    assert!(outlive_after(MOST_OUTLIVED - 1, named, held));
    assert!(!table::peek(held).is_object());
    for (fd, value) in [(held, 1), (named, 5)] {
        write(fd, 1);
        assert!(table::peek(fd).is_object());
        assert_eq!(read(fd), Ok(value + 1));
        crate::close(fd).unwrap();
    }
}
