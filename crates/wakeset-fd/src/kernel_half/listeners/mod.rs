//! Listening sockets: which numbers are some, and in which order the threads that wait on one are
//! woken for a connection ([`wakeset_group::listener`]).
//!
//! | file | what |
//! |---|---|
//! | this one | the order chosen for the process; signals between the pieces of a sleep |
//! | `alone` | those for which one thread of one process waits |
//! | `baton` | how a worker that does not accept wakes the next |
//! | `family` | how a process that was executed finds what those that share its listener have |
//! | `ending` | what a process that ends leaves to the others |
//! | `held` | which threads hold connections that they have accepted |
//! | `shares` | what the waiters of related processes hold, and which of them steps back |
//! | `told` | which listeners a thread is told of |
//! | `known` | what is known of each number, and the counts of listeners |
//! | `shared_hint` | which listeners have been waited on in turn, for related processes |
//! | `private_sets` | the epoll sets that threads sleep in while they wait on listeners |
//! | `rescue_clock` | when a waiter last checked its listeners without being told to |
//! | `rotation` | the listeners in the kernel half of a set |

mod alone;
pub mod baton;
mod ending;
mod family;
pub mod held;
mod known;
mod private_sets;
mod rescue_clock;
pub(crate) mod rotation;
mod shared_hint;
mod shares;
mod told;

pub use crate::stats::ListenerStat;
pub use alone::{any_alone, begin_alone, end_all_alone, end_alone, is_only_waiter};
pub use ending::{End, before_end};
pub use family::stay_apart;
pub(crate) use known::{confirm, is_other, kinds};
pub use known::{
    count, forget, forget_kind, forget_listener, forget_range, generation, is_known_listener,
    is_known_other, is_listener, is_stream, note_connection,
};
pub(crate) use private_sets::close_private_sets;
pub use private_sets::{
    claim_index, close_private_set, private_set, release_private_set, renew_private_set, sleeper,
};
pub use rescue_clock::RescueClock;
use shared_hint::note_exclusive_inode;
pub use shared_hint::{any_exclusive, is_exclusive, note_exclusive};
use shares::Least;
#[cfg(test)]
pub(crate) use shares::begin_in_silence;
pub use shares::{Share, another_holds_less, counts_held, give_up, may_step_back_in_accept};
pub use told::{Telling, note_emptied, set_telling};
pub use wakeset_group::listener::{
    Fired, MOST, Numbers, Obstacle, Order, RESCUE, Sleeper, Wanted, inode, is_ready,
};

use crate::kernel_half::program_rings;
use crate::table::gate;
use core::sync::atomic::{AtomicU8, Ordering};

/// The order in which waiters are woken. 0 is the kernel's, for which nothing is done.
static ORDER: AtomicU8 = AtomicU8::new(0);
/// Each waiter's own: see [`order_of`].
const AUTO: u8 = 4;
/// The waiter that holds least; of several, the one that has been idle longest.
const LEAST: u8 = 5;

/// How the waiter that is woken is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// By the kernel, for the program's own calls.
    Kernels,
    /// In this order.
    Ordered(Order),
    /// One that holds little keeps its place for a while, and others go to the end; one that holds
    /// more than another steps back, as often as what it holds pays for.
    Automatic,
    /// The waiter that holds least; of several, the one that has been idle longest.
    Least,
}

/// Before a fork: the child has the listeners, too.
pub fn before_fork() {
    end_all_alone();
    baton::before_fork();
}

/// Before a program is spawned.
pub fn before_spawn() {
    alone::end_inherited();
    baton::before_fork();
}

/// Chooses for this process. A waiter that holds `most` connections, or more, takes none while
/// another is free.
pub fn choose(choice: Choice, most: Option<u32>) {
    let word = match choice {
        Choice::Kernels => 0,
        Choice::Ordered(Order::Fifo) => 1,
        Choice::Ordered(Order::Lifo) => 2,
        Choice::Ordered(Order::Turns) => 3,
        Choice::Automatic => AUTO,
        Choice::Least => LEAST,
    };
    ORDER.store(word, Ordering::SeqCst);
    let most = most.filter(|_| choice != Choice::Kernels);
    let least = match choice {
        Choice::Least => Least::Always,
        Choice::Automatic => Least::OnCredit,
        _ => Least::No,
    };
    shares::set_rule(least, most);
}

/// The order; `None` where everything is left to the kernel: because that was chosen, because the
/// kernel knows no exclusive watches, or because the process has done something after which
/// everything is. Where it depends on the waiter, this is the one of those that hold nothing.
#[inline]
pub fn order() -> Option<Order> {
    let order = match ORDER.load(Ordering::Relaxed) {
        1 | LEAST => Order::Fifo,
        2 => Order::Lifo,
        3 | AUTO => Order::Turns,
        _ => return None,
    };
    (gate::may_open() && !program_rings::any_waiting()).then_some(order)
}

/// The [`order`] of a waiter that is about to sleep, which is a thread or the process
/// ([`held`]). The automatic order is [`Order::Turns`] while the waiter holds few connections that
/// it has accepted, or none, so that its caches stay warm, and otherwise [`Order::Fifo`]: the next
/// connection goes to a worker that has been idle for longer.
pub fn order_of(holder: u8) -> Option<Order> {
    let order = order()?;
    let is_automatic = ORDER.load(Ordering::Relaxed) == AUTO;
    Some(if is_automatic && held::holds_many(holder) { Order::Fifo } else { order })
}
