//! What epoll, eventfd and timerfd do, each statement a test whose body runs on the kernel and on
//! Wakeset.
//!
//! A body is generic over [`Backend`](backend::Backend); [`on_both!`] makes five tests of it:
//!
//! | test | the body runs on |
//! |---|---|
//! | `kernel::name` | the kernel |
//! | `wakeset::name` | Wakeset |
//! | `ringed::name` | Wakeset, with an event ring in each set |
//! | `polled::name` | the same, with an io_uring that watches the sockets |
//! | `hinted::name` | the same, with the io_uring's completions believed without a poll |
//!
//! A wrong expectation fails on the kernel as well as on Wakeset. So what these tests say about
//! Linux is what the running kernel does, and Wakeset does the same. The statements are those of
//! epoll(7), epoll_ctl(2), epoll_wait(2), eventfd(2) and timerfd_create(2), and of the kernel where
//! the manual is silent.
//!
//! No test passes or fails by how long something took, except that a time limit must not end early.
//! Some tests wait a little to give a wrong wake-up the chance to show; a right implementation
//! passes however the threads are scheduled.
//!
//! A topic that names the engine's crate writes `::wakeset`, because `on_both!` makes a module of
//! that name.
//!
//! A topic that is too long for one file has a folder with its bodies; the topic's file lists them
//! all.

/// Lists the bodies of a topic. A body that is not listed is dead code, which the compiler reports.
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
mod duplicates;
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
mod poll;
mod random;
mod socket;
mod timeouts;
mod timerfd;
mod waiters;
