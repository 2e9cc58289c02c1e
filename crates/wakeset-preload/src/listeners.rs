//! Waits on listening sockets: a connection wakes one waiter, and not every thread that polls the
//! listener.
//!
//! A thread that polls or selects listeners sleeps in a private epoll set instead
//! ([`Sleeper`](wakeset_fd::listeners::Sleeper)). If it wakes to connections and nothing else, the
//! kernel has said all there is to tell the program; after anything else the program's call is made
//! without time to sleep, so that nothing of it is modelled here. A call that the private set
//! cannot stand in for goes to the kernel as it is. Once in
//! [`RESCUE`](wakeset_fd::listeners::RESCUE) each thread makes the call in any case, so that a
//! connection whose waiter died is found: no sleep lasts longer, and what ends sleeps or calls
//! earlier does not put it off.
//!
//! | file | concept |
//! |---|---|
//! | `call` | a program's call: what it is about, and what can be asked of it |
//! | `ending` | how a thread hears of its own end, and what it and the process leave behind |
//! | `habits` | what a thread has learned about accept(2) |
//! | `steps` | how a thread leaves a connection to one that holds less |
//! | `thread` | what a thread keeps: its private set, and what it has learned |
//! | `told` | what it was told of and has not accepted, which it passes on |
//! | `wait` | the wait itself |
//! | `poll`, `select`, `accept` | the three kinds of call |
//!
//! **Signals.** A call of poll(2) ends with EINTR if a handler runs at any time between its
//! beginning and its end. Ours makes several system calls, and a handler that ran between two must
//! not be forgotten. So each thread counts the signals that it handles, and a sleep does not begin
//! once the count has changed ([`signals::sleep`]). A sleep in an epoll set
//! also ends when the process is stopped and continued, or traced, which poll(2) does not: then
//! nothing was counted, and the sleep goes on.
//!
//! **accept(2)** that finds nothing is expensive: the kernel makes a socket and a descriptor first.
//! A thread that accepts until there is nothing left is answered by a look at the listener, once
//! that guess has come true often enough. So is a thread that a wait told of a connection, if other
//! threads are often faster: a thread that has finished a request accepts once more before it
//! waits, and finds the connection that another thread was woken for.
//!
//! **Standing back.** A client that is back at once wakes the next thread in the queue while the
//! worker that has served it is on its way back, and both find the connection: often within the
//! same few microseconds, because the client's going to sleep lets the worker go on and also gives
//! the other thread a processor. So a worker that returns and finds a connection it was not woken
//! for leaves it alone for [`STAND_BACK`](habits::STAND_BACK), if such connections have often been
//! another's ([`ANOTHERS`](habits::ANOTHERS)). Nothing depends on it: the thread that was woken may
//! be dead, and if the connection is still there afterwards, the worker takes it.
//!
//! **accept(2) that blocks** is the kernel's, which wakes one thread for a connection, in order.
//! But a thread that sleeps there cannot check by itself, so where other threads wait in turn
//! ([`is_exclusive`](wakeset_fd::listeners::is_exclusive)) it sleeps in its private set first, as a
//! poll(2) would, and calls accept(2) when there is something. A call that would end by itself
//! (`SO_RCVTIMEO`), or that another thread overtakes in that moment, blocks in the kernel.

mod accept;
mod call;
mod ending;
mod habits;
mod poll;
mod select;
mod steps;
mod thread;
mod told;
mod wait;

pub(crate) use accept::{accept, give_up_set};
pub(crate) use call::Outcome;
pub(crate) use ending::before_end;
pub(crate) use poll::poll;
pub(crate) use select::select;
pub(crate) use told::{
    after_change, around_close, before_wait, begin_in_child, has_left, has_told,
};

use crate::{environment, signals};
use wakeset_fd::handled;
use wakeset_fd::listeners::{self, Choice, Order};

/// Before main: reads the order that `wakeset run` has put into the environment.
pub(crate) fn start() {
    listeners::choose(chosen(), most_connections());
    // SAFETY: this thread's own.
    let any = || unsafe { signals::handled().read_volatile() };
    // SAFETY: as above.
    let not_restarting = || unsafe { signals::not_restarting().read_volatile() };
    handled::set_counts(any, not_restarting);
    listeners::set_telling(&told::TELLING);
}

/// Whether a wait for connections on this number takes turns with others.
#[inline]
pub(crate) fn take_turns(fd: core::ffi::c_int) -> bool {
    listeners::order().is_some()
        && !wakeset_fd::descriptor::is_in_process(fd)
        && listeners::is_listener(fd)
}

/// Whether a wait for connections on this number, and for objects in process, takes turns with
/// others: then the objects have to migrate.
pub(crate) fn take_turns_beside_objects(fd: core::ffi::c_int) -> bool {
    take_turns(fd) && !thread::is_only_waiter(fd)
}

/// What `WAKESET_ORDER` says.
fn chosen() -> Choice {
    let Some(value) = environment::setting(c"WAKESET_ORDER") else { return Choice::Automatic };
    match value.to_bytes() {
        b"auto" => Choice::Automatic,
        b"least" => Choice::Least,
        b"fifo" => Choice::Ordered(Order::Fifo),
        b"lifo" => Choice::Ordered(Order::Lifo),
        b"turns" => Choice::Ordered(Order::Turns),
        b"kernel" => Choice::Kernels,
        _ => {
            environment::unknown(c"WAKESET_ORDER=", value, "the order is auto");
            Choice::Automatic
        }
    }
}

/// What `WAKESET_MAX_CONNECTIONS` says.
fn most_connections() -> Option<u32> {
    let value = environment::setting(c"WAKESET_MAX_CONNECTIONS")?;
    let most = value.to_str().ok().and_then(|most| most.parse().ok()).filter(|most| *most > 0);
    if most.is_none() {
        environment::unknown(
            c"WAKESET_MAX_CONNECTIONS=",
            value,
            "there is no limit (a number from 1 is one)",
        );
    }
    most
}
