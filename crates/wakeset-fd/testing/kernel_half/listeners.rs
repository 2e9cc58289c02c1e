//! A kernel half without listeners.

pub(crate) fn handled() -> u32 {
    0
}

pub(crate) mod rotation {
    use crate::set::FdSet;
    use core::ffi::c_int;
    use core::time::Duration;
    use libc::epoll_event;

    /// No listeners.
    #[derive(Debug)]
    pub(crate) struct Rotation {
        pub(crate) last_look: LastLook,
    }

    #[derive(Debug)]
    pub(crate) struct LastLook;

    impl LastLook {
        pub(crate) fn until_next(&self) -> Duration {
            Duration::MAX
        }
    }

    impl Rotation {
        pub(crate) fn any(&self) -> bool {
            false
        }

        pub(crate) fn rotate(&self, _: &FdSet) -> bool {
            true
        }

        pub(crate) fn rescue_if_due(&self, _: &FdSet) {}

        pub(crate) fn note_reports(&self, _: *const epoll_event, _: c_int, _: bool) {}

        pub(crate) fn report_missing(&self, _: *mut epoll_event, _: c_int) -> c_int {
            0
        }
    }
}
