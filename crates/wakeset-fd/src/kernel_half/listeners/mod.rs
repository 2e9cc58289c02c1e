//! Listening sockets: which numbers are some, and in which order the threads that wait on one are
//! woken for a connection ([`wakeset_group::listener`]).
//!
//! | file | what |
//! |---|---|
//! | this one | the order chosen for the process; signals between the pieces of a sleep |
//! | `known` | what is known of each number, and the counts of listeners |
//! | `shared_hint` | which listeners have been waited on in turn, for related processes |
//! | `private_sets` | the epoll sets that threads sleep in while they wait on listeners |
//! | `last_look` | when a waiter last checked its listeners without being told to |
//! | `rotation` | the listeners in the kernel half of a set |

mod known;
mod last_look;
mod private_sets;
pub(crate) mod rotation;
mod shared_hint;

pub use crate::stats::ListenerStat;
pub(crate) use known::confirm;
pub use known::{
    count, forget, forget_listener, forget_range, generation, is_listener, note_connection,
};
pub use last_look::LastLook;
pub use private_sets::{claim_index, close_private_set, private_set, renew_private_set};
pub use shared_hint::{any_exclusive, is_exclusive, note_exclusive, share_hint};
pub use wakeset_group::listener::{
    Fired, MOST, Numbers, Obstacle, Order, RESCUE, Sleeper, Wanted, inode, is_ready,
};

use crate::table::gate;
use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

/// The order in which waiters are woken. 0 is the kernel's, for which nothing is done.
static ORDER: AtomicU8 = AtomicU8::new(0);

/// Chooses the order for this process; `None` leaves everything to the kernel.
pub fn set_order(order: Option<Order>) {
    let word = match order {
        None => 0,
        Some(Order::Fifo) => 1,
        Some(Order::Lifo) => 2,
        Some(Order::Turns) => 3,
    };
    ORDER.store(word, Ordering::SeqCst);
}

/// The order; `None` where everything is left to the kernel: because that was chosen, because the
/// kernel knows no exclusive watches, or because the process has done something after which
/// everything is.
#[inline]
pub fn order() -> Option<Order> {
    let order = match ORDER.load(Ordering::Relaxed) {
        1 => Order::Fifo,
        2 => Order::Lifo,
        3 => Order::Turns,
        _ => return None,
    };
    gate::may_open().then_some(order)
}

/// Returns how many signals the calling thread has handled: a `fn() -> u32` as an address, 0 for
/// none.
static HANDLED: AtomicUsize = AtomicUsize::new(0);

/// Installs the function that returns how many signals the calling thread has handled.
pub fn set_handled(handled: fn() -> u32) {
    HANDLED.store(handled as *const () as usize, Ordering::Release);
}

/// How many signals the calling thread has handled. A wait that sleeps in pieces ends with EINTR if
/// the number has grown between two of them.
pub(crate) fn handled() -> u32 {
    let handled = HANDLED.load(Ordering::Acquire);
    if handled == 0 {
        return 0;
    }
    // SAFETY: only `set_handled` stores here, and it stores a `fn() -> u32`.
    unsafe { core::mem::transmute::<*const (), fn() -> u32>(handled as *const ())() }
}
