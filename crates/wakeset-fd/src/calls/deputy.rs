//! The thread that migrates for a vfork(2) child: its parent's deputy, while the thread that called
//! vfork(2) waits. `sys/vforked.rs` has what they say to each other, and `docs/design/fork.md` why
//! this is exact.

pub(super) mod forked;
mod thread;

pub use forked::{
    Child, Server, before_end, before_thread_end, end_all, is_only_thread, refuse_forks,
};

use crate::migrate;
use crate::objects::pipe;
use crate::stats::Stat;
use crate::sys::signal_guard::{self, SignalGuard};
use crate::sys::vforked::{Request, Wish};
use crate::table::{self, away, gate, inherited};
use core::sync::atomic::{AtomicBool, Ordering};

/// Whether deputies must not be made.
static REFUSED: AtomicBool = AtomicBool::new(false);

/// From now on everything migrates before a vfork(2): the program has a filter for system calls,
/// whose author does not know of the thread that would be made.
pub fn refuse() {
    REFUSED.store(true, Ordering::Relaxed);
    // One that is there would come under the filter, or be left out of it; and what a forked child
    // asks by may be refused from now on. A fork that has not seen the word holds the lock that
    // `end_all` takes.
    end_all();
    if !signal_guard::is_inside() {
        inherited::settle();
    }
}

/// Migrates nothing before a vfork(2), if there is a deputy for what the child needs. `Some(None)`
/// if there is nothing that it could need. The gate is closed then.
pub(super) fn begin() -> Option<Option<&'static Request>> {
    if REFUSED.load(Ordering::Relaxed) || signal_guard::is_inside() {
        return None;
    }
    gate::close();
    if away::any() || pipe::were_kept() {
        // What is on its way home is there when the child begins; from now on nothing sets out.
        let _guard = SignalGuard::enter();
        let _migrating = gate::hold_migrations();
        pipe::give_up_all_kept(Stat::MigratedVfork);
    }
    if !table::numbers().any(|fd| table::peek(fd).is_object()) {
        return Some(None);
    }
    let request = make();
    if request.is_none() {
        gate::open();
    }
    request.map(Some)
}

/// Makes a deputy, and the request that it serves.
fn make() -> Option<&'static Request> {
    let made = thread::is_possible().then(|| thread::start(Request::new, serve, None));
    let (deputy, request) = made.flatten()?;
    request.begin(deputy);
    Some(request)
}

/// The deputy.
extern "C" fn serve(request: &'static Request) -> ! {
    request.serve(|wish| match wish {
        Wish::Number(fd) => _ = migrate::fd(fd, Stat::MigratedVfork),
        Wish::Everything => migrate::everything_behind_gate(Stat::MigratedVfork),
        Wish::EverythingForGood => migrate::everything_for_good(Stat::MigratedUnmodelled),
    });
    thread::end(request.memory())
}
