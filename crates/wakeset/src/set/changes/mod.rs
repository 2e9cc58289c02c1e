//! Changes of the interest list: epoll_ctl(2), batches of it, and the close of a source or a set.

pub(in crate::set) mod add;
pub(crate) mod batch;
pub(in crate::set) mod changing;
pub(crate) mod closing;
pub(in crate::set) mod forget;
