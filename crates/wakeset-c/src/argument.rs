//! Arguments that several functions take.

use core::ffi::c_int;
use core::time::Duration;
use libc::timespec;
use wakeset_fd::interpose::TimeLimit;
use wakeset_group::Order;

/// Which waiter is woken next, as C says it; `None` for a number that means nothing.
pub(crate) fn order_of(order: c_int) -> Option<Option<Order>> {
    match order {
        0 => Some(Some(Order::Fifo)),
        1 => Some(Some(Order::Lifo)),
        2 => Some(None),
        3 => Some(Some(Order::Turns)),
        _ => None,
    }
}

/// A time limit, null for none; `None` for an invalid one.
///
/// # Safety
/// `limit` is null or valid.
pub(crate) unsafe fn limit_of(limit: *const timespec) -> Option<Option<Duration>> {
    // SAFETY: by the caller.
    match unsafe { TimeLimit::of_timespec(limit) } {
        TimeLimit::Forever => Some(None),
        TimeLimit::After(limit) => Some(Some(limit)),
        TimeLimit::Zero => Some(Some(Duration::ZERO)),
        TimeLimit::Invalid => None,
    }
}
