//! Which threads sleep on a lock so that its holder inherits their priority: those of which a model
//! says so. In place of `sync/inheritance.rs`.

extern crate std;
use core::cell::Cell;
#[cfg(loom)]
use loom::thread_local;
#[cfg(shuttle)]
use shuttle::thread_local;

thread_local! {
    static WANTED: Cell<bool> = Cell::new(false);
}

pub(crate) fn enable(enabled: bool) {
    WANTED.with(|wanted| wanted.set(enabled));
}

pub(crate) fn wanted() -> bool {
    WANTED.with(Cell::get)
}

/// No thread is, for a spin.
pub(crate) fn is_real_time() -> bool {
    false
}
