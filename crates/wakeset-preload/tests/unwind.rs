//! The library is not linked to an unwinder, and finds one when it needs it. This program has the
//! library's file in place of the linker's `libgcc_s.so.1`, so its own panics go the same way.

#[path = "../src/unwind.rs"]
mod unwind;

use std::panic::{catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU32, Ordering};

/// Where the library looks for libc's functions, which this program has not replaced.
mod loader {
    pub(crate) fn next(name: &core::ffi::CStr) -> Option<usize> {
        // SAFETY: a C string.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        (!found.is_null()).then(|| found.expose_provenance())
    }
}

static DROPPED: AtomicU32 = AtomicU32::new(0);

struct Dropped;
impl Drop for Dropped {
    fn drop(&mut self) {
        DROPPED.fetch_add(1, Ordering::Relaxed);
    }
}

#[inline(never)]
fn unwind_through(frames: u32) {
    let _dropped = Dropped;
    if frames == 0 {
        resume_unwind(Box::new("thrown"));
    }
    unwind_through(frames - 1);
}

/// Whether libgcc's unwinder is in this process.
fn has_libgcc() -> bool {
    std::fs::read_to_string("/proc/self/maps").expect("maps").contains("/libgcc_s.so")
}

/// One test: which of several came first would decide what it finds.
#[test]
fn an_unwinder_is_found_when_it_is_needed() {
    assert!(!has_libgcc(), "it is linked to this program");
    let thrown = catch_unwind(|| unwind_through(9)).expect_err("caught");
    assert_eq!(thrown.downcast_ref::<&str>(), Some(&"thrown"));
    assert_eq!(DROPPED.load(Ordering::Relaxed), 10, "each frame was left in order");
    assert!(has_libgcc());
    let threads = [(); 4].map(|()| std::thread::spawn(|| unwind_through(3)));
    for thread in threads {
        assert!(thread.join().is_err());
    }
    assert_eq!(DROPPED.load(Ordering::Relaxed), 26);
    let trace = std::backtrace::Backtrace::force_capture().to_string();
    assert!(trace.contains("an_unwinder_is_found_when_it_is_needed"), "{trace}");
}
