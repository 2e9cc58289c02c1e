//! Event rings: none.

use libc::epoll_event;
use wakeset::EventRing;

pub(crate) fn take(_: EventRing<'_>, _: *mut epoll_event, _: usize) -> Option<usize> {
    None
}
