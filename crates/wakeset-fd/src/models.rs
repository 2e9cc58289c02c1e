//! What stands around [`polls`](crate::polls) and [`wait`](crate::wait) when they run under the model checker.
//!
//! | module | in a model |
//! |---|---|
//! | `polls`, `wait`, `user`, `cancel`, `stats`, `steps`; the engine | what they are everywhere |
//! | [`kernel`] | plays files, their numbers, one epoll, the io_urings and poll(2), in as many steps as others can see in the kernel |
//! | [`uring`] | passes on to it what the io_uring of ordinary builds tells the kernel |
//! | [`sys`] | passes on the other system calls |
//! | [`set`] | a set with the fields that those two use, in no table, and its bell from the start |
//! | [`section`] | its locks and names of threads; there are no signals |
//! | [`bell`], [`escape`] | the cookie and its removal, the moves lock |
//! | [`count`], [`listeners`], [`ring`], [`turns`] | nothing happens there |

pub(crate) mod kernel;
pub(crate) mod set;
pub(crate) mod sys;
pub(crate) mod uring;

pub(crate) mod bell {
    use super::kernel;
    use super::set::FdSet;
    use crate::sys::Errno;
    use core::ffi::c_int;
    use libc::epoll_event;

    pub(crate) fn install(_: &FdSet) -> Result<bool, Errno> {
        Ok(true)
    }

    pub(crate) fn install_held(_: &FdSet) -> Result<bool, Errno> {
        Ok(true)
    }

    pub(crate) fn has_ever_been_in(_: &FdSet) -> bool {
        true
    }

    pub(crate) fn cookie(_: &FdSet) -> u64 {
        kernel::BELL_DATA
    }

    /// # Safety
    /// There are `found` events.
    pub(crate) unsafe fn take_out(events: *mut epoll_event, found: c_int, is_bell: impl Fn(u64) -> bool) -> c_int {
        let mut kept = 0;
        for i in 0..found as usize {
            // SAFETY: the caller's contract.
            let event = unsafe { events.add(i).read_unaligned() };
            if !is_bell(event.u64) {
                // SAFETY: as above.
                unsafe { events.add(kept).write_unaligned(event) };
                kept += 1;
            }
        }
        kept as c_int
    }
}

pub(crate) mod count {
    use crate::stats::Stat;

    pub(crate) fn count(_: Stat, _: usize) {}
}

pub(crate) mod escape {
    use crate::stats::Stat;
    use crate::sys::Errno;
    use core::ffi::c_int;
    use loom::sync::{Mutex, MutexGuard};

    loom::lazy_static! {
        static ref MOVES: Mutex<()> = Mutex::new(());
    }

    pub(crate) fn hold_moves() -> MutexGuard<'static, ()> {
        MOVES.lock().unwrap()
    }

    pub(crate) fn wait_for_moves() {
        drop(hold_moves());
    }

    pub(crate) fn fd(_: c_int, _: Stat) -> bool {
        unreachable!("a bell is there")
    }

    pub(crate) fn complain(_: c_int, fd: c_int, error: Errno) {
        panic!("the kernel epoll does not take {fd}: {error:?}")
    }
}

pub(crate) mod listeners {
    pub(crate) fn handled() -> u32 {
        0
    }
}

pub(crate) mod ring {
    use libc::epoll_event;
    use wakeset::EventRing;

    pub(crate) fn take(_: EventRing<'_>, _: *mut epoll_event, _: usize) -> Option<usize> {
        None
    }
}

pub(crate) mod section {
    use core::cell::Cell;
    use wakeset::RawLock;

    loom::thread_local! {
        static OWNER: Cell<u32> = Cell::new(0);
    }

    pub(crate) fn owner() -> u32 {
        OWNER.with(Cell::get)
    }

    pub(crate) fn set_owner(owner: u32) {
        OWNER.with(|cell| cell.set(owner));
    }

    pub(crate) struct Section;

    impl Section {
        pub(crate) fn enter() -> Self {
            Self
        }
    }

    impl Drop for Section {
        fn drop(&mut self) {}
    }

    #[derive(Debug)]
    pub(crate) struct SectionLock(RawLock);

    impl SectionLock {
        pub(crate) fn new() -> Self {
            Self(RawLock::new())
        }

        pub(crate) fn lock(&self) {
            self.0.lock();
        }

        pub(crate) fn unlock(&self) {
            self.0.unlock();
        }

        /// # Safety
        /// As [`RawLock::free_in_child`].
        pub(crate) unsafe fn free_in_child(&self) {
            // SAFETY: the caller's contract.
            unsafe { self.0.free_in_child() };
        }
    }
}

pub(crate) mod turns {
    use super::set::FdSet;
    use core::ffi::c_int;
    use core::time::Duration;
    use libc::epoll_event;

    /// No listeners.
    #[derive(Debug)]
    pub(crate) struct Turns {
        pub(crate) looked: LastLook,
    }

    #[derive(Debug)]
    pub(crate) struct LastLook;

    impl LastLook {
        pub(crate) fn until_next(&self) -> Duration {
            Duration::MAX
        }
    }

    impl Turns {
        pub(crate) fn any(&self) -> bool {
            false
        }

        pub(crate) fn take_turns(&self, _: &FdSet) -> bool {
            true
        }

        pub(crate) fn rescue_if_due(&self, _: &FdSet) {}

        pub(crate) fn note_reports(&self, _: *const epoll_event, _: c_int, _: bool) {}

        pub(crate) fn report_missing(&self, _: *mut epoll_event, _: c_int) -> c_int {
            0
        }
    }
}
