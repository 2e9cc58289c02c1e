//! Panics that end here. How results become what a C function returns is in
//! [`wakeset_fd::interpose`], which the interposer uses, too.

pub(crate) use wakeset_fd::interpose::{
    answered, answered_int, answered_unit, fail, returned, returned_unit,
};

/// Runs the whole of a function that another unwinding may pass through (pthread_cancel(3)): a
/// panic of ours does not, it ends the process.
pub fn whole<T>(f: impl FnOnce() -> T) -> T {
    struct End {
        panicked: bool,
    }
    impl Drop for End {
        fn drop(&mut self) {
            if !self.panicked && std::thread::panicking() {
                std::process::abort();
            }
        }
    }
    let _end = End { panicked: std::thread::panicking() };
    f()
}
