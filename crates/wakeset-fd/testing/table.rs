//! What modules do at a fork, a renumbering or a close is what it is in every build. The migrations
//! lock is loom's.

#[path = "../src/table/lifecycle.rs"]
pub(crate) mod lifecycle;

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
