//! Who is alone with a listener. One test, because a fork ends it for all.

use super::{MOST, begin_alone, end_all_alone, end_alone, is_only_waiter};

const LISTENER: i32 = 7;

#[test]
fn a_listener_is_one_threads_until_others_have_it() {
    assert!(!is_only_waiter(LISTENER, 1), "nobody has called bind(2)");
    begin_alone(LISTENER);
    assert!(is_only_waiter(LISTENER, 1) && is_only_waiter(LISTENER, 1));
    assert!(!is_only_waiter(LISTENER + 1, 1), "another number");
    assert!(!is_only_waiter(LISTENER, 2), "a second thread");
    assert!(!is_only_waiter(LISTENER, 1), "the first one is no longer alone");

    begin_alone(LISTENER);
    end_alone(LISTENER);
    assert!(!is_only_waiter(LISTENER, 1), "closed");

    begin_alone(LISTENER);
    begin_alone(LISTENER);
    assert!(is_only_waiter(LISTENER, 2), "a new listener is any thread's");
    end_all_alone();
    assert!(!is_only_waiter(LISTENER, 2), "forked");

    let numbers = || (0..).take(MOST + 1);
    numbers().for_each(begin_alone);
    assert_eq!(numbers().filter(|fd| is_only_waiter(*fd, 1)).count(), MOST);
    end_all_alone();
}
