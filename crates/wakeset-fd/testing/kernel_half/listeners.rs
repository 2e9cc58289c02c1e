//! A kernel half without listeners.

pub(crate) mod baton {
    pub(crate) fn pass() {}
}

pub(crate) mod rotation {
    use crate::set::FdSet;
    use core::ffi::c_int;
    use core::time::Duration;
    use libc::epoll_event;
    use wakeset::Deadline;

    /// No listeners.
    #[derive(Debug)]
    pub(crate) struct Rotation {
        pub(crate) rescue_clock: RescueClock,
    }

    #[derive(Debug)]
    pub(crate) struct RescueClock;

    impl RescueClock {
        pub(crate) fn next(&self) -> Deadline {
            Deadline::now()
        }

        pub(crate) fn until_next(&self) -> Duration {
            Duration::MAX
        }
    }

    impl Rotation {
        pub(crate) fn may_spin(&self) -> bool {
            true
        }

        pub(crate) fn any(&self) -> bool {
            false
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

        pub(crate) fn note_other(&self, _: u64) {}

        pub(crate) fn report_missing(&self, _: *mut epoll_event, _: c_int, _: c_int) -> c_int {
            0
        }
    }
}
