//! The first listener of a set, for threads that sleep in its kernel half already.
//!
//! A set with listeners looks at them once in a while, because a connection may have woken a worker
//! that died ([`rotation`](crate::kernel_half::listeners::rotation)). A thread that went to sleep
//! before there was any sleeps without that limit: it is *unaware*. One of these is woken, and
//! sleeps again with the limit. Each that is woken wakes the next, before it sleeps again.
//!
//! The kernel wakes the thread that went to sleep last, which may be one that sleeps again already,
//! or one that has come since; and a wait that only looks may take the ring. So some stay unaware,
//! which does no harm while a thread beside them is not. So a wait that ends looks whether all that
//! sleep are unaware, and wakes one of them then.
//!
//! | the thread that adds, or whose wait ends | a thread that goes to sleep |
//! |---|---|
//! | the listener joins (or the thread counts itself out), then the count of those that are unaware | counts itself among them, then checks for listeners |

use crate::kernel_half::listeners::rotation::can_join;
use crate::kernel_half::listeners::{baton, is_listener, order};
use crate::set::{FdSet, doorbell};
use crate::sys::signal_guard::SignalGuard;
use crate::sys::sync::{AtomicU32, Ordering, after_publishing, const_fn, fence, mutant};
use crate::table::gate;
use core::ffi::c_int;
use wakeset::Events;

/// Before a watch for these events is added, with no lock held: the first listener that a process
/// waits for needs the baton.
#[inline]
pub(super) fn before_add(fd: c_int, events: Events) {
    if baton::number() < 0 && can_join(events) && order().is_some() && is_listener(fd) {
        baton::make(fd);
    }
}

/// The threads of a set that sleep in its kernel half without a limit for its listeners, or are
/// about to: there was none when they began. A count that is too high costs a ring.
#[derive(Debug)]
pub(crate) struct Unaware(AtomicU32);

impl Unaware {
    const_fn! {
        pub(super) const fn none() -> Self {
            Self(AtomicU32::new(0))
        }
    }

    /// For a new set.
    #[cfg_attr(loom, allow(dead_code, reason = "each model has a set of its own"))]
    pub(super) fn clear(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    pub(super) fn any(&self) -> bool {
        self.0.load(Ordering::SeqCst) != 0
    }
}

/// Counts in a thread that is about to sleep in the kernel half. Unless it has seen a listener, it
/// looks for one afterwards.
#[inline(always)]
pub(super) fn enter(set: &FdSet, is_aware: bool) {
    if !is_aware {
        // Before the count that has the barrier.
        set.unaware.0.fetch_add(1, Ordering::SeqCst);
    }
    set.set.enter_remote();
}

/// Counts it out.
#[inline(always)]
pub(super) fn leave(set: &FdSet, was_aware: bool) {
    if !was_aware {
        set.unaware.0.fetch_sub(1, Ordering::SeqCst);
    }
    set.set.leave_remote();
}

/// At the end of a wait: those that sleep on must not all be unaware of a listener.
#[inline]
pub(super) fn leave_to_others(set: &FdSet) {
    // It has counted itself out, which is a publication.
    after_publishing(false);
    if set.rotation.any() && set.unaware.any() && !mutant!("unaware_stay_alone") {
        tell_if_all_unaware(set);
    }
}

#[cold]
fn tell_if_all_unaware(set: &FdSet) {
    // A loop of the program's is counted for good, and does not sleep in here.
    let permanent = u64::from(set.state.is_exported());
    let sleepers = set.set.remote_waiters().saturating_sub(permanent);
    if (1..=u64::from(set.unaware.0.load(Ordering::SeqCst))).contains(&sleepers) {
        tell_sleeper(set);
    }
}

/// Wakes one of the threads that sleep in the kernel half, if any is unaware of a listener that the
/// set has.
pub(super) fn tell_sleeper(set: &FdSet) {
    if !mutant!("listener_without_fence") {
        fence(Ordering::SeqCst);
    }
    if !set.unaware.any() {
        return;
    }
    match doorbell::install(set) {
        Ok(true) => doorbell::ring_of(set),
        // They cannot be reached: the listeners are watched plainly, which needs no rescue.
        Ok(false) | Err(_) => {
            let _guard = SignalGuard::enter();
            let _migrating = gate::hold_migrations();
            set.rotation.make_plain(set);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::kernel_half::listeners::{self, Choice};
    use crate::table;
    use crate::table::alone::alone;
    use core::time::Duration;
    use libc::{EPOLL_CTL_ADD, EPOLLIN, epoll_event};
    use std::net::{TcpListener, UdpSocket};
    use std::os::fd::AsRawFd;
    use std::thread;
    extern crate std;

    fn until(mut holds: impl FnMut() -> bool) -> bool {
        (0..5_000).any(|_| {
            holds() || {
                thread::sleep(Duration::from_millis(1));
                false
            }
        })
    }

    fn wait(epfd: c_int, limit: c_int) -> usize {
        let mut event = epoll_event { events: 0, u64: 0 };
        // SAFETY: room for one event.
        unsafe { crate::epoll_wait(epfd, &raw mut event, 1, limit) }.expect("a wait") as usize
    }

    /// A thread whose ring another had, and that was the last to sleep, slept without a limit.
    #[test]
    fn no_wait_leaves_the_unaware_alone() {
        let _alone = alone();
        listeners::choose(Choice::Automatic, None);
        let epfd = crate::epoll_create1(0).expect("a number");
        let set = table::find::<FdSet>(epfd).expect("a set");
        let [file, other] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").expect("a port"));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let [file_fd, fd] = [file.as_raw_fd(), listener.as_raw_fd()];
        [file_fd, fd].into_iter().for_each(listeners::forget);
        let event = epoll_event { events: EPOLLIN as u32, u64: 1 };
        // SAFETY: an event.
        unsafe { crate::epoll_ctl(epfd, EPOLL_CTL_ADD, file_fd, &raw const event) }
            .expect("a watch");
        let sleeper = thread::spawn(move || wait(epfd, -1));
        assert!(until(|| set.unaware.any() && set.set.has_remote_waiter()));
        before_add(fd, Events::IN);
        let asked = wakeset::Event::new(Events::IN, 1);
        // The ring for it is another's.
        let joined = set.rotation.epoll_ctl(set, EPOLL_CTL_ADD, fd, &raw const event, asked);
        assert_eq!(joined, Ok(true));
        assert_eq!(wait(epfd, 0), 0);
        assert!(until(|| !set.unaware.any()), "it sleeps without a limit");
        other.send_to(b"x", file.local_addr().expect("bound")).expect("sent");
        assert_eq!(sleeper.join().expect("it ends"), 1);
        assert_eq!(set.set.remote_waiters(), 0);
        crate::close(epfd).expect("closed");
    }
}
