//! What a set leaves behind when the program stops watching a listener.
//!
//! nginx does so after every 16 connections, and adds its listener again at once. So what takes a
//! system call, or wakes another worker, is left out where it is known to be for nothing: the look
//! for a connection ([`may_have_left`]), and the removal of the baton's watch, which stays until
//! the next sleep (`rotation/batons.rs`).

use crate::kernel_half::KernelEpoll;
use crate::set::FdSet;
use crate::table::{self, Using};
use core::ffi::c_int;

/// Whether a set may have used up the wake for a connection without having told any thread of it
/// (`kernel_half::listeners::rotation::leftover`). It has just ceased to watch the listener, in a
/// call that is over. A set of which not all is known may have.
pub fn may_have_left(epfd: c_int, listener: c_int) -> bool {
    let set = table::find_plain::<FdSet>(epfd).and_then(|set| Using::begin(epfd, set));
    set.is_none_or(|set| {
        let is_known = set.state.is_plainly_mixed() && !set.polls.are_active();
        set.rotation.may_have_left(listener, is_known && set.is_in_one_call())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel_half::listeners::{self, Choice, baton};
    use crate::sys;
    use crate::table::alone::alone;
    use core::ptr;
    use core::time::Duration;
    use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLLIN, epoll_event};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    use std::thread;
    extern crate std;

    const NOTHING: epoll_event = epoll_event { events: 0, u64: 0 };

    /// A set with a listener and a connection, of a worker that has waited.
    struct Worker {
        epfd: c_int,
        listener: TcpListener,
        other: TcpStream,
        clients: std::vec::Vec<TcpStream>,
    }

    impl Worker {
        fn new() -> Self {
            listeners::choose(Choice::Automatic, None);
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            let client = TcpStream::connect(listener.local_addr().expect("bound"));
            let clients = std::vec![client.expect("a connection")];
            let (other, _) = listener.accept().expect("a connection");
            let epfd = crate::epoll_create1(0).expect("a number");
            let worker = Self { epfd, listener, other, clients };
            // What they were in another test.
            [worker.number(), worker.other.as_raw_fd()].into_iter().for_each(listeners::forget);
            listeners::begin_in_silence(Choice::Automatic, None);
            worker.ctl(EPOLL_CTL_ADD, worker.other.as_raw_fd());
            worker.ctl(EPOLL_CTL_ADD, worker.number());
            assert_eq!(worker.wait(8, 1), 0);
            worker
        }

        fn number(&self) -> c_int {
            self.listener.as_raw_fd()
        }

        fn ctl(&self, op: c_int, fd: c_int) {
            let event = epoll_event { events: EPOLLIN as u32, u64: fd as u64 };
            // SAFETY: an event.
            unsafe { crate::epoll_ctl(self.epfd, op, fd, &raw const event) }.expect("changed");
        }

        fn wait(&self, capacity: c_int, limit: c_int) -> c_int {
            let mut events = [NOTHING; 8];
            // SAFETY: room for so many.
            unsafe { crate::epoll_wait(self.epfd, events.as_mut_ptr(), capacity, limit) }
                .expect("a wait")
        }

        fn connect(&mut self) {
            let client = TcpStream::connect(self.listener.local_addr().expect("bound"));
            self.clients.push(client.expect("a connection"));
        }

        /// Removes the listener's watch: whether it may have left a connection to nobody.
        fn leaves(&self) -> bool {
            self.ctl(EPOLL_CTL_DEL, self.number());
            may_have_left(self.epfd, self.number())
        }

        fn set(&self) -> &'static FdSet {
            table::find(self.epfd).expect("a set")
        }
    }

    impl Drop for Worker {
        fn drop(&mut self) {
            let _ = crate::close(self.epfd);
        }
    }

    /// nginx woke another worker after each 16th connection, if the next was there by then.
    #[test]
    fn a_set_that_no_thread_is_in_leaves_nothing() {
        let _alone = alone();
        let mut worker = Worker::new();
        worker.connect();
        assert!(!worker.leaves(), "it has not slept");
        worker.ctl(EPOLL_CTL_ADD, worker.number());
        assert_eq!(worker.wait(8, 1), 1);
        assert!(!worker.leaves(), "it has told of it");
        assert!(may_have_left(worker.epfd, worker.number() + 1), "nothing is known of it");
        assert!(may_have_left(-1, worker.number()));
    }

    /// A thread that the connection has woken finds no watch.
    #[test]
    fn a_set_that_a_thread_is_in_may_have_left_a_connection() {
        let _alone = alone();
        let worker = Worker::new();
        thread::scope(|scope| {
            let sleeper = scope.spawn(|| worker.wait(8, 300));
            while !worker.set().set.has_remote_waiter() {
                thread::sleep(Duration::from_millis(1));
            }
            assert!(worker.leaves());
            assert!(!worker.set().rotation.has_baton(), "it would wake the sleeper");
            assert_eq!(sleeper.join().expect("it ends"), 0);
        });
        for is_noted in [true, false] {
            worker.ctl(EPOLL_CTL_ADD, worker.number());
            assert_eq!(worker.leaves(), is_noted, "the sleeper may have been woken by one");
            worker.ctl(EPOLL_CTL_ADD, worker.number());
            assert_eq!(worker.wait(8, 1), 0, "and this one has looked");
            worker.ctl(EPOLL_CTL_DEL, worker.number());
        }
    }

    /// It has used up the wake, and its buffer had no room to tell of it.
    #[test]
    fn what_found_no_room_may_be_left() {
        let _alone = alone();
        let mut worker = Worker::new();
        for capacity in [1, 8] {
            worker.connect();
            std::io::Write::write_all(&mut &worker.clients[0], b"x").expect("written");
            assert!(worker.wait(capacity, -1) > 0);
            assert_eq!(worker.leaves(), capacity == 1);
            worker.ctl(EPOLL_CTL_ADD, worker.number());
        }
    }

    /// The note of it was taken by whichever listener was removed first.
    #[test]
    fn what_is_left_of_one_listener_outlasts_the_removal_of_another() {
        let _alone = alone();
        let mut worker = Worker::new();
        let second = TcpListener::bind("127.0.0.1:0").expect("a port");
        listeners::forget(second.as_raw_fd());
        worker.ctl(EPOLL_CTL_ADD, second.as_raw_fd());
        assert_eq!(worker.wait(8, 1), 0);
        worker.connect();
        std::io::Write::write_all(&mut &worker.clients[0], b"x").expect("written");
        assert_eq!(worker.wait(1, -1), 1);
        worker.ctl(EPOLL_CTL_DEL, second.as_raw_fd());
        assert!(may_have_left(worker.epfd, second.as_raw_fd()));
        assert!(worker.leaves());
    }

    /// A listener that was added again had the baton's watch made anew, which reported what had
    /// been passed long ago; and what is known of its number was asked again.
    #[test]
    fn a_listener_that_comes_back_finds_all_as_it_was() {
        let _alone = alone();
        let worker = Worker::new();
        baton::pass();
        worker.wait(8, 1);
        let look = || {
            let mut events = [NOTHING; 8];
            sys::epoll_pwait(worker.epfd, events.as_mut_ptr(), 8, 0, ptr::null(), 0)
        };
        assert_eq!(look(), Ok(0));
        let known = listeners::generation();
        worker.ctl(EPOLL_CTL_DEL, worker.number());
        assert!(worker.set().rotation.has_baton());
        worker.ctl(EPOLL_CTL_ADD, worker.number());
        assert_eq!((look(), listeners::generation()), (Ok(0), known));
    }

    /// The baton would go on waking a worker that cannot accept.
    #[test]
    fn a_set_without_listeners_sleeps_without_the_baton() {
        let _alone = alone();
        let worker = Worker::new();
        worker.ctl(EPOLL_CTL_DEL, worker.number());
        assert!(worker.set().rotation.has_baton());
        assert_eq!(worker.wait(8, 1), 0);
        assert!(!worker.set().rotation.has_baton());
        worker.ctl(EPOLL_CTL_ADD, worker.number());
        assert_eq!(worker.wait(8, 1), 0);
        assert!(worker.set().rotation.has_baton());
    }
}
