//! Three programs, each with an error that one of the tools of `ci/sanitizers` has to find. A tool
//! that finds nothing here finds nothing anywhere. That script compiles this file with each tool's
//! own flags and exceptions.

use std::hint::black_box;

static mut SHARED: u64 = 0;

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("use-after-free") => {
            let memory = Box::into_raw(Box::new(black_box(7_u64)));
            // SAFETY: the first two are right; the third is the error.
            unsafe {
                black_box(*memory);
                drop(Box::from_raw(memory));
                black_box(*memory);
            }
        }
        Some("leak") => {
            // In a frame that is gone and overwritten at the end, so that no copy of the address
            // is left on the stack.
            fn lose(depth: u32) {
                if depth == 0 {
                    black_box(Box::leak(Box::new(black_box([7_u64; 100]))));
                } else {
                    lose(black_box(depth - 1));
                }
            }
            lose(10);
            (0..20).for_each(|i| drop(black_box(vec![0_u8; 100 * i])));
        }
        Some("race") => {
            // SAFETY: there is none: this is the error.
            let add = || (0..1000).for_each(|_| unsafe { SHARED += black_box(1) });
            let other = std::thread::spawn(add);
            add();
            other.join().unwrap();
        }
        other => panic!("no such error: {other:?}"),
    }
}
