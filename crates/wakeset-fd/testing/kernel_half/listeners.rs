//! Listeners that are there or not, with nothing to do for them: a set that has any is calm.

#[path = "../../src/kernel_half/listeners/rotation/calm/state.rs"]
pub(crate) mod calm;
#[path = "../../src/kernel_half/listeners/rotation/leftover.rs"]
pub(crate) mod leftover;
pub(crate) mod members;

use core::ffi::c_int;

pub(crate) mod baton {
    use core::ffi::c_int;

    pub(crate) type Notes = u128;

    pub(crate) fn pass() {}

    pub(crate) fn number() -> c_int {
        -1
    }

    pub(crate) fn make(_: c_int) {}
}

pub(crate) fn order() -> Option<()> {
    None
}

pub(crate) fn is_listener(_: c_int) -> bool {
    false
}

pub(crate) mod rotation {
    use crate::set::FdSet;
    use crate::sys::sync::{AtomicBool, Ordering};
    use core::ffi::c_int;
    use core::time::Duration;
    use libc::epoll_event;
    use wakeset::{Deadline, Events, Timeout};

    /// Until the listeners are looked at.
    const RESCUE: Duration = Duration::from_secs(1);

    pub(crate) fn can_join(_: Events) -> bool {
        false
    }

    #[derive(Debug)]
    pub(crate) struct Rotation {
        any: AtomicBool,
        pub(crate) rescue_clock: RescueClock,
    }

    #[derive(Debug)]
    pub(crate) struct RescueClock;

    impl RescueClock {
        pub(crate) fn next(&self) -> Deadline {
            Deadline::of(Timeout::After(RESCUE)).unwrap()
        }

        pub(crate) fn until_next(&self) -> Duration {
            RESCUE
        }
    }

    impl Rotation {
        pub(crate) fn new() -> Self {
            Self { any: AtomicBool::new(false), rescue_clock: RescueClock }
        }

        /// The set has its first listener.
        pub(crate) fn join(&self) {
            self.any.store(true, Ordering::Relaxed);
        }

        pub(crate) fn make_plain(&self, _: &FdSet) {
            unreachable!("a doorbell is there")
        }

        pub(crate) fn is_calm(&self) -> bool {
            self.any()
        }

        pub(crate) fn is_calm_alone(&self) -> bool {
            self.is_calm()
        }

        pub(crate) fn sleep_calmly(&self) {}

        pub(crate) fn wake_calmly(&self) {}

        pub(crate) fn mind(&self, _: &FdSet) {}

        pub(crate) fn takes(&self) -> bool {
            false
        }

        pub(crate) fn calm_left(&self, _: Deadline) -> Option<Duration> {
            self.any().then_some(RESCUE)
        }

        pub(crate) fn is_listeners(&self, _: epoll_event) -> bool {
            false
        }

        pub(crate) fn may_spin(&self) -> bool {
            true
        }

        pub(crate) fn any(&self) -> bool {
            self.any.load(Ordering::Relaxed)
        }

        pub(crate) fn rotate(&self, _: &FdSet) -> Option<Duration> {
            None
        }

        pub(crate) fn rescue_if_due(&self, _: &FdSet) -> Option<Duration> {
            None
        }

        pub(crate) fn note_reports(&self, _: *const epoll_event, _: c_int, _: bool) {}

        pub(crate) fn looks_first(&self) -> bool {
            false
        }

        pub(crate) fn note_nothing(&self) {}

        pub(crate) fn take_baton(&self, _: &FdSet, _: c_int) -> bool {
            false
        }

        pub(crate) fn set_alarm(&self, _: &FdSet) -> bool {
            true
        }

        pub(crate) fn take_alarm(&self, _: &FdSet, _: impl FnOnce() -> bool) {}

        pub(crate) fn step_back(
            &self,
            _: &FdSet,
            _: *mut epoll_event,
            found: c_int,
        ) -> (c_int, bool) {
            (found, false)
        }

        pub(crate) unsafe fn leave_for_now(&self, _: *mut epoll_event, found: c_int) -> c_int {
            found
        }

        pub(crate) fn outstays(&self, _: impl FnOnce() -> Duration) -> bool {
            false
        }

        pub(crate) fn end_wait(&self, _: &FdSet) {}

        pub(crate) fn has_baton(&self) -> bool {
            false
        }

        pub(crate) fn note_sleep(&self, _: c_int, _: c_int) {}

        pub(crate) fn begin_wait(&self) -> u32 {
            0
        }

        pub(crate) fn note_wait(&self, _: u32, _: c_int, _: c_int) {}

        pub(crate) fn note_other(&self, _: u64) {}

        pub(crate) fn report_missing(&self, _: *mut epoll_event, _: c_int, _: c_int) -> c_int {
            0
        }
    }
}
