//! A model of a calm set: a wait that takes no lock knows a listener's event.

use crate::kernel_half::listeners::calm::Calm;
use libc::{EPOLLIN, epoll_event};
use loom::sync::Mutex;
use loom::thread::spawn;
use std::sync::Arc;
use wakeset::{Deadline, explore};

/// The data of the first listener, and of one that is added to it.
const FIRST: u64 = 7;
const SECOND: u64 = 8;

/// Catches an event of a listener that a wait takes for another's, because the set was calm before
/// the listener came and is so again.
#[test]
fn a_calm_set_knows_a_new_listener() {
    explore(3, || {
        let until = Deadline::from_nanos(1);
        let set = Arc::new((Calm::none(), Mutex::new(false)));
        set.0.begin([FIRST, FIRST], 0, until);
        let waiter = {
            let set = Arc::clone(&set);
            spawn(move || {
                let (calm, is_reported) = &*set;
                let event = epoll_event { events: EPOLLIN as u32, u64: SECOND };
                let is_reported = *is_reported.lock().unwrap();
                is_reported && calm.is() && !calm.is_listeners(event)
            })
        };
        let (calm, is_reported) = &*set;
        calm.end();
        // The kernel reports it from here on.
        *is_reported.lock().unwrap() = true;
        calm.begin([FIRST, SECOND], 0, until);
        assert!(!waiter.join().unwrap(), "it is taken for another's");
    });
}

/// Catches the same where the calm was paused by a connection, and goes on by another thread than
/// that which has added the listener.
#[test]
fn a_calm_that_goes_on_knows_a_new_listener() {
    explore(3, || {
        let until = Deadline::from_nanos(1);
        let set = Arc::new((Calm::none(), Mutex::new(()), Mutex::new(false)));
        set.0.begin([FIRST, FIRST], 0, until);
        let waiter = {
            let set = Arc::clone(&set);
            spawn(move || {
                let (calm, _, is_reported) = &*set;
                let event = epoll_event { events: EPOLLIN as u32, u64: SECOND };
                let is_reported = *is_reported.lock().unwrap();
                is_reported && calm.is() && !calm.is_listeners(event)
            })
        };
        let minder = {
            let set = Arc::clone(&set);
            spawn(move || {
                let (calm, lock, _) = &*set;
                let guard = lock.lock().unwrap();
                calm.pause();
                drop(guard);
                let _guard = lock.lock().unwrap();
                calm.go_on();
            })
        };
        let (calm, lock, is_reported) = &*set;
        let guard = lock.lock().unwrap();
        calm.end();
        *is_reported.lock().unwrap() = true;
        calm.begin([FIRST, SECOND], 0, until);
        drop(guard);
        minder.join().unwrap();
        assert!(!waiter.join().unwrap(), "it is taken for another's");
    });
}
