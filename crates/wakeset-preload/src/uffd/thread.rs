//! What a thread has to give up before a handler of the program runs: a place in a queue or the
//! turn, and the doorbell that it sleeps by.

use super::groups::{Group, order};
use core::cell::Cell;
use core::ffi::c_int;
use core::mem::ManuallyDrop;
use core::ptr;
use syscalls::{Sysno, syscall as raw};
use wakeset_fd::doorbell::{self, Lent};
use wakeset_fd::signal_guard::SignalGuard;
use wakeset_group::leader::Waiter;

/// What this thread has to give up before a handler runs. With both pointers null it is in no queue
/// and does not have the turn.
pub(super) struct Call {
    pub(super) group: Cell<*const Group>,
    /// Its entry in the queue; null while it has the turn.
    pub(super) waiter: Cell<*const Waiter>,
    /// Its doorbell, and the group in whose queue it waits with it.
    doorbell: Cell<Option<(ManuallyDrop<Lent>, &'static Group)>>,
    /// It was told of a message and has not read since.
    pub(super) has_message: Cell<bool>,
}

impl Call {
    /// Gives the doorbell back, if the thread still has it. The thread must be out of the queue.
    pub(super) fn return_doorbell(&self) {
        if let Some((doorbell, group)) = self.doorbell.take() {
            // A thread that was about to ring it has done so after this.
            group.leadership.stamp();
            drop(ManuallyDrop::into_inner(doorbell));
        }
    }

    /// Runs `f` on the doorbell, in a critical section or a handler; `None` if a handler has had to
    /// give the doorbell back.
    fn with_doorbell<T>(&self, f: impl FnOnce(&Lent) -> T) -> Option<T> {
        let (doorbell, group) = self.doorbell.take()?;
        let result = f(&doorbell);
        self.doorbell.set(Some((doorbell, group)));
        Some(result)
    }

    /// Whether the thread still has its doorbell.
    fn has_doorbell(&self) -> bool {
        self.with_doorbell(|_| ()).is_some()
    }
}

thread_local! {
    // No destructor and no lazy part: a plain block in the thread's static TLS, safe in a handler.
    pub(super) static CALL: Call =
        const { Call {
            group: Cell::new(ptr::null()),
            waiter: Cell::new(ptr::null()),
            doorbell: Cell::new(None),
            has_message: Cell::new(false),
        } };
}

/// A number that no other live thread has: the address of its block.
pub(super) fn me() -> usize {
    CALL.with(|call| ptr::from_ref(call).addr())
}

/// Before a handler of the program runs on this thread: gives up what the thread has or waits for.
pub(crate) fn before_handler() {
    CALL.with(|call| {
        if call.group.get().is_null() && !call.has_doorbell() {
            return;
        }
        let _guard = SignalGuard::enter();
        // SAFETY: a group, for ever.
        if let Some(group) = unsafe { call.group.replace(ptr::null()).as_ref() } {
            // SAFETY: the waiter is on this thread's stack, in a call that is under way.
            match unsafe { call.waiter.replace(ptr::null()).as_ref() } {
                Some(waiter) => group.leadership.leave(waiter, order()),
                None => group.leadership.pass(order()),
            }
        }
        call.return_doorbell();
    });
}

/// Borrows a doorbell for this thread and returns its number. [`Call::return_doorbell`] gives it
/// back at the end of the call, or before a handler runs.
pub(super) fn borrow_doorbell(group: &'static Group) -> Option<c_int> {
    let _guard = SignalGuard::enter();
    let doorbell = doorbell::lend().ok()?;
    let fd = doorbell.fd();
    CALL.with(|call| call.doorbell.set(Some((ManuallyDrop::new(doorbell), group))));
    Some(fd)
}

/// Whether no handler has run since [`borrow_doorbell`].
pub(super) fn has_doorbell() -> bool {
    let _guard = SignalGuard::enter();
    CALL.with(Call::has_doorbell)
}

/// Takes what the doorbell holds, so that it is not readable any more.
pub(super) fn silence_doorbell() {
    let _guard = SignalGuard::enter();
    CALL.with(|call| {
        call.with_doorbell(|doorbell| {
            let mut rings = 0_u64;
            // SAFETY: memory for eight bytes. The read does not block.
            let _ = unsafe { raw!(Sysno::read, doorbell.fd(), &raw mut rings, 8) };
        })
    });
}
