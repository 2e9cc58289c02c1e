//! What modules do at a fork, a renumbering or a close is what it is in every build. The migrations
//! lock is loom's. No doorbell is left over from another set.

use core::ffi::c_int;

#[path = "../src/table/lifecycle.rs"]
pub(crate) mod lifecycle;

#[path = "../src/table/away/word.rs"]
pub(crate) mod away_word;

#[path = "../src/table/hidden/claims.rs"]
pub(crate) mod hidden_claims;

/// No number stands for a set: the models have the sets themselves.
pub(crate) fn find_plain<S>(_: c_int) -> Option<&'static S> {
    None
}

pub(crate) struct Using<S: 'static>(&'static S);

impl<S> Using<S> {
    pub(crate) fn begin(_: c_int, set: &'static S) -> Option<Self> {
        Some(Self(set))
    }
}

impl<S> core::ops::Deref for Using<S> {
    type Target = S;
    fn deref(&self) -> &S {
        self.0
    }
}

pub(crate) fn take_spare_doorbell() -> Option<c_int> {
    None
}

pub(crate) fn spare_doorbell(_: c_int) {}

pub(crate) mod hidden {
    use crate::sys::sync::{AtomicI32, Ordering};
    use core::ffi::c_int;

    pub(crate) fn make(make: impl FnOnce() -> Option<c_int>) -> Option<c_int> {
        make()
    }

    pub(crate) fn close(_: c_int) -> bool {
        true
    }

    /// The program has numbers enough.
    pub(crate) fn close_in(_: &AtomicI32, _: c_int) -> bool {
        unreachable!("nothing is given up")
    }

    /// No number changes while a set has it, so that one step is enough.
    pub(crate) fn spare_in(field: &AtomicI32, none: c_int, leave: impl FnOnce(c_int)) {
        let doorbell = field.swap(none, Ordering::SeqCst);
        if doorbell >= 0 {
            leave(doorbell);
        }
    }
}

pub(crate) mod gate {
    use loom::sync::{Mutex, MutexGuard};

    loom::lazy_static! {
        static ref MIGRATIONS: Mutex<()> = Mutex::new(());
    }

    pub(crate) fn hold_migrations() -> MutexGuard<'static, ()> {
        MIGRATIONS.lock().unwrap()
    }

    pub(crate) fn wait_for_migrations() {
        drop(hold_migrations());
    }
}
