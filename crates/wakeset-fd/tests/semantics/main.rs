//! What epoll, eventfd and timerfd do, each statement a test whose body runs on the kernel and on Wakeset.
//!
//! A body is generic over [`Backend`](backend::Backend); [`on_both!`] makes five tests of it, `kernel::name`,
//! `wakeset::name`, `ringed::name`, where each set has an event ring, `polled::name`, where it watches sockets through an io_uring, and `hinted::name`, where it believes
//! what that says. A wrong expectation fails on both, so what these tests say about Linux is what the
//! running kernel does, and what they say about Wakeset is the same. The statements are those of
//! epoll(7), epoll_ctl(2), epoll_wait(2), eventfd(2) and timerfd_create(2), and of the kernel where those are silent.
//!
//! No test passes or fails by how long something took, except that a time limit must not be over early.
//! Some wait a little to give a wrong wake-up the chance to show; a right implementation passes
//! however the threads are scheduled.

/// Lists the bodies of a topic; one that is not listed is dead code, which the compiler reports.
macro_rules! on_both {
    ($($name:ident),+ $(,)?) => {
        mod kernel {
            $(#[test] fn $name() { super::$name::<crate::backend::Kernel>(); })+
        }
        mod wakeset {
            $(#[test] fn $name() { super::$name::<crate::backend::Wakeset>(); })+
        }
        mod ringed {
            $(#[test] fn $name() { super::$name::<crate::backend::Ringed>(); })+
        }
        mod polled {
            $(#[test] fn $name() { super::$name::<crate::backend::Polled>(); })+
        }
        mod hinted {
            $(#[test] fn $name() { super::$name::<crate::backend::Hinted>(); })+
        }
    };
}

mod backend;
mod faults;
mod objects;
mod signals;
mod task;

mod close;
mod edge;
mod errors;
mod eventfd;
mod exclusive;
mod in_process;
mod level;
mod maxevents;
mod mixed;
mod modify;
mod nesting;
mod oneshot;
mod pipe;
mod random;
mod socket;
mod timeouts;
mod timerfd;
mod waiters;
