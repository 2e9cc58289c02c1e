//! Objects that move, and numbers that change, during a call.

use super::*;

pub(super) fn goes_on_when_the_object_moves<B: Polls>() {
    let (reader, _writer) = pipe::<B>();
    for n in [1, 2] {
        for limit in [None, LONG] {
            let counter = Counter::<B>::new(0);
            let asked = [(counter.as_raw_fd(), POLLIN), (reader.as_raw_fd(), POLLIN)];
            let task = polling::<B>(&asked[..n], limit);
            let other = counter.dup();
            task.until_asleep();
            assert!(!task.has_ended());
            other.write(1);
            let mut told = vec![POLLIN, 0];
            told.truncate(n);
            assert_eq!(task.join(), (Ok(1), told));
        }
    }
}

pub(super) fn goes_on_when_another_object_moves<B: Polls>() {
    for first in [true, false] {
        let (counter, other) = (Counter::<B>::new(0), Counter::<B>::new(0));
        let asked = [(counter.as_raw_fd(), POLLIN), (other.as_raw_fd(), POLLIN)];
        let task = polling::<B>(&asked, LONG);
        let same = other.dup();
        task.until_asleep();
        assert!(!task.has_ended());
        if first {
            counter.write(1)
        } else {
            same.write(1)
        }
        let told = if first { vec![POLLIN, 0] } else { vec![0, POLLIN] };
        assert_eq!(task.join(), (Ok(1), told));
    }
}

/// Linux looks at the numbers once more when the time is up.
pub(super) fn finds_at_the_end_that_a_number_was_closed<B: Polls>() {
    let counter = Counter::<B>::new(0);
    // A number that no other test gets meanwhile.
    let far = B::dup2(counter.as_raw_fd(), crate::objects::far_number()).unwrap();
    let again = B::eventfd(0, libc::EFD_NONBLOCK).unwrap();
    let task = polling::<B>(&[(far, POLLIN), (again, POLLIN)], Some(50 * MS));
    B::close(far).unwrap();
    assert_eq!(task.join(), (Ok(1), vec![POLLNVAL, 0]));
    B::close(again).unwrap();
}

pub(super) fn finds_at_the_end_what_the_number_is_now<B: Polls>() {
    let (counter, (_reader, writer)) = (Counter::<B>::new(0), pipe::<B>());
    let fd = counter.as_raw_fd();
    let task = polling::<B>(&[(fd, POLLIN | POLLWRNORM)], Some(50 * MS));
    B::dup2(writer.as_raw_fd(), fd).unwrap();
    assert_eq!(task.join(), (Ok(1), vec![POLLWRNORM]));
}
