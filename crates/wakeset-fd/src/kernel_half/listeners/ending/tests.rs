use super::super::{
    Choice, Order, Sleeper, choose, claim_index, is_listener, release_private_set,
    renew_private_set,
};
use super::*;
use crate::sys::{self, process};
use crate::table::alone::alone;
use crate::table::gate;
use core::ffi::c_int;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
extern crate std;

/// Whether the baton was passed on since this was last asked.
fn was_passed() -> bool {
    let mut bytes = [0_u8; 512];
    sys::read(baton::number(), bytes.as_mut_ptr(), bytes.len()).is_ok()
}

struct World {
    listener: TcpListener,
}

impl World {
    /// A process that waits on a listener.
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        choose(Choice::Ordered(Order::Fifo), None);
        // What numbers were in other tests, which do not tell of each close.
        super::super::forget_range(0, u32::MAX);
        baton::make(listener.as_raw_fd());
        assert!(is_listener(listener.as_raw_fd()) && baton::number() >= 0);
        note_waiting();
        let _ = was_passed();
        Self { listener }
    }

    fn fd(&self) -> c_int {
        self.listener.as_raw_fd()
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect(self.listener.local_addr().unwrap()).unwrap()
    }

    /// A set of the program's that watches the listener. A wait has added the baton.
    fn waited_in(&self) -> c_int {
        let set = crate::epoll_create1(0).unwrap();
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: LISTENER };
        // SAFETY: a valid event, and room for one.
        unsafe {
            crate::epoll_ctl(set, libc::EPOLL_CTL_ADD, self.fd(), &raw const event).unwrap();
            assert_eq!(crate::epoll_wait(set, &raw mut event, 1, 1), Ok(0));
        }
        set
    }
}

impl Drop for World {
    fn drop(&mut self) {
        super::super::forget(self.fd());
        WAITING.store(0, Ordering::Relaxed);
        choose(Choice::Kernels, None);
    }
}

/// A connection whose worker ended without accepting it waited for the second of rescue.
#[test]
fn a_process_that_ends_passes_on_what_it_has_not_accepted() {
    let _alone = alone();
    let world = World::new();
    before_end(End::Exit, || 1);
    assert!(!was_passed(), "there is no connection");
    let _client = world.connect();
    before_end(End::Exit, || 1);
    assert!(was_passed());
    world.listener.accept().unwrap();
    before_end(End::Exit, || 1);
    assert!(!was_passed(), "it was accepted");
}

/// The end may come while another thread migrates, or in the middle of a migration of its own.
#[test]
fn an_end_waits_for_no_lock() {
    let _alone = alone();
    let world = World::new();
    let _client = world.connect();
    let migrating = gate::hold_migrations();
    before_end(End::Exit, || 1);
    drop(migrating);
    assert!(was_passed());
}

#[test]
fn a_process_that_has_not_waited_leaves_connections_alone() {
    let _alone = alone();
    let world = World::new();
    let _client = world.connect();
    WAITING.store(wakeset::process_id() + 1, Ordering::Relaxed);
    before_end(End::Exit, || 1);
    assert!(!was_passed(), "its parent has");
    note_waiting();
    choose(Choice::Kernels, None);
    before_end(End::Exit, || 1);
    assert!(!was_passed(), "everything is the kernel's");
    choose(Choice::Ordered(Order::Fifo), None);
    assert_eq!(process::memory(), process::Memory::Own);
    before_end(End::Exit, || 1);
    assert!(was_passed());
}

/// The data of the program's watch.
const LISTENER: u64 = 1;

/// Whether the baton has something to say in a kernel epoll.
fn is_told(epoll: c_int) -> bool {
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 4];
    let found = sys::epoll_pwait(epoll, events.as_mut_ptr(), 4, 0, core::ptr::null(), 0).unwrap();
    events[..found as usize].iter().any(|event| event.u64 != LISTENER)
}

/// What was passed on woke another thread of the same process, and ended with it.
#[test]
fn a_process_that_ends_passes_nothing_to_its_own_threads() {
    let _alone = alone();
    let world = World::new();
    let index = claim_index().unwrap();
    let mut sleeper = Sleeper::new();
    renew_private_set(index, &mut sleeper).unwrap();
    sleeper.watch_baton(baton::number());
    let set = world.waited_in();
    // Another process's.
    let other = sys::epoll_create1(0).unwrap();
    assert!(baton::watch_in(other, 0, baton::number()));
    let all = [sleeper.set(), set, other];
    let _ = all.map(is_told);
    let _client = world.connect();
    before_end(End::Exec, || 1);
    assert_eq!(all.map(is_told), [true; 3], "the exec may fail");
    before_end(End::Exit, || 1);
    assert_eq!(all.map(is_told), [false, false, true]);
    crate::close(set).unwrap();
    sys::close(other).unwrap();
    release_private_set();
}

/// A set left the queue when the baton had just woken a thread there, which found nothing any more.
#[test]
fn a_set_that_leaves_the_queue_passes_the_baton_on() {
    let _alone = alone();
    let world = World::new();
    let set = world.waited_in();
    assert!(!was_passed());
    crate::migrate::fd(set, crate::stats::Stat::MigratedDuplicate);
    assert!(was_passed(), "it is the kernel's");
    crate::close(set).unwrap();
    let set = world.waited_in();
    baton::begin_round(1);
    // SAFETY: no event is needed.
    unsafe { crate::epoll_ctl(set, libc::EPOLL_CTL_DEL, world.fd(), core::ptr::null()) }.unwrap();
    assert!(was_passed(), "it has no listener");
    crate::close(set).unwrap();
}
